package shaper

import "time"

// lateness learns how late wake-ups have been lately. One that is far too late counts no
// more than any other.
type lateness struct {
	usual time.Duration // nine of ten wake-ups are not later
}

const (
	// mostLate bounds what is learned: nobody waits longer than that by looking at the clock.
	mostLate = 100 * time.Microsecond
	// A wake-up moves the estimate up by nine steps, or down by one. So it comes to rest
	// where one of ten is later.
	lateStep = 200 * time.Nanosecond
)

// learn takes note of a wake-up.
func (l *lateness) learn(late time.Duration) {
	if late > l.usual {
		l.usual = min(l.usual+9*lateStep, mostLate)
	} else {
		l.usual = max(l.usual-lateStep, 0)
	}
}
