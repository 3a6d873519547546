package shaper

import "time"

// When an item comes, max_wait is compared with what is known then. That a window of a fleet is used up, a
// process may hear of only when it asks for the item. Then the items that would wait for longer than max_wait
// are refused, one by one from the head of the queue, as if each of them left.

// takeOverdue takes an item of the tree out of its queue that is refused because it would wait for longer than
// max_wait; nil if there is none. The caller holds the lock of the tree.
func takeOverdue(now time.Time, root *node) *Item {
	for ; len(root.overdue) > 0; root.overdue = root.overdue[1:] {
		s, ok := root.overdue[0].limiter.(*shared)
		if !ok { // the class is not shared any more
			continue
		}
		it := s.overdueItem(now)
		if s.noted = it != nil; it == nil {
			continue
		}
		if it.class.handing.Load() {
			return nil
		}
		it.class.remove(it)
		it.verdict = TooLong
		it.class.update(now)
		return it
	}
	return nil
}

// overdueItem returns the next item of the class, or beneath it, if that would wait for longer than it may; else nil.
func (s *shared) overdueItem(now time.Time) *Item {
	c := s.class
	c.asChild.refresh(now)
	it := c.asChild.upcoming().asChild.head
	for it != nil && it.First && it.class.needsNoRoom(it) { // it has had a turn, and those behind it wait longer than it does
		it = it.behind()
	}
	if it == nil {
		return nil
	}
	of := it.class
	most := time.Duration(of.conf.MaxWait)
	if most == 0 || of.shadow != nil || of.needsNoRoom(it) || !s.refusedUntil(now, it.Cost.In(c.kind)).After(it.arrived.Add(most)) {
		return nil
	}
	return it
}
