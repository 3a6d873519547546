package shaper

import (
	"time"

	"shaper/leaky"
	"shaper/limit"
	"shaper/policy"
)

// leavePatience is how long an item may be on its way out before a class goes
// on without it.
const leavePatience = time.Second

// A gate is what one class allows to leave, the classes above it apart. The lock of the
// tree guards it.
type gate struct {
	// What the policy says.
	pace       pace
	onThrottle policy.OnThrottle
	adapts     bool
	mostFlying int  // how many items may be in flight; 0: any number
	passive    bool // the class holds nothing up itself: its buckets do, or nobody if it has a shadow

	// What has left.
	limiter limit.Limiter  // in the unit of the class
	settler limit.Settler  // limiter, if it is one
	assured *leaky.Assured // nil: whatever the limiter allows is assured
	flying  int            // items in flight, of the class and its children
	leaving time.Time      // since when an item is on its way out that the settler waits for; zero: none is
	payer   *node          // whose item was charged last: the class, or one beneath it

	throttle throttle
}

// set puts a policy in force at now, with its pace and its limiter.
func (g *gate) set(now time.Time, conf policy.Class, p *pace, l limit.Limiter) {
	g.pace = *p
	g.onThrottle, g.adapts, g.mostFlying = conf.OnThrottle, conf.Adapt, conf.InFlight
	g.limiter = l
	g.settler, _ = l.(limit.Settler)
	g.assured = g.pace.assure(now, g.assured)
	switch {
	case !g.adapts:
		g.throttle.less = 0
	case g.throttle.less > 0:
		g.slow(now, g.throttle.less)
	}
}

// takeOver returns the limiter for the next pace, which goes on from that of the gate.
func (g *gate) takeOver(now time.Time, next *pace) limit.Limiter {
	return next.takeOver(now, g.limiter, &g.pace, g.pace.reduced(g.throttle.less))
}

// allows returns when an item that costs n may leave, if it is the next; now if it costs
// nothing. While the class gets its rate back, it is no later than its next share, since
// the time changes then.
func (g *gate) allows(now time.Time, n int64) time.Time {
	if n > 0 && g.mostFlying > 0 && g.flying >= g.mostFlying && !g.passive {
		return limit.Never
	}
	at := g.paces(now, n)
	if g.throttle.less > 0 {
		at = earlier(at, g.throttle.regains())
	}
	return at
}

// paces is allows whatever is in flight, since nobody knows when that is answered. Beyond
// the next share it is an estimate.
func (g *gate) paces(now time.Time, n int64) time.Time {
	if n == 0 {
		return now
	}
	g.recover(now)
	at := g.limiter.Next(now, 0, n)
	if g.throttle.less > 0 {
		at = g.throttle.sooner(at)
	}
	if !g.leaving.IsZero() {
		at = later(at, g.leaving.Add(leavePatience))
	}
	if !g.throttle.until.IsZero() && !g.passive {
		at = later(at, g.throttle.until)
	}
	return at
}

// estimates returns when an item that costs n leaves if ahead units leave before it. The
// gate has recovered up to now.
func (g *gate) estimates(now time.Time, ahead, n int64) time.Time {
	at := g.limiter.Next(now, ahead, n)
	if g.throttle.less > 0 {
		return g.throttle.sooner(at)
	}
	return at
}

// pauses returns until when the provider wants nothing.
func (g *gate) pauses() time.Time {
	if g.passive {
		return time.Time{}
	}
	return g.throttle.until
}

// left says when the item on its way out has left.
func (g *gate) left(at time.Time) {
	g.leaving = time.Time{}
	g.settler.Left(at)
}

// signal takes note that the provider has refused something; see throttle.
func (g *gate) signal(now time.Time, wait time.Duration) {
	g.recover(now)
	if g.throttle.signal(now, wait, g.onThrottle) && g.adapts {
		g.share(now, g.throttle.halved())
	}
}

// share takes so many sixteenths of the rate away, from a time on.
func (g *gate) share(from time.Time, less int) {
	g.throttle.since = from
	g.slow(from, less)
}

// slow is share without another time to count from. It takes less away if otherwise
// nothing would ever leave.
func (g *gate) slow(from time.Time, less int) {
	for less > 0 && g.pace.blocks(g.pace.reduced(less)) {
		less--
	}
	g.throttle.less = less
	g.limiter.SetRate(from, g.pace.reduced(less), g.pace.atOnce)
}

// recover gives back what signals have taken away, as time goes by without another one.
// The limiter takes each share at the moment at which it comes back, so it does not
// matter when somebody looks.
func (g *gate) recover(now time.Time) {
	if g.throttle.less > 0 {
		g.recoverUpTo(now)
	}
}

func (g *gate) recoverUpTo(now time.Time) {
	for at := g.throttle.regains(); g.throttle.less > 0 && !at.After(now); at = g.throttle.regains() {
		g.share(at, g.throttle.less-1)
	}
}

// isThrottled reports whether the class pauses at now, or is slowed down.
func (g *gate) isThrottled(now time.Time) bool {
	g.recover(now)
	return g.throttle.until.After(now) || g.throttle.less > 0
}
