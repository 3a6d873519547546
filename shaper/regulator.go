package shaper

import (
	"time"

	"shaper/limit"
	"shaper/policy"
	"shaper/unit"
)

// A regulator runs the limiter of a class at a rate: the rate of the pace, less what the signals of the provider have taken
// away, or the rate that was learned. It says when the limiter lets something leave, now and while the rate comes back. It
// knows nothing of what is in flight, nor of what is assured: the gate does. The lock of the tree guards it.
//
// The limiter runs at pacedRate, as of the last regain. Only limitless and blocked have no rate.
type regulator struct {
	pace     pace
	throttle throttle

	limiter      limit.Limiter   // in the unit of the class
	settler      limit.Settler   // limiter, if it is one
	alone        bool            // nothing follows an item before it has left
	estimator    limit.Estimator // limiter, if it is one
	backed       backed          // limiter, if it is one
	leavingSince time.Time       // since when an item is on its way out alone; zero: there is none
}

// A backed limiter is one around another one, which it lets go on only with what the backing of the class has
// given it.
type backed interface {
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
	// holding is regulator.holding, by what the fleet is expected to grant.
	holding(now time.Time, ahead, n int64) (part int)
}

// A hastener corrects estimates as throttle.hasten does. It is an interface and no func, since a method value would be
// allocated for each estimate.
type hastener interface {
	hasten(from, at time.Time) time.Time
}

// bare returns the limiter without what is around it.
func bare(l limit.Limiter) limit.Limiter {
	if b, ok := l.(backed); ok {
		return b.bare()
	}
	return l
}

// set puts a policy in force at now, with its pace and its limiter, which runs at the rate of the pace.
func (r *regulator) set(now time.Time, conf policy.Class, p *pace, l limit.Limiter) {
	r.pace = *p
	r.use(l)
	r.throttle.setLearn(conf, p)
	switch {
	case r.throttle.learner != nil:
		r.throttle.withheld = 0
		r.setRate(now)
	case !conf.Adapt:
		r.throttle.withheld = 0
	case r.throttle.withheld > 0:
		r.setWithheld(now, r.throttle.withheld)
	}
}

// use makes l the limiter, which runs at pacedRate.
func (r *regulator) use(l limit.Limiter) {
	r.limiter = l
	r.settler, _ = bare(l).(limit.Settler)
	if r.alone = r.settler != nil && r.settler.Alone(); !r.alone {
		r.leavingSince = time.Time{} // nobody waits for Left any more
	}
	r.estimator, _ = l.(limit.Estimator)
	r.backed, _ = l.(backed)
}

// takeOver returns a limiter for the next pace. It goes on from the limiter in force.
func (r *regulator) takeOver(now time.Time, next *pace) limit.Limiter {
	return next.takeOver(now, bare(r.limiter), &r.pace, r.pacedRate())
}

// pacedRate returns the rate at which the limiter of the class itself runs.
func (r *regulator) pacedRate() unit.Rate {
	if l := r.throttle.learner; l != nil {
		return r.pace.partOfRate(l.part())
	}
	return r.pace.reduced(r.throttle.withheld)
}

// setRate makes the limiter run at pacedRate from a time on.
func (r *regulator) setRate(from time.Time) { r.limiter.SetRate(from, r.pacedRate(), r.pace.atOnce) }

// withhold takes so many sixteenths of the rate away from a time on. The next one comes
// back regainEvery after that time.
func (r *regulator) withhold(from time.Time, withheld int) {
	r.throttle.since = from
	r.setWithheld(from, withheld)
}

// setWithheld is withhold, but the next sixteenth comes back when it would have before. It
// takes less away if otherwise nothing would ever leave.
func (r *regulator) setWithheld(from time.Time, withheld int) {
	for withheld > 0 && r.pace.blocks(r.pace.reduced(withheld)) {
		withheld--
	}
	r.throttle.withheld = withheld
	r.setRate(from)
}

// regain gives back the sixteenths of the rate that are due at now. The limiter gets each
// sixteenth as of the moment at which it is due, so it does not matter when somebody looks.
func (r *regulator) regain(now time.Time) {
	if r.throttle.withheld > 0 {
		r.regainUntil(now)
	}
}

func (r *regulator) regainUntil(now time.Time) {
	for at := r.throttle.nextRegain(); r.throttle.withheld > 0 && !at.After(now); at = r.throttle.nextRegain() {
		r.withhold(at, r.throttle.withheld-1)
	}
}

// throttleAs makes a regulator pause and slow down as another one of the same pace does. Neither learns.
func (r *regulator) throttleAs(now time.Time, o *regulator) {
	r.throttle.until, r.throttle.pause, r.throttle.since = o.throttle.until, o.throttle.pause, o.throttle.since
	if o.throttle.withheld > 0 {
		r.setWithheld(now, o.throttle.withheld)
	}
}

