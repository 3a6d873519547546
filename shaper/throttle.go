package shaper

import (
	"time"

	"shaper/limit"
	"shaper/policy"
)

// throttle is what a class makes of a provider that says "too fast".
//
// With adapt, a class that has been throttled goes on at half its pace, and gets a
// sixteenth of its rate back every ten seconds: additive increase, multiplicative
// decrease (Chiu and Jain, 1989). Its pace is never below a sixteenth of the rate, and
// a window never holds less than one unit. At that floor only the pauses slow the class
// down, as TCP with a window of one segment has only its timer.
//
// What waits leaves in finite time, whatever the provider signals. A signal delays it
// by on_throttle.max at most. After the last signal the class pauses for at most
// on_throttle.max, and has its whole rate 150 s later, even if nothing leaves: time
// alone gives the shares back.
type throttle struct {
	until time.Time     // nothing leaves before
	pause time.Duration // the last one, if the provider did not say how long; 0: none since the last success
	less  int           // how many sixteenths of the rate are taken away
	since time.Time     // when less changed last
}

const (
	shares     = 16
	shareEvery = 10 * time.Second
)

// signal takes note of a refusal of the provider, which wants nothing more for wait, or
// does not say for how long: 0. It reports whether that begins a pause: refusals during
// one are of what left before it.
func (t *throttle) signal(now time.Time, wait time.Duration, conf policy.OnThrottle) (begins bool) {
	if conf == (policy.OnThrottle{}) {
		conf = policy.DefaultOnThrottle
	}
	begins = !now.Before(t.until)
	switch {
	case wait > 0:
		t.until = later(t.until, now.Add(min(wait, time.Duration(conf.Max))))
	case begins:
		t.pause = min(max(2*t.pause, time.Duration(conf.Pause)), time.Duration(conf.Max))
		t.until = now.Add(t.pause)
	}
	return begins
}

// halved returns how many sixteenths are to be taken away after another signal.
func (t *throttle) halved() int { return min((shares+t.less)/2, shares-1) }

// regains returns when the class gets its next share back.
func (t *throttle) regains() time.Time { return later(t.since, t.until).Add(shareEvery) }

// sooner returns what a time that holds for the present share becomes as shares come
// back: exact up to the next share, and beyond it as for a constant flow.
func (t *throttle) sooner(at time.Time) time.Time {
	step := t.regains()
	for share := time.Duration(shares - t.less); share < shares && at != limit.Never && at.After(step); share++ {
		at = step.Add(at.Sub(step) / (share + 1) * share)
		step = step.Add(shareEvery)
	}
	return at
}

// share returns the share of its rate that the class has, from 1/16 to 1.
func (t *throttle) share() float64 { return 1 - float64(t.less)/shares }
