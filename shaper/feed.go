package shaper

import (
	"math/bits"
	"time"

	"shaper/limit"
	"shaper/policy"
)

// A feed is all that competes for a class: its children, and the queue of the class
// itself. The rule and the name come from HTB (net/sched/sch_htb.c). Those within their
// assured rate go first, then those that borrow. Among these, priority decides. Those of
// the same priority take turns by weight; see ring.
//
// A contender that may send has a seat in the ring of its priority. While it is within its
// assured rate, it has a second seat among the assured. A contender that may not send yet
// is in no ring, and so nothing beneath it is either. Time changes a contender only at
// moments that are known, so it has an alarm for the next of them. The feed looks at it
// when the alarm is due and somebody asks for the next item.
//
// The lock of the tree guards a feed.
type feed struct {
	rings      [bands][policy.LastPriority + 1]ring
	busy       [bands]uint8 // a bit for each priority whose ring is not empty
	changes    alarms       // when time changes contenders
	children   int          // with or without items
	depths     *depths      // of the buckets of the class; nil: it has none
	slot       *contender   // the one whose slot of a fleet comes next; nil: none is known
	readySince time.Time    // since when a contender has been allowed to send
	rehearsed  bool         // nobody sets the clock: the feed is a copy
}

// The bands of a feed, in the order in which they are served.
const (
	assured   = iota // within the assured rate
	borrowing        // may send at all
	bands
)

// A contender takes part in a feed: a child of a class, or the queue of the class itself. The lock of the tree guards it.
type contender struct {
	alarm                 // when time changes it; a queue has none
	isQueue  bool         // it is the queue of the class itself
	head     *Item        // its next item when the feed last looked; nil: none may leave
	seats    [bands]alarm // when its turns come, by the clocks of the rings
	priority int          // among those that compete for the same class
	weight   int64        // among these; at least 1
}

// ownPriority is the priority of a class's own queue among its children.
var ownPriority = policy.DefaultClass("").Priority

// init makes k the contender of a node, or of the node's own queue.
func (k *contender) init(n *node, isQueue bool) {
	k.node, k.isQueue = n, isQueue
	k.priority, k.weight = ownPriority, 1
	for band := range bands {
		k.seats[band].node = n
	}
}

func (k *contender) isSeated(band int) bool { return k.seats[band].index != 0 }

// compete gives a child of a class, or a root, another priority and weight from now on.
func (k *contender) compete(priority int, weight int64) {
	parent := k.node.parent.Load()
	switch old := k.weight; {
	case parent == nil:
		k.priority, k.weight = priority, weight
	case priority != k.priority: // it moves to another ring
		parent.feed.remove(k)
		k.priority, k.weight = priority, weight
		parent.feed.add(k)
	default:
		k.weight = weight
		parent.feed.reweigh(k, old)
	}
}

// contestedBy returns the class for which the contender competes; nil if it is a root.
func (k *contender) contestedBy() *node {
	if k.isQueue {
		return k.node
	}
	return k.node.parent.Load()
}

// refresh brings head up to date: the next item of the queue, or of the class and all beneath it.
func (k *contender) refresh(now time.Time) {
	if n := k.node; k.isQueue || n.feed == nil {
		k.head = n.front()
	} else {
		k.head = n.feed.offer(now, n.pace.patience)
	}
}

// ready returns when the contender may send its head, apart from the limits of the class that it
// competes for, or when somebody has to look again. If a class may not send, an item that costs
// nothing waits too.
func (k *contender) ready(now time.Time) time.Time {
	n := k.node
	switch {
	case k.head != nil && k.isQueue:
		return now // the class counts the item when it leaves
	case k.head != nil:
		at := n.allowedAt(now, k.head.Cost.In(n.kind))
		if n.feed == nil || !at.After(now) {
			return at
		}
		return k.orSmaller(now, at)
	case k.isQueue:
		return limit.Never
	}
	if n.backed != nil {
		n.backed.idle(now)
	}
	return n.feed.nextChange()
}

// orSmaller returns when the head may leave, at, or when a smaller item may before.
func (k *contender) orSmaller(now, at time.Time) time.Time {
	n, least := k.node, int64(1)
	if n.someFree {
		least = 0
	}
	if small := n.allowedAt(now, least); small.Before(at) {
		at = earlier(at, later(small, n.feed.nextChange()))
	}
	return at
}

