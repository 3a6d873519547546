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

// descriptors returns the number of descriptors that the daemon has open.
func (p *program) descriptors() int {
	p.t.Helper()
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.pid()))
	if err != nil {
		p.t.Fatal(err)
	}
	return len(entries)
}

// firstFree returns the number of the daemon's next descriptor.
func (p *program) firstFree() (n int) {
	for ; ; n++ {
		if _, err := os.Lstat(fmt.Sprintf("/proc/%d/fd/%d", p.pid(), n)); err != nil {
			return n
		}
	}
}

// memory returns a value of /proc/PID/status in bytes. Keys are "VmRSS" for resident memory, and
// "VmHWM" for its peak.
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

// busy returns the processor time of the daemon's threads.
func (p *program) busy() time.Duration {
	p.t.Helper()
	return busyOf(p.t, p.pid())
}

// busyOf returns the processor time of the threads of a process. It reads schedstat, because stat counts in
// hundredths of a second.
func busyOf(t *testing.T, pid int) (sum time.Duration) {
	t.Helper()
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil || len(tasks) == 0 {
		t.Skipf("this kernel has no schedstat: %v", err)
	}
	for _, task := range tasks {
		text, err := os.ReadFile(task)
		if err != nil {
			continue // the thread has ended
		}
		ns, err := strconv.ParseInt(strings.Fields(string(text))[0], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		sum += time.Duration(ns)
	}
	return sum
}

// load measures for a span, and returns the share of one processor that the daemon takes.
func (p *program) load(span time.Duration) float64 {
	p.t.Helper()
	return loadOf(p.t, p.pid(), span)
}

// loadOf is load for any process.
func loadOf(t *testing.T, pid int, span time.Duration) float64 {
	t.Helper()
	before, began := busyOf(t, pid), time.Now()
	time.Sleep(span)
	return float64(busyOf(t, pid)-before) / float64(time.Since(began))
}

// listens reports whether a TCP socket listens on a port of 127.0.0.1. It does not connect.
func listens(port string) bool {
	n, err := strconv.Atoi(port)
	if err != nil {
		return false
	}
	text, err := os.ReadFile("/proc/net/tcp")
	return err == nil && strings.Contains(string(text), fmt.Sprintf("0100007F:%04X 00000000:0000 0A", n))
}

func mib(n int) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }

// waitForAtMost waits until a count is at most first. If that takes longer than patience, it fails
// the test.
func waitForAtMost(t *testing.T, what string, first int, count func() int) {
	t.Helper()
	last := 0
	deadline := time.Now().Add(patience)
	for last = count(); last > first && time.Now().Before(deadline); last = count() {
		time.Sleep(50 * time.Millisecond)
	}
	t.Logf("%s: %d before, %d now", what, first, last)
	if last > first {
		t.Errorf("%d %s, want at most %d as before", last, what, first)
	}
}
