// Package trial is what the tests of all packages share: how large they are, how times
// that they measure are judged, and how they note figures.
package trial

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// Full reports whether tests have their full sizes, which take an hour: FULL=1, as
// `make soak` has it. Otherwise they take seconds.
var Full = os.Getenv("FULL") != ""

// Size returns one of two sizes of a test: the small one, unless Full.
func Size[T any](small, full T) T {
	if Full {
		return full
	}
	return small
}

// Figure notes what a test has measured, by the attribute of its test: `make soak` shows
// the figures of all tests in a table.
func Figure(t testing.TB, what, format string, args ...any) {
	t.Helper()
	t.Attr(strings.ReplaceAll(what, " ", "_"), fmt.Sprintf(format, args...))
}
