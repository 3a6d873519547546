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
// among equals by priority, then deficit round robin by weight (Shreedhar and
// Varghese, SIGCOMM 1995).
//
// A contender that may send sits in the ring of its priority, and once more in
// that of the assured while it is within its assured rate; so it keeps its turn
// among the borrowers meanwhile. One that may not send yet is in no ring, with
// all that is beneath it. Time changes a contender only at moments that are
// known: it has an alarm for the next of them, and is looked at when that has
// come and somebody asks.
type feed struct {
	rings   [bands][policy.LastPriority + 1]ring
	busy    [bands]uint8 // a bit for each priority whose ring has somebody
	changes alarms       // when time changes the state of those here
	members int          // children, whether or not they have anything
	// quantum is what weight 1 may send in a turn: the largest item so far, in
	// the unit of the class. So nobody sends a turn's worth too much.
	quantum int64
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
	alarm       // when its state changes; of its own queue the class has none
	own   bool  // it is the queue of the class itself
	head  *Item // the next of it, as it was when it was last looked at; nil: nothing may leave
	seats [bands]seat
}

// A seat is a place in a ring.
type seat struct {
	next, prev *contender // nil: it is not taken
	deficit    int64      // what may still be sent in this turn; below 0: what was sent too much
}

// A ring is contenders of one band and priority.
type ring struct {
	first *contender
	turn  *contender // who has paid last; his turn goes on, even if he has been away, until another pays
}

func (k *contender) priority() int {
	if k.own {
		return policy.DefaultClass("").Priority
	}
	return k.class.conf.Priority
}

func (k *contender) weight() int64 {
	if k.own {
		return 1
	}
	return int64(max(k.class.conf.Weight, 1))
}

// refresh looks which item is the next.
func (k *contender) refresh(now time.Time) {
	if k.own {
		k.head = k.class.front()
	} else {
		k.class.refresh(now)
	}
}

// ready returns when it may send: its parent's limit apart.
func (k *contender) ready(now time.Time) time.Time {
	switch {
	case !k.own:
		return k.class.ready(now)
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
	case k.class.keys != nil: // it is what the bucket is whose turn it is
		return k.class.feed.assured()
	case k.class.assured == nil:
		return time.Time{}
	}
	return k.class.assured.Next()
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
	f.seat(k, borrowing, ready)
	f.seat(k, assured, within)
	if within {
		change = limit.Never
	}
	f.changes.set(&k.alarm, change)
}

// remove takes a contender out for good.
func (f *feed) remove(k *contender) {
	for band := range bands {
		f.seat(k, band, false)
		if r := &f.rings[band][k.priority()]; r.turn == k {
			r.turn = nil
		}
		k.seats[band].deficit = 0
	}
	f.changes.remove(&k.alarm)
}

// offer returns the item that is the next by the rule; nil where none may leave.
func (f *feed) offer(now time.Time) *Item {
	for len(f.changes) > 0 && !f.changes[0].at.After(now) {
		child := f.changes[0].class
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
		if f.busy[band] != 0 {
			return f.rings[band][bits.TrailingZeros8(f.busy[band])].next(band)
		}
	}
	return nil
}

// next returns who is first, unless his turn is over: each turn is good for an
// item at least.
func (r *ring) next(band int) *contender {
	if s := &r.first.seats[band]; r.turn == r.first && s.deficit <= 0 {
		return s.next
	}
	return r.first
}

// pay charges the one that was next for an item that costs n, or 1 where it
// costs nothing. His turn begins, unless it has before.
func (f *feed) pay(k *contender, n int64) {
	band := borrowing
	if k.seats[assured].next != nil {
		band = assured
	}
	n = max(n, 1)
	f.quantum = max(f.quantum, n)
	r, s := &f.rings[band][k.priority()], &k.seats[band]
	if r.turn != k || s.deficit <= 0 {
		r.first, r.turn = k, k
		s.deficit = min(s.deficit, 0) + f.quantum*k.weight()
	}
	s.deficit -= n
}

// seat has a contender take or leave its place in a band. It comes to the end,
// unless it was away during its own turn.
func (f *feed) seat(k *contender, band int, wanted bool) {
	s := &k.seats[band]
	if wanted == (s.next != nil) {
		return
	}
	priority := k.priority()
	r := &f.rings[band][priority]
	if wanted {
		r.insert(k, band)
		f.busy[band] |= 1 << priority
	} else if r.take(k, band); r.first == nil {
		f.busy[band] &^= 1 << priority
	}
}

func (r *ring) insert(k *contender, band int) {
	s := &k.seats[band]
	if r.first == nil {
		r.first, s.next, s.prev = k, k, k
		return
	}
	s.next, s.prev = r.first, r.first.seats[band].prev
	s.next.seats[band].prev, s.prev.seats[band].next = k, k
	if r.turn == k {
		r.first = k
	}
}

func (r *ring) take(k *contender, band int) {
	s := &k.seats[band]
	if s.next == k {
		r.first = nil
	} else {
		s.next.seats[band].prev, s.prev.seats[band].next = s.prev, s.next
		if r.first == k {
			r.first = s.next
		}
	}
	s.next, s.prev = nil, nil
}
