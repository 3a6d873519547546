package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

// gated is a log that takes nothing until it is opened.
type gated struct {
	open chan struct{}
	bytes.Buffer
}

func (g *gated) Write(p []byte) (int, error) {
	<-g.open
	return g.Buffer.Write(p)
}

// A log that takes nothing holds up nobody; what it could not take is counted,
// and the rest is there in order.
func TestLogThatTakesNothing(t *testing.T) {
	g := &gated{open: make(chan struct{})}
	l := newLogWriter(g)
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
		t.Errorf("%d lines are there and %d counted as lost, of %d", kept, lost, written)
	}
}

// A log that never takes anything does not hold up the end for long.
func TestLogCloses(t *testing.T) {
	g := &gated{open: make(chan struct{})}
	l := newLogWriter(g)
	fmt.Fprintln(l, "line")
	l.close()
	close(g.open)
	<-l.done
}
