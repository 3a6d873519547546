package shaper

import (
	"sync/atomic"
	"time"

	"shaper/limit"
	"shaper/policy"
	"shaper/stats"
	"shaper/unit"
)

// Class decides when items leave that share one limit. It is a node of a tree:
// an item leaves when its class and every one above allow it, and is charged to
// all of them. A Class may be used concurrently. Its methods take the time as an
// argument: the pacer drives a live one by the clock, tests and simulations by
// times of their own.
type Class struct {
	// Stats are the counters of the class and those beneath it. Enter and Release count
	// waiting, whoever moves the bytes counts what was sent, dropped or refused.
	Stats *stats.Class

	terms
	tally *tally // counts in Stats, and for the classes above
	keys  *keys  // its buckets, which are its children; nil: it is one bucket for all
	trial *Trial // that drives the class with copies; nil: a class above is in one, or none is
	casts caster // makes its shadow

	// Under the lock of the tree.
	conf   policy.Class
	former *Class // that it has replaced; what waits there counts as its own; nil: none
	shadow shadow // computes what the class would do; nil: the class does it
	slots
	membership
	node // in groups of its own
}

// terms are what anybody may ask of a class without a lock. They are written under the
// lock of the tree.
type terms struct {
	name     string
	enforces atomic.Bool // what the policy says
	rate     atomic.Pointer[unit.Rate]
}

// publish makes the terms those of a policy.
func (t *terms) publish(conf policy.Class) {
	rate := conf.Limit()
	t.rate.Store(&rate)
	t.enforces.Store(!conf.Shadow)
}

// Name returns the name of the class in the policy.
func (t *terms) Name() string { return t.name }

// Rate returns the limit in force, without headroom: the ceil of a class that has one.
func (t *terms) Rate() unit.Rate { return *t.rate.Load() }

// Enforces reports whether the class does what its policy says, and does not only
// compute it.
func (t *terms) Enforces() bool { return t.enforces.Load() }

// newClass returns a class that has no policy in force yet.
func newClass(conf policy.Class, counters *tally, casts caster) *Class {
	c := &Class{Stats: counters.Stats, terms: terms{name: conf.Name}, tally: counters, casts: casts}
	c.node.init(c, conf.Rate.Kind())
	c.slots.of = c
	return c
}

// Parent returns the class above; nil for none.
func (c *Class) Parent() *Class {
	if p := c.parent.Load(); p != nil {
		return p.class
	}
	return nil
}

// Counting returns the nearest class on the path to the root that counts in a unit; nil
// for none.
func (c *Class) Counting(kind unit.Kind) *Class {
	if c == nil {
		return nil
	}
	if n := c.counting(kind); n != nil {
		return n.class
	}
	return nil
}

// Policy returns the policy in force, with the changes that Set made.
func (c *Class) Policy() policy.Class {
	defer c.lock().mu.Unlock()
	return c.conf
}

// CountSent counts what has left the class in a direction. A nil class counts nothing.
func (c *Class) CountSent(d stats.Direction, cost Cost) {
	if c != nil {
		c.tally.sent(d, cost)
	}
}

// CountDropped counts items that were dropped, and their bytes together. A nil class
// counts nothing.
func (c *Class) CountDropped(r stats.Reason, items, bytes int64) {
	if c != nil {
		c.tally.dropped(r, items, bytes)
	}
}

// CountRefused counts one item that was refused, of so many bytes. A nil class counts
// nothing.
func (c *Class) CountRefused(r stats.Reason, bytes int64) {
	if c != nil {
		c.tally.refused(r, bytes)
	}
}

// attach puts a class, which is a root, under a parent. Both are locked.
func attach(now time.Time, c, parent *Class) {
	c.node.attach(now, &parent.node)
	moveFlying(now, parent, c.flying)
	parent.count(c.open) // nobody beneath a root waits above it
	if c.tally != parent.tally {
		c.tally.above.Store(parent.tally)
	}
}

// detach makes a class a root. Its tree and itself are locked.
func detach(now time.Time, c *Class) {
	parent := c.Parent()
	c.withdraw()
	parent.count(-c.open)
	moveFlying(now, parent, -c.flying)
	if c.tally != parent.tally {
		c.tally.above.Store(nil)
	}
	c.node.detach(now)
}

// moveFlying tells the shadows of a class and of those above it that so many items in
// flight have come with a class beneath it, or have left with that.
func moveFlying(now time.Time, c *Class, n int) {
	for ; n != 0 && c != nil; c = c.Parent() {
		if c.shadow != nil {
			c.shadow.moveFlying(now, n)
		}
	}
}

// put puts another policy in force for the class alone, without telling the tree.
func (c *Class) put(now time.Time, conf policy.Class, next *pace) {
	c.recover(now)
	if !next.sameLimiter(&c.pace) || conf.Shadow != c.conf.Shadow {
		c.leaving = time.Time{}
	}
	if c.shadow != nil && conf.Shadow {
		c.shadow.set(now, conf, c.flying)
		c.install(now, conf, next, limitless{})
		return
	}
	had := c.enforced(now)
	c.shadow = nil
	c.install(now, conf, next, had.takeOver(now, next))
}

// enforced returns what limits the class, or has limited its shadow, which ends.
func (c *Class) enforced(now time.Time) *gate {
	if c.shadow != nil {
		return c.shadow.leave(now)
	}
	return &c.gate
}

// install puts a policy in force with its pace and its limiter. A class that only computes
// what it would do gives the limiter to its shadow.
func (c *Class) install(now time.Time, conf policy.Class, p *pace, l limit.Limiter) {
	if conf.Shadow && c.shadow == nil {
		c.shadow, l = c.casts(now, conf, l, shadowStats(c)), limitless{}
		c.shadow.moveFlying(now, c.flying)
	}
	c.conf = conf
	c.passive = c.keys != nil || c.shadow != nil
	c.gate.set(now, conf, p, l)
	c.compete(conf.Priority, int64(max(conf.Weight, 1)))
	c.queue.MaxItems = int(bound(conf.Queue.Items.N))
	c.queue.MaxBytes = bound(int64(conf.Queue.Bytes))
	// What can be made to wait comes over TCP, whatever its class counts.
	c.patient = conf.OverflowFor(policy.TCP) == policy.Wait
	if c.most = conf.MaxConnections; c.passive {
		c.most = 0
	}
	c.publish(conf)
	c.needsLeft.Store(c.settler != nil)
	c.piece.Store(c.pace.piece)
}
