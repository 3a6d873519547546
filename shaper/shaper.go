package shaper

import (
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"shaper/limit"
	"shaper/policy"
	"shaper/stats"
)

// Shaper holds the live classes of a policy. It may be used concurrently.
type Shaper struct {
	pacers *pacers // nil only in tests in which nothing leaves
	lost   stats.Lost

	mu      sync.RWMutex // guards the fields below; taken before the locks of trees
	classes map[string]*Class
	sorted  []*Class          // the classes, by name; Apply makes another, as callers of Classes may still read this one
	ledger  Ledger            // keeps the budgets of the classes; nil: only this process knows them
	members map[string]Member // of the classes that are shared, by name
	gone    gone              // the classes that Apply has removed, and in which somebody is or whose past matters
	forgets *time.Timer       // goes off when one of them may matter no more; nil: there has been none
	closed  bool
}

// New returns a Shaper without classes, on the most precise timers of the system. It has as
// many pacers as goroutines can run at once. The caller closes it after use.
func New() *Shaper {
	timers := make([]timer, runtime.GOMAXPROCS(0))
	for i := range timers {
		timers[i] = newTimer()
	}
	return newShaper(timers...)
}

// NewOnRuntimeTimer is New with one pacer, on the timers of the Go runtime, which follow
// the fake clock of testing/synctest.
func NewOnRuntimeTimer() *Shaper { return newShaper(newRuntimeTimer()) }

func newShaper(timers ...timer) *Shaper {
	return &Shaper{pacers: newPacers(timers), classes: map[string]*Class{}, gone: gone{}}
}

// Close stops the pacers. Nothing that waits leaves any more, so the caller stops the
// owners of waiting items before.
func (s *Shaper) Close() {
	s.mu.Lock()
	if s.closed = true; s.forgets != nil {
		s.forgets.Stop()
	}
	s.mu.Unlock()
	s.pacers.close()
}

// SetPunctual says whether a pacer wakes up early for a gap and waits the rest by looking at
// the clock. It does so from the start.
func (s *Shaper) SetPunctual(punctual bool) { s.pacers.setEarly(punctual) }

// Punctual reports whether a pacer wakes up early for a gap.
func (s *Shaper) Punctual() bool { return s.pacers.isEarly() }

// Lateness returns how late items that had to wait have left.
func (s *Shaper) Lateness() stats.HistogramReading { return s.pacers.lateness() }

// Lost returns what all classes have lost since the start, also those that are gone, each item once.
func (s *Shaper) Lost() *stats.Lost { return &s.lost }

// Backlog returns what waits in all classes, also in those that are gone, each item once.
func (s *Shaper) Backlog() (all Backlog) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, c := range s.classes {
		all = all.plus(c.Status().treeBacklog())
	}
	for c := range s.gone {
		all = all.plus(c.Status().treeBacklog())
	}
	return all
}

// Class returns the class with a name; nil if there is none.
func (s *Shaper) Class(name string) *Class {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.classes[name]
}

// Classes returns all classes, in the order of their names. All callers get the same slice until the
// next Apply, so they must not change it.
func (s *Shaper) Classes() []*Class {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.sorted
}

// NewClass returns a live class that the Shaper does not know by name: Class and Classes
// do not return it, and Apply leaves it alone.
func (s *Shaper) NewClass(conf policy.Class) *Class {
	c := NewClass(time.Now(), conf)
	c.tally.lost = &s.lost
	if s.pacers != nil {
		c.waker = s.pacers
	}
	return c
}

// NewLiveClass returns a live class that stands alone. It belongs to no Shaper and needs no
// Close: it has a goroutine and a timer only while something waits.
func NewLiveClass(conf policy.Class) *Class {
	c := NewClass(time.Now(), conf)
	p := idlePacer()
	p.unowned = true
	c.waker = p
	return c
}

// SetMembers says of which classes several processes share the budgets, from the next Apply on: of those that have a
// member, by name.
func (s *Shaper) SetMembers(members map[string]Member) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.members = members
}

