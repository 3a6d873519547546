package shaper

import (
	"maps"
	"slices"
	"time"

	"shaper/stats"
)

// Waiting is what waits in a class and in all classes beneath it.
type Waiting struct {
	Oldest time.Duration // how long the item has waited that came first; 0 if none waits
	Drain  time.Duration // how long it takes until the last of it leaves, as Estimate.Drain says of each class: the longest Duration if it never does
	// For is what holds up the item that is to leave first; nil if it waits only for its turn. If no item waits, but sessions wait
	// for a permit of the class, it is that.
	For *stats.Hold
}

// Waiting returns what waits at now, for each class in which or beneath which something does: for all classes if of is
// nil, else for those at and beneath it. A class that is gone counts for those above it, and one that was replaced for its
// heir. Waiting looks at one class after the other, and locks each tree for a moment only. So what it says of a class and of its
// parent may be of different moments.
func (s *Shaper) Waiting(now time.Time, of *Class) map[*Class]Waiting {
	all := map[*Class]Waiting{}
	classes, above := s.withGone(), (*Class)(nil)
	if of != nil {
		above = of.Parent()
		classes = slices.DeleteFunc(classes, func(c *Class) bool { return !c.isBeneath(&of.node) })
	}
	for _, c := range classes {
		for is := c; is != nil; is = is.Status().replaced() {
			own, some := is.Status().waiting(now)
			for p := c; some && p != nil && p != above; p = p.Parent() {
				if before, ok := all[p]; ok {
					all[p] = before.with(own)
				} else {
					all[p] = own
				}
			}
		}
	}
	for _, c := range classes {
		if _, ok := all[c]; !ok {
			if permits := c.Status().Waits(now); permits != nil {
				all[c] = Waiting{For: permits}
			}
		}
	}
	return all
}

// with returns what waits in two parts of a tree together.
func (w Waiting) with(o Waiting) Waiting {
	return Waiting{max(w.Oldest, o.Oldest), max(w.Drain, o.Drain), soonest(w.For, o.For)}
}

// soonest returns the hold that ends first: none, if one of them is none, and one whose end is not known last.
func soonest(a, b *stats.Hold) *stats.Hold {
	switch {
	case a == nil || b == nil:
		return nil
	case a.Until.IsZero() || !b.Until.IsZero() && b.Until.Before(a.Until):
		return b
	}
	return a
}

// waiting returns what waits in the queues of the class, of its buckets and of its groups. It returns false if nothing does.
func (s Status) waiting(now time.Time) (w Waiting, some bool) {
	came := s.Oldest()
	if came.IsZero() {
		return w, false
	}
	_, drain := s.class.Estimate().Drain(now)
	return Waiting{max(now.Sub(came), 0), drain, s.Waits(now)}, true
}

// replaced returns the class that the class has replaced, if something may still wait there; else nil.
func (s Status) replaced() *Class {
	defer s.class.lock().mu.Unlock()
	return s.class.former
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
