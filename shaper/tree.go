package shaper

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"shaper/limit"
	"shaper/unit"
)

// A node is the place of a class in its tree: its gate, what waits there, and those
// that compete for it. It decides which item leaves next, and when.
//
// Each tree has one lock, the mutex of its root; see lock. Whoever moves a node holds the
// locks of all roots that were, are or will be above it. Shaper.Apply does so, and keys
// when a bucket comes or goes.
//
// Locks are taken in this order: Shaper, Permit, tree, Trial, tree in that Trial, pacer.
// Only Shaper.Apply locks two trees of which none is in a Trial of the other.
type node struct {
	class *Class
	kind  unit.Kind // what it counts

	// Read without a lock; written under the lock of the tree, except handing.
	parent    atomic.Pointer[node]
	piece     atomic.Int64 // the piece of this class alone; see Piece
	needsLeft atomic.Bool  // the class has to know when an item has left
	handing   atomic.Bool  // the pacer has taken an item out of the queue and is telling its owner

	// Of the whole tree, if the node is its root. mu guards latest, and the group below in
	// all nodes of the tree. The waker guards alarm and gap.
	mu      sync.Mutex
	waker   waker     // is told when the next departure changes; nil: somebody calls Release
	alarm   alarm     // when the waker looks again
	gap     bool      // the alarm is for the end of a gap
	latest  time.Time // the latest time at which something happened in the tree
	overdue []*Class  // shared classes whose next item may have to be refused; see takeOverdue

	// Guarded by the lock of the tree.
	gate               // what the class allows
	line               // what waits in the class and beneath it
	asChild  contender // competes for the parent
	ownQueue contender // the queue of the class itself, which competes with its children
	feed     *feed     // those that compete for the class; nil: it has no children
	side     *node     // the class of a bucket beneath a bucket: it is not on the path, and what is in the bucket counts in it too; nil for all else
	ascent             // since when the classes above it are there
}

// A waker calls for departures when they are due.
type waker interface {
	// set moves the alarm of a root at now to at; limit.Never removes it. gap says that a gap ends
	// then, which loses whatever the waker is late by. The caller holds the lock of the tree.
	set(a *alarm, now, at time.Time, gap bool)
}

// init makes n the node of a class, alone in its tree.
func (n *node) init(c *Class, kind unit.Kind) {
	n.class, n.kind = c, kind
	n.alarm.node = n
	n.asChild.init(n, false)
	n.ownQueue.init(n, true)
}

// Parent returns the class above; nil for none.
func (n *node) Parent() *Class {
	if p := n.parent.Load(); p != nil {
		return p.class
	}
	return nil
}

// root returns the node at the top of the path.
func (n *node) root() *node {
	for p := n.parent.Load(); p != nil; p = n.parent.Load() {
		n = p
	}
	return n
}

// lock locks the tree that the node is in. It returns the root, whose mu is the lock.
func (n *node) lock() (root *node) {
	for {
		root = n.root()
		root.mu.Lock()
		if n.root() == root {
			return root
		}
		root.mu.Unlock()
	}
}

// lockAt locks the tree for what happens at now, and returns the time to use. Time never
// goes back in a tree: if now is older than the latest time there, lockAt returns that.
func (n *node) lockAt(now time.Time) (root *node, latest time.Time) {
	root = n.lock()
	if now.After(root.latest) && now != limit.Never {
		root.latest = now
	}
	return root, root.latest
}

// isBeneath reports whether the node is top, or beneath it. The buckets of a class are beneath it.
func (n *node) isBeneath(top *node) bool {
	for n != nil && n != top && n.side != top {
		n = n.parent.Load()
	}
	return n != nil
}

// attach puts a node that is a root under a parent. The caller holds the locks of both.
func (n *node) attach(now time.Time, parent *node) {
	if parent.feed == nil {
		parent.feed = &feed{}
		if parent.pace.keyed {
			parent.feed.depths = new(depths)
		}
		parent.feed.add(&parent.ownQueue)
		parent.update(now) // the parent's own queue competes from now on
	}
	parent.feed.children++
	parent.feed.add(&n.asChild)
	n.parent.Store(parent)
	parent.countWaiting(&n.waitingCost, n.waiting)
	for p := parent; p != nil; p = p.parent.Load() {
		p.someFree = p.waiting > 0 // the sums do not tell
	}
	parent.countInFlight(n.inFlight)
	root := parent.root()
	root.latest = later(root.latest, n.latest)
	moveOverdue(n, n, root)
	if n.waker != nil {
		n.waker.set(&n.alarm, now, limit.Never, false)
	}
	n.update(now)
}

