package main

import (
	"errors"
	"fmt"

	"shaper/daemon"
	"shaper/tc"
)

// Exit codes, as in sysexits.h (sysexits(3head)).
const (
	exitDone       = 0
	exitFailed     = 1
	exitUsage      = 64 // the command line makes no sense
	exitPolicy     = 65 // a policy, a value for it, or a trace is rejected
	exitNoFile     = 66 // the policy file, or another one, cannot be opened
	exitNoDaemon   = 69 // no daemon answers
	exitPermission = 77 // a capability or a permission is missing
)

// errSilent is an error whose message has already been printed.
var errSilent = errors.New("")

// usage is the error of a command line that makes no sense.
type usage struct{ error }

// usageError returns the error of a command line that makes no sense.
func usageError(format string, args ...any) error {
	return usage{fmt.Errorf("shaper: "+format, args...)}
}

// badName turns the answer of a daemon that knows nothing of this name into an error of the command line.
// Other errors stay as they are.
func badName(err error) error {
	if daemon.CodeOf(err) == daemon.CodeNotFound {
		return usageError("%w", err)
	}
	return err
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
