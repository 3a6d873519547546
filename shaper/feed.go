package shaper

import (
	"math/bits"
	"time"

	"shaper/limit"
	"shaper/policy"
)

// A feed is all that competes for a class: its children, and the queue of the class
// itself. The rule is that of HTB (net/sched/sch_htb.c), where the name comes from: those
// within their assured rate go first, then those that borrow; among equals priority
// decides, then they take turns by weight; see ring.
//
// A contender that may send has a seat in the ring of its priority. While it is within
// its assured rate it has a second seat, among the assured. A contender that may not send
// yet is in no ring, with all that is beneath it. Time changes a contender only at
// moments that are known: it has an alarm for the next of them, and is looked at when the
// alarm has gone off and somebody asks.
//
// The lock of the tree guards all of it.
type feed struct {
	rings   [bands][policy.LastPriority + 1]ring
	busy    [bands]uint8 // a bit for each priority whose ring is not empty
	changes alarms       // when time changes contenders
	members int          // children, with or without items
	since   time.Time    // since when a contender has been allowed to send
}

// The bands of a feed, in the order in which they are served.
const (
	assured   = iota // within the assured rate
	borrowing        // may send at all
	bands
)

// A contender takes part in a feed: a child of a class, or the queue of the class itself.
type contender struct {
	alarm                // when time changes it; a queue has none
	isQueue bool         // it is the queue of the class itself
	head    *Item        // its next item, when it was looked at last; nil: none may leave
	seats   [bands]alarm // when its turns come, by the clocks of the rings
}

// init makes it the contender of a node, or of the queue of that node.
func (k *contender) init(n *node, isQueue bool) {
	k.node, k.isQueue = n, isQueue
	for band := range bands {
		k.seats[band].node = n
	}
}

func (k *contender) isSeated(band int) bool { return k.seats[band].index != 0 }

// ownPriority is that of the queue of a class itself.
var ownPriority = policy.DefaultClass("").Priority

func (k *contender) priority() int {
	if k.isQueue {
		return ownPriority
	}
	return k.node.priority
}

func (k *contender) weight() int64 {
	if k.isQueue {
		return 1
	}
	return k.node.weight
}

// refresh finds out which item is the next.
func (k *contender) refresh(now time.Time) {
	if k.isQueue {
		k.head = k.node.front()
	} else {
		k.node.refresh(now)
	}
}

// ready returns when it may send, the limits of its parent apart.
func (k *contender) ready(now time.Time) time.Time {
	switch {
	case !k.isQueue:
		return k.node.ready(now)
	case k.head == nil:
		return limit.Never
	}
	return now // the class counts the item when it leaves
}

// assured returns when it will be within its assured rate.
func (k *contender) assured() time.Time {
	switch {
	case k.isQueue:
		return limit.Never
	case k.node.pace.keyed: // as the bucket whose turn it is
		return k.node.feed.assured()
	case k.node.assured == nil:
		return time.Time{}
	}
	return k.node.assured.Next()
}

// assured returns when one of them will be within its assured rate, or when somebody has
// to look again.
func (f *feed) assured() time.Time {
	if f.busy[assured] != 0 {
		return time.Time{}
	}
	return f.changes.first()
}

// put gives a contender the seats and the alarm that its state at now demands.
func (f *feed) put(k *contender, now time.Time) {
	change := k.ready(now)
	ready, within := !change.After(now), false
	if ready {
		change = k.assured()
		within = !change.After(now)
	}
	if ready && f.busy[borrowing] == 0 {
		f.since = now
		if k.index != 0 {
			f.since = earlier(now, k.at)
		}
	}
	f.seat(k, borrowing, ready)
	f.seat(k, assured, within)
	if within {
		change = limit.Never
	}
	f.changes.set(&k.alarm, change)
}

// allowed returns since when those beneath the class have allowed something to leave, if
// they have allowed what leaves now since since.
func (f *feed) allowed(since time.Time) time.Time {
	if f.busy[borrowing] == 0 {
		return since
	}
	return earlier(since, f.since)
}

