package shaper

import (
	"sync"

	"shaper/leaky"
	"shaper/policy"
	"shaper/stats"
)

// A Slot is the place of a session among those that may be open at once in its
// class and in each one above it (max_connections). Each has a FIFO of those who
// wait for a place in it: a session takes its place in one class after the other,
// on the way to the root, and has its slot when it has all of them. So nobody is
// overtaken by those who come to his class after him, nor by those of another one
// who come later to where they all wait. A Slot may be used concurrently.
type Slot struct {
	mu    sync.Mutex // taken before the lock of a tree
	class *Class     // nil: nothing was acquired, or it has been released
	owner SlotOwner

	// These are under the lock of the tree, too.
	held   bool
	queue  *Class // whose waiters it is among, with a place in those beneath; nil: it does not wait
	place  leaky.Element[Slot]
	shades []*Slot // in the classes on the path with shadow, which would hold it up
}

// SlotOwner is told when a slot that it waits for is its own.
type SlotOwner interface {
	// Acquired must not block, nor call a slot or a class.
	Acquired()
}

// sessions is what a class knows of them, and of their slots.
type sessions struct {
	open    int // sessions that are, in the class and its children
	places  int // that those have here, and those who wait above
	waiters leaky.Queue[Slot]
	removed bool // nobody gets a slot; see LetIn
}

// Acquire acquires the slot, and reports whether there was one. Else the session
// waits, and owner is told when it has it.
func (s *Slot) Acquire(class *Class, owner SlotOwner) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.class, s.owner = class, owner
	defer class.lock().mu.Unlock()
	return s.climb(class)
}

// Hold is Acquire for a session that is open already: it has its slot, even if there is
// none to be had.
func (s *Slot) Hold(class *Class) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer class.lock().mu.Unlock()
	s.class, s.held = class, true
	class.count(1)
}

// Held reports whether the session has its slot.
func (s *Slot) Held() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.class == nil {
		return false
	}
	defer s.class.lock().mu.Unlock()
	return s.held
}

// Release gives up the slot, or waits for it no more.
func (s *Slot) Release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.class == nil {
		return
	}
	root := s.class.lock()
	next := s.release()
	root.mu.Unlock()
	s.class = nil
	notify(next)
}

// Move takes the session to another class. One that has a slot has it there too,
// even if there is none to be had; one that waits goes to the end of the queue,
// and is told at once if there is none.
func (s *Slot) Move(class *Class) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.class == nil || s.class == class {
		return
	}
	root := s.class.lock()
	held := s.held
	if held {
		root.mu.Unlock()
		root = class.lock() // first: others must not get what it has above both
		class.count(1)
		root.mu.Unlock()
		root = s.class.lock()
	}
	next := s.release()
	root.mu.Unlock()
	notify(next)

	s.class = class
	root = class.lock()
	defer root.mu.Unlock()
	if s.held = held; !held && s.climb(class) {
		defer s.owner.Acquired()
	}
}

// climb takes a place in a class and those above it. It reports whether the session
// has its slot; else it waits for its turn in the first of them that is full.
func (s *Slot) climb(c *Class) bool {
	for ; c != nil; c = c.parent.Load() {
		s.shade(c)
		if c.full() || c.waiters.Len() > 0 {
			c.countOverlimit()
			s.wait(c)
			return false
		}
		c.places++
	}
	s.held = true
	s.class.countOpen(1)
	return true
}

// wait has the session wait for a place in a class.
func (s *Slot) wait(c *Class) {
	s.queue, s.place.Value = c, s
	c.waiters.Push(&s.place)
}

// release undoes climb, and returns those who have got a slot by it.
func (s *Slot) release() (next []*Slot) {
	for _, shade := range s.shades {
		shade.Release()
	}
	s.shades = nil
	if s.held {
		s.class.count(-1)
	} else {
		s.queue.waiters.Remove(&s.place)
		s.class.countPlaces(-1, s.queue)
	}
	s.held, s.queue = false, nil
	return s.class.admit()
}

