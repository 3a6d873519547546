package shaper

import (
	"slices"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"shaper/policy"
)

// waiter counts how often it is told that it has a slot.
type waiter struct {
	Slot
	told int
}

func (s *waiter) Acquired() { s.told++ }

func withSlots(conf policy.Class, n int) policy.Class {
	conf.MaxConnections = n
	return conf
}

// slots returns a tree of two children, of 2 and 3 slots, under one of 4.
func slots() (parent, a, b *Class) {
	all := NewTree(start, []policy.Class{
		named("parent", withSlots(leakyClass("1MB/s"), 4)),
		named("a", withSlots(under("parent", leakyClass("100KB/s")), 2)),
		named("b", withSlots(under("parent", leakyClass("100KB/s")), 3)),
	})
	return all[0], all[1], all[2]
}

// take asks for slots, and fails unless as many of the first are had at once.
func take(t *testing.T, class *Class, n, had int) (all []*waiter) {
	t.Helper()
	for i := range n {
		s := new(waiter)
		if got := s.Acquire(class, s); got != (i < had) {
			t.Errorf("slot %d of %s is had: %v", i, class.Name(), got)
		}
		all = append(all, s)
	}
	return all
}

func wantHeld(t *testing.T, all []*waiter, held ...bool) {
	t.Helper()
	for i, s := range all {
		if s.Held() != held[i] {
			t.Errorf("slot %d is taken: %v", i, s.Held())
		}
	}
}

func TestSlotsOfAClass(t *testing.T) {
	_, a, _ := slots()
	all := take(t, a, 4, 2)
	all[0].Release()
	wantHeld(t, all, false, true, true, false)
	if all[2].told != 1 || all[3].told != 0 {
		t.Errorf("they are told %d and %d times", all[2].told, all[3].told)
	}
	all[3].Release() // gives up its place in line
	all[1].Release()
	all[0].Release() // again
	wantHeld(t, all, false, false, true, false)
	take(t, a, 2, 1)
}

// A parent that is full holds up its children, in the order in which they came.
func TestSlotsOfAParent(t *testing.T) {
	parent, a, b := slots()
	inA := take(t, a, 3, 2)
	inB := take(t, b, 3, 2)
	last := take(t, parent, 1, 0)
	inA[0].Release() // now the third of a, too, has only the parent to wait for
	wantHeld(t, inA, false, true, false)
	wantHeld(t, inB, true, true, true)
	inB[0].Release()
	wantHeld(t, last, true)
	wantHeld(t, inA, false, true, false)
	inA[1].Release()
	wantHeld(t, inA, false, false, true)
}

// More slots, or no bound, are there at once; fewer throw nobody out.
func TestSlotsAreSet(t *testing.T) {
	_, a, _ := slots()
	all := take(t, a, 6, 2)
	a.Set(start, withSlots(a.Policy(), 3))
	wantHeld(t, all, true, true, true, false, false, false)
	a.Set(start, withSlots(a.Policy(), 1))
	all[0].Release()
	all[1].Release()
	wantHeld(t, all, false, false, true, false, false, false)
	a.Set(start, withSlots(a.Policy(), 0))
	wantHeld(t, all, false, false, true, true, true, true) // as many as the parent has
}

func TestSlotMoves(t *testing.T) {
	_, a, b := slots()
	all := take(t, a, 3, 2)
	full := take(t, b, 2, 2) // and with them the parent
	all[0].Move(b)           // has a slot there although there is none, and leaves its own
	wantHeld(t, all, true, true, true)
	full[0].Release()
	elsewhere := NewClass(start, withSlots(leakyClass("1MB/s"), 1))
	for _, s := range all {
		s.Move(elsewhere)
	}
	wantHeld(t, all, true, true, true)
	take(t, elsewhere, 1, 0)
	take(t, a, 2, 2)
}

