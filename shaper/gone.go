package shaper

import (
	"time"

	"shaper/limit"
)

// gone holds the classes that the policy has no more and that still owe something, by name. If a class of
// the name comes back, it goes on from there. Else a reload and its rollback would give it its budget twice.
type gone map[string]*goneClass

// A goneClass may still let out what was on its way, so it is asked what it owes only when its name comes back.
type goneClass struct {
	class *Class
	until time.Time // it may owe something at least as long
}

// add notes a class that the policy has no more. Of one that is shared, the fleet knows what it owes.
func (g gone) add(now time.Time, c *Class) {
	p := &c.pace
	if c.keys != nil {
		p = &c.keys.pace
	}
	if c.backing.share == nil {
		g[c.name] = &goneClass{c, limit.After(now, p.horizon())}
	}
}

// forget forgets the classes that owe nothing any more.
func (g gone) forget(now time.Time) {
	for name, of := range g {
		if of.until.After(now) {
			continue
		}
		if of.until = expiry(of.class.backing.leases(now)); !of.until.After(now) {
			delete(g, name)
		}
	}
}

// goOn makes a class go on from the one that had its name, as after a restart. It reports whether there is such a one.
func (g gone) goOn(now time.Time, c *Class) bool {
	of := g[c.name]
	if of == nil {
		return false
	}
	delete(g, c.name)
	resume(now, of.class.backing.leases(now), func(string) *Class { return c })
	return true
}

// expiry returns when the last of some leases may be forgotten.
func expiry(leases []limit.Lease) (until time.Time) {
	for i := range leases {
		until = later(until, leases[i].Expires)
	}
	return until
}
