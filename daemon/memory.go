package daemon

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// tidyPeriod is how long nothing may have been collected for memory to be
// given back.
const tidyPeriod = 5 * time.Second

// tidy gives memory back to the system that a rush of sessions has left behind.
// Left to itself, the runtime keeps about as much as was in use, for what comes
// next, and a quiet process collects nothing for minutes.
type tidy struct {
	collected uint64 // collections until now
	tidied    uint64 // as many, when memory was given back last
}

func (t *tidy) run(ctx context.Context) {
	ticker := time.NewTicker(tidyPeriod)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			t.look()
		}
	}
}

// look gives memory back once the runtime has been busy and is not any more.
func (t *tidy) look() (tidied bool) {
	now := collections()
	quiet := now == t.collected && now != t.tidied
	if quiet {
		debug.FreeOSMemory()
		t.tidied = collections()
		now = t.tidied
	}
	t.collected = now
	return quiet
}

// collections returns how many collections of garbage there have been.
func collections() uint64 {
	sample := []metrics.Sample{{Name: "/gc/cycles/total:gc-cycles"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
