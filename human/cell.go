package human

import (
	"strings"
	"unicode"
)

// wide are the characters that take two columns of a terminal (Unicode Standard Annex #11: wide and
// full-width, in blocks).
var wide = &unicode.RangeTable{
	R16: []unicode.Range16{
		{Lo: 0x1100, Hi: 0x115f, Stride: 1}, {Lo: 0x231a, Hi: 0x231b, Stride: 1}, {Lo: 0x2e80, Hi: 0x303e, Stride: 1},
		{Lo: 0x3041, Hi: 0xa4cf, Stride: 1}, {Lo: 0xa960, Hi: 0xa97f, Stride: 1}, {Lo: 0xac00, Hi: 0xd7a3, Stride: 1},
		{Lo: 0xf900, Hi: 0xfaff, Stride: 1}, {Lo: 0xfe30, Hi: 0xfe6f, Stride: 1}, {Lo: 0xff01, Hi: 0xff60, Stride: 1},
		{Lo: 0xffe0, Hi: 0xffe6, Stride: 1},
	},
	R32: []unicode.Range32{
		{Lo: 0x16fe0, Hi: 0x18aff, Stride: 1}, {Lo: 0x1b000, Hi: 0x1b2ff, Stride: 1}, {Lo: 0x1f300, Hi: 0x1f64f, Stride: 1},
		{Lo: 0x1f680, Hi: 0x1f6ff, Stride: 1}, {Lo: 0x1f900, Hi: 0x1faff, Stride: 1}, {Lo: 0x20000, Hi: 0x3fffd, Stride: 1},
	},
}

// widthOf returns how many columns of a terminal a character takes.
func widthOf(r rune) int {
	switch {
	case r < 0x300:
		return 1
	case unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf):
		return 0
	case unicode.Is(wide, r):
		return 2
	}
	return 1
}

// isPlain reports whether a text has only printable ASCII, as nearly all have.
func isPlain(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] >= 0x7f {
			return false
		}
	}
	return true
}

// Width returns how many columns of a terminal a clean text takes.
func Width(s string) (n int) {
	if isPlain(s) {
		return len(s)
	}
	for _, r := range s {
		n += widthOf(r)
	}
	return n
}

// Clean returns a text whose characters do nothing to a terminal but appear: "�" stands for each
// control character, and for each that changes the direction of writing or ends a line.
func Clean(s string) string {
	if isPlain(s) {
		return s
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.In(r, unicode.Bidi_Control, unicode.Zl, unicode.Zp) {
			return unicode.ReplacementChar
		}
		return r
	}, s)
}

// Cut returns a clean text of at most so many columns. "…" stands for what it cuts off.
func Cut(s string, width int) string {
	s = Clean(s)
	if Width(s) <= width {
		return s
	}
	n := 0
	for i, r := range s {
		if n += widthOf(r); n > width-1 {
			return s[:i] + "…"[:min(max(width, 0), 1)*len("…")]
		}
	}
	return s
}

// CutBefore returns a clean text and its end in at most so many columns. It cuts the text, and the
// end only if that has no room alone.
func CutBefore(text, end string, width int) string {
	end = Cut(end, width)
	return Cut(text, width-Width(end)) + end
}

// Fit returns a clean text padded or cut to a width.
func Fit(s string, width int, right bool) string {
	s = Cut(s, width)
	pad := strings.Repeat(" ", max(width-Width(s), 0))
	if right {
		return pad + s
	}
	return s + pad
}

// Wrap returns the words of a text in lines of a width. The first line begins with first, the
// others with rest.
func Wrap(text string, width int, first, rest string) string {
	var b strings.Builder
	b.WriteString(first)
	column := Width(first)
	for i, word := range strings.Fields(text) {
		word = Clean(word)
		n := Width(word)
		switch {
		case i == 0:
		case column+1+n > width:
			b.WriteString("\n" + rest)
			column = Width(rest)
		default:
			b.WriteByte(' ')
			column++
		}
		b.WriteString(word)
		column += n
	}
	return b.String()
}
