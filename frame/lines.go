package frame

import "bytes"

// maxLine bounds a line with its end.
const maxLine = 64 << 10

func newLines() *silent {
	return &silent{
		up:   gatherer{protocol: Lines, format: &lines{}, open: true},
		down: gatherer{protocol: Lines, format: &lines{}, open: true},
	}
}

// lines end with LF, and so may what the last of them leaves out. An empty one,
// or one that is only CR, costs nothing; it stays where it is, since it may be
// what ends a record.
type lines struct {
	seen int // of the line, bytes without LF
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
