package shaper

import (
	"sync"
	"sync/atomic"
	"time"

	"shaper/limit"
	"shaper/unit"
)

// A node is the place of a class in its tree: its gate, what waits there, and those
// that compete for it. It decides which item leaves next, and when.
//
// Each tree has one lock, the mutex of its root; see lock. To move a node is to hold the
// locks of all roots that were, are or will be above it: Shaper.Apply does, and keys when
// a bucket comes or goes.
//
// Locks are taken in this order: that of a Shaper, a Slot, a tree, a Trial, a tree in the
// Trial, and the pacer. Only Shaper.Apply locks two trees that are not in each other's
// Trials.
type node struct {
	class *Class
	kind  unit.Kind // what it counts

	// Without a lock. Written under that of the tree.
	parent    atomic.Pointer[node]
	piece     atomic.Int64 // what the class alone allows of Piece
	needsLeft atomic.Bool  // the class waits for Left
	handing   atomic.Bool  // the pacer has taken an item out of the queue, and its owner is being told

	// Of the whole tree, if the node is its root.
	mu     sync.Mutex
	waker  waker     // told when next has changed; nil: somebody calls Release
	due    alarm     // when the waker looks again
	latest time.Time // when something happened in the tree

	// Under the lock of the tree.
	gate
	line
	place    contender // among the children of the parent
	queued   contender // of the queue, among the children of the class
	feed     *feed     // the children; nil: it has none
	priority int       // among its siblings
	weight   int64     // likewise; at least 1
}

// A waker wakes trees when something may leave.
type waker interface {
	// set moves an alarm of a root to at; limit.Never removes it. The tree is locked.
	set(a *alarm, at time.Time)
}

// init makes it the node of a class, alone in its tree.
func (n *node) init(c *Class, kind unit.Kind) {
	n.class, n.kind = c, kind
	n.due.node = n
	n.place.init(n, false)
	n.queued.init(n, true)
}

// root returns the node at the top of the path.
func (n *node) root() *node {
	for p := n.parent.Load(); p != nil; p = n.parent.Load() {
		n = p
	}
	return n
}

// lock locks the tree that the node is in and returns its root, whose mutex that is.
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

// lockAt is lock for what happens at now. Time never goes back for a tree: a caller with an
// older time, as it was before the lock, gets the latest.
func (n *node) lockAt(now time.Time) (root *node, latest time.Time) {
	root = n.lock()
	if now != limit.Never {
		root.latest = later(root.latest, now)
	}
	return root, root.latest
}

// isBeneath reports whether the node is top, or beneath it.
func (n *node) isBeneath(top *node) bool {
	for n != nil && n != top {
		n = n.parent.Load()
	}
	return n != nil
}

// attach puts the node, which is a root, under a parent. Both are locked.
func (n *node) attach(now time.Time, parent *node) {
	if parent.feed == nil {
		parent.feed = &feed{}
		parent.feed.add(&parent.queued)
		parent.update(now) // its own queue competes from now on
	}
	parent.feed.members++
	parent.feed.add(&n.place)
	n.parent.Store(parent)
	parent.countWaiting(n.beneath, n.waiting)
	for p := parent; p != nil; p = p.parent.Load() {
		p.someFree = p.waiting > 0 // of a sum nobody knows
	}
	parent.countFlying(n.flying)
	root := parent.root()
	root.latest = later(root.latest, n.latest)
	if n.waker != nil {
		n.waker.set(&n.due, limit.Never)
	}
	n.update(now)
}

// leaveMargin is how long an item may still be on its way out when its class leaves a
// parent, which Left does not reach any more.
const leaveMargin = 10 * time.Millisecond

// detach makes the node a root. Its tree and itself are locked.
func (n *node) detach(now time.Time) {
	parent := n.parent.Load()
	for p := parent; p != nil; p = p.parent.Load() {
		if !p.leaving.IsZero() && p.payer.isBeneath(n) {
			p.left(now.Add(leaveMargin))
		}
	}
	parent.feed.remove(&n.place)
	if parent.feed.members--; parent.feed.members == 0 {
		parent.feed.remove(&parent.queued)
		parent.feed = nil
	}
	parent.countWaiting(n.beneath.negative(), -n.waiting)
	parent.countFlying(-n.flying)
	n.parent.Store(nil)
	parent.update(now)
}

// compete gives the node a priority and a weight among its siblings, at once.
func (n *node) compete(priority int, weight int64) {
	f := (*feed)(nil)
	if p := n.parent.Load(); p != nil {
		f = p.feed
	}
	switch old := n.weight; {
	case f == nil:
		n.priority, n.weight = priority, weight
	case priority != n.priority: // to another ring
		f.remove(&n.place)
		n.priority, n.weight = priority, weight
		f.add(&n.place)
	default:
		n.weight = weight
		f.reweigh(&n.place, old)
	}
}

// update brings the tree up to date at now with what has changed in the class. The head
// of the root is left to next.
func (n *node) update(now time.Time) {
	if n.feed != nil {
		n.queued.head = n.front()
		n.feed.put(&n.queued, now)
	}
	for p := n.parent.Load(); p != nil; p = n.parent.Load() {
		n.refresh(now)
		p.feed.put(&n.place, now)
		n = p
	}
}

// Next returns when the next item of the tree that the class is in may leave: a
// moment not after now means at once, limit.Never that none waits or none may leave.
func (n *node) Next(now time.Time) time.Time {
	root, now := n.lockAt(now)
	defer root.mu.Unlock()
	return root.next(now)
}

// next returns when the next item of the tree may leave. The node is the root.
func (n *node) next(now time.Time) time.Time {
	n.refresh(now)
	return n.ready(now)
}

// wake tells the waker when to look again, after update. The node is the root. That is
// never a moment that has passed: of two trees that are always late, the later one would
// go before the other for ever.
func (n *node) wake(now time.Time) {
	if n.waker != nil {
		n.waker.set(&n.due, later(n.next(now), now))
	}
}

// push puts an item at the end of the queue.
func (n *node) push(it *Item) {
	it.class = n.class
	it.place.Value, it.place.Bytes, it.place.Items = it, it.Held, int(it.Cost.Packets)
	n.queue.Push(&it.place)
	n.queueCost += it.Cost.in(n.kind)
	n.countWaiting(it.Cost, max(it.Cost.Packets, 1))
}

// remove takes an item out of the queue, and reports whether it waited there.
func (n *node) remove(it *Item) bool {
	if !n.queue.Remove(&it.place) {
		return false
	}
	n.queueCost -= it.Cost.in(n.kind)
	n.countWaiting(it.Cost.negative(), -max(it.Cost.Packets, 1))
	return true
}

// countWaiting counts so many more items of that cost, or fewer, in the node and those above it.
func (n *node) countWaiting(cost Cost, items int64) {
	for ; n != nil; n = n.parent.Load() {
		n.line.count(n.kind, &cost, items)
	}
}

// countFlying counts so many more items in flight in the node and those above it.
func (n *node) countFlying(items int) {
	for ; n != nil; n = n.parent.Load() {
		n.flying += items
	}
}
