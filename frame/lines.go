package frame

import "bytes"

// maxLine bounds a line, with the LF at its end.
const maxLine = 64 << 10

func newLines() *silent {
	return &silent{
		up:   gatherer{protocol: Lines, format: &lines{}, open: true},
		down: gatherer{protocol: Lines, format: &lines{}, open: true},
	}
}

// lines is the format of lines. A line ends with LF; the last one may end with the stream. A
// line that is empty, or only a CR, costs nothing but keeps its place, because it may end a
// record.
type lines struct {
	seen int // bytes of the line in which no LF was found
}

func (l *lines) length(p []byte) (int, Reason) {
	i := bytes.IndexByte(p[l.seen:], '\n')
	n := l.seen + i + 1
	if i < 0 {
		n = len(p) + 1
		l.seen = len(p)
	}
	if n > maxLine {
		return 0, TooLong
	}
	return n, fine
}

func (l *lines) describe(p []byte, m *Message) {
	l.seen = 0
	*m = Message{Kind: Counted, Cost: 1}
	if text := bytes.TrimSuffix(p, []byte("\n")); len(text) == 0 || string(text) == "\r" {
		*m = Message{Kind: Control, InOrder: true}
	}
}
