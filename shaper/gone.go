package shaper

import (
	"time"

	"shaper/limit"
)

// gone holds the classes that the policy has no more, by name, as long as what has left of them matters. If
// a class of the name comes back, it is the same one: else a reload and its rollback would give it its budget
// twice, and forget what is in flight, what it has learned and until when it pauses. Meanwhile it
// goes on for whoever still uses it.
type gone map[string]*goneClass

type goneClass struct {
	class *Class
	next  time.Time // when to ask again whether it matters
}

// How long the classes go on before somebody asks whether they still matter.
const (
	askGoneAfter = time.Second
	askGoneBy    = time.Hour
)

// add notes a class that the policy has no more. Of one that is shared, the fleet knows what has left.
func (g gone) add(now time.Time, c *Class) {
	if c.backing.share == nil {
		g[c.name] = &goneClass{c, c.askAgain(now)}
	}
}

// forget forgets the classes that matter no more. It returns when to ask again; limit.Never if there is none.
func (g gone) forget(now time.Time) (next time.Time) {
	next = limit.Never
	for name, of := range g {
		if !of.next.After(now) {
			if !of.class.matters(now) {
				delete(g, name)
				continue
			}
			of.next = of.class.askAgain(now)
		}
		next = earlier(next, of.next)
	}
	return next
}

// take takes out the class of a name; nil if there is none.
func (g gone) take(name string) *Class {
	of := g[name]
	if of == nil {
		return nil
	}
	delete(g, name)
	return of.class
}

// askAgain returns when a class of which something has left now may matter no more.
func (c *Class) askAgain(now time.Time) time.Time {
	horizon := c.pace.horizon()
	if c.keys != nil {
		horizon = c.keys.pace.horizon()
	}
	return now.Add(min(max(horizon, askGoneAfter), askGoneBy))
}

// matters reports whether a class does not behave as a new one would.
func (c *Class) matters(now time.Time) bool {
	for c.keys != nil && c.keys.forgetSome(now) {
	}
	root, now := c.lockAt(now)
	defer root.mu.Unlock()
	if k := c.keys; k != nil {
		return k.len() > 0 || k.shared != nil && k.shared.isUsed(now) ||
			!k.spentAt.IsZero() && k.leaseOfAll(k.spentAt).Expires.After(now) // keys do not start as idle ones
	}
	return c.isUsed(now)
}

// isUsed is matters for a class without buckets. The lock of the tree is held.
func (c *Class) isUsed(now time.Time) bool {
	m, _ := bare(c.limiter).Memory(now)
	return m.Until.After(now) || c.waiting > 0 || c.open > 0 || c.unanswered() > 0 || c.isThrottled(now) ||
		c.throttle.learner != nil || c.shadow != nil
}

// forgetSome forgets some idle keys, and reports whether there may be more to forget. It locks the tree for
// a moment only.
func (k *keys) forgetSome(now time.Time) bool {
	root, now := k.class.lockAt(now)
	defer root.mu.Unlock()
	const some = 1000
	before := k.len()
	k.forget(now, some)
	return before-k.len() >= some
}