// moveOverdue moves what is overdue at or beneath a node from a root to another one.
func moveOverdue(n, from, to *node) {
	for _, c := range from.overdue {
		if c.isBeneath(n) {
			to.overdue = append(to.overdue, c)
		}
	}
	from.overdue = slices.DeleteFunc(from.overdue, func(c *Class) bool { return c.isBeneath(n) })
}

// leaveMargin is how long an item may still be on its way out when its class leaves a class that was above
// it. Left does not reach that one any more.
const leaveMargin = 10 * time.Millisecond

// stopAwaiting makes a class go on that waits until an item has left of a node that is not beneath it any more, or will not be. The
// caller holds the lock of its tree.
func (n *node) stopAwaiting(now time.Time, gone *node) {
	if !n.leavingSince.IsZero() && n.payer.isBeneath(gone) {
		at := now.Add(leaveMargin)
		n.settle(at, at, now, 0)
		n.update(now)
	}
}

// detach makes the node a root. The caller holds the lock of its tree, and mu of the node, and makes those go on that are not above it
// any more in the end.
func (n *node) detach(now time.Time) {
	parent := n.parent.Load()
	moveOverdue(n, n.root(), n)
	parent.feed.remove(&n.asChild)
	if parent.feed.children--; parent.feed.children == 0 {
		parent.feed.remove(&parent.ownQueue)
		parent.feed = nil
	}
	gone := n.waitingCost.negative()
	parent.countWaiting(&gone, -n.waiting)
	parent.countInFlight(-n.inFlight)
	n.parent.Store(nil)
	parent.update(now)
}

// update tells the feeds above that something has changed in the class. The caller holds
// the lock of the tree. Only next brings the root itself up to date.
func (n *node) update(now time.Time) {
	if n.feed != nil {
		n.ownQueue.refresh(now)
		n.feed.reseat(&n.ownQueue, now)
	}
	for p := n.parent.Load(); p != nil; p = n.parent.Load() {
		n.asChild.refresh(now)
		p.feed.reseat(&n.asChild, now)
		n = p
	}
}

// Next returns when the next item of the whole tree may leave. A moment that is not after
// now means at once. limit.Never means that nothing waits or that nothing may leave.
func (n *node) Next(now time.Time) time.Time {
	root, now := n.lockAt(now)
	defer root.mu.Unlock()
	return root.next(now)
}

// next is Next for the root. The caller holds the lock of the tree.
func (n *node) next(now time.Time) time.Time {
	if len(n.overdue) > 0 {
		return now
	}
	n.asChild.refresh(now)
	return n.asChild.ready(now)
}

// wake tells the waker when to look at the tree again. The caller holds the lock of the
// tree and has called update; the node is the root. The time is never before now: if two
// trees were always late, the later one would go first for ever.
func (n *node) wake(now time.Time) {
	if n.waker != nil {
		at := later(n.next(now), now)
		n.waker.set(&n.alarm, now, at, n.asChild.awaitsGap())
	}
}

// push puts an item at the end of the queue of the class, or before all others if it is First.
func (n *node) push(it *Item) {
	it.class = n.class
	n.enqueue(it)
	n.countItem(it, 1)
}

// remove takes an item out of the queue of the class, and reports whether it waited there.
func (n *node) remove(it *Item) bool {
	if !n.queue.Remove(&it.place) {
		return false
	}
	n.countItem(it, -1)
	return true
}

// countItem counts an item of the queue so many times: 1 when it has come, and -1 when it has gone.
func (n *node) countItem(it *Item, times int64) {
	cost := times * it.Cost.In(n.kind)
	n.queueCost += cost
	if c := n.class.owner; c.bucketOf != nil && c.parent.Load() != nil { // as in countWaiting
		c.bucketOf.queueCost += cost
	}
	var all sum
	all.count(&it.Cost, times)
	n.countWaiting(&all, times*max(it.Cost.Packets, 1))
}

// countWaiting adds items, and what they cost together, to what waits in the node and in
// the nodes above it. Negative numbers take away.
func (n *node) countWaiting(cost *sum, items int64) {
	for ; n != nil; n = n.parent.Load() {
		n.line.count(n.kind, cost, items)
		if k := n.class.bucketOf; k != nil && n.parent.Load() != nil { // else it was given up, and has a lock of its own
			k.noteWaiting(n.class)
		}
		if n.side != nil {
			n.side.line.count(n.side.kind, cost, items)
		}
	}
}

// countInFlight adds to the items in flight of the node and of those above it.
func (n *node) countInFlight(items int) {
	for ; n != nil; n = n.parent.Load() {
		n.inFlight += items
		if n.side != nil {
			n.side.inFlight += items
		}
	}
}
