package tests

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"shaper/tests/trial"
)

// binDir is the directory of the programs under test, and of the tests' policies. Its path is
// short, because paths of control sockets are limited. Other users may enter it, because some
// tests run the program as another user.
var binDir string

// TestMain builds the program that users get. In a child process of umlCommand it becomes
// user-mode Linux instead, and with memberEnv a member of a fleet.
func TestMain(m *testing.M) {
	if config := os.Getenv(memberEnv); config != "" {
		if err := runMember(config); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if linux := os.Getenv(umlEnv); linux != "" {
		fmt.Fprintln(os.Stderr, withoutXState(linux, os.Args[1:]))
		os.Exit(1)
	}
	os.Setenv("GORACE", "atexit_sleep_ms=0") // else a program with the race detector ends after a second
	os.Exit(buildAndRun(m))
}

func buildAndRun(m *testing.M) int {
	var err error
	if binDir, err = os.MkdirTemp("", "shaper"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(binDir)
	if err := os.Chmod(binDir, 0o755); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if err := errors.Join(trial.HoldTimestamps(), build("shaper")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// build puts the program into binDir, without tables for debuggers, as `make build` does. `go run` keeps what it
// links in the build cache, and `go build` does not. So the program is linked only after it has changed, and once for
// all that run it in this way.
func build(name string, flags ...string) error {
	args := append([]string{"run", "-exec=cp"}, flags...)
	cmd := exec.Command("go", append(args, "./cmd/shaper", filepath.Join(binDir, name))...)
	cmd.Dir = ".."
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go run: %w\n%s", err, out)
	}
	return nil
}

// plain returns the path of the program as users get it. Tests measure times with it.
func plain() string { return filepath.Join(binDir, "shaper") }

var buildRaced = sync.OnceValue(func() error { return build("raced", "-race") })

// raced returns the path of the program with the race detector if the tests have it too, as in `make race`, and
// else that of plain. program.stop fails the test if the detector finds a race.
func raced(t *testing.T) string {
	t.Helper()
	if !trial.Raced {
		return plain()
	}
	if err := buildRaced(); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(binDir, "raced")
}

// tool returns the path of a program that a test needs. If the program is missing, tool ends
// the test with skipUnlessCI.
func tool(t *testing.T, name, debianPackage string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		skipUnlessCI(t, "%s is not installed: apt-get install %s", name, debianPackage)
	}
	return path
}

var skipUnlessCI = trial.SkipUnlessCI
