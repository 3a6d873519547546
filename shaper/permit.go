package shaper

import (
	"sync"

	"shaper/leaky"
	"shaper/policy"
)

// A Permit lets a session be open in its class and in each class above (max_connections).
// Each class admits so many sessions, and has a FIFO of sessions that wait to be admitted.
// One class after the other admits a session, on the way to the root. The session has its
// permit when all of them have admitted it. So no session is overtaken by a session that
// comes later to its class, nor by a session of another class that comes later to a class
// above both. A Permit may be used concurrently.
type Permit struct {
	// mu is taken before the lock of the tree that the class is in. It guards the fields
	// below.
	mu    sync.Mutex
	class *Class // nil: nothing was acquired, or the permit was released
	owner PermitOwner

	// Guarded by the lock of the tree; see class.
	isOpen        bool                  // the session has its permit
	waitsIn       *permits              // where it waits; each class beneath has admitted it; nil: it does not wait
	place         leaky.Element[Permit] // its place in waitsIn.waiters
	shadowPermits []*Permit             // in the shadows of the classes on the path
}

// PermitOwner is told when its session has the permit that it waits for.
type PermitOwner interface {
	// Acquired must not block, nor call a Permit or a Class: the caller may hold locks.
	Acquired()
	// Protocol returns what the session speaks. The protocol decides whether a session that
	// is not admitted at once waits or is refused. The caller holds locks here too.
	Protocol() policy.Protocol
}

// permits counts the sessions in a class and beneath it. The lock of the tree guards it. The
// class has admitted each session that is open, or that waits in a class above:
//
//	open <= admitted, and admitted <= most if sessions wait, unless a reload or Give admitted more
type permits struct {
	of       *Class
	most     int                 // how many sessions the class admits; 0: any number
	open     int                 // how many sessions have their permit
	admitted int                 // how many sessions the class has admitted
	waiters  leaky.Queue[Permit] // sessions that wait to be admitted
	queued   int                 // how many wait in the class, or in one of its buckets
	removed  bool                // nobody is admitted; see LetIn
}

// Acquire acquires the permit, and reports whether the session has it at once. If not, the
// session waits, and owner is told when it has the permit.
func (s *Permit) Acquire(class *Class, owner PermitOwner) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.class, s.owner = class, owner
	defer class.lock().mu.Unlock()
	return s.climb(&class.permits)
}

// Give gives the permit to a session that is open already, even if none is free.
func (s *Permit) Give(class *Class) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer class.lock().mu.Unlock()
	s.class, s.isOpen = class, true
	class.permits.count(1)
}

// IsOpen reports whether the session has its permit.
func (s *Permit) IsOpen() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.class == nil {
		return false
	}
	defer s.class.lock().mu.Unlock()
	return s.isOpen
}

// Release gives up the permit, or stops waiting for it. A second call does nothing.
func (s *Permit) Release() {
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

// Move moves the session to another class. If it has its permit, it gets one there too, even
// if none is free. If it waits, it goes to the end of the queue there; if it gets its permit
// at once, Move tells the owner.
func (s *Permit) Move(class *Class) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.class == nil || s.class == class {
		return
	}
	root := s.class.lock()
	isOpen := s.isOpen
	if isOpen {
		root.mu.Unlock()
		root = class.lock() // the new classes admit it first, so that nobody takes its permit of those above both
		class.permits.count(1)
		root.mu.Unlock()
		root = s.class.lock()
	}
	next := s.release()
	root.mu.Unlock()
	notify(next)

	s.class = class
	root = class.lock()
	defer root.mu.Unlock()
	if s.isOpen = isOpen; !isOpen && s.climb(&class.permits) {
		defer s.owner.Acquired()
	}
}

// climb lets a class and those above it admit the session. It reports whether the session
// has its permit. If not, the session waits in the first class that is full. The caller
// holds the lock of the tree.
func (s *Permit) climb(p *permits) bool {
	for ; p != nil; p = p.above() {
		if shadow := p.of.shadow; shadow != nil && p.of.keys == nil {
			s.occupy(shadow)
		}
		if p.isFull() || p.waiters.Len() > 0 {
			p.of.tally.overlimit()
			s.wait(p)
			return false
		}
		p.admitted++
	}
	s.isOpen = true
	s.class.permits.countOpen(1)
	return true
}

