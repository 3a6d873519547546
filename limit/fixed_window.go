package limit

import (
	"time"

	"shaper/unit"
)

// FixedWindow lets a number of units leave in each window: what the rate allows
// in it, whole units. It is the counter of most APIs, and known for what it
// permits at a boundary.
//
// In each window at most limit units leave. Over any window t, which touches at
// most t/window + 2 of them, that is at most limit*(t/window + 2): twice the
// limit within a moment, at the end of one and at the beginning of the next. An
// item of more than limit leaves in a window that is empty, and the ones that
// follow pay for it.
//
// It is the jumping window of Rathgeb, "Modeling and performance comparison of
// policing mechanisms for ATM networks" (IEEE JSAC 9, 1991), and "Rate limiter 1"
// in the manual of Redis' INCR.
type FixedWindow struct{ counters }

// NewFixedWindow returns a window from which nothing has left as of now. A
// window below a nanosecond is one.
func NewFixedWindow(now time.Time, rate unit.Rate, window time.Duration) *FixedWindow {
	return &FixedWindow{newCounters(now, rate, window, false)}
}
