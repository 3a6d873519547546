package limit

import (
	"time"

	"shaper/unit"
)

// FixedWindow lets a number of units leave in each window: the whole units that
// the rate allows in it. Most APIs count so. Its weakness is what it permits at a
// boundary.
//
// In each window at most limit units leave. Any window t touches at most
// t/window + 2 of them, so at most limit*(t/window + 2) units leave in it. Within a
// moment that is twice the limit: at the end of one window and at the beginning of
// the next. An item of more than limit leaves in an empty window, and the windows
// that follow pay for it.
//
// It is the jumping window of Rathgeb, "Modeling and performance comparison of
// policing mechanisms for ATM networks" (IEEE JSAC 9, 1991), and "Rate limiter 1"
// in the manual of Redis' INCR.
type FixedWindow struct{ counters }

// NewFixedWindow returns a limiter from which nothing has left at now. A window
// below a nanosecond counts as one.
func NewFixedWindow(now time.Time, rate unit.Rate, window time.Duration) *FixedWindow {
	return &FixedWindow{newCounters(now, rate, window, false)}
}
