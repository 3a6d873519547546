package limit

import (
	"time"

	"shaper/unit"
)

// SlidingWindow approximates a sliding window by two counts: what left in this
// window, and what left in the window before it, weighed by how much of that the
// sliding window still covers. Take 80 in the window before, 30 in this one, and
// 40 % of this one over: then 80*60% + 30 = 78 count.
//
// In each window at most limit units leave. Any other window of that length covers
// the first x of one window and the end of the window before. If b units left in the
// window before, at most limit + b*x/window leave: always less than twice the
// limit. Within a moment at a boundary, where a FixedWindow permits twice the limit,
// it is just the limit. Why: when the last unit of this window leaves, b counts as
// b*(1 - x/window).
//
// The weight falls to 0 only when the window ends. So under a load that never
// pauses limit-1 units leave in a window. If limit is 1, one unit leaves in two
// windows.
//
// Cloudflare describes it ("How we built rate limiting capable of scaling to
// millions of domains", 2017): of 400 million requests, it judged 0.003 % otherwise
// than a SlidingLog would.
type SlidingWindow struct{ counters }

// NewSlidingWindow returns a limiter from which nothing has left at now. A window
// below a nanosecond counts as one.
func NewSlidingWindow(now time.Time, rate unit.Rate, window time.Duration) *SlidingWindow {
	return &SlidingWindow{newCounters(now, rate, window, true)}
}
