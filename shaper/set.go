package shaper

import (
	"math"
	"time"

	"shaper/leaky"
	"shaper/limit"
	"shaper/policy"
	"shaper/unit"
)

// Set puts conf, which must be of the same unit, in force at now, for what
// waits already too. What was charged stays charged: neither a new rate nor
// another algorithm gives a new burst.
func (c *Class) Set(now time.Time, conf policy.Class) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if conf.Algorithm == c.conf.Algorithm {
		c.limiter.SetRate(now, paced(conf), depth(conf))
	} else {
		c.limiter = startedLimiter(now, conf, c.owed(now))
		c.leaving = time.Time{}
	}
	c.adopt(conf)
	c.wake(now)
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
		l.Take(now, now, depth(conf)+max(owed-1, 0)) // for the next one it waits itself
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
func paced(conf policy.Class) unit.Rate { return conf.Rate.Below(conf.Headroom) }

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
func (c *Class) adopt(conf policy.Class) {
	c.conf = conf
	c.settler, _ = c.limiter.(limit.Settler)
	c.settles.Store(c.settler != nil)
	c.queue.MaxItems = int(bound(conf.Queue.Items.N))
	c.queue.MaxBytes = bound(int64(conf.Queue.Bytes))
	c.rate.Store(&conf.Rate)
	c.piece.Store(pieceOf(conf))
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
