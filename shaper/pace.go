package shaper

import (
	"iter"
	"math"
	"time"

	"shaper/leaky"
	"shaper/limit"
	"shaper/policy"
	"shaper/unit"
)

// A pace is all that a policy says about how fast a class sends. paceOf computes it once,
// and then it does not change. What a provider's signals take away is in throttle.
type pace struct {
	restraint               // the limit of the class: its rate, or the ceil
	also      []restraint   // further limits, which have rates of their own
	closed    limit.Span    // nothing leaves in it
	assured   unit.Rate     // the rate less headroom
	piece     int64         // how many bytes of a stream may be one item
	slack     time.Duration // how long the class may wait for its turn without losing the time
	patience  time.Duration // how long the class stays free for the contender whose turn it is
	keyed     bool          // the class has buckets, and these have the limits
	quieted   bool          // it is a group of recipients with quiet hours, and the class above has the limits
	hinted    bool          // what the provider says of its limits holds, too
	borrows   bool          // the limit is above the assured rate, or is not enforced
}

// paceOf computes the pace of a class.
func paceOf(conf policy.Class) pace {
	p := pace{restraint: restraintOf(conf.Own()), assured: conf.Rate.Below(conf.Headroom), keyed: conf.Per != (policy.Per{})}
	if !p.keyed {
		p.closed = limit.Span(conf.Closed)
		for _, l := range conf.Also {
			p.also = append(p.also, restraintOf(l))
		}
		p.hinted = conf.Hints
	}
	p.slack = p.slackOf()
	if !conf.Shadow {
		p.patience = p.patienceOf()
	}
	p.piece = MaxPiece
	if p.kind == unit.Bytes && !p.keyed && !conf.Shadow {
		p.piece = p.pieceOf()
	}
	p.borrows = !p.keyed && (p.assured.Compare(p.rate) < 0 || conf.Shadow)
	return p
}

// quietPace returns the pace of a group of recipients with quiet hours. The group is assured of
// nothing, as the queue of the class above is, with which it takes turns.
func quietPace(conf policy.Class) pace {
	return pace{restraint: restraintOf(conf.Own()), assured: unit.NewRate(conf.Rate.Kind(), 0, conf.Rate.Period()), piece: MaxPiece,
		closed: limit.Span(conf.Closed), quieted: true, borrows: true}
}

// slackOf returns the slack: one gap, or what a leaky class of bytes catches up at once.
// The other algorithms need none: they keep what was not used.
func (p *pace) slackOf() time.Duration {
	switch {
	case p.algorithm.HasBurst(), p.algorithm.HasWindow():
		return 0
	case p.kind != unit.Bytes:
		return p.rate.Time(1)
	}
	return leaky.Slack(p.rate)
}

// patienceOf returns the patience, which is a small part of a gap of the slowest limit. If a limit lets items
// leave one by one, the class loses that time. A limit with a burst uses the time later. But the moments of
// such a limit stand still, and the contender that the class waits for is later each time by what it takes to
// write an item, so the patience is longer there. Beneath a window nothing is lost if another contender
// leaves.
func (p *pace) patienceOf() time.Duration {
	if p.kind == unit.Bytes || p.keyed {
		return 0 // nothing is lost if another one leaves; or the class holds nothing up
	}
	gap, loses := time.Duration(0), false
	for r := range p.restraints() {
		if !r.algorithm.HasWindow() {
			gap, loses = max(gap, r.rate.Time(1)), loses || r.atOnce == 1
		}
	}
	if loses {
		return min(gap/128, 100*time.Microsecond)
	}
	return min(gap/16, time.Millisecond)
}

// MaxPiece is the largest piece of a class: how many bytes of a stream may be one item.
const MaxPiece = leaky.MaxPiece

// pieceOf returns the piece of a class that counts bytes.
func (p *pace) pieceOf() int64 {
	piece := p.fitting(leaky.Piece(p.rate))
	for i := range p.also {
		piece = p.also[i].fitting(piece)
	}
	return piece
}

// restraints yields all limits of the class, its own first.
func (p *pace) restraints() iter.Seq[*restraint] {
	return func(yield func(*restraint) bool) {
		if !yield(&p.restraint) {
			return
		}
		for i := range p.also {
			if !yield(&p.also[i]) {
				return
			}
		}
	}
}

// numbered returns a limit of the class by the number that limit.Holding returns; nil if that is none of its limits.
func (p *pace) numbered(i int) *restraint {
	switch {
	case i > len(p.also), p.isUnlimited():
		return nil
	case i > 0:
		return &p.also[i-1]
	}
	return &p.restraint
}

// further returns how many limits the class has beside its own.
func (p *pace) further() int {
	if p.hinted {
		return len(p.also) + 1
	}
	return len(p.also)
}

// horizon returns how long what has left matters, to the limit to which it matters longest.
func (p *pace) horizon() (longest time.Duration) {
	for r := range p.restraints() {
		longest = max(longest, r.horizon())
	}
	return longest
}

// isUnlimited reports whether others have the limits of the class.
func (p *pace) isUnlimited() bool { return p.keyed || p.quieted }

