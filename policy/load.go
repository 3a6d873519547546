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

// maxFile is the largest size of a policy file. It has room for hundreds of thousands of
// prefixes, and protects against a log file or /dev/zero.
const maxFile = 16 * unit.MiB

// Load reads a policy file strictly. It returns the policy, and warnings of what is legal but
// probably not meant.
//
// If the file is not a valid policy, the error is of type [Errors] and holds every mistake.
// If the file cannot be read, the error is that of package os. It is an error if the file
// changes while it is read.
func Load(path string) (p *Policy, warnings Errors, err error) {
	data, err := Read(path)
	if err != nil {
		return nil, nil, err
	}
	return parseWithFiles(path, data)
}

// LoadFrom is Load for a stream, such as the standard input. Errors call it name.
func LoadFrom(name string, in io.Reader) (p *Policy, warnings Errors, err error) {
	data, err := ReadFrom(name, in)
	if err != nil {
		return nil, nil, err
	}
	return parseWithFiles(name, data)
}

// parseWithFiles is Parse, and also looks at the files that the policy names.
func parseWithFiles(name string, data []byte) (p *Policy, warnings Errors, err error) {
	if p, warnings, err = Parse(name, data); err == nil {
		warnings = append(warnings, p.openKeys()...)
		warnings.sort()
	}
	return p, warnings, err
}

// Parse is Load for the content of a file that the caller has read. Errors call the file
// name, and relative paths in the policy begin at the directory of name. Parse does not look
// at other files.
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
	if whole { // else a name that seems missing may be on a line that is not TOML
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

// Written returns the keys that a policy file contains, such as "class.acme.rate".
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

// withoutBOM returns a file without the byte order mark that some editors write. They do not
// count it as a column, and our errors do not either.
func withoutBOM(data []byte) []byte { return bytes.TrimPrefix(data, []byte("\ufeff")) }

// hashOf returns Policy.Hash.
func hashOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:6])
}

// Read returns the content of a policy file, for Parse. It is an error if the file changes
// meanwhile, or is too large. Then Read does not read all of it.
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

// ReadFrom is Read for a stream. If the stream is too large, the error calls it name.
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

// announcement matches a first line that announces the last one, like a here-document of a
// shell: the file that begins with "# shaper.toml <<END" ends with "# END".
var announcement = regexp.MustCompile(`^#.*<<([A-Za-z0-9_-]+)$`)

// checkEnd reports a file whose end is missing, for example because a disk was full. If the
// file is cut inside a line, its last newline is missing. If it is cut between two lines, it
// may be a valid policy; only a file that announces its last line is protected from that.
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
