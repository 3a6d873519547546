package shaper

// A tail is the place of an item at the end of the queue of a class, behind all others. It says what waits before the item.
// A forecast has one. The caller holds the lock of the tree.
type tail struct {
	node *node
	own  Cost // what the item costs if it is in the queue already, as the last; nothing if it comes now
}

// ahead returns what waits before the item in its queue, in the unit of the class.
func (t tail) ahead() int64 { return t.node.queueCost - t.own.In(t.node.kind) }

// before is ahead in all units. If other children than groups compete with the queue, it also has what waits in these.
func (t tail) before() sum {
	before := t.node.waitingCost
	for _, group := range t.node.class.quiet.inUse {
		others := group.waitingCost.negative()
		before.add(&others)
	}
	before.count(&t.own, -1)
	return before
}

// through is ahead in the unit of a class on the path of the item. If children compete with the queue, what waits in the
// queue is known only in the unit of the item's own class. In another unit, through then returns 0.
func (t tail) through(x *node) int64 {
	n := t.node
	switch {
	case x.kind == n.kind:
		return t.ahead()
	case t.isMixed():
		return 0
	}
	before := t.before()
	return before.in(x.kind)
}

// atMost is through, but where that is not known, all that waits in the class counts. It is 0 for no tail.
func (t tail) atMost(x *node) int64 {
	switch n := t.node; {
	case n == nil:
		return 0
	case x.kind != n.kind && t.isMixed():
		return n.waitingCost.in(x.kind)
	}
	return t.through(x)
}

// isMixed reports whether children compete with the queue of the class that are no groups.
func (t tail) isMixed() bool {
	return t.node.feed != nil && t.node.class.quiet.count() < t.node.feed.children
}

// others returns what waits in all queues of a class on the path and beneath it, in the unit of that class, without the item.
func (t tail) others(x *node) int64 { return x.waitingCost.in(x.kind) - t.own.In(x.kind) }

// parts returns in how many equal parts a forecast divides what waits before the item in its queue. A part is a unit, unless
// there are many units, or none: what waits costs nothing in the unit of the class.
func (t tail) parts() int64 {
	const most = 1024 // a queue of bytes has more units, and a forecast asks all classes on the path about each
	if ahead := t.ahead(); ahead > 0 {
		return min(ahead, most)
	}
	return most
}
