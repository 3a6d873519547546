package shaper

import (
	"math"
	"time"

	"shaper/leaky"
	"shaper/limit"
	"shaper/policy"
	"shaper/unit"
)

// Set puts conf, which must be of the same unit and parent, in force at now, for
// what waits already too. What was charged stays charged: neither a new rate nor
// another algorithm gives a new burst.
func (c *Class) Set(now time.Time, conf policy.Class) {
	root, now := c.lockAt(now)
	defer root.mu.Unlock()
	c.set(now, conf)
	c.update(now)
	root.wake(now)
}

// set is Set without telling the tree.
func (c *Class) set(now time.Time, conf policy.Class) {
	if conf.Algorithm == c.conf.Algorithm {
		c.limiter.SetRate(now, paced(conf), depth(conf))
	} else {
		c.limiter = startedLimiter(now, conf, c.owed(now))
		c.leaving = time.Time{}
	}
	if p := c.parent.Load(); p != nil && conf.Priority != c.conf.Priority {
		p.feed.remove(&c.place)
	}
	c.adopt(now, conf)
}

// owed returns how much of what has left is not paid yet.
func (c *Class) owed(now time.Time) int64 {
	return paced(c.conf).Units(c.limiter.Next(now, 0, 0).Sub(now))
}

// startedLimiter returns a limiter from which as much as may leave at once has
// just left, or what is owed where that is more.
func startedLimiter(now time.Time, conf policy.Class, owed int64) limit.Limiter {
	l := newLimiter(now, conf)
	switch l := l.(type) {
	case *limit.Token:
		l.Empty(now)
		l.Take(now, now, max(owed-1, 0)) // for the next one it waits itself
	case *leaky.Bucket:
		l.Take(now, now, max(leaky.Piece(paced(conf)), owed))
	default:
		l.Take(now, now, max(1, owed))
	}
	return l
}

// newLimiter returns the limiter of a class that has been idle.
func newLimiter(now time.Time, conf policy.Class) limit.Limiter {
	rate := paced(conf)
	switch {
	case conf.Algorithm == policy.Token:
		return limit.NewToken(now, rate, depth(conf))
	case rate.Kind() == unit.Bytes:
		return leaky.NewBucket(rate)
	default:
		return leaky.NewGap(rate)
	}
}

// paced returns the rate at which the class really sends: headroom below its limit.
func paced(conf policy.Class) unit.Rate { return conf.Limit().Below(conf.Headroom) }

// depth returns the burst of a token class, in the unit of its rate: one
// quantum where the policy names none.
func depth(conf policy.Class) int64 {
	switch {
	case !conf.Burst.IsZero():
		return conf.Burst.N
	case conf.Rate.Kind() == unit.Bytes:
		return leaky.Quantum(paced(conf))
	}
	return 1
}

// adopt puts all of conf in force but its limiter.
func (c *Class) adopt(now time.Time, conf policy.Class) {
	c.conf = conf
	c.assure(now, conf.Rate.Below(conf.Headroom))
	c.settler, _ = c.limiter.(limit.Settler)
	c.settles.Store(c.settler != nil)
	c.queue.MaxItems = int(bound(conf.Queue.Items.N))
	c.queue.MaxBytes = bound(int64(conf.Queue.Bytes))
	rate := conf.Limit()
	c.rate.Store(&rate)
	c.piece.Store(pieceOf(conf))
}

// assure has the class be within its assured rate up to that rate only, where
// its limit is above it.
func (c *Class) assure(now time.Time, rate unit.Rate) {
	switch {
	case rate.Compare(paced(c.conf)) >= 0:
		c.assured = nil
	case c.assured == nil:
		c.assured = leaky.NewAssured(now, rate)
	default:
		c.assured.SetRate(now, rate)
	}
}

// bound returns a bound of a queue as package leaky has it: in a policy, 0 is
// no bound.
func bound(n int64) int64 {
	if n == 0 {
		return math.MaxInt
	}
	return n
}

// MaxPiece is the most bytes of a stream that are one item of any class.
const MaxPiece = leaky.MaxPiece

// pieceOf returns the Piece of a class: every class but a byte class leaves
// bytes alone, so that theirs is as large as can be.
func pieceOf(conf policy.Class) int64 {
	if conf.Rate.Kind() != unit.Bytes {
		return MaxPiece
	}
	piece := leaky.Piece(paced(conf))
	if conf.Algorithm == policy.Token {
		// Half the bucket, so that while one waits the other fills: a bucket
		// that is full loses what a late wake-up does not take.
		piece = min(piece, max(depth(conf)/2, 1))
	}
	return piece
}