// hasPerished reports whether the contender may not send any more because its slot of a fleet is over.
func (k *contender) hasPerished(now time.Time) bool {
	if k.isQueue {
		return false
	}
	_, isShared := k.node.limiter.(*shared)
	return isShared && k.ready(now).After(now)
}

// closes returns when a schedule closes the contender after now; limit.Never if that is not known.
func (k *contender) closes(now time.Time) time.Time {
	if k.isQueue || !k.node.pace.closed.From.After(now) {
		return limit.Never
	}
	return byClockOf(now, k.node.pace.closed.From)
}

// assured returns when the contender is within its assured rate.
func (k *contender) assured() time.Time {
	switch {
	case k.isQueue:
		return limit.Never
	case k.node.pace.keyed && k.node.feed != nil: // it is assured what the next of its buckets is assured
		return k.node.feed.assured()
	case k.node.assured == nil:
		return time.Time{}
	}
	return k.node.assured.Next()
}

// assured returns when a contender is within its assured rate, or when somebody has to
// look again.
func (f *feed) assured() time.Time {
	if f.busy[assured] != 0 {
		return time.Time{}
	}
	return f.changes.first()
}

// reseat gives a contender the seats and the alarm that fit its state at now.
func (f *feed) reseat(k *contender, now time.Time) {
	change := k.ready(now)
	ready, within := !change.After(now), false
	if ready {
		change = k.assured()
		within = !change.After(now)
	}
	if ready && f.busy[borrowing] == 0 {
		f.readySince = now
		if k.index != 0 {
			f.readySince = earlier(now, k.at)
		}
	}
	f.noteSlot(k, ready, change)
	f.setSeat(k, borrowing, ready)
	f.setSeat(k, assured, within)
	if within {
		change = limit.Never
	}
	if ready {
		change = earlier(change, k.closes(now))
	}
	if f.rehearsed {
		change = byClockOf(now, change)
	}
	f.changes.set(&k.alarm, now, change)
}

// seated returns how many contenders have a seat in a band, as far as the feed has looked. A class without a feed has none.
func (f *feed) seated(band int) (n int64) {
	if f == nil {
		return 0
	}
	for i := range f.rings[band] {
		n += int64(len(f.rings[band][i].line))
	}
	return n
}

// some yields children that have something to send, now or later: at most mostLooks of each kind.
func (f *feed) some(yield func(*node) bool) {
	for i := range f.rings[borrowing] {
		line := f.rings[borrowing][i].line
		for _, seat := range line[:min(len(line), mostLooks)] {
			if !f.contender(seat.node).isQueue && !yield(seat.node) {
				return
			}
		}
	}
	for _, a := range f.changes[:min(len(f.changes), mostLooks)] {
		if !a.node.asChild.isSeated(borrowing) && !yield(a.node) {
			return
		}
	}
}

// waiting returns how many contenders have something to send, now or later: not less than half of them. It counts no buckets.
func (f *feed) waiting() int64 {
	if f.depths != nil {
		return 0
	}
	return max(f.seated(borrowing), int64(len(f.changes)))
}

// lag returns by how much the next turn of a contender in a band begins after the latest turn did, in units of
// cost of a contender of weight 1. Each of the others that are ready sends at most so much before. A nil
// contender stands for one that takes part from now on.
func (f *feed) lag(band, priority int, k *contender) int64 {
	if f == nil {
		return 0
	}
	r := &f.rings[band][priority]
	begins := r.last
	if k != nil {
		begins = r.begins(&k.seats[band])
	}
	return (max(begins-r.clock, 0) + ticksPerUnit - 1) / ticksPerUnit
}

// readyFrom returns since when something beneath the class has been ready to leave. since is
// since when that is so for the item that leaves now.
func (f *feed) readyFrom(since time.Time) time.Time {
	if f.busy[borrowing] == 0 {
		return since
	}
	return earlier(since, f.readySince)
}

// add makes a contender take part. Its turn comes after everybody else's.
func (f *feed) add(k *contender) {
	for band := range bands {
		k.seats[band].key = f.rings[band][k.priority].last
	}
}

