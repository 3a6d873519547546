package top

import (
	"strconv"
	"strings"

	"shaper/human"
)

// Control sequences (ECMA-48, and the private modes of xterm). A terminal that does not know a mode
// ignores it.
const (
	enterScreen = "\x1b[?1049h\x1b[?25l\x1b[?7l" // the alternate screen, without a cursor, without wrapping
	leaveScreen = "\x1b[0m\x1b[?7h\x1b[?25h\x1b[?1049l"
	beginUpdate = "\x1b[?2026h" // show nothing until the end of the update
	endUpdate   = "\x1b[?2026l"
	clearLine   = "\x1b[K"
	clearScreen = "\x1b[0m\x1b[2J"
)

// The renditions of the styles (SGR), with colours and without.
var (
	colours = [nStyles]string{bold: "\x1b[1m", faint: "\x1b[2m", warm: "\x1b[33m", hot: "\x1b[1;31m", marked: "\x1b[7m"}
	noColor = [nStyles]string{bold: "\x1b[1m", faint: "", warm: "\x1b[1m", hot: "\x1b[1m", marked: "\x1b[7m"}
)

// screen knows what a terminal shows.
type screen struct {
	looks [nStyles]string
	width int      // its columns
	shown []string // its lines
}

// forget makes the next frame a whole one, since the terminal may show anything.
func (s *screen) forget() { s.shown = nil }

// draw returns what turns what the terminal shows into a frame, for one write; nil if nothing has
// changed.
func (s *screen) draw(f frame) []byte {
	var out []byte
	if len(s.shown) != len(f) {
		out = append(out, clearScreen...)
		s.shown = make([]string, len(f))
	}
	for i, l := range f {
		text := s.render(l)
		if text == s.shown[i] {
			continue
		}
		s.shown[i] = text
		out = append(out, "\x1b["+strconv.Itoa(i+1)+";1H"...)
		if out = append(out, text...); human.Width(l.String()) < s.width { // else the cursor is on the last column, which stays
			out = append(out, clearLine...)
		}
	}
	if out == nil {
		return nil
	}
	return append(append([]byte(beginUpdate), out...), endUpdate...)
}

// render returns a line with its renditions.
func (s *screen) render(l line) string {
	var b strings.Builder
	for _, one := range l {
		look := s.looks[one.style]
		b.WriteString(look + one.text)
		if look != "" {
			b.WriteString("\x1b[0m")
		}
	}
	return b.String()
}
