package shaper

import (
	"math"
	"time"

	"shaper/leaky"
	"shaper/limit"
	"shaper/policy"
	"shaper/stats"
	"shaper/unit"
)

// Set puts conf, which must be of the same unit and parent, in force at now, for
// what waits already too. What was charged stays charged: neither a new rate nor
// another algorithm or window gives a new burst.
func (c *Class) Set(now time.Time, conf policy.Class) {
	root, now := c.lockAt(now)
	c.set(now, conf)
	c.update(now)
	root.wake(now)
	var next []*Slot
	c.each(func(c *Class) { next = append(next, c.admit()...) })
	root.mu.Unlock()
	notify(next)
}

// set is Set without telling the tree.
func (c *Class) set(now time.Time, conf policy.Class) {
	if !sameLimiter(conf, c.conf) || conf.Shadow != c.conf.Shadow {
		c.leaving = time.Time{}
	}
	if c.shadow != nil {
		c.shadow.trial.CatchUp(now)
	}
	c.recover(now)
	had := c.enforced()
	l := rerated(now, had.limiter, had.pacedAt(had.throttle.less), c.conf, conf)
	old, weight, p := c.conf, c.place.weight(), c.parent.Load()
	moves := p != nil && conf.Priority != old.Priority // to another ring
	if moves {
		p.feed.remove(&c.place)
	}
	c.install(now, conf, l)
	switch {
	case moves:
		p.feed.add(&c.place)
	case p != nil:
		p.feed.reweigh(&c.place, weight)
	}
	if c.keys != nil {
		c.keys.set(now, old, conf)
	}
}

// install puts a policy in force with its limiter, which limits nothing where the
// class is only to compute what it would.
func (c *Class) install(now time.Time, conf policy.Class, l limit.Limiter) {
	tracked := c.tracks()
	if !conf.Shadow {
		c.shadow = nil
	} else {
		if c.shadow == nil {
			c.shadow = c.shade(now, conf)
		}
		c.shadow.trial.adopt(now, c.shadow, shadowPolicy(conf), l)
		if c.tracks() != tracked {
			c.shadow.trial.resetFlying(now, c.flying)
		}
		l = limitless{}
	}
	c.limiter = l
	c.adopt(now, conf)
	if !conf.Adapt {
		c.throttle.less = 0
	} else if c.throttle.less > 0 {
		c.pace(now, c.throttle.less)
	}
}

// shadowStats returns the counters of what the class would do: all buckets of one
// have the same.
func (c *Class) shadowStats() *stats.Class {
	if c.among != nil && c.among.class.shadow != nil {
		return c.among.class.shadow.Stats
	}
	return new(stats.Class)
}

// sameLimiter reports whether a limiter goes on where one policy takes the
// place of another.
func sameLimiter(a, b policy.Class) bool {
	return a.Algorithm == b.Algorithm && (!a.Algorithm.HasWindow() || a.WindowInForce() == b.WindowInForce())
}

// rerated returns the limiter that takes the place of one at now, as one policy
// takes that of another. pace is the rate that the limiter has.
func rerated(now time.Time, l limit.Limiter, pace unit.Rate, old, next policy.Class) limit.Limiter {
	if sameLimiter(old, next) {
		l.SetRate(now, paced(next), atOnce(next))
		return l
	}
	owed := pace.Units(l.Next(now, 0, 0).Sub(now)) // of what has left, and is not paid yet
	return startedLimiter(now, next, owed)
}

// startedLimiter returns a limiter from which as much as may leave at once has
// just left, or what is owed where that is more.
func startedLimiter(now time.Time, conf policy.Class, owed int64) limit.Limiter {
	l, n := newLimiter(now, conf), atOnce(conf)
	if conf.Algorithm.HasBurst() {
		n += max(owed-1, 0) // for the next one it waits itself
	}
	l.Take(now, now, max(n, owed))
	return l
}

