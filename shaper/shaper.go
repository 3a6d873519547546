// Package shaper holds the classes: which item leaves next, and when.
//
// Items enter a Class and leave it when its limiter allows, and those of the
// classes above it. The arithmetic is that of packages leaky and limit; here it
// meets the clock, in one pacer for each Shaper, and the goroutines that
// wait.
package shaper

import (
	"maps"
	"slices"
	"sync"
	"time"

	"shaper/policy"
)

// Shaper is the live classes of a policy. It may be used concurrently.
type Shaper struct {
	pacer *pacer

	mu      sync.RWMutex
	classes map[string]*Class
}

// New returns a Shaper without classes, on the most precise timer that the
// system has. Close it after use.
func New() *Shaper { return newShaper(newTimer()) }

// NewOnRuntimeTimer returns a Shaper on the Go runtime's timers, which follow
// the fake clock of testing/synctest.
func NewOnRuntimeTimer() *Shaper { return newShaper(newRuntimeTimer()) }

func newShaper(t timer) *Shaper {
	return &Shaper{pacer: newPacer(t), classes: map[string]*Class{}}
}

// Close stops the pacer. Nothing that waits leaves any more: its owners must
// have been stopped before.
func (s *Shaper) Close() { s.pacer.close() }

// Class returns the class of a name, nil where there is none.
func (s *Shaper) Class(name string) *Class {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.classes[name]
}

// Classes returns all classes, in the order of their names.
func (s *Shaper) Classes() []*Class {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var all []*Class
	for _, name := range slices.Sorted(maps.Keys(s.classes)) {
		all = append(all, s.classes[name])
	}
	return all
}

// NewClass returns a live class that has no name here: Class and Classes do not
// return it, Apply leaves it alone.
func (s *Shaper) NewClass(conf policy.Class) *Class {
	c := NewClass(time.Now(), conf)
	c.pacer = s.pacer
	return c
}

// NewLiveClass returns a live class that stands alone. It belongs to no Shaper, and nobody
// closes it: it has a goroutine and a timer only while something waits.
func NewLiveClass(conf policy.Class) *Class {
	c := NewClass(time.Now(), conf)
	c.pacer = &pacer{unowned: true}
	return c
}

// Apply makes the classes those of a policy. A class of the same name keeps
// its queue, its credit and its counters, and takes its new rate and its new
// parent at once. One that is new starts idle. One that is to count another unit,
// or to have buckets for something else, is replaced by another, which takes over
// its counters. The ones that are gone
// are returned: they go on as they were, under the same parent, until nobody uses
// them any more. Who waits for a slot in one of them does so until it is moved, or
// LetIn is called.
func (s *Shaper) Apply(confs []policy.Class) (removed []*Class) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	old := s.classes
	s.classes = make(map[string]*Class, len(confs))
	for _, conf := range confs {
		c := old[conf.Name]
		switch {
		case c == nil:
			c = s.NewClass(conf)
		case c.kind != conf.Rate.Kind(), c.Policy().Per != conf.Per:
			c = c.successor(now, conf)
		default:
			delete(old, conf.Name)
		}
		s.classes[conf.Name] = c
	}
	removed = slices.Collect(maps.Values(old))
	for _, c := range removed {
		c.keepOut()
	}
	s.move(now, confs)
	for _, conf := range confs {
		s.classes[conf.Name].Set(now, conf)
	}
	return removed
}

// move puts the classes under their new parents, all in one moment: none is seen
// without the limits that it had or those that it gets.
func (s *Shaper) move(now time.Time, confs []policy.Class) {
	var moved []*policy.Class
	roots := map[*Class]bool{} // that were, are or will be
	for i := range confs {
		conf := &confs[i]
		c, parent := s.classes[conf.Name], parentOf(conf, s.classes)
		if c.parent.Load() == parent {
			continue
		}
		moved = append(moved, conf)
		roots[c], roots[c.root()] = true, true
		if parent != nil {
			roots[parent.root()] = true
		}
	}
	for root := range roots {
		root.mu.Lock()
		defer root.mu.Unlock()
	}
	for _, conf := range moved {
		c := s.classes[conf.Name]
		if c.parent.Load() != nil {
			c.detach(now)
		}
		c.set(now, *conf)
	}
	for _, conf := range moved {
		c := s.classes[conf.Name]
		if parent := parentOf(conf, s.classes); parent != nil {
			c.attach(now, parent)
		} else {
			c.update(now)
		}
	}
	for root := range roots {
		root.root().wake(now)
	}
}
