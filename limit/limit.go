// Package limit holds the algorithms that answer one question: when is the
// earliest moment at which this item may leave?
//
// The answers are departure times, as in Carousel (Saeed et al., SIGCOMM 2017)
// and in Linux's fq. Nothing here reads a clock, sleeps or starts a goroutine:
// time is an argument. So the same code paces live traffic, drives a
// simulation, and is tested at exact instants.
package limit

import (
	"time"

	"shaper/unit"
)

// Never is the departure time of what may not leave at all, as under a rate
// of 0. It is later than every time of a clock.
var Never = time.Unix(1<<55, 0)

// A Limiter decides when items may leave. Costs are in the unit of its rate:
// bytes, or a count. Times passed to it are those of one clock; one that goes
// back is taken to stand still. A Limiter is not safe for concurrent use.
type Limiter interface {
	// Next returns the earliest moment at which an item of n units may leave,
	// with ahead units leaving before it: a moment not after now means at
	// once. It changes nothing. Under a rate of 0 it is Never.
	Next(now time.Time, ahead, n int64) time.Time

	// Take charges n units for an item that leaves at now and has been ready
	// to leave since since. The caller has seen that Next allows it; one that
	// takes earlier makes the others wait longer.
	Take(since, now time.Time, n int64)

	// SetRate puts a new rate, of the same unit, and a new burst in force at
	// now. What was charged stays charged; no new burst is given. Algorithms
	// without a burst ignore it.
	SetRate(now time.Time, rate unit.Rate, burst int64)

	// Memory returns what the limiter remembers at now. It is whole where a new
	// limiter of the same rate, burst and window that Remembers it goes on as this
	// one would, to within a nanosecond, which is never in favour of what leaves.
	// Where it is not, the limiter itself has to be kept until Memory.Until.
	Memory(now time.Time) (m Memory, whole bool)

	// Remember has a new limiter go on where the one left off that m is of.
	Remember(m Memory)
}

// Memory is what a limiter has to remember of what has left: so little that it
// can be kept for each of a million of which nobody makes use.
type Memory struct {
	// Until is from when on the limiter is as a new one, and may be forgotten.
	Until time.Time
	At    time.Time // what the rest refers to; only the algorithm knows both
	Used  [2]int64
}

// A Settler is a Limiter that counts from the moment at which an item has
// actually left, which is later than the moment at which it was allowed to.
type Settler interface {
	// Left says that the item last taken has left at now.
	Left(now time.Time)
}

// After returns t+d, or Never where d is the longest Duration.
func After(t time.Time, d time.Duration) time.Time {
	if d == 1<<63-1 {
		return Never
	}
	return t.Add(d)
}
