package shaper

import (
	"time"

	"shaper/leaky"
	"shaper/limit"
	"shaper/policy"
	"shaper/unit"
)

// leavePatience is how long a class waits for an item on its way out before it goes on.
const leavePatience = time.Second

// A gate is what one class allows to leave, apart from the classes above it. The lock of
// the tree guards it.
type gate struct {
	// What the policy says.
	pace        pace
	onThrottle  policy.OnThrottle
	adapts      bool
	maxInFlight int  // 0: any number
	passive     bool // the class holds nothing up itself: its buckets do, or it has a shadow

	// What has left.
	limiter      limit.Limiter   // in the unit of the class
	settler      limit.Settler   // limiter, if it is one
	alone        bool            // nothing follows an item before it has left
	estimator    limit.Estimator // limiter, if it is one
	borrower     borrower        // limiter, if it is one
	assured      *leaky.Assured  // nil: whatever the limiter allows is assured
	inFlight     int             // items in flight, of the class and those beneath it
	inherited    int             // items in flight of the class that this one has replaced
	leavingSince time.Time       // since when an item is on its way out alone; zero: there is none
	payer        *node           // the class whose item was charged last: this one, or one beneath it

	throttle throttle
}

// set puts a policy in force at now, with its pace and its limiter.
func (g *gate) set(now time.Time, conf policy.Class, p *pace, l limit.Limiter) {
	g.pace = *p
	g.onThrottle, g.adapts, g.maxInFlight = conf.OnThrottle, conf.Adapt, conf.InFlight
	g.use(l)
	g.assured = g.pace.assure(now, g.assured)
	g.throttle.setLearn(conf, &g.pace)
	switch {
	case g.throttle.learner != nil:
		g.throttle.withheld = 0
		g.setLearned(now)
	case !g.adapts:
		g.throttle.withheld = 0
	case g.throttle.withheld > 0:
		g.setWithheld(now, g.throttle.withheld)
	}
}

// use makes l the limiter of the gate.
func (g *gate) use(l limit.Limiter) {
	g.limiter = l
	g.settler, _ = bare(l).(limit.Settler)
	if g.alone = g.settler != nil && g.settler.Alone(); !g.alone {
		g.leavingSince = time.Time{} // nobody waits for Left any more
	}
	g.estimator, _ = l.(limit.Estimator)
	g.borrower, _ = l.(borrower)
}

// A borrower is a limiter around another one, which it lets go on only with what it has
// borrowed from outside the process.
type borrower interface {
	bare() limit.Limiter
	idle(now time.Time) // no item may leave that waits beneath the class
	left(now time.Time) // the item that was charged last has left, if bare waits for that
	over() time.Time    // until when that item may leave; zero: at any time
	// lost says that an item of n units that was charged at the time then has not left, and will be charged again.
	lost(then time.Time, n int64)
}

// budgeted is a limiter around budgets of a fleet.
type budgeted interface {
	// estimate is Estimate, with own to correct what the first budget says, which is that of the rate.
	estimate(own hastener, now time.Time, ahead, n int64) time.Time
	// holding is gate.holding, by what the fleet is expected to grant.
	holding(now time.Time, ahead, n int64) (part int)
}

// A hastener corrects estimates as throttle.hasten does. It is an interface and no func, since a method value would be
// allocated for each estimate.
type hastener interface {
	hasten(from, at time.Time) time.Time
}

// bare returns the limiter without what is around it.
func bare(l limit.Limiter) limit.Limiter {
	if b, ok := l.(borrower); ok {
		return b.bare()
	}
	return l
}

// takeOver returns a limiter for the next pace. It goes on from the limiter of the gate.
func (g *gate) takeOver(now time.Time, next *pace) limit.Limiter {
	return next.takeOver(now, bare(g.limiter), &g.pace, g.pacedRate())
}

// pacedRate returns the rate at which the limiter of the class itself runs.
func (g *gate) pacedRate() unit.Rate {
	if l := g.throttle.learner; l != nil {
		return g.pace.partOfRate(l.part())
	}
	return g.pace.reduced(g.throttle.withheld)
}

// setLearned paces the class at what was learned.
func (g *gate) setLearned(now time.Time) { g.limiter.SetRate(now, g.pacedRate(), g.pace.atOnce) }

