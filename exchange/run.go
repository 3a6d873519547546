package exchange

import "time"

// A run is what the parts of an exchange know of its course: what time it is, and whether it goes on.
type run struct {
	now     time.Time // the latest time that the host has told
	stopped bool      // nothing moves any more; see Stop
}

// noteTime keeps the latest time that the host has told. A host that waits for a lock may be
// late to tell it.
func (r *run) noteTime(now time.Time) {
	if now.After(r.now) {
		r.now = now
	}
}