// A reload that puts classes elsewhere takes those who sit and wait along.
func TestSlotsOnReload(t *testing.T) {
	confs := func(parentOfA string) []policy.Class {
		return []policy.Class{
			named("one", withSlots(leakyClass("1MB/s"), 1)), named("two", withSlots(leakyClass("1MB/s"), 3)),
			named("a", under(parentOfA, leakyClass("100KB/s"))), named("b", under("one", leakyClass("100KB/s"))),
		}
	}
	s := New()
	defer s.Close()
	s.Apply(confs("one"))
	all := take(t, s.Class("a"), 2, 1)
	other := take(t, s.Class("b"), 1, 0)
	s.Apply(confs("two"))
	wantHeld(t, all, true, true)
	wantHeld(t, other, true)
	take(t, s.Class("a"), 2, 1)
}

// TestSlotsUnderAnyUse: nobody is above a bound unless it was lowered or he was moved,
// and nobody waits who need not.
func TestSlotsUnderAnyUse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		parent, a, b := slots()
		classes := []*Class{parent, a, b}
		var all []*waiter
		pick := func(t *rapid.T) *Class { return classes[rapid.IntRange(0, 2).Draw(t, "class")] }
		t.Repeat(map[string]func(*rapid.T){
			"take": func(t *rapid.T) {
				s := new(waiter)
				s.Acquire(pick(t), s)
				all = append(all, s)
			},
			"leave": func(t *rapid.T) {
				if len(all) > 0 {
					i := rapid.IntRange(0, len(all)-1).Draw(t, "who")
					all[i].Release()
					all = slices.Delete(all, i, i+1)
				}
			},
			"raise": func(t *rapid.T) {
				c := pick(t)
				c.Set(start, withSlots(c.Policy(), c.Policy().MaxConnections+rapid.IntRange(0, 2).Draw(t, "more")))
			},
			"": func(t *rapid.T) {
				open := map[*Class]int{}
				for _, s := range all {
					if s.Held() {
						for c := s.class; c != nil; c = c.Parent() {
							open[c]++
						}
					}
				}
				for _, c := range classes {
					if n := open[c]; n != c.open || n > c.conf.MaxConnections {
						t.Fatalf("%s has %d slots taken, counts %d, may have %d", c.Name(), n, c.open, c.conf.MaxConnections)
					}
				}
				for _, s := range all {
					if s.Held() {
						continue
					}
					if !s.queue.full() {
						t.Fatalf("somebody waits for %s, which has room", s.queue.Name())
					}
				}
			},
		})
	})
}

// TestSlotsConcurrently takes, moves and leaves slots from many goroutines, while
// bounds change; in the end all are free.
func TestSlotsConcurrently(t *testing.T) {
	s := New()
	defer s.Close()
	confs := []policy.Class{
		named("parent", withSlots(leakyClass("1MB/s"), 4)),
		named("a", withSlots(under("parent", leakyClass("100KB/s")), 2)), named("b", under("parent", leakyClass("100KB/s"))),
	}
	s.Apply(confs)
	var users, changes sync.WaitGroup
	stop := make(chan struct{})
	changes.Go(func() {
		for i := 0; !closed(stop); i++ {
			a := s.Class("a")
			a.Set(time.Now(), withSlots(a.Policy(), 1+i%3))
		}
	})
	for range 8 {
		users.Go(func() {
			for i := range 500 {
				slot := new(told)
				slot.Acquire(s.Class("ab"[i%2:i%2+1]), slot)
				slot.Move(s.Class("ba"[i%2 : i%2+1]))
				slot.Release()
			}
		})
	}
	users.Wait()
	close(stop)
	changes.Wait()
	for _, c := range s.Classes() {
		if c.open != 0 || len(c.waiters) != 0 {
			t.Errorf("%s: %d are open, %d wait", c.Name(), c.open, len(c.waiters))
		}
	}
}

// told is a slot whose owner does not care.
type told struct{ Slot }

func (*told) Acquired() {}