// learn notes an answer of the provider. It reports whether the rate changes with that.
func (g *gate) learn(now time.Time, refused bool) (changed bool) {
	l := g.throttle.learner
	if l == nil || g.passive || !l.answered(now, refused, g.unanswered()) {
		return false
	}
	g.setLearned(now)
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

// follows is estimate, and also serves an item that costs nothing: that leaves with the last of what is ahead.
func (g *gate) follows(now time.Time, ahead, n int64) time.Time {
	switch {
	case n > 0:
		return g.estimate(now, ahead, n)
	case ahead > 0:
		return g.estimate(now, ahead-1, 1)
	}
	return now
}

// estimate returns when an item that costs n leaves if ahead units leave before it. The
// caller has called regain for now.
func (g *gate) estimate(now time.Time, ahead, n int64) time.Time {
	if g.throttle.withheld > 0 {
		if b, ok := g.limiter.(budgeted); ok {
			return b.estimate(g, now, ahead, n)
		}
		return limit.Span(g.pace.closed).Next(now, ahead, n, g.regaining)
	}
	if g.estimator != nil {
		return g.estimator.Estimate(now, ahead, n)
	}
	return g.limiter.Next(now, ahead, n)
}

// holding returns which limit of the class an item of n units waits for if ahead units leave before it, by the number that
// limit.Holding returns. What this process has let out says nothing of that if a fleet has the budget.
func (g *gate) holding(now time.Time, ahead, n int64) (part int) {
	if b, ok := g.limiter.(budgeted); ok {
		return b.holding(now, ahead, n)
	}
	part, _ = limit.Holding(bare(g.limiter), now, ahead, n)
	return part
}

// regaining is estimate while the rate comes back, without the closed time. It is the rate of the first limit;
// the others do not change.
func (g *gate) regaining(now time.Time, ahead, n int64) (at time.Time) {
	for i, l := range limit.Parts(bare(g.limiter)) {
		window, counts := l.(limit.Window)
		switch {
		case i > 0:
			at = later(at, l.Next(now, ahead, n))
		case counts:
			at = g.roomAt(window, now, ahead, n)
		default:
			at = g.throttle.hasten(now, l.Next(now, ahead, n), g.flow)
		}
	}
	return at
}

// roomAt is regaining for a limit that is a window. With each sixteenth that comes back the window holds more, and does not end
// sooner. If nothing is ahead the result is exact.
func (g *gate) roomAt(w limit.Window, now time.Time, ahead, n int64) time.Time {
	at, step := w.Next(now, ahead, n), g.throttle.nextRegain()
	flows := g.throttle.hasten(now, at, g.flow).Add(-g.pace.window)
	for withheld := g.throttle.withheld - 1; withheld >= 0 && at.After(step); withheld-- {
		at = earlier(at, later(step, w.NextAt(g.pace.reduced(withheld), now, ahead, n)))
		step = step.Add(regainEvery)
	}
	if ahead == 0 {
		return at
	}
	// What leaves meanwhile makes at a lower bound. A flow is at most a window ahead; and no estimate is later than if all left
	// when the rate is back.
	back := g.throttle.nextRegain().Add(time.Duration(g.throttle.withheld-1) * regainEvery)
	return later(at, earlier(flows, w.NextAt(g.pace.rate, later(back, now), ahead, n)))
}

// hasten is throttle.hasten for the limit of a class that is shared. Only the fleet knows how much room a window has. So a
// window is assumed to open when it would if nothing came back.
func (g *gate) hasten(from, at time.Time) time.Time {
	if g.pace.algorithm.HasWindow() {
		return at
	}
	return g.throttle.hasten(from, at, g.flow)
}

// flow returns how much leaves while so many sixteenths of the rate are away: by those that remain, or what two windows hold, in
// whole units. A sliding window lets one unit less leave under load, and if it holds one, one in two windows.
func (g *gate) flow(withheld int) int64 {
	if g.pace.window == 0 {
		return int64(sixteenths - withheld)
	}
	units := g.pace.reduced(withheld).Units(g.pace.window)
	if g.pace.algorithm == policy.SlidingWindow {
		return max(2*(units-1), 1)
	}
	return 2 * units
}

// pausedUntil returns until when the class pauses; a time that has passed if it does not.
func (g *gate) pausedUntil() time.Time {
	if g.passive {
		return time.Time{}
	}
	return g.throttle.until
}

// settle says that an item of n units, which was charged at the time then, has left at now.
func (g *gate) settle(now, then time.Time, n int64) {
	g.leavingSince = time.Time{}
	g.settler.Left(now, then, n)
	if g.borrower != nil {
		g.borrower.left(now)
	}
}

// amend corrects what was charged for an item that left at the time then.
func (g *gate) amend(now, then time.Time, units int64) {
	g.regain(now)
	limit.Amend(g.limiter, now, then, units)
	if g.assured != nil {
		g.assured.Amend(now, units)
	}
}

// takeBack is amend for an item that has not left after all, and will be charged again. It corrects windows only. A
// gap or a token bucket was charged the time of a turn, and the turn is lost: if it gave that time back, what waits
// would leave at once.
func (g *gate) takeBack(now, then time.Time, units int64) {
	g.regain(now)
	limit.AmendWindows(bare(g.limiter), now, then, units)
	if g.borrower != nil {
		g.borrower.lost(then, -units)
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

// withhold takes so many sixteenths of the rate away from a time on. The next one comes
// back regainEvery after that time.
func (g *gate) withhold(from time.Time, withheld int) {
	g.throttle.since = from
	g.setWithheld(from, withheld)
}

// setWithheld is withhold, but the next sixteenth comes back when it would have before. It
// takes less away if otherwise nothing would ever leave.
func (g *gate) setWithheld(from time.Time, withheld int) {
	for withheld > 0 && g.pace.blocks(g.pace.reduced(withheld)) {
		withheld--
	}
	g.throttle.withheld = withheld
	g.limiter.SetRate(from, g.pace.reduced(withheld), g.pace.atOnce)
}

// regain gives back the sixteenths of the rate that are due at now. The limiter gets each
// sixteenth as of the moment at which it is due, so it does not matter when somebody looks.
func (g *gate) regain(now time.Time) {
	if g.throttle.withheld > 0 {
		g.regainUntil(now)
	}
}

func (g *gate) regainUntil(now time.Time) {
	for at := g.throttle.nextRegain(); g.throttle.withheld > 0 && !at.After(now); at = g.throttle.nextRegain() {
		g.withhold(at, g.throttle.withheld-1)
	}
}

// throttleAs makes a gate pause and slow down as another one of the same pace does. Neither learns.
func (g *gate) throttleAs(now time.Time, o *gate) {
	g.throttle.until, g.throttle.pause, g.throttle.since = o.throttle.until, o.throttle.pause, o.throttle.since
	if o.throttle.withheld > 0 {
		g.setWithheld(now, o.throttle.withheld)
	}
}

// isThrottled reports whether the class pauses at now or has less than its whole rate.
func (g *gate) isThrottled(now time.Time) bool {
	g.regain(now)
	return g.throttle.until.After(now) || g.throttle.withheld > 0
}