// occupy acquires a permit in a shadow too, unless the session would have been refused there.
func (s *Permit) occupy(in shadow) {
	patient := s.class.conf.OverflowFor(s.owner.Protocol()) == policy.Wait
	if permit := in.occupy(patient); permit != nil {
		s.shadowPermits = append(s.shadowPermits, permit)
	}
}

// wait puts the session at the end of the queue of a class.
func (s *Permit) wait(in *permits) {
	s.waitsIn, s.place.Value = in, s
	in.waiters.Push(&s.place)
	in.of.Named().permits.queued++
}

// leaveQueue undoes wait.
func (s *Permit) leaveQueue() {
	s.waitsIn.waiters.Remove(&s.place)
	s.waitsIn.of.Named().permits.queued--
}

// release undoes climb, and returns the permits that other sessions get by that. The caller
// holds the lock of the tree, and calls notify without the lock.
func (s *Permit) release() (next []*Permit) {
	for _, permit := range s.shadowPermits {
		permit.Release()
	}
	s.shadowPermits = nil
	if s.isOpen {
		s.class.permits.count(-1)
	} else {
		s.leaveQueue()
		s.class.permits.countAdmitted(-1, s.waitsIn)
	}
	s.isOpen, s.waitsIn = false, nil
	return s.class.permits.admit()
}

// above returns the permits of the parent; nil for none.
func (p *permits) above() *permits {
	if parent := p.of.parent.Load(); parent != nil {
		return &parent.class.permits
	}
	return nil
}

// isFull reports whether the class admits no more sessions now.
func (p *permits) isFull() bool {
	return p.of.Named().permits.removed || p.most > 0 && p.admitted >= p.most
}

// count counts n more sessions with a permit in the class and those above it.
func (p *permits) count(n int) {
	p.countOpen(n)
	p.countAdmitted(n, nil)
}

// countOpen counts n more open sessions in the class and those above it.
func (p *permits) countOpen(n int) {
	for ; p != nil; p = p.above() {
		if p.open += n; p.of.side != nil {
			p.of.side.class.permits.open += n
		}
	}
}

// countAdmitted counts n more sessions as admitted by the class and by those above it, up
// to the class before to; nil: up to the root.
func (p *permits) countAdmitted(n int, to *permits) {
	for ; p != to; p = p.above() {
		p.admitted += n
	}
}

// admit lets the classes on the path to the root admit sessions that wait, in order, as far
// as there is room. It returns the permits that sessions have got by that. The caller calls
// notify without the lock of the tree.
func (p *permits) admit() (next []*Permit) {
	for ; p != nil; p = p.above() {
		for p.waiters.Len() > 0 && !p.isFull() {
			s := p.waiters.Front().Value
			s.leaveQueue()
			s.waitsIn = nil
			p.admitted++
			if s.climb(p.above()) {
				next = append(next, s)
			}
		}
	}
	return next
}

// withdraw prepares the class to leave its parent. Sessions of the class, and of those
// beneath it, that wait in a class above wait in this class again, before the sessions that
// wait here already.
func (p *permits) withdraw() {
	if p.admitted == p.open {
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
func (p *permits) withdrawFrom(from *permits) {
	if from == nil {
		return
	}
	p.withdrawFrom(from.above())
	for e := from.waiters.Front(); e != nil; {
		s := e.Value
		if e = e.Next(); s.class.isBeneath(&p.of.node) {
			s.leaveQueue()
			p.countAdmitted(-1, from)
			s.wait(p)
		}
	}
}

// Sessions returns how many sessions are open in the class and its children.
func (p *permits) Sessions() int {
	defer p.of.lock().mu.Unlock()
	return p.open
}

// notify tells the owners of permits that they have them. The caller holds no lock of a
// tree.
func notify(next []*Permit) {
	for _, s := range next {
		s.owner.Acquired()
	}
}