// isThrottled reports whether the class pauses at now or has less than its whole rate.
func (r *regulator) isThrottled(now time.Time) bool {
	r.regain(now)
	return r.throttle.until.After(now) || r.throttle.withheld > 0
}

// follows is estimate, and also serves an item that costs nothing: that leaves with the last of what is ahead.
func (r *regulator) follows(now time.Time, ahead, n int64) time.Time {
	switch {
	case n > 0:
		return r.estimate(now, ahead, n)
	case ahead > 0:
		return r.estimate(now, ahead-1, 1)
	}
	return now
}

// estimate returns when an item that costs n leaves if ahead units leave before it. The
// caller has called regain for now.
func (r *regulator) estimate(now time.Time, ahead, n int64) time.Time {
	if r.throttle.withheld > 0 {
		if b, ok := r.limiter.(budgeted); ok {
			return b.estimate(r, now, ahead, n)
		}
		return limit.Span(r.pace.closed).Next(now, ahead, n, r.regaining)
	}
	if r.estimator != nil {
		return r.estimator.Estimate(now, ahead, n)
	}
	return r.limiter.Next(now, ahead, n)
}

// holding returns which limit of the class an item of n units waits for if ahead units leave before it, by the number that
// limit.Holding returns. What this process has let out says nothing of that if a fleet has the budget.
func (r *regulator) holding(now time.Time, ahead, n int64) (part int) {
	if b, ok := r.limiter.(budgeted); ok {
		return b.holding(now, ahead, n)
	}
	part, _ = limit.Holding(bare(r.limiter), now, ahead, n)
	return part
}

// regaining is estimate while the rate comes back, without the closed time. It is the rate of the first limit;
// the others do not change.
func (r *regulator) regaining(now time.Time, ahead, n int64) (at time.Time) {
	for i, l := range limit.Parts(bare(r.limiter)) {
		window, counts := l.(limit.Window)
		switch {
		case i > 0:
			at = later(at, l.Next(now, ahead, n))
		case counts:
			at = r.roomAt(window, now, ahead, n)
		default:
			at = r.throttle.hasten(now, l.Next(now, ahead, n), r.flow)
		}
	}
	return at
}

// roomAt is regaining for a limit that is a window. With each sixteenth that comes back the window holds more, and does not end
// sooner. If nothing is ahead the result is exact.
func (r *regulator) roomAt(w limit.Window, now time.Time, ahead, n int64) time.Time {
	at, step := w.Next(now, ahead, n), r.throttle.nextRegain()
	flows := r.throttle.hasten(now, at, r.flow).Add(-r.pace.window)
	for withheld := r.throttle.withheld - 1; withheld >= 0 && at.After(step); withheld-- {
		at = earlier(at, later(step, w.NextAt(r.pace.reduced(withheld), now, ahead, n)))
		step = step.Add(regainEvery)
	}
	if ahead == 0 {
		return at
	}
	// What leaves meanwhile makes at a lower bound. A flow is at most a window ahead; and no estimate is later than if all left
	// when the rate is back.
	back := r.throttle.nextRegain().Add(time.Duration(r.throttle.withheld-1) * regainEvery)
	return later(at, earlier(flows, w.NextAt(r.pace.rate, later(back, now), ahead, n)))
}

// hasten is throttle.hasten for the limit of a class that is shared. Only the fleet knows how much room a window has. So a
// window is assumed to open when it would if nothing came back.
func (r *regulator) hasten(from, at time.Time) time.Time {
	if r.pace.algorithm.HasWindow() {
		return at
	}
	return r.throttle.hasten(from, at, r.flow)
}

// flow returns how much leaves while so many sixteenths of the rate are away: by those that remain, or what two windows hold, in
// whole units. A sliding window lets one unit less leave under load, and if it holds one, one in two windows.
func (r *regulator) flow(withheld int) int64 {
	if r.pace.window == 0 {
		return int64(sixteenths - withheld)
	}
	units := r.pace.reduced(withheld).Units(r.pace.window)
	if r.pace.algorithm == policy.SlidingWindow {
		return max(2*(units-1), 1)
	}
	return 2 * units
}

// settle says that an item of n units, which was charged at the time then, has left. The limiter is a settler. now is the time of the
// tree, in which time does not go back, and at is when the item has left. That may be before: what happens to the tree since does not make
// the item late for its slot.
func (r *regulator) settle(now, at, then time.Time, n int64) {
	r.leavingSince = time.Time{}
	r.settler.Left(now, then, n)
	if r.backed != nil {
		r.backed.left(at)
	}
}

// takeBack is gate.amend for an item that has not left after all, and will be charged again. It corrects windows only. A
// gap or a token bucket was charged the time of a turn, and the turn is lost: if it gave that time back, what waits
// would leave at once.
func (r *regulator) takeBack(now, then time.Time, units int64) {
	r.regain(now)
	limit.AmendWindows(bare(r.limiter), now, then, units)
	if r.backed != nil {
		r.backed.lost(then, -units)
	}
}
