package main

import (
	"bytes"
	"fmt"
	"io"
	"time"
)

// Bounds of what a log that takes nothing holds up: lines in memory, and the end
// of the program.
const (
	logLines    = 1024
	logPatience = time.Second
)

// logWriter writes lines to a log that may be slow, or take nothing for a while,
// as a pipe that nobody reads: sessions are never held up by what is said of
// them. Lines beyond logLines are lost, and counted in the log.
type logWriter struct {
	lines chan []byte
	lost  chan int // holds how many lines were lost since that was said
	done  chan struct{}
}

func newLogWriter(w io.Writer) *logWriter {
	l := &logWriter{lines: make(chan []byte, logLines), lost: make(chan int, 1), done: make(chan struct{})}
	l.lost <- 0
	go l.run(w)
	return l
}

func (l *logWriter) run(w io.Writer) {
	defer close(l.done)
	for line := range l.lines {
		w.Write(line) // there is nowhere to report that it fails
		n := <-l.lost
		l.lost <- 0
		if n > 0 {
			fmt.Fprintf(w, "level=WARN msg=\"lines of the log were lost: it was not written fast enough\" lines=%d\n", n)
		}
	}
}

// Write implements io.Writer, and never waits.
func (l *logWriter) Write(line []byte) (int, error) {
	select {
	case l.lines <- bytes.Clone(line):
	default:
		l.lost <- <-l.lost + 1
	}
	return len(line), nil
}

// close writes what is left, as far as the log takes it within logPatience.
// Nobody may write any more.
func (l *logWriter) close() {
	close(l.lines)
	select {
	case <-l.done:
	case <-time.After(logPatience):
	}
}
