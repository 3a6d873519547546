package shaper

import (
	"time"

	"shaper/policy"
)

// Set puts conf in force at now, also for what waits already. Its unit, its `per` and its
// parent must be those of the class. What was charged stays charged: neither a new rate
// nor another algorithm or window gives a new burst.
func (c *Class) Set(now time.Time, conf policy.Class) {
	root, now := c.lockAt(now)
	c.set(now, conf)
	c.update(now)
	root.wake(now)
	var next []*Permit
	withBuckets(c, func(c *Class) { next = append(next, c.admit()...) })
	root.mu.Unlock()
	notify(next)
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
