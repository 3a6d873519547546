package shaper

import (
	"slices"
	"time"

	"shaper/limit"
	"shaper/policy"
	"shaper/stats"
	"shaper/unit"
)

// A rehearsal is a copy of a tree at one moment: what waits there, and all that decides when it
// leaves. What happens in the copy changes nothing in the tree. So it tells when an item leaves if
// nothing else comes, no answer and no signal of a provider either, and if each item is written
// when it may leave.
type rehearsal struct {
	now     time.Time
	nodes   map[*node]*node // copies, by what they are copies of
	items   map[*Item]*Item // likewise
	lent    []*node         // copies of shared classes and buckets
	tally   *Tally          // counts for nobody
	room    int             // how many items are still to be copied; see copyLine
	inexact bool            // a limiter could not be copied, or an item that was not copied has its turn
	rounded bool            // a limiter was copied to within a nanosecond
}

// rehearse copies the tree of a class. The caller holds its lock. root is up to date.
func rehearse(now time.Time, root, of *node) *rehearsal {
	r := &rehearsal{now: now, nodes: map[*node]*node{}, items: map[*Item]*Item{}, room: mostCopied, tally: &Tally{Stats: new(stats.Class)}}
	var path []*node
	for n := of; n != nil; n = n.parent.Load() {
		path = append(path, n)
	}
	r.add(root, nil, path)
	for n, copied := range r.nodes {
		copied.payer = r.nodes[n.payer]
		r.copyContender(&n.asChild, &copied.asChild)
		r.copyContender(&n.ownQueue, &copied.ownQueue)
	}
	for n, copied := range r.nodes {
		r.copyFeed(n, copied)
	}
	for _, copied := range r.lent {
		copied.update(now) // what the fleet is expected to grant, time brings to its turn
	}
	return r
}

// add copies a node and those beneath it that time alone can bring to their turn. The nodes on the
// path come too. If there is no room, it copies only the first contender of each heap, and those that
// may send come first.
func (r *rehearsal) add(n, parent *node, path []*node) {
	if r.nodes[n] != nil {
		return
	}
	r.nodes[n] = r.copyOf(n, parent)
	if n.feed != nil {
		r.addContenders(n, path)
	}
	if n.class.backing.member == nil || n.class.keys == nil {
		return
	}
	for e := n.class.keys.waiting.Front(); e != nil; e = e.Next() { // without a grant they are in no heap
		if r.inexact = true; len(r.nodes) >= mostNodes {
			break
		}
		r.addBucket(&e.Value.node, path)
	}
}

// addContenders is add for those that compete for a node.
func (r *rehearsal) addContenders(n *node, path []*node) {
	for _, child := range path {
		if child.parent.Load() == n {
			r.add(child, n, path)
		}
	}
	for _, h := range slices.Backward(n.feed.heaps()) {
		for i, a := range *h {
			if i > 0 && len(r.nodes) >= mostNodes {
				r.inexact = true
				break
			}
			if a.node != n {
				r.add(a.node, n, path)
			}
		}
	}
}

// addBucket adds a bucket, after those above it.
func (r *rehearsal) addBucket(n *node, path []*node) {
	parent := n.parent.Load()
	if r.nodes[parent] == nil {
		r.addBucket(parent, path)
	}
	r.add(n, parent, path)
}

// heaps returns all heaps that hold contenders.
func (f *feed) heaps() []*alarms {
	all := []*alarms{&f.changes}
	for band := range bands {
		for priority := range f.rings[band] {
			all = append(all, &f.rings[band][priority].line)
		}
	}
	return all
}

// copyOf copies a node without its feed.
func (r *rehearsal) copyOf(n, parent *node) *node {
	c := newClass(n.class.conf, r.tally, nil)
	c.conf = n.class.conf
	c.publish(c.conf)
	m := &c.node
	m.parent.Store(r.nodes[parent])
	m.side = r.nodes[n.side]
	m.latest, m.asChild.priority, m.asChild.weight = n.latest, n.asChild.priority, n.asChild.weight
	m.gate = n.gate
	m.throttle = n.throttle.clone() // Why reads the copy without the lock
	m.use(r.limiterOf(n))
	m.assured = copyOf(n.assured)
	m.needsLeft.Store(n.needsLeft.Load())
	if _, ok := m.limiter.(*lent); ok {
		r.lent = append(r.lent, m)
	}
	r.copyLine(n, m)
	return m
}

// limiterOf copies the limiter of a node, with all limits of which it consists. The copy asks no
// ledger, and tells no fleet.
func (r *rehearsal) limiterOf(n *node) limit.Limiter {
	var of lent
	switch l := n.limiter.(type) {
	case limitless, blocked:
		return n.limiter
	case *shared:
		of = lent{budgets: l.budgets, parts: l.parts(), closed: l.class.pace.closed, since: r.now}
	case *lent:
		of = *l
	default:
		return r.copyLimits(n)
	}
	of.Limiter, r.inexact = r.copyLimits(n), true // other processes use the budget, too
	return &of
}

// copyLimits copies the limits of which the limiter of a node consists.
func (r *rehearsal) copyLimits(n *node) limit.Limiter {
	parts, hints := limit.Parts(bare(n.limiter)), limit.HintsOf(bare(n.limiter))
	if hints != nil {
		hints = hints.Clone().(*limit.Hints)
	}
	return n.pace.limiter(hints, func(i int, of *restraint) limit.Limiter {
		rate := of.rate
		if i == 0 {
			rate = n.pacedRate()
		}
		return r.copyLimit(parts[i], of, rate)
	})
}

