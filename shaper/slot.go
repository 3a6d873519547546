package shaper

import (
	"sync"

	"shaper/leaky"
)

// A Slot is the place of a session among those that may be open at once in its
// class and in each one above it (max_connections). Each has a FIFO of those who
// wait for a place in it: a session takes its place in one class after the other,
// on the way to the root, and has its slot when it has all of them. So nobody is
// overtaken by those who come to his class after him, nor by those of another one
// who come later to where they all wait. A Slot may be used concurrently.
type Slot struct {
	mu    sync.Mutex // taken before the lock of a tree, and never after it
	class *Class     // nil: nothing was acquired, or it has been released
	owner SlotOwner

	// Under the lock of the tree, too.
	held   bool
	queue  *slots // whose waiters it is among, with a place in those beneath; nil: it does not wait
	place  leaky.Element[Slot]
	shades []*Slot // in the shadows of the classes on the path
}

// SlotOwner is told when a slot that it waits for is its own.
type SlotOwner interface {
	// Acquired must not block, nor call a slot or a class.
	Acquired()
}

// slots are those of the sessions in a class and its children. The lock of the tree
// guards them. Every session that is open, or waits for a place above the class, has a
// place here:
//
//	open <= places, and places <= most if sessions wait, unless a reload or Hold took more
type slots struct {
	of      *Class
	most    int // places that there are; 0: any number
	open    int // sessions
	places  int // that are taken
	waiters leaky.Queue[Slot]
	removed bool // nobody gets a place; see Class.LetIn
}

// Acquire acquires the slot, and reports whether there was one. Else the session
// waits, and owner is told when it has it.
func (s *Slot) Acquire(class *Class, owner SlotOwner) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.class, s.owner = class, owner
	defer class.lock().mu.Unlock()
	return s.climb(&class.slots)
}

// Hold is Acquire for a session that is open already: it has its slot, even if there is
// none to be had.
func (s *Slot) Hold(class *Class) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer class.lock().mu.Unlock()
	s.class, s.held = class, true
	class.slots.count(1)
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
		class.slots.count(1)
		root.mu.Unlock()
		root = s.class.lock()
	}
	next := s.release()
	root.mu.Unlock()
	notify(next)

	s.class = class
	root = class.lock()
	defer root.mu.Unlock()
	if s.held = held; !held && s.climb(&class.slots) {
		defer s.owner.Acquired()
	}
}

// climb takes a place in a class and those above it. It reports whether the session
// has its slot; else it waits for its turn in the first of them that is full.
func (s *Slot) climb(p *slots) bool {
	for ; p != nil; p = p.above() {
		if shadow := p.of.shadow; shadow != nil && p.of.keys == nil {
			s.occupy(shadow)
		}
		if p.isFull() || p.waiters.Len() > 0 {
			p.of.tally.overlimit()
			s.wait(p)
			return false
		}
		p.places++
	}
	s.held = true
	s.class.slots.countOpen(1)
	return true
}

// occupy acquires a slot in a shadow, too. A session that would have been refused has
// none there.
func (s *Slot) occupy(in shadow) {
	if shade := in.occupy(); shade != nil {
		s.shades = append(s.shades, shade)
	}
}

// wait lets the session wait for a place in a class.
func (s *Slot) wait(in *slots) {
	s.queue, s.place.Value = in, s
	in.waiters.Push(&s.place)
}

// release undoes climb, and returns those who have got a slot by it.
func (s *Slot) release() (next []*Slot) {
	for _, shade := range s.shades {
		shade.Release()
	}
	s.shades = nil
	if s.held {
		s.class.slots.count(-1)
	} else {
		s.queue.waiters.Remove(&s.place)
		s.class.slots.countPlaces(-1, s.queue)
	}
	s.held, s.queue = false, nil
	return s.class.slots.admit()
}

// above returns the slots of the parent; nil for none.
func (p *slots) above() *slots {
	if parent := p.of.parent.Load(); parent != nil {
		return &parent.class.slots
	}
	return nil
}

// isFull reports whether as many places are taken as there are.
func (p *slots) isFull() bool { return p.removed || p.most > 0 && p.places >= p.most }

// count counts so many more that have a slot in the class and those above it.
func (p *slots) count(sessions int) {
	p.countOpen(sessions)
	p.countPlaces(sessions, nil)
}

func (p *slots) countOpen(n int) {
	for ; p != nil; p = p.above() {
		p.open += n
	}
}

// countPlaces counts so many places more in the class and those above it, up to one that
// is not counted; nil: all of them.
func (p *slots) countPlaces(n int, to *slots) {
	for ; p != to; p = p.above() {
		p.places += n
	}
}

// admit gives the places that are free on the path to the first of those who wait for
// them, and returns those who have got a slot by it.
func (p *slots) admit() (next []*Slot) {
	for ; p != nil; p = p.above() {
		for p.waiters.Len() > 0 && !p.isFull() {
			s := p.waiters.Front().Value
			p.waiters.Remove(&s.place)
			s.queue = nil
			p.places++
			if s.climb(p.above()) {
				next = append(next, s)
			}
		}
	}
	return next
}

// withdraw makes those beneath the class who wait for a place above it wait for one in it
// again, before those who do already. The class is to leave its parent.
func (p *slots) withdraw() {
	if p.places == p.open {
		return // nobody waits above
	}
	behind := p.waiters.Len()
	p.withdrawFrom(p.above())
	for range behind {
		e := p.waiters.Front()
		p.waiters.Remove(e)
		p.waiters.Push(e)
	}
}

// withdrawFrom is withdraw from a class above and those above that, who come first: they
// have come further.
func (p *slots) withdrawFrom(from *slots) {
	if from == nil {
		return
	}
	p.withdrawFrom(from.above())
	for e := from.waiters.Front(); e != nil; {
		s := e.Value
		if e = e.Next(); s.class.isBeneath(&p.of.node) {
			from.waiters.Remove(&s.place)
			p.countPlaces(-1, from)
			s.wait(p)
		}
	}
}

// LetIn makes a class that Shaper.Apply has removed give slots again to those who wait
// there: who is to be moved has been. Till then it gives none, for what the first of them
// take elsewhere is not free.
func (p *slots) LetIn() {
	root := p.of.lock()
	p.removed = false
	next := p.admit()
	root.mu.Unlock()
	notify(next)
}

// keepOut makes the class give no slots until LetIn.
func (p *slots) keepOut() {
	defer p.of.lock().mu.Unlock()
	p.removed = true
}

// Sessions returns how many sessions are open in the class and its children.
func (p *slots) Sessions() int {
	defer p.of.lock().mu.Unlock()
	return p.open
}

// notify tells those who have got a slot. No lock of a tree is held.
func notify(next []*Slot) {
	for _, s := range next {
		s.owner.Acquired()
	}
}
