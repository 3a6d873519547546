package shaper

// A tail is the end of the queue of a class, where an item stands behind all others. It says what waits there before the
// item.
type tail struct {
	node *node
	own  Cost // what the item costs if it is the last of the queue; nothing if it comes now
}

// ahead returns what waits before the item in its queue, in the unit of the class.
func (t tail) ahead() int64 { return t.node.queueCost - t.own.In(t.node.kind) }

// before is ahead in all units.
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
	case n.feed != nil && n.class.quiet.count() < n.feed.children:
		return 0
	}
	before := t.before()
	return before.in(x.kind)
}

// others returns what waits in a class on the path and beneath it, without the item.
func (t tail) others(x *node) int64 { return x.waitingCost.in(x.kind) - t.own.In(x.kind) }

// parts returns in how many parts a forecast counts what waits before the item in its queue: in its units, unless these are
// many, or all of it costs nothing in the unit of the class.
func (t tail) parts() int64 {
	const most = 1024 // a queue of bytes has more units, and a forecast asks all classes on the path about each
	if ahead := t.ahead(); ahead > 0 {
		return min(ahead, most)
	}
	return most
}
