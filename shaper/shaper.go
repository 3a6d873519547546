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
	pacer *pacer // nil only in tests that let nothing leave

	mu      sync.RWMutex // taken before the locks of trees
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

// Class returns the class of a name; nil if there is none.
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

// NewClass returns a live class that the Shaper does not know by name: Class and Classes
// do not return it, and Apply leaves it alone.
func (s *Shaper) NewClass(conf policy.Class) *Class {
	c := NewClass(time.Now(), conf)
	if s.pacer != nil {
		c.waker = s.pacer
	}
	return c
}

// NewLiveClass returns a live class that stands alone. It belongs to no Shaper, and nobody
// closes it: it has a goroutine and a timer only while something waits.
func NewLiveClass(conf policy.Class) *Class {
	c := NewClass(time.Now(), conf)
	c.waker = &pacer{unowned: true}
	return c
}

// Apply makes the classes those of a policy. A class of the same name keeps its queue,
// its credit and its counters, and takes its new rate and its new parent at once. A new
// class starts idle. A class that counts another unit than before, or has buckets for
// something else, is replaced by another, which takes over its counters.
//
// Apply returns the classes that are gone: they go on as they were, under the same
// parent, until nobody uses them any more. Whoever waits for a slot in one of them waits
// until the slot is moved, or LetIn is called.
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
			c = succeed(now, c, conf)
		default:
			delete(old, conf.Name)
		}
		s.classes[conf.Name] = c
	}
	removed = slices.Collect(maps.Values(old))
	for _, c := range removed {
		c.keepOut()
	}
	s.move(now, s.moves(confs))
	for _, conf := range confs {
		s.classes[conf.Name].Set(now, conf)
	}
	return removed
}

// A move is a class that gets another parent.
type move struct {
	class, parent *Class // parent: nil for none
	conf          policy.Class
}

// moves returns the classes that a policy puts under another parent.
func (s *Shaper) moves(confs []policy.Class) (moves []move) {
	for i := range confs {
		m := move{s.classes[confs[i].Name], parentOf(&confs[i], s.classes), confs[i]}
		if m.class.Parent() != m.parent {
			moves = append(moves, m)
		}
	}
	return moves
}

// move puts the classes under their new parents, all in one moment: nobody sees one
// without the limits that it had or those that it gets.
func (s *Shaper) move(now time.Time, moves []move) {
	roots := rootsOf(moves)
	for root := range roots {
		root.mu.Lock()
		defer root.mu.Unlock()
	}
	for _, m := range moves {
		if m.class.Parent() != nil {
			detach(now, m.class)
		}
		m.class.set(now, m.conf)
	}
	for _, m := range moves {
		if m.parent != nil {
			attach(now, m.class, m.parent)
		} else {
			m.class.update(now)
		}
	}
	for root := range roots {
		root.root().wake(now)
	}
}

// rootsOf returns all roots that were above the classes, are, or will be.
func rootsOf(moves []move) map[*node]bool {
	roots := map[*node]bool{}
	for _, m := range moves {
		roots[&m.class.node], roots[m.class.root()] = true, true
		if m.parent != nil {
			roots[m.parent.root()] = true
		}
	}
	return roots
}
