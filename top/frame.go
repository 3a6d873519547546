package top

import (
	"strings"
	"time"

	"shaper/human"
)

// A style says how text looks.
type style int

const (
	plain   style = iota
	bold          // titles
	faint         // what may be overlooked
	warm          // something waits
	hot           // something is wrong
	marked        // the class under the cursor
	nStyles       // how many there are
)

// span is text of one style.
type span struct {
	text  string
	style style
}

// line is a line of a frame.
type line []span

// text returns a line of one style.
func text(s string, of style) line { return line{{s, of}} }

// cut returns a line of at most so many columns, without anything that a terminal would obey.
func (l line) cut(width int) (out line) {
	for _, s := range l {
		s.text = human.Cut(s.text, width)
		if width -= human.Width(s.text); s.text != "" {
			out = append(out, s)
		}
	}
	return out
}

// String returns the text of a line.
func (l line) String() string {
	var b strings.Builder
	for _, s := range l {
		b.WriteString(s.text)
	}
	return b.String()
}

// frame is what a terminal shows: as many lines as it has.
type frame []line

// cropped returns a frame of a size.
func (f frame) cropped(width, height int) frame {
	out := make(frame, height)
	for i := range min(height, len(f)) {
		out[i] = f[i].cut(width)
	}
	return out
}

// paragraph returns a text in lines of a width.
func paragraph(s string, width int, of style) (all []line) {
	for l := range strings.Lines(s) {
		indent := l[:len(l)-len(strings.TrimLeft(l, " "))]
		for part := range strings.SplitSeq(human.Wrap(l, width, indent, indent+"  "), "\n") {
			all = append(all, text(part, of))
		}
	}
	return all
}

// clock returns a time, with the date if it is not of today.
func clock(t, now time.Time) string {
	t, now = t.Local(), now.Local()
	if t.YearDay() == now.YearDay() && t.Year() == now.Year() {
		return t.Format("15:04:05")
	}
	return t.Format("2006-01-02 15:04")
}
