package trial

import (
	"os"
	"testing"
)

// SkipUnlessCI skips a test that lacks a program or a right. With CI=true it fails the test: in CI nothing
// may be missing.
func SkipUnlessCI(t testing.TB, format string, args ...any) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}
