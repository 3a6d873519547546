package shaper

import (
	"time"

	"shaper/calendar"
	"shaper/leaky"
	"shaper/limit"
	"shaper/policy"
	"shaper/unit"
)

// A Share is what this process has of the budget of a class that several processes share: it is a
// member of a fleet. Its methods do not block, and take no lock of this package. It calls
// Shaper.Told when something has changed.
type Share interface {
	// Budget returns the budget of limit i, in the order of Limits: of the class, or of one key of
	// it, unless key is "".
	Budget(i int, key string) Budget
	// Set puts the limits of another policy in force. Their number, algorithms and windows stay.
	Set(limits []Limit)
	// Slow says that the provider has refused something as too fast: no member gets anything for
	// a time.
	Slow(wait time.Duration)
	// PausedUntil returns until when the provider wants nothing, as any member has heard it.
	PausedUntil() time.Time
	// Secret returns what all members hash keys with.
	Secret() *[32]byte
}

// A Limit is one limit of a class, as the members of a fleet have to agree on it.
type Limit struct {
	Algorithm policy.Algorithm
	Rate      unit.Rate        // less headroom
	Burst     int64            // how much may leave at once, in the unit of the rate; 1 if a window says it
	Late      time.Duration    // how much later than its slot an item may leave; windows have none
	Window    time.Duration    // 0: the algorithm has none
	Calendar  calendar.Windows // zero: the window is of no calendar
}

// Limits returns the limits of a class or of each of its buckets, its own first.
func Limits(conf policy.Class) (all []Limit) {
	conf.Per = policy.Per{}
	own, p := conf.Own(), paceOf(conf)
	for r := range p.restraints() {
		l := Limit{Algorithm: r.algorithm, Rate: r.rate, Burst: r.atOnce, Window: r.window, Calendar: r.calendar}
		named := own.Rate
		if len(all) > 0 {
			named = conf.Also[len(all)-1].Rate
		}
		if l.Late = r.late(named); r.window > 0 {
			l.Burst, l.Late = 1, 0
		}
		all = append(all, l)
	}
	return all
}

// leastLate is the least part of a gap by which an item may be late, one in so many: without any,
// each wake-up would lose its slot.
const leastLate = 50

// late returns how much later than its slot an item may leave. A gap has its headroom for that: the
// one between a late item and a punctual one is still as long as that at the rate named in the
// policy. A stream of bytes makes up for a piece, as in package leaky.
func (r *restraint) late(named unit.Rate) time.Duration {
	if r.kind == unit.Bytes {
		return max(leaky.Slack(r.rate), time.Microsecond)
	}
	gap := r.rate.Time(1)
	return max(gap-named.Time(1), gap/leastLate, time.Nanosecond)
}

// A Budget is one limit of a shared class, or of one of its keys. Next is limit.Never while too little
// is in hand. It is safe for concurrent use.
type Budget interface {
	limit.Limiter
	limit.Estimator
	// Want says how many units wait, all in all, and how many the next item needs; 0 and 0 if
	// nothing waits.
	Want(now time.Time, units, need int64)
	// Forget drops what the process has of the budget, until somebody asks for it again.
	Forget()
}

// burst returns Limit.Burst.
func (r *restraint) burst() int64 {
	if r.window > 0 {
		return 1
	}
	return r.atOnce
}
