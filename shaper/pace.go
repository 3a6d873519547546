package shaper

import (
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
	kind      unit.Kind
	algorithm policy.Algorithm
	window    time.Duration // 0: the algorithm has none
	rate      unit.Rate     // of the limiter: the rate, or the ceil, less headroom
	assured   unit.Rate     // the rate less headroom
	atOnce    int64         // how much may leave at once, in the unit of the class
	piece     int64         // how many bytes of a stream may be one item
	slack     time.Duration // how long the class may wait for its turn without losing the time
	keyed     bool          // the class has buckets, and these have the limits
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

// atOnceOf returns how much may leave at once, in the unit of the class. named is what the
// policy names; 0 if it names nothing. The result is what a window holds; or the burst,
// by default one quantum; or one piece of a leaky class; or 1 if the class does not count
// bytes.
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

// MaxPiece is the largest piece of a class: how many bytes of a stream may be one item.
const MaxPiece = leaky.MaxPiece

// minPieces is how many pieces a limit.SlidingWindow holds at least. Under load one piece
// less leaves in each window.
const minPieces = 64

// pieceOf returns the piece of a class that counts bytes.
func (p *pace) pieceOf() int64 {
	piece := leaky.Piece(p.rate)
	switch {
	case p.algorithm.HasBurst():
		// Half the bucket: while one piece waits, the other half fills. A full bucket
		// would lose what arrives before a late wake-up.
		piece = min(piece, p.atOnce/2)
	case p.algorithm.HasWindow():
		// A window holds whole pieces: what remains of it is never used.
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

// blocks reports whether nothing ever leaves at a rate. A window holds whole units only,
// so a rate that allows less than one in it blocks.
func (p *pace) blocks(rate unit.Rate) bool {
	return rate.IsZero() || p.algorithm.HasWindow() && rate.Units(p.window) == 0
}

// sameLimiter reports whether the limiter of one pace can serve the other.
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

// spent returns a limiter from which as much has just left as may leave at once, or owed
// if that is more.
func (p *pace) spent(now time.Time, owed int64) limit.Limiter {
	l, n := p.idle(now), p.atOnce
	if p.algorithm.HasBurst() {
		n += max(owed-1, 0) // the next item waits for its own unit anyway
	}
	l.Take(now, now, max(n, owed))
	return l
}

// takeOver returns a limiter that goes on at now from l without a new burst. l has the
// pace old and runs at rate.
func (p *pace) takeOver(now time.Time, l limit.Limiter, old *pace, rate unit.Rate) limit.Limiter {
	if p.sameLimiter(old) {
		l.SetRate(now, p.rate, p.atOnce)
		return l
	}
	owed := rate.Units(l.Next(now, 0, 0).Sub(now)) // what has left and is not paid for yet
	return p.spent(now, owed)
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

// bound returns the bound of a queue for package leaky. In a policy 0 means no bound.
func bound(n int64) int64 {
	if n == 0 {
		return math.MaxInt
	}
	return n
}

// limitless is the limiter of a class that holds nothing up itself: its buckets do, or it
// has a shadow.
type limitless struct{}

func (limitless) Next(time.Time, int64, int64) time.Time { return time.Time{} }
func (limitless) Take(_, _ time.Time, _ int64)           {}
func (limitless) SetRate(time.Time, unit.Rate, int64)    {}
func (limitless) Memory(now time.Time) (m limit.Memory, whole bool) {
	return limit.Memory{Until: now}, true
}
func (limitless) Remember(limit.Memory) {}

// blocked is the limiter of a bucket that was given up. What still comes waits until its
// owner takes it out.
type blocked struct{ limitless }

func (blocked) Next(time.Time, int64, int64) time.Time { return limit.Never }
