package shaper

import (
	"time"

	"shaper/policy"
)

// Set puts conf in force at now, also for what waits already. Its unit, its `per` and its
// parent must be those of the class. What was charged stays charged: neither a new rate
// nor another algorithm or window gives a new burst.
func (c *Class) Set(now time.Time, conf policy.Class) {
	notify(setNow(now, c, conf))
	for c.keys.setMore() {
	}
}

// setNow puts conf in force for the class and its buckets. It returns the permits that sessions get by that.
func setNow(now time.Time, c *Class, conf policy.Class) (next []*Permit) {
	root, now := c.lockAt(now)
	defer root.mu.Unlock()
	c.set(now, conf)
	c.update(now)
	root.wake(now)
	if next = c.admit(); c.queued > 0 { // otherwise none waits in a bucket, and there may be many
		withBuckets(c, func(c *Class) { next = append(next, c.admit()...) })
	}
	return next
}

// keysAtOnce is how many keys setMore sets: what takes some tenths of a millisecond.
const keysAtOnce = 256

// setMore puts the policy in force for some more of the keys that nobody uses. It reports whether there are more; false if k is
// nil. Nothing leaves while the tree is locked, so it is not locked for all of a million.
func (k *keys) setMore() (more bool) {
	if k == nil {
		return false
	}
	defer k.class.lock().mu.Unlock()
	return k.table.goOn(keysAtOnce)
}

// set is Set for a caller that holds the lock of the tree. It does not update the tree.
func (c *Class) set(now time.Time, conf policy.Class) {
	p := paceOf(conf)
	kept := c.backing.keepsKeys() // before put ends the shadow
	if c.put(now, conf, &p); c.keys != nil {
		c.keys.set(now, conf)
		c.backing.noteKeys(now, kept)
	} else {
		c.quiet.set(now)
	}
}
