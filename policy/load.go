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
	data = withoutMark(data)
	r := newReport(name, data)
	checkEnd(r, data)
	root, whole := parseTree(r, data)
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
	c.warnAll()
	r.warnings.sort()
	return p, r.warnings, nil
}

// Written returns the keys that a policy file gives, such as "class.acme.rate".
func Written(data []byte) map[string]bool {
	r := newReport("", withoutMark(data))
	root, whole := parseTree(r, withoutMark(data))
	new(Policy).decode(r, root, whole)
	keys := make(map[string]bool, len(r.at))
	for key := range r.at {
		keys[key] = true
	}
	return keys
}

// withoutMark returns a file without the byte order mark that some editors
// begin it with. They do not count it as a column, nor do our errors.
func withoutMark(data []byte) []byte { return bytes.TrimPrefix(data, []byte("\ufeff")) }

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
var announced = regexp.MustCompile(`^#.*<<([A-Za-z0-9_-]+)$`)

// checkEnd refuses a file of which the end is missing, as after a full disk.
// A cut inside a line shows at the newline that is missing. A cut between two
// lines leaves a valid policy with less in it, and only a file that announces
// its last line can be told from that.
func checkEnd(r *report, data []byte) {
	lines := strings.Split(strings.TrimRight(string(data), " \t\r\n"), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " \t\r")
	}
	m := announced.FindStringSubmatch(lines[0])
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

func quote(s string) string { return fmt.Sprintf("%q", s) }

// sections are the keys at the top of the file, and those of later versions.
var sections, laterSections = []string{"daemon", "class", "listener", "rule", "tc"}, []string{"fleet"}

// decode fills the policy from the tree of its file.
func (p *Policy) decode(r *report, root *node, whole bool) {
	for _, e := range root.keys {
		if err := known(e.name, sections, laterSections); err != nil {
			c := complaintOf(err)
			r.wrongAt(e.at, join("", e.name), c.problem, c.allowed)
			continue
		}
		r.at[e.name] = e.value.at
		switch e.name {
		case "daemon":
			if isTable(r, e.name, e.value, "[daemon]") {
				decode(r, e.name, e.value, &p.Daemon, daemonFields, whole)
			}
		case "class":
			p.Classes = decodeNamed(r, e, classFields, DefaultClass, whole)
		case "listener":
			p.Listeners = decodeNamed(r, e, listenerFields, newListener, whole)
			for i := range p.Listeners {
				p.Listeners[i].fillIn()
			}
		case "rule":
			p.decodeRules(r, e.value, whole)
		case "tc":
			p.decodeTC(r, e.value, whole)
		}
	}
}

// newListener leaves out what depends on the protocol, which is not known yet.
func newListener(name string) Listener {
	l := DefaultListener(name, TCP)
	l.IdleTimeout, l.HalfCloseTimeout = 0, 0
	return l
}

func (l *Listener) fillIn() {
	defaults := DefaultListener(l.Name, l.Protocol)
	if l.IdleTimeout == 0 {
		l.IdleTimeout = defaults.IdleTimeout
	}
	if l.HalfCloseTimeout == 0 {
		l.HalfCloseTimeout = defaults.HalfCloseTimeout
	}
	if l.LengthPrefix == "" && l.Protocol == ISO8583 {
		l.LengthPrefix = Binary2
	}
}

// decodeNamed reads the sections [class.NAME] or [listener.NAME].
func decodeNamed[T any](r *report, section entry, fields []field[T], defaults func(string) T, whole bool) (all []T) {
	header := "[" + section.name + ".NAME]"
	if !isTable(r, section.name, section.value, header) {
		return nil
	}
	for _, e := range section.value.keys {
		key := join(section.name, e.name)
		if !isName(e.name) || len(e.name) > 64 {
			r.wrongAt(e.at, key, quote(e.name)+" cannot be a name", "a name has at most 64 letters, digits, - and _")
			continue
		}
		r.at[key] = e.at
		if isTable(r, key, e.value, header) {
			one := defaults(e.name)
			decode(r, key, e.value, &one, fields, whole)
			all = append(all, one)
		}
	}
	return all
}

func (p *Policy) decodeRules(r *report, rules *node, whole bool) {
	if rules.kind != aList {
		r.wrong("rule", "it is "+string(rules.kind), "each rule begins with [[rule]]")
		return
	}
	for i, n := range rules.items {
		key := ruleKey(i)
		r.at[key] = n.at
		var rule Rule
		if isTable(r, key, n, "[[rule]]") {
			rule.Line, _ = r.position(n.at)
			decode(r, key, n, &rule, ruleFields, whole)
		}
		p.Rules = append(p.Rules, rule)
	}
}

// ruleKey names a rule as people count them.
func ruleKey(i int) string { return fmt.Sprintf("rule[%d]", i+1) }

// isTable reports whether a value is the table that it has to be.
func isTable(r *report, key string, n *node, header string) bool {
	if n.kind != aTable {
		r.wrong(key, "it is "+string(n.kind), "a section "+header)
	}
	return n.kind == aTable
}
