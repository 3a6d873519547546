package shaper

import (
	"time"

	"shaper/limit"
	"shaper/policy"
	"shaper/stats"
	"shaper/unit"
)

// A class with shadow enforces nothing. Another class, in a trial of its own, gets
// copies of what really leaves the first one, and computes what that would do.

// Shadow returns the counters of what a class with `shadow` would do, as of now; nil
// where it does what it says.
func (c *Class) Shadow(now time.Time) *stats.Class {
	shadows := c.shadows()
	if len(shadows) == 0 {
		return nil
	}
	for _, s := range shadows { // of each bucket: too long for the lock of what really leaves
		s.trial.CatchUp(now)
	}
	return shadows[0].Stats
}

// shadows returns those of the class and of its buckets.
func (c *Class) shadows() (all []*Class) {
	defer c.lock().mu.Unlock()
	if c.shadow != nil {
		c.each(func(c *Class) { all = append(all, c.shadow) })
	}
	return all
}

// shadowPolicy returns the policy of the class that computes what one with shadow
// would do: it alone, since those above it do what they say.
func shadowPolicy(conf policy.Class) policy.Class {
	conf.Shadow, conf.Parent = false, ""
	conf.Rate, conf.Ceil = conf.Limit(), unit.Rate{}
	return conf
}

// enforced returns the class that has the limiter: the one in the shadow where
// there is one.
func (c *Class) enforced() *Class {
	if c.shadow != nil {
		return c.shadow
	}
	return c
}

// shade returns the class that computes what the class would do.
func (c *Class) shade(now time.Time, conf policy.Class) *Class {
	shadow := newClass(shadowPolicy(conf), c.shadowStats())
	shadow.trial = &Trial{latest: now, classes: []*Class{shadow}}
	return shadow
}

// adopt puts another policy in force for the class of a trial, with its limiter.
func (t *Trial) adopt(now time.Time, c *Class, conf policy.Class, l limit.Limiter) {
	defer t.at(now).Unlock()
	root := c.lock()
	c.limiter = l
	c.adopt(now, conf)
	c.update(now)
	root.mu.Unlock()
	t.expect(c)
}

// tracks reports whether a class with shadow would hold up what comes while too much is
// in flight.
func (c *Class) tracks() bool { return c.shadow != nil && c.keys == nil && c.shadow.conf.InFlight > 0 }
