package shaper

import "time"

// lateness learns how late wake-ups have been lately. One that is far too late counts no
// more than any other.
type lateness struct {
	usual time.Duration // four of five wake-ups are not later
}

const (
	// mostLate bounds what is learned: nobody waits longer than that by looking at the clock.
	mostLate = 100 * time.Microsecond
	// A wake-up moves the estimate up by four steps, or down by one. So it comes to rest
	// where one of five is later. If that were one of ten, a neighbour that delays so many by
	// milliseconds would take the estimate to its bound, and no earlier timer helps against it.
	lateStep = 450 * time.Nanosecond
)

// learn takes note of a wake-up.
func (l *lateness) learn(late time.Duration) {
	if late > l.usual {
		l.usual = min(l.usual+4*lateStep, mostLate)
	} else {
		l.usual = max(l.usual-lateStep, 0)
	}
}
