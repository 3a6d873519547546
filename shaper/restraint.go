package shaper

import (
	"time"

	"shaper/calendar"
	"shaper/leaky"
	"shaper/limit"
	"shaper/policy"
	"shaper/unit"
)

// A restraint is one limit of a class: its own, or one of `also`. It is computed once.
type restraint struct {
	kind      unit.Kind
	algorithm policy.Algorithm
	window    time.Duration    // 0: the algorithm has none; nominal if it is of the calendar
	calendar  calendar.Windows // zero: the window is of no calendar
	named     unit.Rate        // as the policy says
	rate      unit.Rate        // less headroom
	atOnce    int64            // how much may leave at once, in the unit of the class
}

func restraintOf(l policy.Limit) restraint {
	r := restraint{kind: l.Rate.Kind(), algorithm: l.Algorithm, named: l.Rate, rate: l.Rate.Below(l.Headroom)}
	if r.algorithm.HasWindow() {
		r.window, r.calendar = l.WindowInForce(), l.Calendar()
	}
	r.atOnce = r.atOnceOf(l.AtOnce())
	return r
}

// atOnceOf returns how much may leave at once, in the unit of the class. named is what the
// policy names; 0 if it names nothing. The result is what a window holds; or the burst,
// by default one quantum; or one piece of a leaky class; or 1 if the class does not count
// bytes.
func (r *restraint) atOnceOf(named int64) int64 {
	switch {
	case r.algorithm.HasWindow(), named > 0:
		return named
	case r.kind != unit.Bytes:
		return 1
	case r.algorithm.HasBurst():
		return leaky.Quantum(r.rate)
	}
	return leaky.Piece(r.rate)
}

// minPieces is how many pieces a limit.SlidingWindow holds at least. Under load one piece
// less leaves in each window.
const minPieces = 64

// fitting returns a piece of a stream that fits the restraint, and is no larger than piece.
func (r *restraint) fitting(piece int64) int64 {
	switch {
	case r.algorithm.HasBurst():
		// Half the token bucket: while one piece waits, the other half fills. A full token
		// bucket would lose what arrives before a late wake-up.
		piece = min(piece, r.atOnce/2)
	case r.algorithm.HasWindow():
		// A window holds whole pieces: what remains of it is never used.
		pieces := max((r.atOnce-1)/piece+1, 1)
		if r.algorithm == policy.SlidingWindow {
			pieces = max(pieces, minPieces)
		}
		piece = r.atOnce / pieces
	default:
		piece = min(piece, leaky.Piece(r.rate))
	}
	return max(piece, 1)
}

// reduced returns the rate with so many sixteenths of it taken away.
func (r *restraint) reduced(withheld int) unit.Rate {
	return r.rate.Below(unit.Percent(int64(withheld) * 1_000_000 / sixteenths))
}

// partOfRate returns a part of the rate, from 0 to 1.
func (r *restraint) partOfRate(part float64) unit.Rate {
	return r.rate.Below(unit.Percent((1 - part) * 1_000_000))
}

// horizon returns how long what has left matters. A sliding window remembers it for twice as
// long.
func (r *restraint) horizon() time.Duration {
	if r.window > 0 {
		return r.window
	}
	return r.rate.Time(r.atOnce)
}

// blocks reports whether nothing ever leaves at a rate. A window holds whole units only,
// so a rate that allows less than one in it blocks.
func (r *restraint) blocks(rate unit.Rate) bool {
	return rate.IsZero() || r.algorithm.HasWindow() && rate.Units(r.window) == 0
}

// sameLimiter reports whether the limiter of one restraint can serve the other.
func (r *restraint) sameLimiter(o *restraint) bool {
	return r.algorithm == o.algorithm && r.window == o.window && r.calendar == o.calendar
}

// equals reports whether two restraints are one limit. A record does not have what the policy names.
func (r *restraint) equals(o *restraint) bool {
	return r.sameLimiter(o) && r.rate.Compare(o.rate) == 0 && r.atOnce == o.atOnce
}

// A Quota is a limit in words of programs: at most so many units in each window. A limit without a window allows them in
// the period of its rate.
type Quota struct {
	Class  string // whose limit it is
	Kind   unit.Kind
	Units  int64 // 0: nothing ever leaves
	Window time.Duration
}

// asQuota returns a limit of a class as the policy names it. A limit that allows less than one unit in its period allows
// one unit in a longer time.
func (r *restraint) asQuota(class string) Quota {
	q := Quota{Class: class, Kind: r.kind, Window: r.window}
	if q.Window == 0 {
		q.Window = r.named.Period()
	}
	if q.Units = r.named.Units(q.Window); q.Units == 0 && !r.named.IsZero() {
		q.Units, q.Window = 1, r.named.Time(1)
	}
	return q
}

// newLimiter returns a limiter that has let nothing out yet.
func (r *restraint) newLimiter(now time.Time) limit.Limiter {
	switch {
	case r.calendar.Period != "":
		return limit.NewCalendarWindow(now, r.rate, r.calendar)
	case r.algorithm == policy.Token:
		return limit.NewToken(now, r.rate, r.atOnce)
	case r.algorithm == policy.GCRA:
		return limit.NewGCRA(now, r.rate, r.atOnce)
	case r.algorithm == policy.FixedWindow:
		return limit.NewFixedWindow(now, r.rate, r.window)
	case r.algorithm == policy.SlidingLog:
		return limit.NewSlidingLog(now, r.rate, r.window)
	case r.algorithm == policy.SlidingWindow:
		return limit.NewSlidingWindow(now, r.rate, r.window)
	case r.kind == unit.Bytes:
		return leaky.NewBucket(r.rate)
	}
	return leaky.NewGap(r.rate)
}

// spentLimiter returns a limiter from which as much has just left as may leave at once, or
// owed if that is more.
func (r *restraint) spentLimiter(now time.Time, owed int64) limit.Limiter {
	l, n := r.newLimiter(now), r.atOnce
	if r.algorithm.HasBurst() {
		n += max(owed-1, 0) // the next item waits for its own unit anyway
	}
	l.Take(now, now, max(n, owed))
	limit.Succeed(l, now)
	return l
}

// goOn returns a limiter that goes on at now from l without a new burst. l has the restraint
// old and runs at rate.
func (r *restraint) goOn(now time.Time, l limit.Limiter, old *restraint, rate unit.Rate) limit.Limiter {
	if r.sameLimiter(old) {
		l.SetRate(now, r.rate, r.atOnce)
		return l
	}
	owed := rate.Units(l.Next(now, 0, 0).Sub(now)) // what has left and is not paid for yet
	return r.spentLimiter(now, owed)
}
