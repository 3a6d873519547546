//go:build race

package conn

import "testing"

// skipUnderRace skips a test of allocations: the race detector makes its own,
// and has sync.Pool drop some of what it is given.
func skipUnderRace(t *testing.T) { t.Helper(); t.Skip("the race detector allocates") }
