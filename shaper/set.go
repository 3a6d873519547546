package shaper

import (
	"time"

	"shaper/policy"
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
	each(c, func(c *Class) { next = append(next, c.admit()...) })
	root.mu.Unlock()
	notify(next)
}

// set is Set without telling the tree.
func (c *Class) set(now time.Time, conf policy.Class) {
	old := c.conf
	if c.put(now, conf); c.keys != nil {
		c.keys.set(now, old, conf)
	}
}
