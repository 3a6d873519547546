package daemon

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// scavengePeriod is how long the garbage collector must rest before memory is given back.
const scavengePeriod = 5 * time.Second

// scavenger gives memory back to the system after a rush of sessions. By itself the runtime
// keeps about as much as was in use, and a quiet process collects no garbage for minutes.
// Only its run uses the fields.
type scavenger struct {
	collected uint64 // collections of garbage at the last check
	released  uint64 // collections of garbage when memory was last given back
}

// run checks every scavengePeriod until the context ends.
func (t *scavenger) run(ctx context.Context) {
	ticker := time.NewTicker(scavengePeriod)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			t.check()
		}
	}
}

// check gives memory back if the collector has run since memory was last given back, but not
// since the last check. It reports whether it did.
func (t *scavenger) check() (released bool) {
	now := collections()
	quiet := now == t.collected && now != t.released
	if quiet {
		debug.FreeOSMemory()
		t.released = collections()
		now = t.released
	}
	t.collected = now
	return quiet
}

// collections returns how often the process has collected garbage.
func collections() uint64 {
	sample := []metrics.Sample{{Name: "/gc/cycles/total:gc-cycles"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