// copyLimit copies one limit, which runs at a rate.
func (r *rehearsal) copyLimit(l limit.Limiter, of *restraint, rate unit.Rate) limit.Limiter {
	if c, ok := l.(limit.Cloner); ok {
		return c.Clone()
	}
	memory, whole := l.Memory(r.now)
	r.inexact, r.rounded = r.inexact || !whole, r.rounded || of.algorithm == policy.Token
	next := of.newLimiter(r.now)
	if rate != of.rate {
		next.SetRate(r.now, rate, of.atOnce)
	}
	next.Remember(memory)
	return next
}

// Bounds of what is copied: the tree is locked meanwhile, and nothing leaves.
const (
	mostNodes   = 1000           // classes, with their buckets and groups, until there is no room
	mostCopied  = 4000           // items of all queues, until there is no room
	mostOfQueue = mostCopied / 4 // items of one queue
	leastOfEach = 4              // items of each queue, although there is no room
)

// copyLine copies the beginning of a queue, and the sums of all that waits.
func (r *rehearsal) copyLine(n, m *node) {
	room := min(max(r.room, leastOfEach), mostOfQueue)
	for e := n.queue.Front(); e != nil && room > 0; e = e.Next() {
		room--
		r.room--
		it := e.Value
		one := &Item{Cost: it.Cost, Held: it.Held, Busy: it.Busy, Settles: it.Settles, Asks: it.Asks, arrived: it.arrived, since: it.since, class: m.class}
		r.items[it] = one
		m.enqueue(one)
	}
	m.queueCost, m.waiting, m.waitingCost, m.someFree = n.queueCost, n.waiting, n.waitingCost, n.someFree
}

func (r *rehearsal) copyContender(from, to *contender) {
	to.head = r.items[from.head]
	to.at, to.key, to.index = from.at, from.key, from.index
	for band := range bands {
		to.seats[band].key, to.seats[band].index = from.seats[band].key, from.seats[band].index
	}
}

// copyFeed gives the copy of a node its feed.
func (r *rehearsal) copyFeed(n, copied *node) {
	if n.feed == nil {
		return
	}
	f := *n.feed
	f.slot, f.depths, f.rehearsed = nil, nil, true // no copy has a slot, and none is a bucket
	copied.feed = &f
	for i, h := range f.heaps() {
		*h = r.copyHeap(n, *n.feed.heaps()[i], i)
	}
}

// copyHeap copies heap i of the feed of a node, in the same order, without contenders that were not
// copied.
func (r *rehearsal) copyHeap(n *node, from alarms, i int) alarms {
	to := make(alarms, 0, min(len(from), len(r.nodes)))
	for _, a := range from {
		copied := r.nodes[a.node]
		if copied == nil {
			continue
		}
		k := &copied.asChild
		if a.node == n {
			k = &copied.ownQueue
		}
		seat := &k.alarm
		if i > 0 {
			seat = &k.seats[(i-1)/len(n.feed.rings[0])]
		}
		seat.index = 0
		to.put(seat, seat.key)
	}
	return to
}

// mostRehearsed bounds the steps of a rehearsal.
const mostRehearsed = 100_000

// until lets items leave until an item leaves that waits in a class or beneath it. It returns that
// item, the time, and for each class above how many items left before because that class chose
// another class beneath it. The time is limit.Never if time alone never lets such an item leave,
// and an earlier one if there are too many steps.
func (r *rehearsal) until(of *node) (it *Item, at time.Time, ahead map[*node]int, exact bool) {
	top, target := r.nodes[of.root()], r.nodes[of]
	ahead = map[*node]int{}
	for range mostRehearsed {
		at = top.next(r.now)
		switch {
		case at == limit.Never:
			return nil, at, ahead, r.isExact()
		case at.After(r.now):
			r.now = byClockOf(r.now, at)
			continue
		}
		it := release(r.now, top)
		if it == nil { // a fleet has just given the next slot to somebody else
			r.inexact = true
			continue
		}
		it.Left(r.now)
		if it.class.isBeneath(target) {
			return it, r.now, ahead, r.isExact()
		}
		if it.class.queue.Front() == nil && it.class.queueCost > 0 {
			r.inexact = true // others behind it were not copied
		}
		fork := target
		for !it.class.isBeneath(fork) {
			fork = fork.parent.Load()
		}
		ahead[fork]++
	}
	return nil, r.now, ahead, false
}

// coming is until for an item of one unit that comes to a class now, in which and beneath which nothing
// waits. If the class has buckets, the item has a key that has no limit.
func (r *rehearsal) coming(of *node) (at time.Time, ahead map[*node]int, exact bool) {
	r.inexact = r.inexact || of.pace.keyed
	it := &Item{Cost: unitCost(of.kind), Accepted: true} // why is not about room in the queue
	if offer(r.now, r.nodes[of].class, it) == Leaves {
		return r.now, nil, r.isExact()
	}
	_, at, ahead, exact = r.until(of)
	return at, ahead, exact
}

// ofOriginals returns counts of copies as those of what they are copies of.
func (r *rehearsal) ofOriginals(counts map[*node]int) map[*node]int {
	all := map[*node]int{}
	for was, copied := range r.nodes {
		all[was] = counts[copied]
	}
	return all
}

// isExact reports whether all happens in the copy as in the tree. A nanosecond may change who is
// first.
func (r *rehearsal) isExact() bool { return !r.inexact && !(r.rounded && len(r.nodes) > 1) }
