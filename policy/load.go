package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"shaper/unit"
)

// Load reads a policy strictly: the file at path, and the pieces that it includes. It returns the
// policy, and warnings of what is legal but probably not meant.
//
// If the files are not a valid policy, the error is of type [Errors] and holds every mistake.
// If a file cannot be read, the error is that of package os. It is an error if a file changes
// while the policy is read.
func Load(path string) (p *Policy, warnings Errors, err error) {
	files, err := Read(path)
	if err != nil {
		return nil, nil, err
	}
	return LoadFiles(files)
}

// LoadFiles is Load for files that Read has returned.
func LoadFiles(files []File) (p *Policy, warnings Errors, err error) {
	if p, warnings, err = ParseFiles(files); err == nil {
		warnings = append(warnings, p.openKeys()...)
		warnings.sort(p.Files())
	}
	return p, warnings, err
}

// LoadClasses is Load for a program that uses nothing but the classes of a file: listeners and devices
// may be missing.
func LoadClasses(path string) (*Policy, error) {
	files, err := Read(path)
	if err != nil {
		return nil, err
	}
	p, _, err := parseFiles(files, (*checker).someClass)
	return p, err
}

// Parse is Load for the content of a file that the caller has read. Errors call the file
// name, and relative paths in the policy begin at the directory of name. Parse does not look
// at other files, so the policy has no pieces.
func Parse(name string, data []byte) (p *Policy, warnings Errors, err error) {
	return ParseFiles([]File{{name, string(data)}})
}

// ParseFiles is Parse for a policy with pieces. The first file is the one that includes the
// others.
func ParseFiles(files []File) (p *Policy, warnings Errors, err error) {
	return parseFiles(files, (*checker).someTraffic)
}

// parseFiles is ParseFiles for a policy that must have something.
func parseFiles(files []File, must func(*checker)) (p *Policy, warnings Errors, err error) {
	if last := files[len(files)-1]; sizeOf(files) > maxFile {
		return nil, nil, errTooLarge(last.Name)
	}
	p = &Policy{Path: files[0].Name, Hash: hashOf(files), Daemon: DefaultDaemon()}
	for _, piece := range files[1:] {
		p.Pieces = append(p.Pieces, piece.Name)
	}
	r, root, whole := parseSections(files)
	p.decode(r, root, whole)
	var c *checker
	if whole { // else a name that seems missing may be on a line that is not TOML
		c = check(r, p)
		must(c)
	}
	if len(r.errs) > 0 {
		r.errs.sort(p.Files())
		return nil, nil, r.errs
	}
	p.resolveQuiet()
	p.notePlaces(r)
	p.besideFile(p.Path)
	warner{c}.warnAll()
	r.warnings.sort(p.Files())
	return p, r.warnings, nil
}

// resolveQuiet sets the Quieted recipients of each class: its own, and those of the classes above.
func (p *Policy) resolveQuiet() {
	classes := byName(p.Classes, className)
	for i := range p.Classes {
		p.Classes[i].resolveQuiet(classes)
	}
}

// resolveQuiet sets and returns Quieted. A class without quiet hours of its own shares those of its
// parent. A path has few classes, so the recursion ends soon.
func (c *Class) resolveQuiet(classes map[string]*Class) QuietGroups {
	switch {
	case c == nil:
		return nil
	case len(c.Quiet) == 0:
		c.Quieted = classes[c.Parent].resolveQuiet(classes)
	case c.Quieted == nil:
		var all []Quiet
		for x := c; x != nil; x = classes[x.Parent] {
			all = append(all, x.Quiet...)
		}
		c.Quieted = newQuietGroups(all)
	}
	return c.Quieted
}

// Written returns the keys that the files of a policy contain, such as "class.acme.rate", and the
// text of their values. That of a list or a table is "".
func Written(files []File) map[string]string {
	_, root, _ := parseSections(files)
	written := map[string]string{}
	for _, section := range root.keys {
		section.value.noteWritten(written, section.name)
	}
	return written
}

// noteWritten adds a key, and those beneath it.
func (n *node) noteWritten(written map[string]string, key string) {
	written[key] = n.text
	for _, e := range n.keys {
		e.value.noteWritten(written, join(key, e.name))
	}
}

// parseSections returns the sections of all files in one table, and whether all files are whole
// and TOML.
func parseSections(files []File) (r *report, root *node, whole bool) {
	r, whole = &report{at: map[string]int{}, bad: map[string]bool{}}, true
	for i, file := range files {
		data := withoutBOM([]byte(file.Text))
		r.add(file.Name, data)
		checkEnd(r, data)
		sections, isTOML := parseNodes(r, data)
		if whole = whole && isTOML; i == 0 {
			root = sections
		} else {
			root.include(r, sections, files[0].Name)
		}
	}
	return r, root, whole && r.sound("end")
}

func sizeOf(files []File) (size unit.Size) {
	for _, file := range files {
		size += unit.Size(len(file.Text))
	}
	return size
}

// hashOf returns Policy.Hash.
func hashOf(files []File) string {
	sum := sha256.Sum256([]byte(files[0].Text))
	for _, piece := range files[1:] {
		of := sha256.Sum256([]byte(piece.Text))
		sum = sha256.Sum256(slices.Concat(sum[:], of[:]))
	}
	return hex.EncodeToString(sum[:6])
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
		if len(data) > 0 && data[len(data)-1] != '\n' && !isUTF16(data) {
			r.wrongAt(r.end, "end", "the last line has no newline, so the file may have been cut short",
				"a policy ends with a newline")
		}
		return
	}
	end := "# " + m[1]
	switch i := slices.Index(lines, end); {
	case i < 0:
		r.wrongAt(r.end, "end", fmt.Sprintf("the file was cut short: its first line announces %q as the last", end),
			fmt.Sprintf("the last line is %q", end))
	case i < len(lines)-1:
		r.wrongAt(r.last().lines[i], "end", fmt.Sprintf("%q is not the last line", end), "what follows belongs before it")
	}
}
