package shaper

import (
	"time"

	"shaper/policy"
)

// Share makes the class use its part of a budget from now on that several processes share; nil: a
// budget of its own, which goes on from what this process has used.
func (c *Class) Share(now time.Time, share Share) {
	root, now := c.lockAt(now)
	defer root.mu.Unlock()
	if share == nil && c.share == nil && (c.keys == nil || c.keys.secret == nil) {
		return
	}
	c.share = share
	withBuckets(c, func(c *Class) {
		if s, ok := c.limiter.(*shared); ok && s.share == share {
			return
		}
		c.share = share
		c.use(c.lease(now, &c.pace, c.limiter))
		c.update(now)
	})
	root.wake(now)
}

// setShare gives a class its part of a shared budget, which it uses when it gets a policy next.
func (c *Class) setShare(share Share) {
	defer c.lock().mu.Unlock()
	if c.share = share; c.keys == nil {
		return
	}
	c.keys.each(func(bucket *Class) { bucket.share = share })
	if share != nil {
		c.keys.secret = share.Secret()
	}
}

// hashesOtherwise reports whether the keys of a class are others with a share than they are now.
func (c *Class) hashesOtherwise(share Share) bool {
	switch {
	case c.keys == nil:
		return false
	case share == nil || c.keys.secret == nil:
		return (share == nil) != (c.keys.secret == nil)
	}
	return *c.keys.secret != *share.Secret()
}

func (c *Class) told(now time.Time, key string) {
	root, now := c.lockAt(now)
	defer root.mu.Unlock()
	if c.keys != nil {
		var of policy.Key
		if of.UnmarshalBinary([]byte(key)) != nil {
			return
		}
		if c.keys.active[of] == nil && of == (policy.Key{}) {
			c = c.keys.shared
		} else {
			c = c.keys.active[of]
		}
	}
	if c == nil || c.share == nil {
		return
	}
	if until := c.share.PausedUntil(); until.After(later(now, c.throttle.until)) {
		c.heard(now, until)
	}
	if s, ok := c.limiter.(*shared); ok {
		s.relax(now)
	}
	c.update(now)
	root.wake(now)
}

// tellPause tells the fleet of a pause that the provider has asked for. The class had one until the
// time before. The pause of a bucket is of its key alone.
func (c *Class) tellPause(now, before time.Time) {
	if until := c.throttle.until; c.share != nil && c.bucketOf == nil && !c.passive && until.After(before) {
		c.share.Slow(until.Sub(now))
	}
}