// outside names what holds something up if that is none of the limits of the class. part is the number
// that limit.Holding returns.
func (p *pace) outside(part int) string {
	switch {
	case p.quieted:
		return HoldQuiet
	case p.hinted && part == p.further():
		return HoldHint
	}
	return HoldClosed
}

// whenOpen returns a time, or when the class opens if it is closed then.
func (p *pace) whenOpen(at time.Time) time.Time {
	if !at.Before(p.closed.From) && at.Before(p.closed.Until) {
		return p.closed.Until
	}
	return at
}

// idle returns a limiter that has let nothing out yet.
func (p *pace) idle(now time.Time) limit.Limiter {
	return p.limiter(nil, func(_ int, r *restraint) limit.Limiter { return r.newLimiter(now) })
}

// spent returns a limiter from which as much has just left as may leave at once.
func (p *pace) spent(now time.Time) limit.Limiter {
	return p.limiter(nil, func(_ int, r *restraint) limit.Limiter { return r.spentLimiter(now, 0) })
}

// takeOver returns a limiter that goes on at now from l without a new burst. l has the pace
// old; its own limit runs at rate. A further limit goes on from the one of old that is most
// like it. If there is none, it begins as if all that it lets leave at once had just left. What
// the provider has said still holds.
func (p *pace) takeOver(now time.Time, l limit.Limiter, old *pace, rate unit.Rate) limit.Limiter {
	parts, origins := limit.Parts(l), p.origins(old)
	return p.limiter(limit.HintsOf(l), func(i int, r *restraint) limit.Limiter {
		from := origins[i]
		switch {
		case i == 0:
			return r.goOn(now, parts[0], &old.restraint, rate)
		case from < 0:
			return r.spentLimiter(now, 0)
		}
		return r.goOn(now, parts[from], &old.also[from-1], old.also[from-1].rate)
	})
}

// origins returns from which limit of old each limit goes on, its own first; -1 if from none. Equal
// limits belong together before others that one limiter can serve.
func (p *pace) origins(old *pace) []int {
	all, taken := make([]int, 1+len(p.also)), make([]bool, len(old.also))
	if !p.sameLimiter(&old.restraint) {
		all[0] = -1
	}
	for i := range p.also {
		all[i+1] = firstLike(&p.also[i], old.also, taken, (*restraint).equals)
	}
	for i := range p.also {
		if all[i+1] < 0 {
			all[i+1] = firstLike(&p.also[i], old.also, taken, (*restraint).sameLimiter)
		}
	}
	return all
}

// firstLike returns the number in a pace of the first of some further limits that is not taken and is
// like r, and takes it; -1 if there is none.
func firstLike(r *restraint, all []restraint, taken []bool, like func(r, o *restraint) bool) int {
	for i := range all {
		if !taken[i] && like(r, &all[i]) {
			taken[i] = true
			return i + 1 // its own is the first
		}
	}
	return -1
}

// limiter returns the limiter of a class: what of returns for each of its limits, its own first, with
// what the provider says, and closed. hints is nil if the provider has said nothing.
func (p *pace) limiter(hints *limit.Hints, of func(i int, r *restraint) limit.Limiter) limit.Limiter {
	own := limit.Limiter(limitless{})
	if !p.isUnlimited() {
		own = of(0, &p.restraint)
	}
	if p.further() == 0 && p.closed == (limit.Span{}) {
		return own
	}
	parts := []limit.Limiter{own}
	for i := range p.also {
		parts = append(parts, of(i+1, &p.also[i]))
	}
	if p.hinted && hints == nil {
		hints = new(limit.Hints)
	}
	if p.hinted {
		parts = append(parts, hints)
	}
	return limit.NewAll(p.closed, parts...)
}

// assure returns what tells when a class is within its assured rate; nil if everything
// within its limit is assured. It goes on from had, which the class had before. If had is
// nil, the class has been idle until now.
func (p *pace) assure(now time.Time, had *leaky.Assured) *leaky.Assured {
	switch {
	case !p.borrows:
		return nil
	case had == nil:
		return leaky.NewAssured(now, p.assured)
	}
	had.SetRate(now, p.assured)
	return had
}

// copyOf returns a copy of what p points to; nil for nil.
func copyOf[T any](p *T) *T {
	if p == nil {
		return nil
	}
	v := *p
	return &v
}

// bound returns the bound of a queue for package leaky. In a policy 0 means no bound.
func bound(n int64) int64 {
	if n == 0 {
		return math.MaxInt
	}
	return n
}

// limitless is the limiter of a class that holds nothing up itself: its buckets do, or the class above,
// or nothing, because the class has a shadow.
type limitless struct{}

func (limitless) Next(time.Time, int64, int64) time.Time { return time.Time{} }
func (limitless) Take(_, _ time.Time, _ int64)           {}
func (limitless) SetRate(time.Time, unit.Rate, int64)    {}
func (limitless) Memory(now time.Time) (m limit.Memory, whole bool) {
	return limit.Memory{Until: now}, true
}
func (limitless) Remember(limit.Memory) {}
func (limitless) Clone() limit.Limiter  { return limitless{} }

// blocked is the limiter of a bucket that was given up. An item that still comes waits
// until its owner takes it out.
type blocked struct{ limitless }

func (blocked) Next(time.Time, int64, int64) time.Time { return limit.Never }
