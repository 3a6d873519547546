package shaper

import (
	"math/bits"
	"time"

	"shaper/limit"
	"shaper/policy"
)

// A feed is those that compete for a class: its children, and what waits in the
// class itself. The rule is that of HTB (net/sched/sch_htb.c), where the name
// comes from: those within their assured rate first, then whoever may borrow;
// among equals by priority, then in turns by weight; see ring.
//
// A contender that may send has a seat in the ring of its priority, and another
// one among the assured while it is within its assured rate. One that may not send
// yet is in no ring, with all that is beneath it. Time changes a contender only at
// moments that are known: it has an alarm for the next of them, and is looked at
// when that has come and somebody asks.
type feed struct {
	rings   [bands][policy.LastPriority + 1]ring
	busy    [bands]uint8 // a bit for each priority whose ring has somebody
	changes alarms       // when time changes the state of those here
	members int          // children, whether or not they have anything
	since   time.Time    // when the first of those who may send now has been allowed to
}

// The bands of a feed, in the order in which they are served.
const (
	assured   = iota // within the assured rate
	borrowing        // may send at all
	bands
)

// A contender is one of those in a feed: a child of a class, or the queue of the
// class itself.
type contender struct {
	alarm              // when its state changes; of its own queue the class has none
	own   bool         // it is the queue of the class itself
	head  *Item        // the next of it, as it was when it was last looked at; nil: nothing may leave
	seats [bands]alarm // when its turns come, by the clocks of the rings
}

// init makes it the contender of a node, or of the queue of that node.
func (k *contender) init(n *node, own bool) {
	k.node, k.own = n, own
	for band := range bands {
		k.seats[band].node = n
	}
}

func (k *contender) isSeated(band int) bool { return k.seats[band].index != 0 }

// ownPriority is that of the queue of a class itself.
var ownPriority = policy.DefaultClass("").Priority

func (k *contender) priority() int {
	if k.own {
		return ownPriority
	}
	return k.node.priority
}

func (k *contender) weight() int64 {
	if k.own {
		return 1
	}
	return k.node.weight
}

// refresh looks which item is the next.
func (k *contender) refresh(now time.Time) {
	if k.own {
		k.head = k.node.front()
	} else {
		k.node.refresh(now)
	}
}

// ready returns when it may send: its parent's limit apart.
func (k *contender) ready(now time.Time) time.Time {
	switch {
	case !k.own:
		return k.node.ready(now)
	case k.head == nil:
		return limit.Never
	}
	return now // the class itself counts it when it has been chosen
}

// assured returns from when on it is within its assured rate.
func (k *contender) assured() time.Time {
	switch {
	case k.own:
		return limit.Never
	case k.node.pace.keyed: // it is what the bucket is whose turn it is
		return k.node.feed.assured()
	case k.node.assured == nil:
		return time.Time{}
	}
	return k.node.assured.Next()
}

// assured returns from when on one of them is within its assured rate, or else
// when that has to be looked at again.
func (f *feed) assured() time.Time {
	if f.busy[assured] != 0 {
		return time.Time{}
	}
	return f.changes.first()
}

// put has a contender sit or wait as its state at now demands.
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

// allowed returns since when those beneath the class have allowed something to leave,
// of which one that leaves now was allowed since since.
func (f *feed) allowed(since time.Time) time.Time {
	if f.busy[borrowing] == 0 {
		return since
	}
	return earlier(since, f.since)
}

// add has a contender take part. It comes to the end.
func (f *feed) add(k *contender) {
	for band := range bands {
		k.seats[band].key = f.rings[band][k.priority()].last
	}
}

// reweigh has the weight of a contender hold at once. Until now it was old.
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

// offer returns the item that is the next by the rule; nil where none may leave.
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

// contested reports whether somebody here may send at now.
func (f *feed) contested(now time.Time) bool { return f.offer(now) != nil }

// next returns whose item is the next; nil where nobody may send.
func (f *feed) next() *contender {
	for band := range bands {
		if f.busy[band] == 0 {
			continue
		}
		n := f.rings[band][bits.TrailingZeros8(f.busy[band])].line[0].node
		if n.feed == f {
			return &n.own
		}
		return &n.place
	}
	return nil
}

// pay charges the one that was next for an item that costs n. He leaves his seat, until
// put has him sit again.
func (f *feed) pay(k *contender, n int64) {
	band := borrowing
	if k.isSeated(assured) {
		band = assured
	}
	f.seat(k, band, false)
	f.rings[band][k.priority()].pay(&k.seats[band], n, k.weight())
}

// seat has a contender sit in a band, or not.
func (f *feed) seat(k *contender, band int, wanted bool) {
	if wanted != k.isSeated(band) { // inlined: mostly nothing changes
		f.change(k, band, wanted)
	}
}

// change has a contender take or leave its seat in a band.
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

// refresh looks which item is the next of the node and all beneath it.
func (n *node) refresh(now time.Time) {
	if n.feed == nil {
		n.place.head = n.front()
	} else {
		n.place.head = n.feed.offer(now)
	}
}

// ready returns when the node may send its head, the limits above it apart, or when it
// has to be looked at again. What costs nothing waits with the others if the node may not
// send.
func (n *node) ready(now time.Time) time.Time {
	if n.place.head == nil {
		return n.changes()
	}
	at := n.allows(now, n.place.head.Cost.in(n.kind))
	if n.feed == nil || !at.After(now) {
		return at
	}
	least := int64(1)
	if n.free {
		least = 0
	}
	if small := n.allows(now, least); small.Before(at) { // such an item may have its turn before
		at = earlier(at, later(small, n.changes()))
	}
	return at
}

// changes returns when time changes what is the next beneath the node. Of those beneath
// it who may send, that is up to the one whose turn it is, all the way down; those who may
// not have alarms.
func (n *node) changes() time.Time {
	at := limit.Never
	for n.feed != nil {
		at = earlier(at, n.feed.changes.first())
		k := n.feed.next()
		if k == nil || k.own {
			break
		}
		n = k.node
	}
	return at
}
