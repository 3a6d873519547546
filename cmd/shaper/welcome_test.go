package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"shaper/tests/trial"
)

// The commands that run suggests work from another directory, whether `go run` has started it, or
// it is a program on the PATH or elsewhere.
func TestAdviceWorks(t *testing.T) {
	dir, err := os.MkdirTemp("", "shaper's") // a shell needs quotes for it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	write(t, filepath.Join(dir, "shaper.toml"), base)
	onPath := t.TempDir()
	if err := os.Symlink(os.Args[0], filepath.Join(onPath, "shaper")); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		args   []string
		dir    string
		path   string
		advice string // how the suggested command begins
	}{
		"elsewhere":   {[]string{os.Args[0], "run"}, dir, os.Getenv("PATH"), "/"},
		"on the PATH": {[]string{os.Args[0], "run"}, dir, onPath + ":" + os.Getenv("PATH"), "shaper -c '"},
		"go run":      {[]string{"go", "run", "./cmd/shaper", "run", "-c", filepath.Join(dir, "shaper.toml")}, "../..", os.Getenv("PATH"), "go -C "},
	} {
		t.Run(name, func(t *testing.T) {
			env := append(os.Environ(), asShaper+"=1", "PATH="+c.path)
			advice := adviceOf(t, c.dir, env, c.args...)
			if !strings.HasPrefix(advice, c.advice) {
				t.Errorf("run suggests %s", advice)
			}
			ask := exec.Command("sh", "-c", advice)
			ask.Dir, ask.Env = t.TempDir(), env
			if out, err := ask.CombinedOutput(); err != nil || !strings.Contains(string(out), "64KiB/s") {
				t.Errorf("%s: %v\n%s", advice, err, out)
			}
		})
	}
}

// adviceOf starts a daemon in a terminal, and returns the command that it suggests to see its
// classes.
func adviceOf(t *testing.T, dir string, env []string, args ...string) (advice string) {
	t.Helper()
	near, far := trial.OpenTerminal(t, 200, 50)
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir, cmd.Env = dir, env
	cmd.Stdin, cmd.Stdout, cmd.Stderr = far, far, far
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	far.Close()
	t.Cleanup(func() {
		near.Write([]byte{3, 3}) // ctrl-C twice stops at once
		cmd.Wait()
	})
	near.SetReadDeadline(time.Now().Add(time.Minute)) // go run may have to compile
	var said strings.Builder
	part := make([]byte, 4096)
	for !strings.Contains(said.String(), "Ctrl-C stops.") {
		n, err := near.Read(part)
		if err != nil {
			t.Fatalf("%v after %q", err, said.String())
		}
		said.Write(part[:n])
	}
	for line := range strings.Lines(said.String()) {
		if line = strings.TrimSpace(line); strings.HasSuffix(line, " classes") {
			return line
		}
	}
	t.Fatalf("it advises nothing:\n%s", said.String())
	return ""
}
