package shaper

import (
	"time"

	"shaper/limit"
	"shaper/policy"
)

// NewTree returns idle classes, in the order of confs, each under the one that
// it names as its parent. Somebody drives them by hand, as with NewClass; Next
// and Release of any of them are those of its tree.
func NewTree(now time.Time, confs []policy.Class) []*Class {
	classes, byName := make([]*Class, len(confs)), map[string]*Class{}
	for i, conf := range confs {
		classes[i] = NewClass(now, conf)
		byName[conf.Name] = classes[i]
	}
	for i := range confs {
		if parent := parentOf(&confs[i], byName); parent != nil {
			classes[i].attach(now, parent)
		}
	}
	return classes
}

// parentOf returns the class that a policy names as its parent; nil for none.
func parentOf(conf *policy.Class, byName map[string]*Class) *Class {
	if conf.Parent == "" {
		return nil
	}
	return byName[conf.Parent]
}

// root returns the class at the top of the path.
func (c *Class) root() *Class {
	for p := c.parent.Load(); p != nil; p = c.parent.Load() {
		c = p
	}
	return c
}

// lock locks the tree that the class is in and returns its root, whose mutex
// that is. Whoever changes parents holds the locks of all roots that were, are or
// will be above the class, so that they stand still here: Shaper.Apply, and retire of
// a bucket.
func (c *Class) lock() (root *Class) {
	for {
		root = c.root()
		root.mu.Lock()
		if c.root() == root {
			return root
		}
		root.mu.Unlock()
	}
}

// lockAt is lock for what happens at now. For a tree time never goes back: who
// comes with an older one, as it was before the lock, has that of the latest.
func (c *Class) lockAt(now time.Time) (root *Class, latest time.Time) {
	root = c.lock()
	if now != limit.Never {
		root.latest = later(root.latest, now)
	}
	return root, root.latest
}

// attach puts the class, which is a root, under a parent. Both are locked.
func (c *Class) attach(now time.Time, parent *Class) {
	if parent.feed == nil {
		parent.feed = &feed{}
		parent.feed.add(&parent.own)
		parent.update(now) // its own queue competes from now on
	}
	parent.feed.members++
	parent.feed.add(&c.place)
	c.parent.Store(parent)
	parent.waits(c.beneath, c.waiting)
	for p := parent; p != nil; p = p.parent.Load() {
		p.free = p.waiting > 0 // of a sum nobody knows
	}
	parent.moveFlying(now, c.flying)
	parent.count(c.open) // nobody beneath a root waits above it
	root := parent.root()
	root.latest = later(root.latest, c.latest)
	if c.pacer != nil {
		c.pacer.set(&c.due, limit.Never)
	}
	c.update(now)
}

// leaveMargin is how long an item may be on its way out that is on it while its class
// leaves a parent: Left goes to its classes, of which that is none any more.
const leaveMargin = 10 * time.Millisecond

// detach makes the class a root. Its tree and itself are locked.
func (c *Class) detach(now time.Time) {
	parent := c.parent.Load()
	for p := parent; p != nil; p = p.parent.Load() {
		if !p.leaving.IsZero() && p.from.isBeneath(c) {
			p.leaving = time.Time{}
			p.settler.Left(now.Add(leaveMargin))
		}
	}
	parent.feed.remove(&c.place)
	if parent.feed.members--; parent.feed.members == 0 {
		parent.feed.remove(&parent.own)
		parent.feed = nil
	}
	parent.waits(c.beneath.negative(), -c.waiting)
	c.withdraw()
	parent.count(-c.open)
	parent.moveFlying(now, -c.flying)
	c.parent.Store(nil)
	parent.update(now)
}

// update brings the tree up to date at now with what has changed in the class. What is
// the next of the whole tree is looked at by next.
func (c *Class) update(now time.Time) {
	if c.feed != nil {
		c.own.head = c.front()
		c.feed.put(&c.own, now)
	}
	for p := c.parent.Load(); p != nil; p = c.parent.Load() {
		c.refresh(now)
		p.feed.put(&c.place, now)
		c = p
	}
}

// refresh looks at now which item is the next of the class and all beneath it.
func (c *Class) refresh(now time.Time) {
	if c.feed == nil {
		c.place.head = c.front()
	} else {
		c.place.head = c.feed.offer(now)
	}
}

// next returns when the next item of the tree may leave. The class is the root.
func (c *Class) next(now time.Time) time.Time {
	c.refresh(now)
	return c.ready(now)
}

// release takes the item out that leaves at now. The class is the root.
func (c *Class) release(now time.Time) *Item {
	if next := c.next(now); next.After(now) || next == limit.Never {
		return nil
	}
	it := c.place.head
	leaf := it.class
	leaf.remove(it)
	leaf.let(now, it)
	leaf.pay(&it.Cost)
	leaf.update(now)
	leaf.retire(now)
	return it
}

// wake tells the pacer when to look again, after update. The class is the root.
// It is not a moment that has passed: of two trees that are always late, the one
// that is later would go before the other for ever.
func (c *Class) wake(now time.Time) {
	if c.pacer != nil {
		c.pacer.set(&c.due, later(c.next(now), now))
	}
}
