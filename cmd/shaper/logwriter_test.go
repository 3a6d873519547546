package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// gated is a log that takes nothing until it opens.
type gated struct {
	open chan struct{}
	bytes.Buffer
}

func (g *gated) Write(p []byte) (int, error) {
	<-g.open
	return g.Buffer.Write(p)
}

// A log that takes nothing delays nobody. The lines that it could not take are counted, and the
// others arrive in order.
func TestLogThatTakesNothing(t *testing.T) {
	g := &gated{open: make(chan struct{})}
	l := newLogWriter(g, slog.NewTextHandler(g, nil))
	const written = 3 * logLines
	for i := range written {
		if n, err := fmt.Fprintf(l, "line %d\n", i); n == 0 || err != nil {
			t.Fatal(n, err)
		}
	}
	close(g.open)
	l.close()
	var kept, lost, last int
	for line := range strings.Lines(g.String()) {
		var i int
		if _, err := fmt.Sscanf(line, "line %d\n", &i); err == nil {
			if kept > 0 && i <= last {
				t.Errorf("line %d comes after %d", i, last)
			}
			kept, last = kept+1, i
			continue
		}
		_, counted, _ := strings.Cut(line, "lines=")
		var n int
		fmt.Sscan(counted, &n)
		lost += n
	}
	if kept < logLines || kept+lost != written {
		t.Errorf("of %d lines, %d arrived and %d are counted as lost", written, kept, lost)
	}
}

// In a log of JSON each line is JSON and has a time, also the one that says that lines were lost, whatever the level of the log.
func TestLostLinesAreSaidInJSON(t *testing.T) {
	g := &gated{open: make(chan struct{})}
	direct, err := newLog(g, false, "json", "error")
	if err != nil {
		t.Fatal(err)
	}
	l := newLogWriter(g, direct.Handler())
	log, err := newLog(l, false, "json", "error")
	if err != nil {
		t.Fatal(err)
	}
	for range 3 * logLines {
		log.Error("line")
	}
	close(g.open)
	l.close()
	lost := 0
	for text := range strings.Lines(g.String()) {
		var line struct {
			Time  time.Time
			Level string
			Lines int
		}
		if err := json.Unmarshal([]byte(text), &line); err != nil || line.Time.IsZero() || line.Level == "" {
			t.Fatalf("%s: %v", text, err)
		}
		lost += line.Lines
	}
	if lost == 0 {
		t.Error("no line says that lines were lost")
	}
}

// A log that never takes anything does not delay close for long.
func TestLogCloses(t *testing.T) {
	g := &gated{open: make(chan struct{})}
	l := newLogWriter(g, slog.NewTextHandler(g, nil))
	fmt.Fprintln(l, "line")
	l.close()
	close(g.open)
	<-l.done
}
