package tests

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// What the kernel knows of the daemon (proc(5)).

// descriptors returns how many the daemon has open.
func (p *program) descriptors() int {
	p.t.Helper()
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.pid()))
	if err != nil {
		p.t.Fatal(err)
	}
	return len(entries)
}

// firstFree returns the number that its next descriptor would have.
func (p *program) firstFree() (n int) {
	for ; ; n++ {
		if _, err := os.Lstat(fmt.Sprintf("/proc/%d/fd/%d", p.pid(), n)); err != nil {
			return n
		}
	}
}

// memory returns a line of /proc/PID/status that is in kB, as bytes: "VmRSS",
// or "VmHWM" for the most it ever was.
func (p *program) memory(key string) int {
	p.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.pid()))
	if err != nil {
		p.t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, key+":"); ok {
			kB, err := strconv.Atoi(strings.Fields(value)[0])
			if err != nil {
				p.t.Fatal(err)
			}
			return kB << 10
		}
	}
	p.t.Fatalf("/proc/%d/status has no %s", p.pid(), key)
	return 0
}

// busy returns how long the daemon's threads have had a processor. It is
// schedstat, since stat counts in hundredths of a second.
func (p *program) busy() (sum time.Duration) {
	p.t.Helper()
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", p.pid()))
	if err != nil || len(tasks) == 0 {
		p.t.Skipf("this kernel has no schedstat: %v", err)
	}
	for _, task := range tasks {
		text, err := os.ReadFile(task)
		if err != nil {
			continue // the thread has ended
		}
		ns, err := strconv.ParseInt(strings.Fields(string(text))[0], 10, 64)
		if err != nil {
			p.t.Fatal(err)
		}
		sum += time.Duration(ns)
	}
	return sum
}

// load returns the share of one processor that the daemon takes over a span.
func (p *program) load(span time.Duration) float64 {
	p.t.Helper()
	before, began := p.busy(), time.Now()
	time.Sleep(span)
	return float64(p.busy()-before) / float64(time.Since(began))
}

// listens reports whether a TCP socket listens on a port of 127.0.0.1, without
// connecting to it.
func listens(port string) bool {
	n, err := strconv.Atoi(port)
	if err != nil {
		return false
	}
	text, err := os.ReadFile("/proc/net/tcp")
	return err == nil && strings.Contains(string(text), fmt.Sprintf("0100007F:%04X 00000000:0000 0A", n))
}

func mib(n int) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }

// holdsWithin waits until a count is not above what it was at first.
func holdsWithin(t *testing.T, what string, first int, count func() int) {
	t.Helper()
	last := 0
	deadline := time.Now().Add(patience)
	for last = count(); last > first && time.Now().Before(deadline); last = count() {
		time.Sleep(50 * time.Millisecond)
	}
	t.Logf("%s: %d at first, %d at last", what, first, last)
	if last > first {
		t.Errorf("%d %s at last, %d at first", last, what, first)
	}
}
