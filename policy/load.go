package policy

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"

	"shaper/unit"
)

// maxFile bounds a policy file: room for hundreds of thousands of prefixes,
// and far from what a log file or /dev/zero would cost.
const maxFile = 16 * unit.MiB

// Load reads a policy file strictly. It returns the policy and what is legal
// in it but probably not meant.
//
// A file that is not a valid policy gives [Errors], which hold every mistake
// of the file. A file that cannot be read gives the error of package os; one
// that changed while it was read is refused.
func Load(path string) (p *Policy, warnings Errors, err error) {
	data, err := Read(path)
	if err != nil {
		return nil, nil, err
	}
	return parseWithFiles(path, data)
}

// LoadFrom is Load for what is no file, as the standard input. The name stands for it in
// errors.
func LoadFrom(name string, in io.Reader) (p *Policy, warnings Errors, err error) {
	data, err := ReadFrom(name, in)
	if err != nil {
		return nil, nil, err
	}
	return parseWithFiles(name, data)
}

// parseWithFiles is Parse, and looks at the files that the policy names, too.
func parseWithFiles(name string, data []byte) (p *Policy, warnings Errors, err error) {
	if p, warnings, err = Parse(name, data); err == nil {
		warnings = append(warnings, p.openKeys()...)
		warnings.sort()
	}
	return p, warnings, err
}

// Parse is Load for a file that has been read already. The name stands for the
// file in errors, and relative paths in the policy start at its directory.
func Parse(name string, data []byte) (p *Policy, warnings Errors, err error) {
	if unit.Size(len(data)) > maxFile {
		return nil, nil, tooLarge(name)
	}
	p = &Policy{Path: name, Hash: hashOf(data), Daemon: DefaultDaemon()}
	data = withoutBOM(data)
	r := newReport(name, data)
	checkEnd(r, data)
	root, whole := parseNodes(r, data)
	whole = whole && r.sound("end")
	p.decode(r, root, whole)
	var c *checker
	if whole { // else what is missing may stand in what was not understood
		c = check(r, p)
	}
	if len(r.errs) > 0 {
		r.errs.sort()
		return nil, nil, r.errs
	}
	p.notePlaces(r)
	p.besideFile(name)
	warner{c}.warnAll()
	r.warnings.sort()
	return p, r.warnings, nil
}

// Written returns the keys that a policy file gives, such as "class.acme.rate".
func Written(data []byte) map[string]bool {
	r := newReport("", withoutBOM(data))
	root, whole := parseNodes(r, withoutBOM(data))
	new(Policy).decode(r, root, whole)
	keys := make(map[string]bool, len(r.at))
	for key := range r.at {
		keys[key] = true
	}
	return keys
}

// withoutMark returns a file without the byte order mark that some editors
// begin it with. They do not count it as a column, nor do our errors.
func withoutBOM(data []byte) []byte { return bytes.TrimPrefix(data, []byte("\ufeff")) }

func hashOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:6])
}

// Read returns the content of a policy file that nobody wrote to meanwhile, for Parse.
// Its errors are those of Load: of one that is too large it reads no more than that.
func Read(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	before, err := f.Stat()
	if err != nil {
		return nil, err
	}
	data, err := ReadFrom(path, f)
	if err != nil {
		return nil, err
	}
	after, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !before.Mode().IsRegular() { // a pipe has no size to compare
		return data, nil
	}
	if after.Size() != int64(len(data)) || changed(before, after) {
		return nil, &fs.PathError{Op: "read", Path: path,
			Err: errors.New("the file changed while it was read; write a new one beside it and rename it")}
	}
	return data, nil
}

// ReadFrom is Read for what is no file.
func ReadFrom(name string, in io.Reader) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(in, int64(maxFile)+1))
	if err == nil && unit.Size(len(data)) > maxFile {
		return nil, tooLarge(name)
	}
	return data, err
}

func tooLarge(name string) Errors {
	return Errors{{File: name, Line: 1, Column: 1, Key: "syntax",
		Problem: "the file is larger than " + maxFile.String(), Allowed: "a policy is at most that large"}}
}

func changed(before, after fs.FileInfo) bool {
	return before.Size() != after.Size() || !before.ModTime().Equal(after.ModTime())
}

// announced matches a first line that says how the file ends, as a shell's
// here-document does: "# shaper.toml <<END" is complete down to "# END".
var announcement = regexp.MustCompile(`^#.*<<([A-Za-z0-9_-]+)$`)

// checkEnd refuses a file of which the end is missing, as after a full disk.
// A cut inside a line shows at the newline that is missing. A cut between two
// lines leaves a valid policy with less in it, and only a file that announces
// its last line can be told from that.
func checkEnd(r *report, data []byte) {
	lines := strings.Split(strings.TrimRight(string(data), " \t\r\n"), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " \t\r")
	}
	m := announcement.FindStringSubmatch(lines[0])
	if m == nil {
		if len(data) > 0 && data[len(data)-1] != '\n' {
			r.wrongAt(len(data), "end", "the last line has no newline, so the file may have been cut short",
				"a policy ends with a newline")
		}
		return
	}
	end := "# " + m[1]
	switch i := slices.Index(lines, end); {
	case i < 0:
		r.wrongAt(len(data), "end", fmt.Sprintf("the file was cut short: its first line announces %q as the last", end),
			fmt.Sprintf("the last line is %q", end))
	case i < len(lines)-1:
		r.wrongAt(r.lines[i], "end", fmt.Sprintf("%q is not the last line", end), "what follows belongs before it")
	}
}
