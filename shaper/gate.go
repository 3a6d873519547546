package shaper

import (
	"time"

	"shaper/leaky"
	"shaper/limit"
	"shaper/policy"
)

// leavePatience is how long a class waits for an item on its way out before it goes on.
const leavePatience = time.Second

// A gate is what one class allows to leave, apart from the classes above it. The lock of
// the tree guards it.
type gate struct {
	regulator // the limits of the class

	// What else the policy says.
	onThrottle  policy.OnThrottle
	adapts      bool
	maxInFlight int  // 0: any number
	passive     bool // the class holds nothing up itself: its buckets do, or it has a shadow

	// What has left.
	assured   *leaky.Assured // nil: whatever the limiter allows is assured
	inFlight  int            // items in flight, of the class and those beneath it
	inherited int            // items in flight of the class that this one has replaced
	payer     *node          // the class whose item was charged last: this one, or one beneath it
}

// set puts a policy in force at now, with its pace and its limiter.
func (g *gate) set(now time.Time, conf policy.Class, p *pace, l limit.Limiter) {
	g.onThrottle, g.adapts, g.maxInFlight = conf.OnThrottle, conf.Adapt, conf.InFlight
	g.regulator.set(now, conf, p, l)
	g.assured = p.assure(now, g.assured)
}

// learn notes an answer of the provider. It reports whether the rate changes with that.
func (g *gate) learn(now time.Time, refused bool) (changed bool) {
	l := g.throttle.learner
	if l == nil || g.passive || !l.answered(now, refused, g.unanswered()) {
		return false
	}
	g.setRate(now)
	return true
}

// allowedAt returns when an item that costs n may leave, if it is the next; now if it
// costs nothing. While the class gets its rate back, the time changes with each sixteenth. So
// allowedAt returns no later time than that of the next one: somebody looks again then.
func (g *gate) allowedAt(now time.Time, n int64) time.Time {
	if n > 0 && g.awaitsAnswers() && !g.passive {
		return limit.Never
	}
	at := g.pacedAt(now, n)
	if g.throttle.withheld > 0 {
		at = earlier(at, g.throttle.nextRegain())
	}
	return at
}

// unanswered returns how many items are in flight.
func (g *gate) unanswered() int { return g.inFlight + g.inherited }

// awaitsAnswers reports whether as many items are in flight as may be.
func (g *gate) awaitsAnswers() bool { return g.maxInFlight > 0 && g.unanswered() >= g.maxInFlight }

// pacedAt is allowedAt as if nothing were in flight, since nobody knows when answers come, and as if nothing
// of the rate came back.
func (g *gate) pacedAt(now time.Time, n int64) time.Time {
	if n == 0 {
		return now
	}
	g.regain(now)
	at := g.limiter.Next(now, 0, n)
	if g.hasStopped() {
		at = g.resumes(at)
	}
	return at
}

// expectedAt is pacedAt for an estimate: the limiter asks no ledger and no fleet for more.
func (g *gate) expectedAt(now time.Time, n int64) time.Time {
	if n == 0 {
		return now
	}
	g.regain(now)
	return g.resumes(g.estimate(now, 0, n))
}

// hasStopped reports whether an item is on its way out, or the class pauses or has paused.
func (g *gate) hasStopped() bool { return !g.leavingSince.IsZero() || !g.throttle.until.IsZero() }

// resumes returns when an item may leave that the limiter allows at a time: not while another item is on
// its way out, nor while the class pauses.
func (g *gate) resumes(at time.Time) time.Time {
	if !g.leavingSince.IsZero() {
		at = later(at, g.leavingSince.Add(leavePatience))
	}
	if !g.throttle.until.IsZero() && !g.passive {
		at = later(at, g.throttle.until)
	}
	return at
}

// pausedUntil returns until when the class pauses; a time that has passed if it does not.
func (g *gate) pausedUntil() time.Time {
	if g.passive {
		return time.Time{}
	}
	return g.throttle.until
}

// amend corrects what was charged for an item that left at the time then.
func (g *gate) amend(now, then time.Time, units int64) {
	g.regain(now)
	limit.Amend(g.limiter, now, then, units)
	if g.assured != nil {
		g.assured.Amend(now, units)
	}
}

// signal says that the provider has refused something; see throttle.signal.
func (g *gate) signal(now time.Time, wait time.Duration) {
	g.regain(now)
	l := g.throttle.learner
	if l.learns() && wait == 0 && g.onThrottle == (policy.OnThrottle{}) {
		return // it goes on at the pace that it learns
	}
	begins := g.throttle.signal(now, wait, g.onThrottle)
	switch {
	case begins && l != nil:
		l.paused += g.throttle.until.Sub(now)
	case begins && g.adapts:
		g.withhold(now, g.throttle.afterSignal())
	}
}

// heard says that the provider has refused something to another member of the fleet, and that
// nobody sends before until.
func (g *gate) heard(now, until time.Time) {
	g.regain(now)
	begins := !now.Before(g.throttle.until)
	if g.throttle.until = later(g.throttle.until, until); begins && g.adapts {
		g.withhold(now, g.throttle.afterSignal())
	}
}
