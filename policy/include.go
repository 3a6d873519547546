package policy

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// A pattern of the key include, and where it stands.
type pattern struct {
	text string
	at   place
}

// failed returns an error about what the pattern names, with the place of the pattern.
func (p pattern) failed(err error) error {
	return fmt.Errorf("%s:%d:%d: daemon.include: %w", p.at.file, p.at.line, p.at.column, err)
}

// A piece is a file that a pattern names.
type piece struct {
	path string
	by   pattern
}

// included returns the key include of a file. It leaves out what is invalid, which Parse reports.
func included(file File) (patterns []pattern) {
	if !strings.Contains(file.Text, "include") { // most policies are one file, and are parsed once
		return nil
	}
	data := withoutBOM([]byte(file.Text))
	r := newReport(file.Name, data)
	root, _ := parseNodes(r, data)
	section := root.get("daemon")
	if section == nil || section.get("include") == nil {
		return nil
	}
	n := section.get("include")
	for _, one := range append([]*node{n}, n.items...) {
		if _, err := parseInclude(one.text); one.kind == aString && err == nil {
			patterns = append(patterns, pattern{one.text, r.place(one.at)})
		}
	}
	return patterns
}

// expandAll returns the files that patterns name: pattern by pattern, each in the order of names.
// A file that several patterns name comes once, and the main file not at all.
func expandAll(main string, patterns []pattern) (pieces []piece, err error) {
	seen := map[string]bool{filepath.Clean(main): true}
	for _, p := range patterns {
		paths, err := expand(beside(main, p.text))
		if err != nil {
			return nil, p.failed(err)
		}
		for _, path := range paths {
			if !seen[path] {
				seen[path] = true
				pieces = append(pieces, piece{path, p})
			}
		}
	}
	return pieces, nil
}

// expand returns the files that a pattern names, in the order of names. A name that begins with a
// dot, such as that of a file that an editor has open, matches only a pattern that begins with one.
// Unlike filepath.Glob it returns an error if it cannot read a directory: the limits in there must
// not get lost.
func expand(pattern string) (paths []string, err error) {
	if !strings.ContainsAny(pattern, `*?[\\`) {
		return []string{pattern}, nil
	}
	dirs, err := expand(filepath.Dir(pattern))
	if err != nil {
		return nil, err
	}
	base := filepath.Base(pattern)
	for _, dir := range dirs {
		entries, err := os.ReadDir(dir) // in the order of names
		if err != nil && !isMissing(err) {
			return nil, err
		}
		for _, e := range entries {
			hidden := strings.HasPrefix(e.Name(), ".") && !strings.HasPrefix(base, ".")
			if matches, _ := filepath.Match(base, e.Name()); matches && !hidden {
				paths = append(paths, filepath.Join(dir, e.Name()))
			}
		}
	}
	return paths, nil
}

// isMissing reports whether a directory does not exist, or is a file.
func isMissing(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

// include adds the sections of a piece to those of the main file, which is called name. A section
// is in one file, and [daemon] is in the main one.
func (n *node) include(r *report, piece *node, name string) {
	for _, e := range piece.keys {
		ours := n.get(e.name)
		switch {
		case e.name == "daemon":
			r.wrongAt(e.value.at, "daemon", "a file that another one includes cannot have this section", "write it into "+name)
		case ours == nil:
			n.put(nameOf(e), e.value)
		case ours.kind == aList && e.value.kind == aList:
			ours.items = append(ours.items, e.value.items...)
		case ours.kind == aTable && e.value.kind == aTable:
			ours.includeNamed(r, e)
		default:
			r.definedTwice(e.name, ours, e)
		}
	}
}

// includeNamed adds the sections of a piece that have names, such as [class.NAME].
func (n *node) includeNamed(r *report, section entry) {
	for _, e := range section.value.keys {
		if ours := n.get(e.name); ours != nil {
			r.definedTwice(join(section.name, e.name), ours, e)
			continue
		}
		n.put(nameOf(e), e.value)
	}
}

func nameOf(e entry) name { return name{e.name, e.at} }

// definedTwice reports that a piece has what another file has already.
func (r *report) definedTwice(key string, ours *node, e entry) {
	r.wrongAt(e.value.at, key, fmt.Sprintf("it is defined already, %v", r.place(ours.at)), "each name is defined once in all files")
}
