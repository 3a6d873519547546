package tests

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// bins is where the programs under test are. It is short, since control
// sockets live below it, and others may enter, since one test is not root.
var bins string

// TestMain builds the program that users get. The tests drive it from outside.
func TestMain(m *testing.M) {
	if linux := os.Getenv(asUML); linux != "" {
		fmt.Fprintln(os.Stderr, withoutXState(linux, os.Args[1:]))
		os.Exit(1)
	}
	os.Exit(buildAndRun(m))
}

func buildAndRun(m *testing.M) int {
	var err error
	if bins, err = os.MkdirTemp("", "shaper"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(bins)
	if err := os.Chmod(bins, 0o755); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if err := build("shaper"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

func build(name string, flags ...string) error {
	args := append([]string{"build", "-o", filepath.Join(bins, name)}, flags...)
	cmd := exec.Command("go", append(args, "./cmd/shaper")...)
	cmd.Dir = ".."
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w\n%s", err, out)
	}
	return nil
}

// plain returns the program as users get it: the one to take times of.
func plain() string { return filepath.Join(bins, "shaper") }

var buildRaced = sync.OnceValue(func() error { return build("raced", "-race") })

// raced returns the program with the race detector, which stop reads the
// verdict of.
func raced(t *testing.T) string {
	t.Helper()
	if err := buildRaced(); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(bins, "raced")
}

// tool returns the path of a program that a test needs. Without it the test
// is skipped, but in CI everything is there.
func tool(t *testing.T, name, debianPackage string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		missing(t, "%s is not installed: apt-get install %s", name, debianPackage)
	}
	return path
}

// missing skips a test for want of something, but in CI everything is there.
func missing(t *testing.T, format string, args ...any) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}

// logged is a log that may be read while it is written.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