// Told makes a class look again at what its member has for a key: more may leave, or sooner, or another member
// of the fleet has heard "too fast". The key "" is that of the class itself. If there is no such
// class, Told does nothing.
func (s *Shaper) Told(class, key string) {
	s.mu.RLock()
	c := s.classes[class]
	if c == nil {
		c = s.gone.named(class)
	}
	s.mu.RUnlock()
	if c != nil {
		c.Told(time.Now(), key)
	}
}

// Unshare takes a member from the classes that are gone and that nobody uses any more. It reports whether some class still
// uses the member. A session that joins a class afterwards which has lost its member sends at the rate of the class in this
// process alone, so the caller sees to it that none does.
func (s *Shaper) Unshare(member Member) (used bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range s.members {
		used = used || one == member
	}
	return s.gone.unshare(time.Now(), member) || used
}

// Apply makes the classes those of a policy. A class of the same name keeps its queue,
// its credit and its counters, and takes its new rate and its new parent at once. A new
// class starts idle, but one that comes back goes on as if it had stayed. If a class cannot
// become what the policy says (Class.IsReplacedBy), a new class replaces it and takes over its
// counters.
//
// Apply returns the classes that are gone and in which somebody may be, from this call or from earlier ones. They go on
// as they were, under the same parent, until nobody uses them any more; with their members, until Unshare takes these. A session
// that waits for a permit in one of them waits until the caller moves the permit or calls LetIn.
func (s *Shaper) Apply(confs []policy.Class) (gone []*Class) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	old := s.classes
	back := s.comeBack(confs)
	for _, c := range back {
		old[c.name] = c
	}
	known := maps.Clone(old)
	s.adopt(now, confs, old)
	removed := slices.Collect(maps.Values(old))
	gone = s.remove(now, removed)
	s.move(now, append(s.moves(confs, known), s.movesOfGone()...))
	for _, c := range removed { // what is in flight of their children has moved with these
		if c.heir != nil {
			begin(now, c)
		}
	}
	for _, conf := range confs {
		s.classes[conf.Name].Set(now, conf)
		s.classes[conf.Name].Share(now, s.members[conf.Name])
	}
	for _, c := range back {
		is := s.classes[c.name] // c, or what has replaced it
		is.backing.keepIn(now, s.ledger)
		is.LetIn()
	}
	s.forget(now)
	return gone
}

// adopt makes the classes of a policy those of s. An old class that goes on is taken from old; one that is
// replaced, or has no place in the policy, stays there. The lock is held.
func (s *Shaper) adopt(now time.Time, confs []policy.Class, old map[string]*Class) {
	s.classes = make(map[string]*Class, len(confs))
	for _, conf := range parentsFirst(confs) {
		c, member := old[conf.Name], s.members[conf.Name]
		switch {
		case c == nil:
			c = s.NewClass(conf)
			c.backing.ledger = s.ledger // Set makes the class use it
		case c.IsReplacedBy(conf), c.keys.hashesOtherwise(member), c.keys.standOtherwise(parentOf(&conf, s.classes)):
			c = succeed(now, c, conf)
		default:
			delete(old, conf.Name)
		}
		c.backing.setMember(member)
		s.classes[conf.Name] = c
	}
	s.sorted = sortedByName(s.classes)
}

// remove makes classes be gone. It returns them, and before them those that were gone already and in which
// somebody may be. The lock is held.
func (s *Shaper) remove(now time.Time, classes []*Class) (gone []*Class) {
	gone = s.gone.used()
	for _, c := range classes {
		if s.gone.add(now, c, s.classes[c.name] != nil); s.gone[c].replaced {
			c.backing.disown(now)
		}
		c.backing.keepIn(now, nil)
	}
	gone = append(gone, classes...)
	for _, c := range gone {
		c.keepOut()
	}
	return gone
}

// parentsFirst returns the policies of classes, each after that of its parent.
func parentsFirst(confs []policy.Class) []policy.Class {
	under, known := map[string][]policy.Class{}, map[string]bool{}
	for i := range confs {
		known[confs[i].Name] = true
	}
	var all []policy.Class
	for _, conf := range confs {
		if conf.Parent == "" || !known[conf.Parent] {
			all = append(all, conf)
		} else {
			under[conf.Parent] = append(under[conf.Parent], conf)
		}
	}
	for i := 0; i < len(all); i++ {
		all = append(all, under[all[i].Name]...)
	}
	return all
}

