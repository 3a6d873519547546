package shaper

import (
	"time"

	"shaper/calendar"
	"shaper/leaky"
	"shaper/limit"
	"shaper/policy"
	"shaper/unit"
)

// A Member is how a class takes part in a fleet, which is several processes that share the budget of
// the class. Its methods do not block, and take no lock of this package. It calls Shaper.Told
// when something has changed.
type Member interface {
	// Budget returns the budget of limit i, in the order of Limits: of the class, or of one key of
	// it, unless key is "".
	Budget(i int, key string) Budget
	// Set puts the limits of another policy in force. Their number, algorithms and windows stay.
	Set(limits []Limit)
	// Slow says that the provider has refused something as too fast: no member gets anything of the
	// class for a time, or of one key of it, unless key is "".
	Slow(key string, wait time.Duration)
	// PausedUntil returns until when the provider wants nothing of the class, or of one key of it, as
	// any member has heard it.
	PausedUntil(key string) time.Time
	// Secret returns what all members hash keys with.
	Secret() *[32]byte
}

// A Limit is one limit of a class, as the members of a fleet have to agree on it.
type Limit struct {
	Algorithm policy.Algorithm
	Rate      unit.Rate        // less headroom
	Burst     int64            // how much may leave at once, in the unit of the rate; 1 if there is a window, which says it
	Late      time.Duration    // how much later than its slot an item may leave; windows have none
	Window    time.Duration    // 0: the algorithm has none
	Calendar  calendar.Windows // zero: the window is of no calendar
	Joined    bool             // another limit of the class includes this one; see join
}

// Limits returns the limits of a class or of each of its buckets, its own first.
func Limits(conf policy.Class) []Limit {
	conf.Per = policy.Per{}
	p := paceOf(conf)
	return p.limits()
}

// limits returns the limits as the members of a fleet have to agree on them. It joins those that
// one limit can include.
func (p *pace) limits() (all []Limit) {
	for r := range p.restraints() {
		l := Limit{Algorithm: r.algorithm, Rate: r.rate, Burst: r.atOnce, Late: r.late(), Window: r.window, Calendar: r.calendar}
		if r.window > 0 {
			l.Burst, l.Late = 1, 0
		}
		for i := range all {
			if all[i].join(&l) {
				break
			}
		}
		all = append(all, l)
	}
	return all
}

// join makes l include another limit, and marks that one as Joined: l gets the lower rate of the two,
// and the smaller burst. Two sequences of slots have few moments in common: the slots of one would be
// over when the other one has a slot. join does nothing, and returns false, if one of them has a window,
// or if more of a burst would be lost than is brief.
func (l *Limit) join(o *Limit) bool {
	if l.Joined || l.Window > 0 || o.Window > 0 {
		return false
	}
	slow, fast := l, o
	if o.Rate.Compare(l.Rate) < 0 {
		slow, fast = o, l
	}
	if lost := slow.Burst - min(slow.Burst, fast.Burst); lost > 0 && slow.Rate.Time(lost) > policy.BriefBurst {
		return false
	}
	both := *l
	both.Rate, both.Burst, both.Late = slow.Rate, min(l.Burst, o.Burst), min(l.Late, o.Late)
	if both.Burst == 1 {
		both.Late = slow.Rate.Time(1) - max(l.gap(), o.gap())
	}
	o.Joined = true
	*l = both
	return true
}

// slowest returns which limit of the class has the rate of l, which is limit i and may include others.
func (p *pace) slowest(i int, l *Limit) int {
	part := 0
	for r := range p.restraints() {
		if part >= i && r.window == l.Window && r.rate.Compare(l.Rate) == 0 {
			return part
		}
		part++
	}
	return i
}

// gap returns how far apart items are at least that a limit without a burst lets leave.
func (l *Limit) gap() time.Duration { return l.Rate.Time(1) - l.Late }

// onItsWay is which part of the headroom of a gap a late item does not use, one in so many: the item reaches the provider a
// little after its class has let it go, and not always equally late.
const onItsWay = 16

// withoutHeadroom is by which part of a gap an item may be late if the gap has no headroom, one in so many: else each wake-up
// would lose its slot.
const withoutHeadroom = 50

// late returns how much later than its slot an item may leave. A gap has its headroom for that, less
// what is kept for the way: the gap between a late item and a punctual item is still as long as a gap
// at the rate named in the policy. A stream of bytes makes up for a piece, as in package leaky.
func (r *restraint) late() time.Duration {
	if r.kind == unit.Bytes {
		return max(leaky.Slack(r.rate), time.Microsecond)
	}
	gap := r.rate.Time(1)
	if headroom := gap - r.named.Time(1); headroom > 0 {
		return headroom - headroom/onItsWay
	}
	return max(gap/withoutHeadroom, time.Nanosecond)
}

// A Budget is one limit of a shared class, or of one of its keys. Next is limit.Never while too little
// is in hand. It is safe for concurrent use.
type Budget interface {
	limit.Limiter
	limit.Estimator
	// Amender gives back units of the window that is open. What is given back of other limits is lost.
	limit.Amender
	// Want says how many units wait, all in all, and how many each of the next items needs, as far as that is
	// known: at least for the first; 0 and 0 if nothing waits. It does not keep the slice. Take subtracts what leaves from
	// the units, and from the next items if it is the first of several.
	Want(now time.Time, units int64, next ...int64)
	// Hold says that other limits are slower: nothing of what waits leaves before until, and not more than
	// what Want says. Slots that would be lost are for others. The zero time says that there are none.
	Hold(now, until time.Time)
	// Owe says that the process has used so many units of a window without the fleet, and until when they count. Nothing
	// more leaves before the store knows.
	Owe(now time.Time, units int64, until time.Time)
	// Left says that the item which Take has charged last has left at now: its gap counts from then.
	Left(now time.Time)
	// Over returns until when the item that Take has charged last may leave: what the fleet has granted for it is
	// over then. The zero time says that it may leave at any time.
	Over() time.Time
	// Lost says that an item of n units that Take has charged at the time then has not left. A slot that it was granted is
	// lost. Units of a window are not, if no other item was charged then or since.
	Lost(then time.Time, n int64)
	// RefusedUntil returns until when a window has no room for an item of n units: the store has refused so many units, or
	// fewer, and said until when. If it has not, or if the units are in hand, the time has passed.
	RefusedUntil(now time.Time, n int64) time.Time
	// Reduced returns to which rate the limit is reduced for an item of n units: to that of this process, if the store is
	// away, or to what the shares of silent processes leave. The zero rate says that it is not.
	Reduced(now time.Time, n int64) (to unit.Rate, away bool)
	// Forget drops what the process has of the budget, until somebody asks for it again.
	Forget()
}
