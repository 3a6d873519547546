package fleet

import (
	"testing"
	"time"
)

// TestClockOfASlowStore knows the store's clock as well as the way to the store allows, however long the store computes. If
// somebody sets the store's clock meanwhile, nobody knows how long that was.
func TestClockOfASlowStore(t *testing.T) {
	const way, computes = 50 * time.Microsecond, 400 * time.Microsecond
	sent := time.Unix(1_760_000_100, 0)
	received := sent.Add(way + computes + way)
	now := Stamp(sent.Add(way).UnixMicro())
	for _, c := range []struct{ took, most time.Duration }{
		{computes, way}, {0, way + computes/2}, {time.Hour, time.Microsecond}, {-time.Hour, way + computes/2},
	} {
		var l link
		l.answered(received, &Call{at: sent}, &Reply{Now: now, Took: c.took})
		if wrong := l.clock.error(received); wrong < 0 || wrong > c.most+time.Microsecond {
			t.Errorf("the store has computed for %v, and its clock is wrong by %v, want %v at most", c.took, wrong, c.most)
		}
	}
}
