// Package limit holds the algorithms that answer one question: when is the
// earliest moment at which this item may leave?
//
// The answers are departure times, as in Carousel (Saeed et al., SIGCOMM 2017)
// and in Linux's fq. Nothing here reads a clock, sleeps or starts a goroutine:
// time is an argument. So the same code paces live traffic, drives a
// simulation, and is tested at exact instants.
//
// Files call downwards only, in this order:
//
//	record           what outlives the process
//	hints            the limits that a provider tells in its answers
//	amend            a limiter corrects what it has charged
//	lease            a part of a budget that lives outside the process
//	all              several limits at once, and times in which nothing leaves
//	token            a token bucket on golang.org/x/time/rate
//	gcra             a token bucket that remembers one number
//	calendar_window  a count for each day, week or month of a time zone
//	fixed_window     a count for each window of the clock
//	sliding_window   a sliding window, approximated by two counts
//	sliding_log      a sliding window that is exact
//	window           what the windows share
//	ebb              low-water marks, which bound what a correction gives back
//	start            when a limiter took the place of another one
//	clock            time that never goes back; sums that do not overflow
//	limit            what every algorithm implements
package limit

import (
	"time"

	"shaper/unit"
)

// Never is the departure time of what may not leave at all, as under a rate
// of 0. It is later than any time that a clock shows.
var Never = time.Unix(1<<55, 0)

// A Limiter decides when items may leave. Costs are in the unit of its rate:
// bytes, or a count. All times come from one clock; if that goes back, it counts
// as standing still. A Limiter is not safe for concurrent use.
type Limiter interface {
	// Next returns the earliest moment at which an item of n units may leave
	// if ahead units leave before it. A moment that is not after now means at
	// once. Under a rate of 0 it is Never. If the wall clock decides, the moment has no
	// monotonic reading. Next changes nothing.
	Next(now time.Time, ahead, n int64) time.Time

	// Take charges n units for an item that leaves at now and has been ready
	// to leave since the time since. The caller has seen that Next allows it. If a
	// caller takes too early, later items wait longer.
	Take(since, now time.Time, n int64)

	// SetRate puts a new rate and a new burst in force at now. The unit of the
	// rate stays the same. What was charged stays charged, and nothing gets a
	// new burst. Algorithms without a burst ignore burst.
	SetRate(now time.Time, rate unit.Rate, burst int64)

	// Memory returns what the limiter remembers at now. whole says that m is all
	// of it: a new limiter of the same rate, burst and window that Remembers m goes
	// on as this one would. It may be later by a nanosecond, never sooner. If m is
	// not whole, the caller keeps the limiter itself until Memory.Until.
	Memory(now time.Time) (m Memory, whole bool)

	// Remember makes a new limiter go on from m, which is whole.
	Remember(m Memory)
}

// An Estimator is a Limiter that may have to ask somebody else before an item leaves. Next
// asks, and it returns the moment at which the item leaves if no answer comes until then.
type Estimator interface {
	// Estimate is Next for what only wants to know: it asks nobody, and waits for no answer.
	Estimate(now time.Time, ahead, n int64) time.Time
}

// Memory is what a limiter has to remember of what has left. It is small enough
// to be kept for a million limiters that nobody uses.
type Memory struct {
	// Until is when the limiter is like a new one again, and may be forgotten.
	Until time.Time
	At    time.Time // the instant that Used refers to
	Used  [2]int64  // its meaning depends on the algorithm
}

// A Window is a Limiter that counts what leaves in a window of time. A higher rate makes the window hold more, and not
// shorter.
type Window interface {
	Limiter
	// NextAt is Next if another rate holds from now on.
	NextAt(rate unit.Rate, now time.Time, ahead, n int64) time.Time
}

// A Settler is a Limiter that counts from the moment at which an item actually
// leaves. That may be later than the moment at which it is allowed to leave.
type Settler interface {
	// Left says that an item of n units, which Take charged at the time then, has left at now.
	Left(now, then time.Time, n int64)
	// Alone reports whether nothing may follow an item before Left has told of it. If not, items
	// count from when they were charged until Left tells of them.
	Alone() bool
}

// A Cloner is a Limiter that copies itself. One whose Memory is not whole needs it, so that somebody
// can compute what it will do.
type Cloner interface {
	// Clone returns a limiter that goes on as this one does. Neither changes the other.
	Clone() Limiter
}

// After returns t+d, or Never if d is the longest Duration.
func After(t time.Time, d time.Duration) time.Time {
	if d == 1<<63-1 {
		return Never
	}
	return t.Add(d)
}

// A TokenBucket is a limiter that holds tokens.
type TokenBucket interface {
	Limiter
	// Tokens returns how many there are at now: burst at most, and below 0 after an item that
	// was larger. It changes nothing.
	Tokens(now time.Time) float64
}
