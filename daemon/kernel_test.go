package daemon

import (
	"testing"
	"time"
)

// Who changes the kernel now and then is put right at once, and who does it again and
// again ever later, until there was quiet.
func TestTempo(t *testing.T) {
	var tempo tempo
	now := time.Now()
	holds := func(want time.Duration) {
		t.Helper()
		if got := tempo.wait(now); got != want {
			t.Errorf("after %v, not %v", got, want)
		}
	}
	holds(settling)
	holds(settling) // what needed nothing to be done
	for _, want := range []time.Duration{2 * settling, 4 * settling, 8 * settling, 16 * settling, slowest, slowest} {
		tempo.mended(now)
		holds(want)
		now = now.Add(want)
	}
	now = now.Add(retrying + 1)
	holds(settling)
}
