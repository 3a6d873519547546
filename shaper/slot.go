package shaper

import (
	"slices"
	"sync"

	"shaper/policy"
	"shaper/stats"
)

// A Slot is the place of a session among those that may be open at once in its
// class and in each one above it (max_connections): a semaphore's, of all of them
// together. It may be used concurrently.
type Slot struct {
	mu    sync.Mutex // taken before the lock of a tree
	class *Class     // nil: nothing was acquired, or it has been released
	owner SlotOwner

	// Both are under the lock of the tree, too.
	held  bool
	queue *Class // whose waiters it is among; nil: it does not wait
}

// SlotOwner is told when a slot that it waits for is its own.
type SlotOwner interface {
	// Acquired must not block, nor call a slot or a class.
	Acquired()
}

// Acquire acquires the slot, and reports whether there was one. Else the session
// waits, and owner is told when it has it.
func (s *Slot) Acquire(class *Class, owner SlotOwner) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.class, s.owner = class, owner
	defer class.lock().mu.Unlock()
	return s.acquire(nil)
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
	had := s.held
	next := s.release()
	root.mu.Unlock()
	notify(next)

	s.class = class
	root = class.lock()
	if had {
		s.hold()
	} else if s.acquire(nil) {
		defer s.owner.Acquired()
	}
	root.mu.Unlock()
}

// acquire acquires the slot if no class on the path is full, and nobody waits for
// one there; else it waits. The first of a queue need not mind that one.
func (s *Slot) acquire(firstOf *Class) bool {
	for x := s.class; x != nil; x = x.parent.Load() {
		x.wouldBeFull()
		if x.full() || len(x.waiters) > 0 && x != firstOf {
			s.queue = x
			x.waiters = append(x.waiters, s)
			return false
		}
	}
	s.hold()
	return true
}

func (s *Slot) hold() {
	s.held, s.queue = true, nil
	s.class.countOpen(1)
}

// release undoes acquire, and returns those who have got a slot by it.
func (s *Slot) release() (next []*Slot) {
	switch {
	case s.held:
		s.held = false
		s.class.countOpen(-1)
		return s.class.admit()
	case s.queue != nil:
		i := slices.Index(s.queue.waiters, s)
		s.queue.waiters = slices.Delete(s.queue.waiters, i, i+1)
		s.queue = nil
	}
	return nil
}

// Sessions returns how many sessions are open in the class and its children.
func (c *Class) Sessions() int {
	defer c.lock().mu.Unlock()
	return c.open
}

// full reports whether as many sessions are open as may be.
func (c *Class) full() bool { return c.limits() && c.exceeds() }

func (c *Class) exceeds() bool {
	return c.conf.MaxConnections > 0 && c.open >= c.conf.MaxConnections
}

// wouldBeFull counts a session that has its slot only since the class does nothing.
func (c *Class) wouldBeFull() {
	switch {
	case c.shadow == nil || c.keys != nil || !c.exceeds():
	case c.conf.OverflowFor(policy.TCP) == policy.Wait:
		c.shadow.Stats.Overlimits.Add(1)
	default:
		c.shadow.Stats.Dropped[stats.QueueFull].Add(0)
	}
}

// countOpen counts so many sessions more in the class and those above it.
func (c *Class) countOpen(n int) {
	for ; c != nil; c = c.parent.Load() {
		c.open += n
	}
}

// admit gives slots to the first of the queues on the path for whom there is room,
// and returns them. One whom another class holds up goes to the queue of that.
func (c *Class) admit() (next []*Slot) {
	for ; c != nil; c = c.parent.Load() {
		for len(c.waiters) > 0 && !c.full() {
			s := c.waiters[0]
			c.waiters, s.queue = c.waiters[1:], nil
			if s.acquire(c) {
				next = append(next, s)
			}
		}
	}
	return next
}

// requeue has those who wait do so where they have to by now, as after a reload,
// and returns those who need not any more.
func (c *Class) requeue() (next []*Slot) {
	defer c.lock().mu.Unlock()
	c.each(func(c *Class) {
		waiters := c.waiters
		c.waiters = nil
		for _, s := range waiters {
			if s.queue = nil; s.acquire(nil) {
				next = append(next, s)
			}
		}
	})
	return next
}

// notify tells those who have got a slot. No lock of a tree is held.
func notify(next []*Slot) {
	for _, s := range next {
		s.owner.Acquired()
	}
}
