package shaper

import (
	"time"

	"shaper/limit"
)

// If a class above is not free at the moment of a slot, because an item of another contender has just left, the slot is
// lost. So a feed reserves the classes above for a slot that is known. Until then a contender has a turn only if it
// goes before the contender with the slot, or if it leaves these classes free in time. A slot is known for no longer
// than a fleet grants ahead.

// noteSlot notes whether the contender has the slot that comes next. A contender that is not ready is ready
// at the given time.
func (f *feed) noteSlot(k *contender, ready bool, at time.Time) {
	if f.slot == k {
		f.slot = nil
	}
	if ready || k.isQueue || at == limit.Never {
		return
	}
	if s, it := k.awaited(); it != nil && s.slot.Equal(at) && (f.slot == nil || at.Before(f.slot.at)) {
		f.slot = k
	}
}

// awaited returns the item of the contender that waits for a slot of a fleet, and its limiter; nil if there is none.
func (k *contender) awaited() (*shared, *Item) {
	n := k.upcoming()
	if s, is := n.limiter.(*shared); is {
		return s, n.asChild.head
	}
	return nil, nil
}

// isReserved reports whether the classes above would not be free for the slot that comes next if the item of a contender
// left before it, although that is not its turn.
func (f *feed) isReserved(now time.Time, k *contender) bool {
	w := f.slot
	if w == nil || w == k || !w.at.After(now) || !f.precedes(w, k) {
		return false
	}
	s, it := w.awaited()
	if it == nil {
		return false
	}
	slots := s.perishing()
	if slots == nil {
		return false // what a window grants is not lost
	}
	over := w.at.Add(slots.Rate.Time(slots.Burst-1) + slots.Late)
	return !w.free(now, &Cost{}, &it.Cost).After(over) && w.free(now, &k.head.Cost, &it.Cost).After(over)
}

// perishing returns the first limit whose slots are lost if they are not used in time; nil if all are windows.
func (s *shared) perishing() *Limit {
	for i := range s.limits {
		if s.limits[i].Window == 0 {
			return &s.limits[i]
		}
	}
	return nil
}

// precedes reports whether a contender goes before one that is ready, when it is ready itself.
func (f *feed) precedes(w, k *contender) bool {
	band, within := borrowing, w.isWithin(w.at)
	switch {
	case within != k.isSeated(assured):
		return within
	case w.priority != k.priority:
		return w.priority < k.priority
	case within:
		band = assured
	}
	return before(w.seats[band].key, k.seats[band].key)
}

// isWithin reports whether the next item of the contender is within its assured rate at a time.
func (k *contender) isWithin(at time.Time) bool {
	if k.node.pace.keyed {
		if bucket := k.node.feed.first(); bucket != nil {
			k = &bucket.asChild
		}
	}
	return !k.assured().After(at)
}

// A class may be free a moment before the contender whose turn it is. The gap of the contender begins when its last item
// had been written, and ends at a whole nanosecond; a class with a burst counts from when that item was released, and
// keeps parts of a nanosecond. If another one left in that moment, the contender would lose its turn. So the class has
// a little patience with it; see pace.patienceOf.

// isLate reports whether it is not the turn of a contender that is ready, but of one that will be ready in a moment, and
// that could not leave then if the other one had left.
func (f *feed) isLate(now time.Time, patience time.Duration, k *contender) bool {
	if len(f.changes) == 0 || f.changes[0].at.Sub(now) > patience {
		return false
	}
	w := &f.changes[0].node.asChild
	if w.isSeated(borrowing) || !f.precedes(w, k) || !w.leavesAt(now, w.at) {
		return false
	}
	cost := &w.upcoming().asChild.head.Cost
	return !w.free(now, &Cost{}, cost).After(w.at) && w.free(now, &k.head.Cost, cost).After(w.at)
}

// leavesAt reports whether the next item of a contender may leave at a time after now, apart from the limits above it.
func (k *contender) leavesAt(now, at time.Time) bool {
	n := k.upcoming()
	if n.backed != nil || n.asChild.head == nil {
		return false // somebody else decides when it leaves; or nothing waits
	}
	for cost := &n.asChild.head.Cost; ; n = n.parent.Load() {
		if n.allowedAt(now, cost.In(n.kind)).After(at) {
			return false
		}
		if n == k.node {
			return true
		}
	}
}

// free returns when all classes above the contender let an item leave after another one.
func (k *contender) free(now time.Time, other, cost *Cost) (at time.Time) {
	for p := k.node.parent.Load(); p != nil; p = p.parent.Load() {
		at = later(at, p.lets(now, other.In(p.kind), cost.In(p.kind)))
	}
	return at
}

// lets returns when the limit lets n units leave after ahead others; the zero time if the class is shared, or n is 0.
func (g *gate) lets(now time.Time, ahead, n int64) (at time.Time) {
	if _, is := g.limiter.(*shared); is || n == 0 {
		return at
	}
	g.regain(now)
	return later(g.estimate(now, ahead, n), g.pausedUntil())
}
