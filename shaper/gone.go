package shaper

import (
	"time"

	"shaper/limit"
	"shaper/policy"
)

// gone holds the classes that the policy has no more, over any number of reloads: as long as somebody is in a class, or
// what has left it matters. If the policy has a class of the same name again, the class comes back. Otherwise a reload and
// its rollback would give the class its budget twice, and forget what is in flight, what the class has learned and until
// when it pauses. Meanwhile the class goes on for those who still use it. A class that has an heir does not come back, and
// only goes on for its users. The lock of the Shaper guards it, and is taken before the lock of a tree.
type gone map[*Class]*goneClass

// A goneClass is one of these classes, and says whether anybody uses it and whether it still matters.
type goneClass struct {
	class    *Class
	replaced bool      // another class has its name, or has had it since
	since    time.Time // when it went
	next     time.Time // when to ask again whether it matters
}

// How long the classes go on before somebody asks whether they still matter. Sessions enter a class by the routes before
// until the reload is over, so that takes longer than a reload.
const (
	askGoneAfter     = time.Second
	askReplacedAfter = time.Minute
	askGoneBy        = time.Hour
)

// findingKept is how long a class that is gone matters for what it has learned. What it has learned is no budget: a class
// that comes back later learns again.
const findingKept = time.Hour

// add notes a class that the policy has no more.
func (g gone) add(now time.Time, c *Class, replaced bool) {
	of := &goneClass{class: c, replaced: replaced, since: now}
	of.next = of.askAgain(now)
	g[c] = of
}

// forget forgets the classes that matter no more. It returns when to ask again; limit.Never if there is none.
func (g gone) forget(now time.Time) (next time.Time) {
	next = limit.Never
	for c, of := range g {
		if !of.next.After(now) {
			for c.keys != nil && c.keys.forgetSome(now) { // buckets that linger are users, too
			}
			root := c.lock()
			used := g.isUsed(c)
			if root.mu.Unlock(); !used && (of.replaced || !of.knows(now) && !of.matters(now)) {
				delete(g, c)
				continue
			}
			of.next = of.askAgain(now)
		}
		next = earlier(next, of.next)
	}
	return next
}

// take takes out the classes of names that a policy has again.
func (g gone) take(is func(name string) bool) (back []*Class) {
	for c, of := range g {
		if !of.replaced && is(c.name) {
			back = append(back, c)
			delete(g, c)
		}
	}
	return back
}

// named returns the class of a name that may come back; nil if there is none.
func (g gone) named(name string) *Class {
	for c, of := range g {
		if !of.replaced && c.name == name {
			return c
		}
	}
	return nil
}

// unshare takes a member from the classes that nobody uses. It reports whether another class uses
// the member.
func (g gone) unshare(now time.Time, member Member) (used bool) {
	for c := range g {
		used = g.unshareClass(now, c, member) || used
	}
	return used
}

// unshareClass is unshare for one class. It looks and takes the member under one hold of the lock: what enters the class in between
// would wait for a grant, and then leave without one.
func (g gone) unshareClass(now time.Time, c *Class, member Member) (used bool) {
	root, now := c.lockAt(now)
	defer root.mu.Unlock()
	switch {
	case c.backing.member != member:
		return false
	case g.isUsed(c):
		return true
	}
	c.backing.share(now, root, nil)
	return false
}

// LetIn lets sessions get permits again in a class that Shaper.Apply has removed. The class
// gives no permits until the caller has moved the sessions that belong elsewhere: before
// that, nobody else can have the permits of those sessions.
func (p *permits) LetIn() {
	root := p.of.lock()
	p.removed = false
	var next []*Permit
	withBuckets(p.of, func(c *Class) { next = append(next, c.admit()...) })
	root.mu.Unlock()
	notify(next)
}

// keepOut makes the class give no permits until LetIn.
func (p *permits) keepOut() {
	defer p.of.lock().mu.Unlock()
	p.removed = true
}

// used returns the classes that somebody is in.
func (g gone) used() (all []*Class) {
	for c, of := range g {
		root := c.lock()
		if of.hasUsers() {
			all = append(all, c)
		}
		root.mu.Unlock()
	}
	return all
}

// isUsed reports whether somebody is in a class that is gone, or in one beneath it: that is gone too. The lock of the tree is held.
func (g gone) isUsed(c *Class) bool {
	for one, of := range g {
		if one.isBeneath(&c.node) && of.hasUsers() {
			return true
		}
	}
	return false
}

// hasUsers reports whether somebody is in the class or in one of its buckets: has joined it, waits there, or has or wants
// a permit. The lock of the tree is held.
func (of *goneClass) hasUsers() bool {
	c, k := of.class, of.class.keys
	return c.joined.Load() > 0 || c.waiting > 0 || c.admitted > 0 || c.permits.queued > 0 ||
		k != nil && (len(k.table.active) > 0 || k.common.bucket != nil && k.common.bucket.joined.Load() > 0)
}

// askAgain returns when to ask again whether the class matters, as if something had left it now. A class that was replaced matters
// to its users only. These may stay for days, so askAgain waits for as long as the class has been gone, an hour at
// most.
func (of *goneClass) askAgain(now time.Time) time.Time {
	horizon := of.class.pace.horizon()
	switch {
	case of.replaced:
		horizon = askReplacedAfter
	case of.class.keys != nil:
		horizon = of.class.keys.pace.horizon()
	}
	return now.Add(min(max(horizon, now.Sub(of.since), askGoneAfter), askGoneBy))
}

// knows reports whether what the class may have learned still matters. It takes the lock of the tree.
func (of *goneClass) knows(now time.Time) bool {
	return now.Before(of.since.Add(findingKept)) && of.class.Policy().Learn != (policy.Learn{})
}

// matters reports whether the class does not behave as a new one would. It takes the lock of the tree.
func (of *goneClass) matters(now time.Time) bool {
	c := of.class
	for c.keys != nil && c.keys.forgetSome(now) {
	}
	root, now := c.lockAt(now)
	defer root.mu.Unlock()
	if k := c.keys; k != nil {
		return k.table.len() > 0 || k.common.bucket != nil && k.common.bucket.isUsed(now) ||
			!k.spentAt.IsZero() && c.backing.leaseOfAllKeys(k.spentAt).Expires.After(now) // keys do not start as idle ones
	}
	return c.isUsed(now)
}

// isUsed reports whether a class or bucket without buckets of its own does not behave as a new one would. The lock of the
// tree is held.
func (c *Class) isUsed(now time.Time) bool {
	m, _ := bare(c.limiter).Memory(now)
	return m.Until.After(now) || c.waiting > 0 || c.open > 0 || c.unanswered() > 0 || c.isThrottled(now) ||
		c.shadow != nil && c.shadow.isUsed(now)
}

// forgetSome forgets some idle keys, and reports whether there may be more to forget. It locks the tree for
// a moment only.
func (k *keys) forgetSome(now time.Time) bool {
	root, now := k.class.lockAt(now)
	defer root.mu.Unlock()
	return k.forget(now, 1000)
}
