package shaper

import (
	"cmp"
	"time"

	"shaper/limit"
	"shaper/policy"
)

// A throttle is what a class does when its provider says "too fast": it pauses, and with
// adapt it slows down.
//
// With adapt, a class that has been throttled goes on at half its pace, and gets a sixteenth of
// its rate back every ten seconds: additive increase, multiplicative decrease (Chiu and Jain, 1989).
// It always keeps a sixteenth of its rate, and a window always holds at least one unit. At that
// floor only the pauses slow the class down, as only its timer slows down TCP with a window of one
// segment.
//
// What waits leaves in finite time, whatever the provider signals. A signal delays it by
// on_throttle.max at most. After the last signal the class pauses for at most
// on_throttle.max, and has its whole rate 150 s later, even if nothing leaves: time alone
// gives the rate back.
//
// The lock of the tree guards a throttle.
type throttle struct {
	until    time.Time     // nothing leaves before
	pause    time.Duration // the last pause for which the provider gave no time; 0: none since the last success
	withheld int           // how many sixteenths of the rate are taken away
	since    time.Time     // when a sixteenth came back last, or a signal took some away
	learner  *learner      // finds the limit of the provider; nil: nobody has asked for it
	witness  *witness      // instead of learner, in a class with `shadow`
}

// clone returns a throttle that goes on as this one does. Neither changes the other.
func (t *throttle) clone() throttle {
	next := *t
	next.learner, next.witness = copyOf(t.learner), copyOf(t.witness)
	return next
}

// setLearn begins to learn, goes on or ends, as a policy says.
func (t *throttle) setLearn(conf policy.Class, p *pace) {
	top, floor, was := p.rate.PerSecond(), conf.Learn.Floor.PerSecond(), t.witness
	t.witness = nil
	switch {
	case conf.Learn == (policy.Learn{}), p.isUnlimited(): // the class above learns
		t.learner = nil
	case conf.Shadow:
		t.learner, t.witness = nil, cmp.Or(was, &witness{})
		t.witness.top, t.witness.floor = top, floor
	case t.learner == nil:
		t.learner = newLearner(top, floor)
	default:
		t.learner.bound(top, floor)
	}
}

// A sixteenth of the rate comes back every regainEvery.
const (
	sixteenths  = 16 // of a rate
	regainEvery = 10 * time.Second
)

// signal notes that the provider has refused something as too fast. wait is how long the
// provider wants nothing more; 0 if it does not say. signal reports whether a pause begins
// with that. If not, the class pauses already, and what was refused had left before. Then
// only a wait can make the pause longer.
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

// afterSignal returns how many sixteenths to withhold after another signal: half of those that
// the class still has go.
func (t *throttle) afterSignal() int { return min((sixteenths+t.withheld)/2, sixteenths-1) }

// nextRegain returns when the class gets its next sixteenth back.
func (t *throttle) nextRegain() time.Time { return later(t.since, t.until).Add(regainEvery) }

// hasten corrects an estimate for the sixteenths that come back. at is when something would leave
// if none came back, from is now, and flow says how much leaves in some time while so many sixteenths
// are withheld. With each that comes back, what remains of the wait becomes shorter as more flows. The
// result is exact if it is before the next sixteenth comes back. Beyond that it takes what is ahead
// to leave evenly, as it flows at the moment.
func (t *throttle) hasten(from, at time.Time, flow func(withheld int) int64) time.Time {
	step := t.nextRegain()
	for withheld := t.withheld; withheld > 0 && at != limit.Never; withheld-- {
		begins := later(step, from)
		if !at.After(begins) {
			break
		}
		slower := float64(flow(withheld)) / float64(flow(withheld-1))
		at = begins.Add(time.Duration(float64(at.Sub(begins)) * slower))
		step = step.Add(regainEvery)
	}
	return at
}

// part returns which part of its rate the class has: from 1/16 to 1, or what it has learned.
func (t *throttle) part() float64 {
	if l := t.learner; l != nil {
		return l.part()
	}
	return 1 - float64(t.withheld)/sixteenths
}
