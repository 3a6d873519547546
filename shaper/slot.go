package shaper

import (
	"sync"

	"shaper/leaky"
)

// A Slot is the place of a session among those that may be open at once in its class and
// in each class above (max_connections). Each class has a FIFO of those that wait for a
// place in it. A session takes a place in one class after the other, on the way to the
// root, and has its slot when it has all of them. So no session is overtaken by one that
// comes to its class later, nor by one of another class that comes later to where both
// wait. A Slot may be used concurrently.
type Slot struct {
	mu    sync.Mutex // taken before the lock of the tree that the class is in
	class *Class     // nil: nothing was acquired, or it has been released
	owner SlotOwner

	// Under the lock of the tree, too.
	held   bool
	queue  *slots // whose waiters it is among, with a place in those beneath; nil: it does not wait
	place  leaky.Element[Slot]
	shades []*Slot // in the shadows of the classes on the path
}

// SlotOwner is told when its session has the slot that it waits for.
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
	removed bool // nobody gets a place; see LetIn
}

// Acquire acquires the slot, and reports whether there was one. If not, the session waits,
// and owner is told when it has the slot.
func (s *Slot) Acquire(class *Class, owner SlotOwner) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.class, s.owner = class, owner
	defer class.lock().mu.Unlock()
	return s.climb(&class.slots)
}

// Hold is Acquire for a session that is open already: it has its slot even if there is
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

// Release gives up the slot, or stops waiting for it.
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

// Move takes the session to another class. If it has its slot, it has one there too, even
// if there is none to be had. If it waits, it goes to the end of the queue there; its
// owner is told at once if nobody waits.
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
		root = class.lock() // first, so that others do not get the places above both classes
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
// has its slot; if not, the session waits for its turn in the first of them that is full.
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

// release undoes climb, and returns the slots that others have got by it.
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

// admit gives the free places on the path to the first of those that wait for them, and
// returns the slots that are complete by it.
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

// withdraw makes the sessions beneath the class that wait for a place above it wait for one
// in it again, before those that do already. The class is about to leave its parent.
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

// withdrawFrom is withdraw from one class above and those above that. The sessions highest
// up come first: they have come furthest.
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

// LetIn makes a class that Shaper.Apply has removed give slots again to those that wait
// there. The caller has moved the other sessions: until then the class gives no slots,
// since the places that they have elsewhere are not free.
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

// notify tells the owners of slots that they have them. No tree is locked.
func notify(next []*Slot) {
	for _, s := range next {
		s.owner.Acquired()
	}
}
