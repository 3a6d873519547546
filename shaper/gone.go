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
		g[c.name] = &goneClass{c, limit.After(now, min(p.horizon(), farAway))}
	}
}

// farAway is when a class is asked again that owes something for ever, as far as anybody knows.
const farAway = 24 * time.Hour

// forget forgets the classes that owe nothing any more. It returns when to look again; limit.Never if there is none.
func (g gone) forget(now time.Time) (next time.Time) {
	next = limit.Never
	for name, of := range g {
		if !of.until.After(now) {
			of.until = earlier(expiry(of.class.backing.leases(now)), now.Add(farAway))
		}
		if of.until.After(now) {
			next = earlier(next, of.until)
		} else {
			delete(g, name)
		}
	}
	return next
}

// goOn makes a class go on from the one that had its name, as after a restart. What answers say that are still to come
// goes on to it, too. It reports whether there is such a one.
func (g gone) goOn(now time.Time, c *Class) bool {
	of := g[c.name]
	if of == nil {
		return false
	}
	delete(g, c.name)
	old := of.class
	resume(now, old.backing.leases(now), func(string) *Class { return c })
	defer old.lock().mu.Unlock()
	if old.kind == c.kind && old.keys == nil && c.keys == nil {
		old.heir = c
	}
	return true
}

// expiry returns when the last of some leases may be forgotten. What a class has learned is for ever.
func expiry(leases []limit.Lease) (until time.Time) {
	for i := range leases {
		if _, ok := nameOfFinding(leases[i].Name); !ok {
			until = later(until, leases[i].Expires)
		}
	}
	return until
}