// Sessions returns how many sessions are open in the class and its children.
func (c *Class) Sessions() int {
	defer c.lock().mu.Unlock()
	return c.open
}

// full reports whether as many places are taken as there are.
func (c *Class) full() bool { return c.removed || c.limits() && c.exceeds() }

func (c *Class) exceeds() bool {
	return c.conf.MaxConnections > 0 && c.places >= c.conf.MaxConnections
}

// shade acquires a slot in the class that computes what one with shadow would do. A
// session that would have been refused has none there.
func (s *Slot) shade(c *Class) {
	if c.shadow == nil || c.keys != nil {
		return
	}
	shade := new(Slot)
	if !shade.Acquire(c.shadow, nobody{}) && c.shadow.conf.OverflowFor(policy.TCP) != policy.Wait {
		shade.Release()
		c.shadow.lose(stats.QueueFull, &Cost{})
		return
	}
	s.shades = append(s.shades, shade)
}

// nobody waits for a slot that only counts.
type nobody struct{}

func (nobody) Acquired() {}

// count counts so many more that have a slot in the class and those above it.
func (c *Class) count(sessions int) {
	c.countOpen(sessions)
	c.countPlaces(sessions, nil)
}

func (c *Class) countOpen(n int) {
	for ; c != nil; c = c.parent.Load() {
		c.open += n
	}
}

// countPlaces counts so many places more in the class and those above it, up to
// one that is not counted; nil: all of them.
func (c *Class) countPlaces(n int, to *Class) {
	for ; c != to; c = c.parent.Load() {
		c.places += n
	}
}

// admit gives the places that are free on the path to the first of those who wait
// for them, and returns those who have got a slot by it.
func (c *Class) admit() (next []*Slot) {
	for ; c != nil; c = c.parent.Load() {
		for c.waiters.Len() > 0 && !c.full() {
			s := c.waiters.Front().Value
			c.waiters.Remove(&s.place)
			s.queue = nil
			c.places++
			if s.climb(c.parent.Load()) {
				next = append(next, s)
			}
		}
	}
	return next
}

// LetIn has a class that Shaper.Apply has removed give slots again to those who
// wait there: who is to be moved has been. Till then it gives none, for what the
// first of them take elsewhere is not free.
func (c *Class) LetIn() {
	root := c.lock()
	c.removed = false
	next := c.admit()
	root.mu.Unlock()
	notify(next)
}

// keepOut has the class give no slots until LetIn.
func (c *Class) keepOut() {
	defer c.lock().mu.Unlock()
	c.removed = true
}

// withdraw has those beneath the class who wait for a place above it wait for one
// in it again, before those who do already. The class is to leave its parent.
func (c *Class) withdraw() {
	if c.places == c.open {
		return // nobody does
	}
	behind := c.waiters.Len()
	c.withdrawFrom(c.parent.Load())
	for range behind {
		e := c.waiters.Front()
		c.waiters.Remove(e)
		c.waiters.Push(e)
	}
}

// withdrawFrom is withdraw for a class above and those above that, who come first:
// they have come further.
func (c *Class) withdrawFrom(p *Class) {
	if p == nil {
		return
	}
	c.withdrawFrom(p.parent.Load())
	for e := p.waiters.Front(); e != nil; {
		s := e.Value
		if e = e.Next(); s.class.isBeneath(c) {
			p.waiters.Remove(&s.place)
			c.countPlaces(-1, p)
			s.wait(c)
		}
	}
}

// isBeneath reports whether another class is the class, or above it.
func (c *Class) isBeneath(top *Class) bool {
	for c != nil && c != top {
		c = c.parent.Load()
	}
	return c != nil
}

// notify tells those who have got a slot. No lock of a tree is held.
func notify(next []*Slot) {
	for _, s := range next {
		s.owner.Acquired()
	}
}
