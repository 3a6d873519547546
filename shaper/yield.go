package shaper

import (
	"sort"
	"time"
)

// A slot of a fleet that is not used in time is lost. Classes above or beneath a shared class, which only this
// process has, may not let it use a slot. So the shared class leaves such a slot to other members.

// yield returns how many of so many units to ask for. If classes above or beneath are slower, it asks for no slot before
// they let the next item leave, which needs n units, and costs so much in all.
func (s *shared) yield(now time.Time, units, n int64, cost *Cost) int64 {
	slots := s.perishing()
	if slots == nil {
		return units // what a window grants is not lost
	}
	from := later(now, s.above(now, 0, cost))
	if s.class.asChild.head == nil {
		from = later(from, s.class.feed.nextChange())
	}
	most := max(min(units, slots.Rate.Units(longestGrant)), 2*n)
	fits := s.fitting(now, from, most, n, cost)
	switch {
	case fits < most:
		s.hold(now, from)
		return min(units, fits)
	case from.After(now):
		s.hold(now, from)
	default:
		s.hold(now, time.Time{})
	}
	return units
}

// longestGrant is how long the slots last that a fleet grants at once, at most.
const longestGrant = 125 * time.Millisecond

// fitting returns how many of so many units the classes above and beneath let leave from a time on while as many slots
// of the class last: all, or as many as are found in steps of an eighth, and at least the n of the next item.
func (s *shared) fitting(now, from time.Time, units, n int64, cost *Cost) int64 {
	for units > n {
		items, by := units/n, from.Add(s.perishing().Rate.Time(units))
		fit := s.beneath(now, by, items)
		if fit == items && !s.above(now, items-1, cost).After(by) {
			return units
		}
		units = min(units*7/8, fit*n)
	}
	return n
}

// above returns when the classes above let an item leave after so many others that cost as much, if nothing else is next
// there. An item that is on its way out does not count: nobody tells this class when the item has left. Nor does a class
// above that is shared too: it asks for slots of its own, which cannot wait for the slots of this class.
func (s *shared) above(now time.Time, others int64, cost *Cost) (at time.Time) {
	for p := s.class.parent.Load(); p != nil; p = p.parent.Load() {
		n := cost.In(p.kind)
		at = later(at, p.lets(now, others*n, n))
	}
	return at
}

// beneath returns how many of so many items the classes beneath let leave by a time: all, if they hold up none that waits.
func (s *shared) beneath(now, by time.Time, items int64) int64 {
	c := s.class
	if c.feed == nil {
		return items
	}
	waiting := min(items, c.waiting)
	if fit := c.feed.letting(now, by, waiting); fit < waiting {
		return fit
	}
	return items
}

// mostLooks bounds at how many contenders of a kind letting looks. Of the others, it knows only how many are ready.
const mostLooks = 64

// letting returns how many items the contenders let leave by a time, at most so many.
func (f *feed) letting(now, by time.Time, most int64) (items int64) {
	for i := range f.rings[borrowing] {
		line := f.rings[borrowing][i].line
		for _, seat := range line[:min(len(line), mostLooks)] {
			items += f.contender(seat.node).letting(now, by, most-items)
		}
		items = min(items+int64(max(len(line)-mostLooks, 0)), most)
	}
	for _, a := range f.changes[:min(len(f.changes), mostLooks)] {
		if !a.at.After(by) && !a.node.asChild.isSeated(borrowing) {
			items += a.node.asChild.letting(now, by, most-items)
		}
	}
	return items
}

// letting returns how many of the items that wait in the contender and beneath it may leave by a time, at most so many.
func (k *contender) letting(now, by time.Time, most int64) int64 {
	n := k.node
	if k.isQueue {
		return min(most, int64(n.queue.Len()))
	}
	most = min(most, n.waiting)
	if n.feed != nil {
		most = n.feed.letting(now, by, most)
	}
	if head := n.asChild.head; head != nil {
		units := head.Cost.In(n.kind)
		late := func(others int) bool { return n.lets(now, int64(others)*units, units).After(by) }
		most = int64(sort.Search(int(most), late))
	}
	return most
}

// hold tells the budgets that nothing leaves before until; the zero time: that no other class is slower.
func (s *shared) hold(now, until time.Time) {
	if until.Equal(s.held) || !until.IsZero() && !s.held.IsZero() && !until.After(now) && !s.held.After(now) {
		return
	}
	s.held = until
	for _, b := range s.budgets {
		b.Hold(now, until)
	}
}
