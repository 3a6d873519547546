package shaper

import (
	"time"

	"shaper/limit"
)

// A slot of a fleet is lost if a class above is not free at that moment, since another contender has just left. So a
// feed reserves the classes above for a slot that is known: until then, only contenders have a turn that go before the
// one with the slot, or that leave these classes free in time. A slot is known for no longer than a fleet grants ahead.

// noteSlot notes whether the contender has the slot that comes next. If it is not ready, it is so at a time.
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
	n := k.node.upcoming()
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
	over := w.at.Add(s.limits[0].Rate.Time(s.limits[0].Burst-1) + s.limits[0].Late)
	return !w.node.free(now, &Cost{}, &it.Cost).After(over) && w.node.free(now, &k.head.Cost, &it.Cost).After(over)
}

// precedes reports whether a contender goes before one that is ready, when its slot comes.
func (f *feed) precedes(w, k *contender) bool {
	band, within := borrowing, !w.assured().After(w.at)
	switch {
	case within != k.isSeated(assured):
		return within
	case w.priority() != k.priority():
		return w.priority() < k.priority()
	case within:
		band = assured
	}
	return !before(k.seats[band].key, w.seats[band].key)
}

// free returns when all classes above the node let an item leave after another one.
func (n *node) free(now time.Time, other, cost *Cost) (at time.Time) {
	for p := n.parent.Load(); p != nil; p = p.parent.Load() {
		at = later(at, p.lets(now, other.in(p.kind), cost))
	}
	return at
}

// lets returns when the limit of the node lets an item leave after so many units; the zero time if the node is shared,
// or does not count the item.
func (n *node) lets(now time.Time, ahead int64, cost *Cost) (at time.Time) {
	units := cost.in(n.kind)
	if _, is := n.limiter.(*shared); is || units == 0 {
		return at
	}
	n.regain(now)
	return later(n.estimate(now, ahead, units), n.pausedUntil())
}
