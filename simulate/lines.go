package simulate

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// lines reads a file line by line, without the empty lines.
type lines struct {
	in   *bufio.Reader
	line int // the number of the last line, from 1
}

var errLong = errors.New("the line is too long")

func newLines(in io.Reader) *lines { return &lines{in: bufio.NewReaderSize(in, maxLine)} }

// next returns the next line, which is valid until the next call; io.EOF after the last.
func (l *lines) next() ([]byte, error) {
	for {
		text, err := l.in.ReadSlice('\n')
		l.line++
		if err == bufio.ErrBufferFull {
			return nil, errLong
		}
		if text = bytes.TrimSpace(text); len(text) > 0 {
			return text, nil
		}
		if err != nil {
			return nil, err
		}
	}
}
