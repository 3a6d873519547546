// Package trial is shared by the tests of all packages. It sets their sizes, judges times that
// they measure on a busy machine, and notes figures.
//
// Files call downwards only:
//
//	size    small and full sizes, and figures
//	grow    benchmarks of what grows
//	judge   whether a slow measurement fails the test
//	watch   how busy the machine is
//	work    what the same work costs meanwhile
//	race, norace  whether the race detector watches
//	await   what somebody else brings about
//	stamp   when the kernel has received something
//	dial    connections to peers that may reset them at once
//	files   a directory of files
//	log     what a test has logged
//	terminal  a terminal without a person
//	skip    what a test does that lacks a program or a right
package trial

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// Full reports whether tests run at their full sizes. The environment variable FULL sets it, as
// in `make soak`. All tests take an hour then, and minutes otherwise.
var Full = os.Getenv("FULL") != ""

// Size returns full if Full is set, and small otherwise.
func Size[T any](small, full T) T {
	if Full {
		return full
	}
	return small
}

// Figure notes a value that a test has measured, as an attribute of the test. Command tally
// shows the figures of all tests in a table.
func Figure(t testing.TB, what, format string, args ...any) {
	t.Helper()
	t.Attr(strings.ReplaceAll(what, " ", "_"), fmt.Sprintf(format, args...))
}
