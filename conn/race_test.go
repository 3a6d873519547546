//go:build race

package conn

import "testing"

// skipUnderRace skips a test of allocations: the race detector allocates, too, and makes
// sync.Pool drop some of its items.
func skipUnderRace(t *testing.T) { t.Helper(); t.Skip("the race detector allocates") }
