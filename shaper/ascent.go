package shaper

import "time"

// An ascent says since when the classes above a node are above it: they were not charged for what left before. Apply alone changes it, with
// the lock of the tree. So Apply may read it without that lock.
type ascent struct {
	movedAt   time.Time // when the node came under its parent; zero: at first
	kept      *node     // the nearest of those above that stayed above when the node moved; nil: none did
	keptSince time.Time // since when kept is above
}

// risenTo returns since when a class on the path of the node has been above it, or has gone on from one that was.
func (n *node) risenTo(x *node) (since time.Time) {
	for y := n; y != x; y = y.parent.Load() {
		if y.kept.isBeneath(x) {
			since = later(since, y.keptSince)
		} else {
			since = later(since, y.movedAt)
		}
	}
	return since
}

// ancestors are the classes that are above a node before it moves, the nearest first.
type ancestors []ancestor

type ancestor struct {
	node  *node
	since time.Time // since when it has been above
}

// ancestorsOf returns those of a node.
func ancestorsOf(n *node) (all ancestors) {
	for x := n.parent.Load(); x != nil; x = x.parent.Load() {
		all = append(all, ancestor{x, n.risenTo(x)})
	}
	return all
}

// rise notes that a node has moved at now, and the nearest of the ancestors that it still has, or that has an heir above it. They are
// those of the node, or of the one from which it goes on.
func (all ancestors) rise(now time.Time, n *node) {
	n.ascent = ascent{movedAt: now}
	for x := n.parent.Load(); x != nil; x = x.parent.Load() {
		for _, a := range all {
			if a.node == x || a.node.class.heir == x.class {
				n.kept, n.keptSince = x, a.since
				return
			}
		}
	}
}
