package shaper

import (
	"time"

	"shaper/policy"
)

// Share makes the class use, from now on, its part of a budget that several processes share. If member is
// nil, it gets a budget of its own, which goes on from what this process has used.
func (c *Class) Share(now time.Time, member Member) {
	root, now := c.lockAt(now)
	defer root.mu.Unlock()
	c.backing.share(now, root, member)
}

// share is Share. The lock of the tree, whose root is given, is held.
func (b *backing) share(now time.Time, root *node, member Member) {
	k := b.class.keys
	if member == nil && b.member == nil && (k == nil || k.secret == nil) {
		return
	}
	b.member = member
	withBuckets(b.class, func(c *Class) {
		if s, ok := c.limiter.(*shared); ok && s.member == member {
			return
		}
		c.backing.member = member
		c.use(c.backing.limiter(now, &c.pace, c.limiter))
		c.update(now)
	})
	root.wake(now)
}

// disown is Share with nil for a class that another one has replaced. What the fleet has used is not known here, so the class goes
// on as if all that may leave at once had just left: otherwise it would let that out before its items are taken out.
func (b *backing) disown(now time.Time) {
	c := b.class
	root, at := c.lockAt(now)
	defer root.mu.Unlock()
	if c.keys != nil && b.member != nil {
		c.keys.spend(at)
	}
	withBuckets(c, func(c *Class) {
		if s, ok := c.limiter.(*shared); ok {
			s.Limiter = c.pace.spent(at)
		}
	})
	b.share(at, root, nil)
}

// Told says that the member of the class has something new for one of its keys, as Shaper.Told does.
func (c *Class) Told(now time.Time, key string) { c.backing.told(now, key) }

// setMember gives a class its way to a shared budget, which it uses when it gets a policy next.
func (b *backing) setMember(member Member) {
	c := b.class
	defer c.lock().mu.Unlock()
	if b.member = member; c.keys == nil {
		return
	}
	c.keys.each(func(bucket *Class) { bucket.backing.member = member })
	if member != nil && c.keys.secret == nil { // else it is the same, and Key reads it without the lock
		c.keys.secret = member.Secret()
	}
}

// hashesOtherwise reports whether keys are hashed otherwise with a member than now. It is false if k
// is nil: the class has no buckets.
func (k *keys) hashesOtherwise(member Member) bool {
	switch {
	case k == nil:
		return false
	case member == nil || k.secret == nil:
		return (member == nil) != (k.secret == nil)
	}
	return *k.secret != *member.Secret()
}

// told says that the member has something new for a key of the class; "" if the class has no buckets.
func (b *backing) told(now time.Time, key string) {
	c := b.class
	root, now := c.lockAt(now)
	defer root.mu.Unlock()
	if k := c.keys; k != nil {
		var of policy.Key
		if of.UnmarshalBinary([]byte(key)) != nil {
			return
		}
		if c = k.table.bucketOfKey(of); c == nil && of == (policy.Key{}) {
			c = k.common.bucket
		}
	}
	if c == nil || c.backing.member == nil {
		return
	}
	if until := c.backing.member.PausedUntil(key); until.After(later(now, c.throttle.until)) {
		c.heard(now, until)
	}
	if s, ok := c.limiter.(*shared); ok {
		s.relax(now)
		s.noteOverdue(now, root)
	}
	c.update(now)
	root.wake(now)
}

// tellPause tells the fleet that the class pauses, if it does so for longer than until the time
// before. The pause of a bucket is that of its key alone.
func (b *backing) tellPause(now, before time.Time) {
	c := b.class
	if until := c.throttle.until; b.member != nil && !c.passive && until.After(before) {
		b.member.Slow(b.key(), until.Sub(now))
	}
}