// add makes a contender take part. Its turn comes after those of all others.
func (f *feed) add(k *contender) {
	for band := range bands {
		k.seats[band].key = f.rings[band][k.priority()].last
	}
}

// reweigh makes the weight of a contender hold at once. It was old until now.
func (f *feed) reweigh(k *contender, old int64) {
	for band := range bands {
		f.rings[band][k.priority()].reweigh(&k.seats[band], old, k.weight())
	}
}

// remove takes a contender out for good.
func (f *feed) remove(k *contender) {
	for band := range bands {
		f.seat(k, band, false)
	}
	f.changes.remove(&k.alarm)
}

// offer returns the next item by the rule; nil if none may leave.
func (f *feed) offer(now time.Time) *Item {
	for len(f.changes) > 0 && !f.changes[0].at.After(now) {
		child := f.changes[0].node
		child.refresh(now)
		f.put(&child.place, now)
	}
	for k := f.next(); k != nil; k = f.next() {
		head := k.head
		if k.refresh(now); k.head == head {
			return head
		}
		f.put(k, now) // time has changed something beneath it
	}
	return nil
}

// contested reports whether a contender may send at now.
func (f *feed) contested(now time.Time) bool { return f.offer(now) != nil }

// next returns the contender whose turn it is; nil if none may send.
func (f *feed) next() *contender {
	for band := range bands {
		if f.busy[band] == 0 {
			continue
		}
		n := f.rings[band][bits.TrailingZeros8(f.busy[band])].line[0].node
		if n.feed == f {
			return &n.queued
		}
		return &n.place
	}
	return nil
}

// pay charges the contender whose turn it was for an item that costs n. The contender
// leaves its seat until put.
func (f *feed) pay(k *contender, n int64) {
	band := borrowing
	if k.isSeated(assured) {
		band = assured
	}
	f.seat(k, band, false)
	f.rings[band][k.priority()].pay(&k.seats[band], n, k.weight())
}

// seat gives a contender a seat in a band, or takes it away.
func (f *feed) seat(k *contender, band int, wanted bool) {
	if wanted != k.isSeated(band) { // inlined: mostly nothing changes
		f.change(k, band, wanted)
	}
}

// change is seat for a contender whose state changes.
func (f *feed) change(k *contender, band int, wanted bool) {
	s, priority := &k.seats[band], k.priority()
	r := &f.rings[band][priority]
	if wanted {
		r.join(s)
		f.busy[band] |= 1 << priority
	} else if r.line.remove(s); len(r.line) == 0 {
		f.busy[band] &^= 1 << priority
	}
}

// refresh finds out which item is the next of the node and all beneath it.
func (n *node) refresh(now time.Time) {
	if n.feed == nil {
		n.place.head = n.front()
	} else {
		n.place.head = n.feed.offer(now)
	}
}

// ready returns when the node may send its head, the limits above it apart, or when
// somebody has to look again. If the node may not send, what costs nothing waits, too.
func (n *node) ready(now time.Time) time.Time {
	if n.place.head == nil {
		return n.nextChange()
	}
	at := n.allows(now, n.place.head.Cost.in(n.kind))
	if n.feed == nil || !at.After(now) {
		return at
	}
	least := int64(1)
	if n.someFree {
		least = 0
	}
	if small := n.allows(now, least); small.Before(at) { // a small item may have its turn before
		at = earlier(at, later(small, n.nextChange()))
	}
	return at
}

// nextChange returns when time changes which item is the next beneath the node. On each
// level that is when an alarm goes off, or when the contender changes whose turn it is.
func (n *node) nextChange() time.Time {
	at := limit.Never
	for n.feed != nil {
		at = earlier(at, n.feed.changes.first())
		k := n.feed.next()
		if k == nil || k.isQueue {
			break
		}
		n = k.node
	}
	return at
}