// sortedByName returns the classes in the order of their names. A caller that appends to them gets a copy.
func sortedByName(classes map[string]*Class) []*Class {
	return slices.Clip(slices.SortedFunc(maps.Values(classes), func(a, b *Class) int { return strings.Compare(a.name, b.name) }))
}

// comeBack takes out the classes that are gone and whose names a policy has again. The caller holds mu.
func (s *Shaper) comeBack(confs []policy.Class) (back []*Class) {
	if len(s.gone) == 0 {
		return nil
	}
	wanted := map[string]bool{}
	for i := range confs {
		wanted[confs[i].Name] = s.classes[confs[i].Name] == nil
	}
	return s.gone.take(func(name string) bool { return wanted[name] })
}

// forget forgets the classes that are gone and matter no more, now and when others do so. The caller holds mu.
func (s *Shaper) forget(now time.Time) {
	if s.closed {
		return
	}
	next := s.gone.forget(now)
	switch {
	case next == limit.Never:
	case s.forgets != nil:
		s.forgets.Reset(next.Sub(now))
	default:
		s.forgets = time.AfterFunc(next.Sub(now), func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.forget(time.Now())
		})
	}
}

// A move puts a class under another parent.
type move struct {
	class, parent *Class // parent is nil for none
	conf          policy.Class
	origin        *Class // from which class goes on: that may be itself; nil: nothing has left it yet
}

// moves returns the moves that a policy makes necessary. known are the classes before. The caller holds mu.
func (s *Shaper) moves(confs []policy.Class, known map[string]*Class) (moves []move) {
	for i := range confs {
		c, origin := s.classes[confs[i].Name], known[confs[i].Name]
		if origin != nil && origin != c && origin.heir != c {
			origin = nil
		}
		if parent := parentOf(&confs[i], s.classes); parent != c.Parent() {
			moves = append(moves, move{c, parent, confs[i], origin})
		}
	}
	return moves
}

// movesOfGone returns the moves of classes that are gone, now or for some time, and whose parents have heirs: nothing
// leaves through the old parents any more. A class stays beneath the old parent, which goes on, in two cases. In the first
// case, the buckets of the class are beneath buckets of the old parent. In the second case, the heir has buckets: the class
// has no bucket there, and would leave by no limit of the heir. The caller holds mu.
func (s *Shaper) movesOfGone() (moves []move) {
	for c, of := range s.gone {
		p := c.Parent()
		if of.replaced || p == nil || !c.keys.mayMove() {
			continue
		}
		if next := s.classes[p.name]; next != nil && next != p && next.keys == nil {
			moves = append(moves, move{c, next, c.Policy(), c})
		}
	}
	return moves
}

// move puts classes under their new parents, all at one moment: nobody sees a class without
// either its old limits or its new ones. The caller holds mu, so nobody else locks two
// trees.
func (s *Shaper) move(now time.Time, moves []move) {
	roots := rootsOf(moves)
	for root := range roots {
		root.mu.Lock()
		defer root.mu.Unlock()
		now = later(now, root.latest) // something may have left while Apply waited for the locks
	}
	before := make([]ancestors, len(moves))
	for i, m := range moves {
		if m.origin != nil {
			before[i] = ancestorsOf(&m.origin.node)
		}
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
	for i, m := range moves {
		m.rise(now, before[i])
	}
	for root := range roots {
		root.root().wake(now)
	}
}

// rise notes which of the ancestors before the class still has. The others do not wait any longer for an item of the class on its way
// out. Of a class that another one replaces, nothing moves, so its ancestors go on waiting: they may be in a tree that is not locked.
func (m *move) rise(now time.Time, before ancestors) {
	if m.origin == nil {
		return
	}
	before.rise(now, &m.class.node)
	for _, a := range before {
		if m.origin == m.class && !m.class.isBeneath(a.node) {
			a.node.stopAwaiting(now, &m.class.node)
		}
	}
}

// rootsOf returns all roots that are above the classes before, during or after the moves.
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
