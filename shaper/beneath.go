package shaper

import (
	"maps"
	"slices"
	"time"
)

// Waiting is what waits in a class and in all classes beneath it.
type Waiting struct {
	Oldest time.Duration // how long the item has waited that came first; 0 if none waits
}

// Waiting returns what waits at now, for each class in which or beneath which something does: for all classes if of is
// nil, else for those at and beneath it. A class that is gone counts for those above it. Waiting looks at one class after
// the other, and locks each tree for a moment only. So what it says of a class and of its parent may be of different moments.
func (s *Shaper) Waiting(now time.Time, of *Class) map[*Class]Waiting {
	all := map[*Class]Waiting{}
	for _, c := range s.withGone() {
		if of != nil && !c.isBeneath(&of.node) {
			continue
		}
		own, some := c.Status().waiting(now)
		for p := c; some && p != nil; p = p.Parent() {
			all[p] = all[p].with(own)
		}
	}
	return all
}

// with returns what waits in two parts of a tree together.
func (w Waiting) with(o Waiting) Waiting {
	w.Oldest = max(w.Oldest, o.Oldest)
	return w
}

// waiting returns what waits in the queues of the class, of its buckets and of its groups. It returns false if nothing does.
func (s Status) waiting(now time.Time) (w Waiting, some bool) {
	came := s.Oldest()
	if came.IsZero() {
		return w, false
	}
	w.Oldest = max(now.Sub(came), 0)
	return w, true
}

// withGone returns all classes, and those that are gone, in no order.
func (s *Shaper) withGone() []*Class {
	s.mu.RLock()
	defer s.mu.RUnlock()
	all := slices.Collect(maps.Values(s.classes))
	for c := range s.gone {
		all = append(all, c)
	}
	return all
}
