package shaper

import (
	"math"
	"time"

	"shaper/leaky"
	"shaper/limit"
	"shaper/policy"
	"shaper/unit"
)

// A pace is all that a policy says about how fast a class sends. It is computed once,
// by paceOf, and does not change. What a provider's signals take away from it is the
// business of throttle.
type pace struct {
	kind      unit.Kind
	algorithm policy.Algorithm
	window    time.Duration // that is in force; 0: the algorithm has none
	rate      unit.Rate     // of the limiter: headroom below the rate, or below the ceil
	assured   unit.Rate     // headroom below the rate
	atOnce    int64         // how much may leave at once
	piece     int64         // the most bytes of a stream that are one item
	slack     time.Duration // how much of the time from its limit to its turn the class does not lose
	keyed     bool          // the buckets of the class limit, and not the class
	borrows   bool          // the limit is above the assured rate, or is not enforced
}

// paceOf computes the pace of a class.
func paceOf(conf policy.Class) pace {
	p := pace{
		kind:      conf.Rate.Kind(),
		algorithm: conf.Algorithm,
		rate:      conf.Limit().Below(conf.Headroom),
		assured:   conf.Rate.Below(conf.Headroom),
		keyed:     conf.Per != (policy.Per{}),
	}
	if p.algorithm.HasWindow() {
		p.window = conf.WindowInForce()
	}
	p.atOnce = p.atOnceOf(conf.AtOnce())
	p.slack = p.slackOf()
	p.piece = MaxPiece
	if p.kind == unit.Bytes && !p.keyed && !conf.Shadow {
		p.piece = p.pieceOf()
	}
	p.borrows = !p.keyed && (p.assured.Compare(p.rate) < 0 || conf.Shadow)
	return p
}

// atOnceOf returns how much may leave at once, in the unit of the class, if the policy
// names so much, or 0: what a window holds; the burst, which is one quantum by default;
// one piece of a leaky class, or 1 if it does not count bytes.
func (p *pace) atOnceOf(named int64) int64 {
	switch {
	case p.algorithm.HasWindow(), named > 0:
		return named
	case p.kind != unit.Bytes:
		return 1
	case p.algorithm.HasBurst():
		return leaky.Quantum(p.rate)
	}
	return leaky.Piece(p.rate)
}

// slackOf returns the slack: a gap, or what a leaky class of bytes catches up at once.
// The other algorithms keep what was not used.
func (p *pace) slackOf() time.Duration {
	switch {
	case p.algorithm.HasBurst(), p.algorithm.HasWindow():
		return 0
	case p.kind != unit.Bytes:
		return p.rate.Time(1)
	}
	return leaky.Slack(p.rate)
}

// MaxPiece is the most bytes of a stream that are one item of any class.
const MaxPiece = leaky.MaxPiece

// minPieces is how many pieces a limit.SlidingWindow holds at least: under load
// one less leaves in each window.
const minPieces = 64

// pieceOf returns the piece of a class of bytes.
func (p *pace) pieceOf() int64 {
	piece := leaky.Piece(p.rate)
	switch {
	case p.algorithm.HasBurst():
		// Half the bucket, so that while one waits the other half fills: a bucket
		// that is full loses what a late wake-up does not take.
		piece = min(piece, p.atOnce/2)
	case p.algorithm.HasWindow():
		// So that a window holds them whole: what is left over in it never leaves.
		pieces := (p.atOnce-1)/piece + 1
		if p.algorithm == policy.SlidingWindow {
			pieces = max(pieces, minPieces)
		}
		piece = p.atOnce / pieces
	}
	return max(piece, 1)
}

// reduced returns the rate of the limiter with so many sixteenths of it taken away.
func (p *pace) reduced(sixteenths int) unit.Rate {
	return p.rate.Below(unit.Percent(int64(sixteenths) * 1_000_000 / shares))
}

// blocks reports whether nothing ever leaves at a rate: a window holds whole units only.
func (p *pace) blocks(rate unit.Rate) bool {
	return rate.IsZero() || p.algorithm.HasWindow() && rate.Units(p.window) == 0
}

// sameLimiter reports whether the limiter of one pace serves another one.
func (p *pace) sameLimiter(o *pace) bool { return p.algorithm == o.algorithm && p.window == o.window }

// idle returns a limiter that has let nothing out yet.
func (p *pace) idle(now time.Time) limit.Limiter {
	switch {
	case p.keyed:
		return limitless{}
	case p.algorithm == policy.Token:
		return limit.NewToken(now, p.rate, p.atOnce)
	case p.algorithm == policy.GCRA:
		return limit.NewGCRA(now, p.rate, p.atOnce)
	case p.algorithm == policy.FixedWindow:
		return limit.NewFixedWindow(now, p.rate, p.window)
	case p.algorithm == policy.SlidingLog:
		return limit.NewSlidingLog(now, p.rate, p.window)
	case p.algorithm == policy.SlidingWindow:
		return limit.NewSlidingWindow(now, p.rate, p.window)
	case p.kind == unit.Bytes:
		return leaky.NewBucket(p.rate)
	}
	return leaky.NewGap(p.rate)
}

// spent returns a limiter from which as much as may leave at once has just left, or what
// is owed if that is more.
func (p *pace) spent(now time.Time, owed int64) limit.Limiter {
	l, n := p.idle(now), p.atOnce
	if p.algorithm.HasBurst() {
		n += max(owed-1, 0) // the next unit waits for itself
	}
	l.Take(now, now, max(n, owed))
	return l
}

// takeOver returns the limiter that goes on at now from another one, l, of the pace old,
// which runs at rate. It gives no new burst.
func (p *pace) takeOver(now time.Time, l limit.Limiter, old *pace, rate unit.Rate) limit.Limiter {
	if p.sameLimiter(old) {
		l.SetRate(now, p.rate, p.atOnce)
		return l
	}
	owed := rate.Units(l.Next(now, 0, 0).Sub(now)) // has left, and is not paid for yet
	return p.spent(now, owed)
}

// assure returns what tells when a class is within its assured rate; nil if all that its
// limit allows is assured. It goes on from what the class had; nil says that the class
// has been idle until now.
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

// bound returns the bound of a queue as package leaky has it: in a policy, 0 is none.
func bound(n int64) int64 {
	if n == 0 {
		return math.MaxInt
	}
	return n
}

// limitless is the limiter of a class that leaves limiting to its buckets, or to nobody.
type limitless struct{}

func (limitless) Next(time.Time, int64, int64) time.Time { return time.Time{} }
func (limitless) Take(_, _ time.Time, _ int64)           {}
func (limitless) SetRate(time.Time, unit.Rate, int64)    {}
func (limitless) Memory(now time.Time) (m limit.Memory, whole bool) {
	return limit.Memory{Until: now}, true
}
func (limitless) Remember(limit.Memory) {}

// blocked is the limiter of a bucket that has been given up: what still comes waits until
// its owner takes it out.
type blocked struct{ limitless }

func (blocked) Next(time.Time, int64, int64) time.Time { return limit.Never }
