package main

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"time"
)

// Bounds for a log that takes nothing: the lines held in memory, and how long close waits.
const (
	logLines    = 1024
	logPatience = time.Second
)

// logWriter writes lines to a log that may be slow or stall, such as a pipe that nobody reads. So
// logging never delays sessions. Lines beyond logLines are lost, and the log says how many.
// Several goroutines may write at the same time.
type logWriter struct {
	lines chan []byte
	lost  chan int      // always holds one number: the lines lost since the log last said so
	done  chan struct{} // closed when run has returned
}

// newLogWriter returns a logWriter to w. With says, which writes to w too, it says that lines were lost. The caller closes it.
func newLogWriter(w io.Writer, says slog.Handler) *logWriter {
	l := &logWriter{lines: make(chan []byte, logLines), lost: make(chan int, 1), done: make(chan struct{})}
	l.lost <- 0
	go l.run(w, says)
	return l
}

func (l *logWriter) run(w io.Writer, says slog.Handler) {
	defer close(l.done)
	for line := range l.lines {
		w.Write(line) // there is nowhere to report a failure
		n := <-l.lost
		l.lost <- 0
		if n > 0 {
			r := slog.NewRecord(time.Now(), slog.LevelWarn, "lines of the log were lost: it was not written fast enough", 0)
			r.AddAttrs(slog.Int("lines", n))
			says.Handle(context.Background(), r) // whatever the level of the log: lines of that level may be lost
		}
	}
}

// Write implements io.Writer. It never waits, and never fails.
func (l *logWriter) Write(line []byte) (int, error) {
	select {
	case l.lines <- bytes.Clone(line):
	default:
		l.lost <- <-l.lost + 1
	}
	return len(line), nil
}

// close writes the remaining lines, for at most logPatience. Nobody may call Write during or after
// it.
func (l *logWriter) close() {
	close(l.lines)
	select {
	case <-l.done:
	case <-time.After(logPatience):
	}
}