// reweigh makes the new weight of a contender hold at once. old is the weight before.
func (f *feed) reweigh(k *contender, old int64) {
	for band := range bands {
		f.rings[band][k.priority].reweigh(&k.seats[band], old, k.weight)
	}
}

// remove takes a contender out of the feed.
func (f *feed) remove(k *contender) {
	for band := range bands {
		f.setSeat(k, band, false)
	}
	f.changes.remove(&k.alarm)
	f.noteSlot(k, false, limit.Never)
}

// offer returns the next item by the rule; nil if none may leave. The class has so much patience with
// the contender whose turn it is.
func (f *feed) offer(now time.Time, patience time.Duration) *Item {
	for len(f.changes) > 0 && !f.changes[0].at.After(now) {
		child := &f.changes[0].node.asChild
		child.refresh(now)
		f.reseat(child, now)
	}
	for k := f.next(); k != nil; k = f.next() {
		head := k.head
		if k.refresh(now); k.head == head && !k.hasPerished(now) {
			if f.isReserved(now, k) || patience > 0 && f.isLate(now, patience, k) {
				return nil
			}
			return head
		}
		f.reseat(k, now) // its next item has changed with time, or its slot is over
	}
	return nil
}

// contested reports whether something may leave at now, or the class stays free for something that
// may leave later. What comes to a contender then has to wait for its turn.
func (f *feed) contested(now time.Time, patience time.Duration) bool {
	return f.offer(now, patience) != nil || f.next() != nil || f.slot != nil && f.slot.at.After(now)
}

// next returns the contender whose turn it is; nil if none may send.
func (f *feed) next() *contender {
	for band := range bands {
		if f.busy[band] == 0 {
			continue
		}
		return f.contender(f.rings[band][bits.TrailingZeros8(f.busy[band])].line[0].node)
	}
	return nil
}

// contender returns what takes part for a node: its own queue if the feed is that of the node.
func (f *feed) contender(n *node) *contender {
	if n.feed == f {
		return &n.ownQueue
	}
	return &n.asChild
}

// first returns the node whose turn it is, or else the one that is the next to have a turn; nil if
// there is none. A class without a feed has none.
func (f *feed) first() *node {
	if f == nil {
		return nil
	}
	if k := f.next(); k != nil {
		return k.node
	}
	if len(f.changes) > 0 {
		return f.changes[0].node
	}
	return nil
}

// pay charges a contender for an item of cost n, which left in its turn. The contender has
// no seat for that turn until reseat.
func (f *feed) pay(k *contender, n int64) {
	band := borrowing
	if k.isSeated(assured) {
		band = assured
	}
	f.setSeat(k, band, false)
	f.rings[band][k.priority].pay(&k.seats[band], n, k.weight)
}

// setSeat gives a contender a seat in a band, or takes it away.
func (f *feed) setSeat(k *contender, band int, wanted bool) {
	if wanted != k.isSeated(band) { // the compiler inlines this; mostly nothing changes
		f.changeSeat(k, band, wanted)
	}
}

// changeSeat is setSeat if something changes.
func (f *feed) changeSeat(k *contender, band int, wanted bool) {
	s, priority := &k.seats[band], k.priority
	r := &f.rings[band][priority]
	if wanted {
		r.join(s)
		f.busy[band] |= 1 << priority
	} else if r.line.remove(s); len(r.line) == 0 {
		f.busy[band] &^= 1 << priority
	}
}

// upcoming returns the node at or beneath k whose item is the next, now or when time has changed the contenders.
func (k *contender) upcoming() *node {
	n := k.node
	for n.asChild.head == nil && n.feed != nil && len(n.feed.changes) > 0 {
		n = n.feed.changes[0].node
	}
	return n
}

// awaitsGap reports whether the next item of the contender waits for a gap to end. The caller has called refresh.
func (k *contender) awaitsGap() bool {
	n := k.upcoming()
	return n.asChild.head != nil && n.alone
}

// nextChange returns when time changes which item is the next: when an alarm of the feed is due, or of
// a feed beneath it on the way to the next item. A class without a feed has none.
func (f *feed) nextChange() time.Time {
	at := limit.Never
	for f != nil {
		at = earlier(at, f.changes.first())
		k := f.next()
		if k == nil || k.isQueue {
			break
		}
		f = k.node.feed
	}
	return at
}
