// Command shaper is a traffic shaper: `shaper run` is the daemon, the other
// commands check its policy file and ask a running daemon.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"shaper/daemon"
	"shaper/tc"
)

// Exit codes, as in sysexits.h.
const (
	exitDone       = 0
	exitFailed     = 1
	exitUsage      = 64 // the command line makes no sense
	exitPolicy     = 65 // a policy, a value for it, or a trace is rejected
	exitNoFile     = 66 // the policy file, or another one, cannot be opened
	exitNoDaemon   = 69 // no daemon answers
	exitPermission = 77 // a capability or a permission is missing
)

func main() {
	os.Exit(run(context.Background(), os.Args, os.Stdout, os.Stderr))
}

// run runs one command line and returns its exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	app := newApp(stdout, stderr)
	app.Setup()
	err := app.RunContext(ctx, flagsFirst(app, args))
	if err == nil {
		return exitDone
	}
	if err != errSilent {
		fmt.Fprintln(stderr, err)
	}
	if errors.Is(err, daemon.ErrUnreachable) {
		fmt.Fprintln(stderr, "shaper run starts one; -c FILE asks the daemon of another policy, --socket PATH that of another socket")
	}
	return exitCode(err)
}

// errSilent is a failure of which everything has been said.
var errSilent = errors.New("")

// usage is a command line that makes no sense.
type usage struct{ error }

func usageError(format string, args ...any) error {
	return usage{fmt.Errorf("shaper: "+format, args...)}
}

// exitCode returns the exit code of an error.
func exitCode(err error) int {
	switch {
	case errors.As(err, new(usage)), err == errSilent:
		return exitUsage
	case errors.Is(err, daemon.ErrUnreachable):
		return exitNoDaemon
	case errors.Is(err, tc.ErrNotPermitted):
		return exitPermission
	}
	switch daemon.CodeOf(err) {
	case daemon.CodePolicy:
		return exitPolicy
	case daemon.CodeNoFile:
		return exitNoFile
	case daemon.CodePermission, daemon.CodeForbidden:
		return exitPermission
	case daemon.CodeUsage:
		return exitUsage
	}
	return exitFailed
}
