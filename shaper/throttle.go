package shaper

import (
	"time"

	"shaper/limit"
	"shaper/policy"
	"shaper/unit"
)

// throttle is what a class makes of a provider that says "too fast".
type throttle struct {
	until time.Time     // nothing leaves before
	pause time.Duration // the last one, where the provider did not say how long; 0: none since the last success
	// less is how much the class is paced below its rate, in sixteenths; 0: not at all.
	less  int
	since time.Time // when it was last changed
}

// With adapt, a class that has been throttled goes on at half its pace, and gets a
// sixteenth of its rate back every ten seconds: additive increase, multiplicative
// decrease (Chiu and Jain, 1989). Its pace is never below a sixteenth of the rate, and
// a window never holds less than one unit. At that floor only the pauses slow the class
// down, as TCP with a window of one segment has only its timer.
//
// What waits leaves in finite time, whatever the provider signals. A signal puts it off
// by on_throttle.max at most. After the last signal the class pauses for at most
// on_throttle.max, and has its whole rate 150 s later, even if nothing leaves: time
// alone gives the share back.
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
// it: the nearest on the path with on_throttle or adapt, else the last that counts
// messages. While it does, refusals of what left before make the pause no longer,
// unless the provider says so.
func (c *Class) Throttled(now time.Time, wait time.Duration, signal string) {
	root, now := c.lockAt(now)
	defer root.mu.Unlock()
	x := c.answersTo()
	x.countThrottled(signal)
	x.pauseFor(now, wait)
	x.update(now)
	root.wake(now)
}

// answersTo returns the class on the path that pauses.
func (c *Class) answersTo() *Class {
	last := c
	for x := c; x != nil; x = x.parent.Load() {
		if x.keys == nil && (x.conf.OnThrottle != (policy.OnThrottle{}) || x.conf.Adapt) {
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
	c.recover(now)
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

// share paces the class at so many sixteenths less than its rate, from a time on.
func (c *Class) share(from time.Time, less int) {
	c.throttle.since = from
	c.pace(from, less)
}

// pace is share without another time to count from. It takes less away if otherwise
// nothing would ever leave.
func (c *Class) pace(from time.Time, less int) {
	for less > 0 && c.blocksAt(less) {
		less--
	}
	c.throttle.less = less
	c.limiter.SetRate(from, c.pacedAt(less), atOnce(c.conf))
}

// blocksAt reports whether nothing leaves at so many sixteenths less than the rate: a
// window holds whole units only.
func (c *Class) blocksAt(less int) bool {
	rate := c.pacedAt(less)
	return rate.IsZero() || c.conf.Algorithm.HasWindow() && rate.Units(c.conf.WindowInForce()) == 0
}

// recover gives back what has been taken from the pace, as time has gone by without a
// throttle. The limiter takes each share at the moment at which it comes back, so it
// does not matter when somebody looks.
func (c *Class) recover(now time.Time) {
	if c.throttle.less > 0 {
		c.recoverUpTo(now)
	}
}

func (c *Class) recoverUpTo(now time.Time) {
	for at := c.regains(); c.throttle.less > 0 && !at.After(now); at = c.regains() {
		c.share(at, c.throttle.less-1)
	}
}

// regains returns when the class gets its next share back.
func (c *Class) regains() time.Time {
	return later(c.throttle.since, c.throttle.until).Add(shareEvery)
}

// sooner returns what a time that holds for the present share becomes as the share
// comes back: exact up to the next share, and beyond it what a constant flow makes of it.
func (c *Class) sooner(at time.Time) time.Time {
	step := c.regains()
	for share := time.Duration(shares - c.throttle.less); share < shares && at != limit.Never && at.After(step); share++ {
		at = step.Add(at.Sub(step) / (share + 1) * share)
		step = step.Add(shareEvery)
	}
	return at
}

// pacedAt returns the pace of the class at so many sixteenths less than its rate.
func (c *Class) pacedAt(less int) unit.Rate {
	return paced(c.conf).Below(unit.Percent(int64(less) * 1_000_000 / shares))
}

// Feedback returns what a provider's signals make of the class at now: until when it
// pauses, the zero Time where it does not; and the share of its rate that it has.
func (c *Class) Feedback(now time.Time) (until time.Time, share float64) {
	root, now := c.lockAt(now)
	defer root.mu.Unlock()
	c.recover(now)
	if until = c.throttle.until; !until.After(now) {
		until = time.Time{}
	}
	return until, 1 - float64(c.throttle.less)/shares
}
