package policy

import (
	"errors"
	"slices"
	"strings"
	"unicode/utf8"
)

// Format returns a file of a policy in the one form that `shaper fmt` writes. It keeps all
// comments, the order of everything, and the breaks between lines. It sets spaces, quotes and
// blank lines, and aligns values and comments that stand in adjacent lines. The result means the
// same as the file. If the file is not TOML, or its end is missing, the error is of type [Errors].
func Format(file File) (string, error) {
	r, before, _ := parseSections([]File{file})
	if len(r.errs) > 0 {
		return "", r.errs
	}
	was := strings.TrimPrefix(file.Text, "\ufeff")
	s := scanner{was}
	text := layOut(s.lines())
	if announces(text) != announces(was) {
		text = "\n" + text // a comment must not become an announcement of the last line
	}
	r, after, _ := parseSections([]File{{file.Name, text}})
	if len(r.errs) > 0 || !before.equal(after) {
		return "", errors.New(file.Name + ": shaper cannot format this file without changing what it means")
	}
	return text, nil
}

// announces reports whether the first line of a file announces the last one.
func announces(text string) bool {
	first, _, _ := strings.Cut(text, "\n")
	return announcement.MatchString(strings.TrimRight(first, " \t\r"))
}

// equal reports whether two values are the same, with the keys of tables in the same order.
func (n *node) equal(m *node) bool {
	return n.kind == m.kind && n.text == m.text &&
		slices.EqualFunc(n.items, m.items, (*node).equal) &&
		slices.EqualFunc(n.keys, m.keys, func(a, b entry) bool { return a.name == b.name && a.value.equal(b.value) })
}

// A line is a line of a file, or a key whose value takes several lines.
type line struct {
	header  string // "[class.acme]"
	key     string
	value   string
	comment string
}

func (l line) isBlank() bool { return l == line{} }

// aligns reports whether the line is aligned with adjacent lines.
func (l line) aligns() bool { return l.key != "" && !strings.Contains(l.value, "\n") }

// layOut prints lines. One blank line is before each section, and nowhere are two.
func layOut(lines []line) string {
	var b strings.Builder
	lines = spaced(lines)
	for len(lines) > 0 {
		n := 1
		for n < len(lines) && lines[0].aligns() && lines[n].aligns() {
			n++
		}
		writeBlock(&b, lines[:n])
		lines = lines[n:]
	}
	return b.String()
}

// spaced returns the lines with the blank ones where they belong.
func spaced(lines []line) (all []line) {
	for i, l := range lines {
		switch last := len(all) - 1; {
		case l.isBlank() && (last < 0 || all[last].isBlank()):
			continue
		case last >= 0 && !all[last].isBlank() && beginsSection(lines[i:]) && !isComment(all[last]):
			all = append(all, line{})
		}
		all = append(all, l)
	}
	if last := len(all) - 1; last >= 0 && all[last].isBlank() {
		all = all[:last]
	}
	return all
}

// beginsSection reports whether the lines begin with a header, or with comments above one.
func beginsSection(lines []line) bool {
	i := slices.IndexFunc(lines, func(l line) bool { return !isComment(l) })
	return i >= 0 && lines[i].header != ""
}

func isComment(l line) bool { return l.comment != "" && l == line{comment: l.comment} }

// writeBlock prints lines that are aligned with each other, or a single line.
func writeBlock(b *strings.Builder, lines []line) {
	keys, whole := 0, 0
	for _, l := range lines {
		keys = max(keys, utf8.RuneCountInString(l.key))
	}
	texts := make([]string, len(lines))
	for i, l := range lines {
		if texts[i] = l.header; l.key != "" {
			texts[i] = pad(l.key, keys) + " = " + l.value
		}
		whole = max(whole, utf8.RuneCountInString(texts[i]))
	}
	for i, l := range lines {
		text := texts[i]
		if l.comment != "" && text != "" {
			text = pad(text, whole) + "  "
		}
		b.WriteString(text + l.comment + "\n")
	}
}

// pad appends spaces to a text of one line until it has a width.
func pad(text string, width int) string {
	if strings.Contains(text, "\n") {
		return text
	}
	return text + strings.Repeat(" ", width-utf8.RuneCountInString(text))
}
