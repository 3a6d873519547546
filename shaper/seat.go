package shaper

import (
	"slices"
	"sync"
)

// A Seat is the place of a session among those that may be open at once in its
// class and in each one above it (max_connections). It may be used concurrently.
type Seat struct {
	mu    sync.Mutex // taken before the lock of a tree
	class *Class     // nil: the session has asked for none, or left
	owner Sitter

	// Both are under the lock of the tree, too.
	taken bool
	line  *Class // in whose line the session waits; nil: in none
}

// Sitter is told when a seat that it waits for is its own.
type Sitter interface {
	// Seated must not block, nor call a seat or a class.
	Seated()
}

// Take takes a seat, and reports whether there was one. Else the session waits in
// line, and owner is told when it has it.
func (s *Seat) Take(class *Class, owner Sitter) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.class, s.owner = class, owner
	defer class.lock().mu.Unlock()
	return s.sit(nil)
}

// Taken reports whether the session has its seat.
func (s *Seat) Taken() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.class == nil {
		return false
	}
	defer s.class.lock().mu.Unlock()
	return s.taken
}

// Leave gives up the seat, or the place in line.
func (s *Seat) Leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.class == nil {
		return
	}
	root := s.class.lock()
	next := s.stand()
	root.mu.Unlock()
	s.class = nil
	tell(next)
}

// Move takes the session to another class. One that has a seat has it there too,
// even if there is none to be had; one that waits goes to the end of the line, and
// is told at once if there is none.
func (s *Seat) Move(class *Class) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.class == nil || s.class == class {
		return
	}
	root := s.class.lock()
	had := s.taken
	next := s.stand()
	root.mu.Unlock()
	tell(next)

	s.class = class
	root = class.lock()
	if had {
		s.take()
	} else if s.sit(nil) {
		defer s.owner.Seated()
	}
	root.mu.Unlock()
}

// sit takes a seat if no class on the path is full, and nobody waits for one
// there; else it waits in line. The head of a line need not mind that one.
func (s *Seat) sit(headOf *Class) bool {
	for x := s.class; x != nil; x = x.parent.Load() {
		if x.full() || len(x.line) > 0 && x != headOf {
			s.line = x
			x.line = append(x.line, s)
			return false
		}
	}
	s.take()
	return true
}

func (s *Seat) take() {
	s.taken, s.line = true, nil
	s.class.seat(1)
}

// stand undoes sit, and returns those who have got a seat by it.
func (s *Seat) stand() (next []*Seat) {
	switch {
	case s.taken:
		s.taken = false
		s.class.seat(-1)
		return s.class.admit()
	case s.line != nil:
		i := slices.Index(s.line.line, s)
		s.line.line = slices.Delete(s.line.line, i, i+1)
		s.line = nil
	}
	return nil
}

// Sessions returns how many sessions are open in the class and its children.
func (c *Class) Sessions() int {
	defer c.lock().mu.Unlock()
	return c.seated
}

// full reports whether as many sessions are open as may be.
func (c *Class) full() bool {
	return c.conf.MaxConnections > 0 && c.seated >= c.conf.MaxConnections
}

// seat counts so many sessions more in the class and those above it.
func (c *Class) seat(n int) {
	for ; c != nil; c = c.parent.Load() {
		c.seated += n
	}
}

// admit seats those at the heads of the lines on the path for whom there is room,
// and returns them. One whom another class holds up goes to the line of that.
func (c *Class) admit() (next []*Seat) {
	for ; c != nil; c = c.parent.Load() {
		for len(c.line) > 0 && !c.full() {
			s := c.line[0]
			c.line, s.line = c.line[1:], nil
			if s.sit(c) {
				next = append(next, s)
			}
		}
	}
	return next
}

// requeue has those in line wait where they have to by now, as after a reload,
// and returns those who need not any more.
func (c *Class) requeue() (next []*Seat) {
	defer c.lock().mu.Unlock()
	line := c.line
	c.line = nil
	for _, s := range line {
		if s.line = nil; s.sit(nil) {
			next = append(next, s)
		}
	}
	return next
}

// tell tells those who have got a seat. No lock is held.
func tell(next []*Seat) {
	for _, s := range next {
		s.owner.Seated()
	}
}
