package shaper

import (
	"sync"

	"shaper/leaky"
	"shaper/policy"
)

// A Slot lets a session be open in its class and in each class above (max_connections).
// Each class has so many places, and a FIFO of sessions that wait for one. A session takes
// a place in one class after the other, on the way to the root. It has its slot when it has
// all the places. So no session is overtaken by one that comes later to its class, nor by
// one of another class that comes later to a class above both. A Slot may be used
// concurrently.
type Slot struct {
	// mu is taken before the lock of the tree that the class is in. It guards the fields
	// below.
	mu    sync.Mutex
	class *Class // nil: nothing was acquired, or the slot was released
	owner SlotOwner

	// Guarded by the lock of the tree; see class.
	held        bool                // the session has its slot
	waitsIn     *slots              // where it waits; it has a place in each class beneath; nil: it does not wait
	place       leaky.Element[Slot] // its place in waitsIn.waiters
	shadowSlots []*Slot             // in the shadows of the classes on the path
}

// SlotOwner is told when its session has the slot that it waits for.
type SlotOwner interface {
	// Acquired must not block, nor call a Slot or a Class: the caller may hold locks.
	Acquired()
	// Protocol returns what the session speaks. It decides whether a session that finds no
	// place waits or is refused. The caller holds locks here too.
	Protocol() policy.Protocol
}

// slots counts the sessions in a class and beneath it. The lock of the tree guards it. Each
// session that is open, or waits for a place above the class, has a place here:
//
//	open <= places, and places <= most if sessions wait, unless a reload or Hold took more
type slots struct {
	of      *Class
	most    int               // how many places there are; 0: any number
	open    int               // how many sessions have their slot
	places  int               // how many places are taken
	waiters leaky.Queue[Slot] // sessions that wait for a place
	queued  int               // how many wait in the class, or in one of its buckets
	removed bool              // nobody gets a place; see LetIn
}

// Acquire acquires the slot, and reports whether the session has it at once. If not, the
// session waits, and owner is told when it has the slot.
func (s *Slot) Acquire(class *Class, owner SlotOwner) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.class, s.owner = class, owner
	defer class.lock().mu.Unlock()
	return s.climb(&class.slots)
}

// Hold is Acquire for a session that is open already. It gets its slot even if none is
// free.
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

// Release gives up the slot, or stops waiting for it. A second call does nothing.
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

// Move moves the session to another class. If it has its slot, it gets one there too, even
// if none is free. If it waits, it goes to the end of the queue there; if it gets its slot
// at once, Move tells the owner.
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
		root = class.lock() // take the new places first, so that nobody gets those above both classes
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

// climb takes a place in a class and in those above it. It reports whether the session
// has its slot. If not, the session waits in the first class that is full. The caller
// holds the lock of the tree.
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

// occupy acquires a slot in a shadow too, unless the session would have been refused there.
func (s *Slot) occupy(in shadow) {
	patient := s.class.conf.OverflowFor(s.owner.Protocol()) == policy.Wait
	if slot := in.occupy(patient); slot != nil {
		s.shadowSlots = append(s.shadowSlots, slot)
	}
}

// wait puts the session at the end of the queue for a place in a class.
func (s *Slot) wait(in *slots) {
	s.waitsIn, s.place.Value = in, s
	in.waiters.Push(&s.place)
	in.of.Named().slots.queued++
}

// leaveQueue undoes wait.
func (s *Slot) leaveQueue() {
	s.waitsIn.waiters.Remove(&s.place)
	s.waitsIn.of.Named().slots.queued--
}

// release undoes climb, and returns the slots that others get by that. The caller holds the
// lock of the tree, and calls notify without it.
func (s *Slot) release() (next []*Slot) {
	for _, slot := range s.shadowSlots {
		slot.Release()
	}
	s.shadowSlots = nil
	if s.held {
		s.class.slots.count(-1)
	} else {
		s.leaveQueue()
		s.class.slots.countPlaces(-1, s.waitsIn)
	}
	s.held, s.waitsIn = false, nil
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
func (p *slots) isFull() bool {
	return p.of.Named().slots.removed || p.most > 0 && p.places >= p.most
}

// count counts n more sessions with a slot in the class and those above it.
func (p *slots) count(n int) {
	p.countOpen(n)
	p.countPlaces(n, nil)
}

// countOpen counts n more open sessions in the class and those above it.
func (p *slots) countOpen(n int) {
	for ; p != nil; p = p.above() {
		if p.open += n; p.of.side != nil {
			p.of.side.class.slots.open += n
		}
	}
}

// countPlaces counts n more places in the class and in those above it, up to the class
// before to; nil: up to the root.
func (p *slots) countPlaces(n int, to *slots) {
	for ; p != to; p = p.above() {
		p.places += n
	}
}

// admit gives the free places on the path to the root to those that wait for them, in
// order. It returns the slots that sessions have got by that. The caller calls notify
// without the lock of the tree.
func (p *slots) admit() (next []*Slot) {
	for ; p != nil; p = p.above() {
		for p.waiters.Len() > 0 && !p.isFull() {
			s := p.waiters.Front().Value
			s.leaveQueue()
			s.waitsIn = nil
			p.places++
			if s.climb(p.above()) {
				next = append(next, s)
			}
		}
	}
	return next
}

// withdraw prepares the class to leave its parent. Sessions of the class, and of those
// beneath it, that wait for a place above wait for a place in the class again, before those
// that wait there already.
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

// withdrawFrom is withdraw from a class above and from those above that. The sessions that
// wait highest up come first.
func (p *slots) withdrawFrom(from *slots) {
	if from == nil {
		return
	}
	p.withdrawFrom(from.above())
	for e := from.waiters.Front(); e != nil; {
		s := e.Value
		if e = e.Next(); s.class.isBeneath(&p.of.node) {
			s.leaveQueue()
			p.countPlaces(-1, from)
			s.wait(p)
		}
	}
}

// Sessions returns how many sessions are open in the class and its children.
func (p *slots) Sessions() int {
	defer p.of.lock().mu.Unlock()
	return p.open
}

// notify tells the owners of slots that they have them. The caller holds no lock of a
// tree.
func notify(next []*Slot) {
	for _, s := range next {
		s.owner.Acquired()
	}
}