// newLimiter returns the limiter of a class that has been idle.
func newLimiter(now time.Time, conf policy.Class) limit.Limiter {
	if conf.Per != (policy.Per{}) {
		return limitless{}
	}
	rate, window := paced(conf), conf.WindowInForce()
	switch conf.Algorithm {
	case policy.Token:
		return limit.NewToken(now, rate, atOnce(conf))
	case policy.GCRA:
		return limit.NewGCRA(now, rate, atOnce(conf))
	case policy.FixedWindow:
		return limit.NewFixedWindow(now, rate, window)
	case policy.SlidingLog:
		return limit.NewSlidingLog(now, rate, window)
	case policy.SlidingWindow:
		return limit.NewSlidingWindow(now, rate, window)
	}
	if rate.Kind() == unit.Bytes {
		return leaky.NewBucket(rate)
	}
	return leaky.NewGap(rate)
}

// paced returns the rate at which the class really sends: headroom below its limit.
func paced(conf policy.Class) unit.Rate { return conf.Limit().Below(conf.Headroom) }

// atOnce returns how much may leave at once, in the unit of the class: what a
// window holds; the burst, which is one quantum where the policy names none; a
// piece of a leaky class, and one where that counts.
func atOnce(conf policy.Class) int64 {
	switch n := conf.AtOnce(); {
	case conf.Algorithm.HasWindow(), n > 0:
		return n
	case conf.Rate.Kind() != unit.Bytes:
		return 1
	case conf.Algorithm.HasBurst():
		return leaky.Quantum(paced(conf))
	}
	return leaky.Piece(paced(conf))
}

// adopt puts all of conf in force but its limiter.
func (c *Class) adopt(now time.Time, conf policy.Class) {
	c.conf = conf
	c.assured = assuredOf(now, c.assured, conf)
	c.settler, _ = c.limiter.(limit.Settler)
	c.settles.Store(c.settler != nil)
	c.enforces.Store(!conf.Shadow)
	c.slack = slackOf(conf)
	c.queue.MaxItems = int(bound(conf.Queue.Items.N))
	c.queue.MaxBytes = bound(int64(conf.Queue.Bytes))
	rate := conf.Limit()
	c.rate.Store(&rate)
	c.piece.Store(pieceOf(conf))
}

// assuredOf returns what tells when a class is within its assured rate, where its
// limit is above that, or is not enforced; else nil. It goes on from what the class
// had; nil says that it has been idle until now.
func assuredOf(now time.Time, had *leaky.Assured, conf policy.Class) *leaky.Assured {
	rate := conf.Rate.Below(conf.Headroom)
	switch {
	case conf.Per != (policy.Per{}), rate.Compare(paced(conf)) >= 0 && !conf.Shadow:
		return nil
	case had == nil:
		return leaky.NewAssured(now, rate)
	}
	had.SetRate(now, rate)
	return had
}

// bound returns a bound of a queue as package leaky has it: in a policy, 0 is
// no bound.
func bound(n int64) int64 {
	if n == 0 {
		return math.MaxInt
	}
	return n
}

// slackOf returns how much of the time from its limit to its turn a class does not
// lose: a gap, or what a leaky class of bytes catches up at once. The other
// algorithms keep what was not used.
func slackOf(conf policy.Class) time.Duration {
	switch {
	case conf.Algorithm.HasBurst() || conf.Algorithm.HasWindow():
		return 0
	case conf.Rate.Kind() != unit.Bytes:
		return paced(conf).Time(1)
	}
	return leaky.Slack(paced(conf))
}

// MaxPiece is the most bytes of a stream that are one item of any class.
const MaxPiece = leaky.MaxPiece

// pieceOf returns the Piece of a class: every class but a byte class leaves
// bytes alone, so that theirs is as large as can be.
func pieceOf(conf policy.Class) int64 {
	if conf.Rate.Kind() != unit.Bytes || conf.Per != (policy.Per{}) || conf.Shadow {
		return MaxPiece
	}
	piece := leaky.Piece(paced(conf))
	switch {
	case conf.Algorithm.HasBurst():
		// Half the bucket, so that while one waits the other fills: a bucket
		// that is full loses what a late wake-up does not take.
		piece = min(piece, atOnce(conf)/2)
	case conf.Algorithm.HasWindow():
		// As a window holds them whole: what is left over in it never leaves.
		pieces := (atOnce(conf)-1)/piece + 1
		if conf.Algorithm == policy.SlidingWindow {
			pieces = max(pieces, minPieces)
		}
		piece = atOnce(conf) / pieces
	}
	return max(piece, 1)
}

// minPieces is how many pieces a limit.SlidingWindow holds at least: under load
// one less leaves in each window.
const minPieces = 64
