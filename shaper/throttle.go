package shaper

import (
	"time"

	"shaper/policy"
	"shaper/unit"
)

// throttle is what a class makes of a provider that says "too fast".
type throttle struct {
	until time.Time     // nothing leaves before
	pause time.Duration // the last one, where the provider did not say how long; 0: none since the last success
	// share of the rate at which the class is paced, in steps of 1/shares below the
	// whole; 0: all of it.
	less  int
	since time.Time // of the present share
}

// With adapt, a class that has been throttled goes on at half its pace, at least at a
// sixteenth, and comes back by additions of a sixteenth of the rate each ten seconds:
// additive increase, multiplicative decrease (Chiu and Jain, 1989).
const (
	shares     = 16
	shareEvery = 10 * time.Second
)

// Answered says that an item which Asks has its answer, or will not get any. ok says
// that the provider did what it was asked for, as far as the rate is concerned.
func (c *Class) Answered(now time.Time, ok bool) {
	root, now := c.lockAt(now)
	defer root.mu.Unlock()
	for x := c; x != nil; x = x.parent.Load() {
		x.flying--
		if x.tracks() {
			x.shadow.trial.answered(now)
		}
		if ok {
			x.throttle.pause = 0
		}
	}
	c.update(now)
	root.wake(now)
}

// InFlight returns how many items of the class and its children have left, and have
// no answer yet.
func (c *Class) InFlight() int {
	defer c.lock().mu.Unlock()
	return c.flying
}

// Throttled says that the provider has refused something that left the class, since
// it was too fast, and for how long it wants nothing more; 0 where it does not say. So
// the class that limits what the provider counts pauses, in order, with all beneath
// it: the nearest on the path that says what to do on_throttle, else the last that
// counts messages. While it does, refusals of what left before make the pause no longer,
// unless the provider says so.
func (c *Class) Throttled(now time.Time, wait time.Duration, signal string) {
	root, now := c.lockAt(now)
	defer root.mu.Unlock()
	x := c.answersTo()
	x.Stats.Throttled.Add(signal)
	x.pauseFor(now, wait)
	x.update(now)
	root.wake(now)
}

// answersTo returns the class on the path that pauses.
func (c *Class) answersTo() *Class {
	last := c
	for x := c; x != nil; x = x.parent.Load() {
		if x.conf.OnThrottle != (policy.OnThrottle{}) && x.keys == nil {
			return x
		}
		if x.kind == unit.Messages && x.keys == nil {
			last = x
		}
	}
	return last
}

func (c *Class) pauseFor(now time.Time, wait time.Duration) {
	t, conf := &c.throttle, c.conf.OnThrottle
	if conf == (policy.OnThrottle{}) {
		conf = policy.DefaultOnThrottle
	}
	paused := now.Before(t.until)
	switch {
	case wait > 0:
		t.until = later(t.until, now.Add(min(wait, time.Duration(conf.Max))))
	case !paused:
		t.pause = min(max(2*t.pause, time.Duration(conf.Pause)), time.Duration(conf.Max))
		t.until = now.Add(t.pause)
	}
	if c.conf.Adapt && !paused {
		c.share(now, min((shares+t.less)/2, shares-1))
	}
}

// share has the class paced at so many sixteenths less than its rate.
func (c *Class) share(now time.Time, less int) {
	c.throttle.less, c.throttle.since = less, now
	c.limiter.SetRate(now, c.paced(), atOnce(c.conf))
}

// recover gives back what has been taken from the pace, as time has gone by without
// a throttle.
func (c *Class) recover(now time.Time) {
	t := &c.throttle
	if t.less == 0 {
		return
	}
	if steps := int(now.Sub(later(t.since, t.until)) / shareEvery); steps > 0 {
		c.share(now, max(t.less-steps, 0))
	}
}

// paced returns the rate at which the class is paced now.
func (c *Class) paced() unit.Rate {
	rate := paced(c.conf)
	if c.throttle.less == 0 {
		return rate
	}
	return rate.Below(unit.Percent(int64(c.throttle.less) * 1_000_000 / shares))
}

// Feedback returns what a provider's signals make of the class at now: until when it
// pauses, the zero Time where it does not; and the share of its rate that it has.
func (c *Class) Feedback(now time.Time) (until time.Time, share float64) {
	defer c.lock().mu.Unlock()
	if until = c.throttle.until; !until.After(now) {
		until = time.Time{}
	}
	return until, 1 - float64(c.throttle.less)/shares
}
