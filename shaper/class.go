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

	name  string
	tally *tally // counts in Stats, and for the classes above
	keys  *keys  // its buckets, which are children of it; nil: it has one for all, itself
	trial *Trial // what has copies enter the class; nil: a class above it has that, or things really enter
	casts caster // makes its shadow

	// Without a lock. Written under that of the tree.
	enforces atomic.Bool // what its policy says
	rate     atomic.Pointer[unit.Rate]

	// Under the lock of the tree.
	conf   policy.Class
	former *Class // whose place it has taken, and what waits there counts as its own; nil: none
	shadow shadow // computes what the class would do, which itself does nothing; nil: it does what it says
	slots  slots
	membership
	node // has its own groups
}

// A shadow computes what a class would do that enforces nothing: it gets a copy of all
// that really leaves. Its lock is taken under that of the class.
type shadow interface {
	// offer offers a copy of what leaves at now. from is the source that waiting would hold
	// up, nil for none. asks says that it gets an answer.
	offer(now time.Time, cost Cost, from *Source, asks bool)
	// answered says that the first that was offered, and has no answer yet, has it now.
	answered(now time.Time)
	// occupy acquires a slot; nil if the session would have been refused.
	occupy() *Slot
	// isBusy reports whether copies wait at now.
	isBusy(now time.Time) bool
	// set puts another policy in force.
	set(now time.Time, conf policy.Class)
	// leave returns what has limited the copies, which begins to limit what really leaves.
	leave(now time.Time) *gate
	// class returns the class that has the copies.
	class() *Class
}

// A caster makes the shadow of a class with its policy and limiter; it counts in counters.
type caster func(now time.Time, conf policy.Class, l limit.Limiter, counters *stats.Class) shadow

// newClass returns a class that has no policy in force yet.
func newClass(conf policy.Class, counters *tally, casts caster) *Class {
	c := &Class{Stats: counters.Stats, name: conf.Name, tally: counters, casts: casts}
	c.node.init(c, conf.Rate.Kind())
	c.slots.class = c
	return c
}

// Name returns the name of the class in the policy.
func (c *Class) Name() string { return c.name }

// Parent returns the class above; nil for none.
func (c *Class) Parent() *Class {
	if p := c.parent.Load(); p != nil {
		return p.class
	}
	return nil
}

// Rate returns the limit in force, without headroom: the ceil of a class that
// has one.
func (c *Class) Rate() unit.Rate { return *c.rate.Load() }

// Enforces reports whether the class does what its policy says, and does not only
// compute it.
func (c *Class) Enforces() bool { return c.enforces.Load() }

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

// Policy returns what is in force, with the changes that Set made.
func (c *Class) Policy() policy.Class {
	defer c.lock().mu.Unlock()
	return c.conf
}

// Sessions returns how many sessions are open in the class and its children.
func (c *Class) Sessions() int {
	defer c.lock().mu.Unlock()
	return c.slots.open
}

// CountSent counts what has left the class in a direction. To count in a nil class is to
// do nothing.
func (c *Class) CountSent(d stats.Direction, cost Cost) { c.counters().sent(d, cost) }

// CountDropped counts items that were dropped, and their bytes together.
func (c *Class) CountDropped(r stats.Reason, items, bytes int64) {
	c.counters().dropped(r, items, bytes)
}

// CountRefused counts one item that was refused, of so many bytes.
func (c *Class) CountRefused(r stats.Reason, bytes int64) { c.counters().refused(r, bytes) }

func (c *Class) counters() *tally {
	if c == nil {
		return nil
	}
	return c.tally
}

// attach puts the class, which is a root, under a parent. Both are locked.
func (c *Class) attach(now time.Time, parent *Class) {
	c.node.attach(now, &parent.node)
	parent.slots.count(c.slots.open) // nobody beneath a root waits above it
	if c.tally != parent.tally {
		c.tally.above.Store(parent.tally)
	}
}

// detach makes the class a root. Its tree and itself are locked.
func (c *Class) detach(now time.Time) {
	parent := c.Parent()
	c.slots.withdraw()
	parent.slots.count(-c.slots.open)
	if c.tally != parent.tally {
		c.tally.above.Store(nil)
	}
	c.node.detach(now)
}

// install puts the first policy of the class in force, with its limiter.
func (c *Class) install(now time.Time, conf policy.Class, l limit.Limiter) {
	if conf.Shadow {
		c.shadow, l = c.casts(now, conf, l, c.shadowStats()), limitless{}
	}
	c.adopt(now, conf, l)
}

// shadowStats returns the counters of what the class would do: all buckets of one class
// have the same.
func (c *Class) shadowStats() *stats.Class {
	if c.among != nil && c.among.class.shadow != nil {
		return c.among.class.shadow.class().Stats
	}
	return new(stats.Class)
}

// replacePolicy puts another policy in force for the class alone, without telling the tree.
func (c *Class) replacePolicy(now time.Time, conf policy.Class) {
	c.recover(now)
	next := paceOf(conf)
	if !next.sameLimiter(&c.pace) || conf.Shadow != c.conf.Shadow {
		c.leaving = time.Time{}
	}
	if c.shadow != nil && conf.Shadow {
		c.shadow.set(now, conf)
		c.adopt(now, conf, limitless{})
		return
	}
	had := c.enforced(now)
	c.shadow = nil
	c.install(now, conf, had.takeOver(now, &next))
}

// enforced returns what limits the class, or would limit it.
func (c *Class) enforced(now time.Time) *gate {
	if c.shadow != nil {
		return c.shadow.leave(now)
	}
	return &c.gate
}

// adopt puts all of a policy in force in the class itself.
func (c *Class) adopt(now time.Time, conf policy.Class, l limit.Limiter) {
	c.conf = conf
	c.passive = c.keys != nil || c.shadow != nil
	c.gate.set(now, conf, l)
	c.compete(conf.Priority, int64(max(conf.Weight, 1)))
	c.queue.MaxItems = int(bound(conf.Queue.Items.N))
	c.queue.MaxBytes = bound(int64(conf.Queue.Bytes))
	c.slots.most = conf.MaxConnections
	if c.passive {
		c.slots.most = 0
	}
	rate := conf.Limit()
	c.rate.Store(&rate)
	c.enforces.Store(!conf.Shadow)
	c.settles.Store(c.settler != nil)
	c.piece.Store(c.pace.piece)
}
