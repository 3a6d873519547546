package shaper

import (
	"slices"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"shaper/policy"
)

// sitter counts how often it is told that it has a seat.
type sitter struct {
	Seat
	told int
}

func (s *sitter) Seated() { s.told++ }

func withSeats(conf policy.Class, n int) policy.Class {
	conf.MaxConnections = n
	return conf
}

// seats returns a tree of two children, of 2 and 3 seats, under one of 4.
func seats() (parent, a, b *Class) {
	all := NewTree(start, []policy.Class{
		named("parent", withSeats(leakyClass("1MB/s"), 4)),
		named("a", withSeats(under("parent", leakyClass("100KB/s")), 2)),
		named("b", withSeats(under("parent", leakyClass("100KB/s")), 3)),
	})
	return all[0], all[1], all[2]
}

// take asks for seats, and fails unless as many of the first are had at once.
func take(t *testing.T, class *Class, n, had int) (all []*sitter) {
	t.Helper()
	for i := range n {
		s := new(sitter)
		if got := s.Take(class, s); got != (i < had) {
			t.Errorf("seat %d of %s is had: %v", i, class.Name(), got)
		}
		all = append(all, s)
	}
	return all
}

func wantSeated(t *testing.T, all []*sitter, seated ...bool) {
	t.Helper()
	for i, s := range all {
		if s.Taken() != seated[i] {
			t.Errorf("seat %d is taken: %v", i, s.Taken())
		}
	}
}

func TestSeatsOfAClass(t *testing.T) {
	_, a, _ := seats()
	all := take(t, a, 4, 2)
	all[0].Leave()
	wantSeated(t, all, false, true, true, false)
	if all[2].told != 1 || all[3].told != 0 {
		t.Errorf("they are told %d and %d times", all[2].told, all[3].told)
	}
	all[3].Leave() // gives up its place in line
	all[1].Leave()
	all[0].Leave() // again
	wantSeated(t, all, false, false, true, false)
	take(t, a, 2, 1)
}

// A parent that is full holds up its children, in the order in which they came.
func TestSeatsOfAParent(t *testing.T) {
	parent, a, b := seats()
	inA := take(t, a, 3, 2)
	inB := take(t, b, 3, 2)
	last := take(t, parent, 1, 0)
	inA[0].Leave() // now the third of a, too, has only the parent to wait for
	wantSeated(t, inA, false, true, false)
	wantSeated(t, inB, true, true, true)
	inB[0].Leave()
	wantSeated(t, last, true)
	wantSeated(t, inA, false, true, false)
	inA[1].Leave()
	wantSeated(t, inA, false, false, true)
}

// More seats, or no bound, are there at once; fewer throw nobody out.
func TestSeatsAreSet(t *testing.T) {
	_, a, _ := seats()
	all := take(t, a, 6, 2)
	a.Set(start, withSeats(a.Policy(), 3))
	wantSeated(t, all, true, true, true, false, false, false)
	a.Set(start, withSeats(a.Policy(), 1))
	all[0].Leave()
	all[1].Leave()
	wantSeated(t, all, false, false, true, false, false, false)
	a.Set(start, withSeats(a.Policy(), 0))
	wantSeated(t, all, false, false, true, true, true, true) // as many as the parent has
}

func TestSeatMoves(t *testing.T) {
	_, a, b := seats()
	all := take(t, a, 3, 2)
	full := take(t, b, 2, 2) // and with them the parent
	all[0].Move(b)           // has a seat there although there is none, and leaves its own
	wantSeated(t, all, true, true, true)
	full[0].Leave()
	elsewhere := NewClass(start, withSeats(leakyClass("1MB/s"), 1))
	for _, s := range all {
		s.Move(elsewhere)
	}
	wantSeated(t, all, true, true, true)
	take(t, elsewhere, 1, 0)
	take(t, a, 2, 2)
}

// A reload that puts classes elsewhere takes those who sit and wait along.
func TestSeatsOnReload(t *testing.T) {
	confs := func(parentOfA string) []policy.Class {
		return []policy.Class{
			named("one", withSeats(leakyClass("1MB/s"), 1)), named("two", withSeats(leakyClass("1MB/s"), 3)),
			named("a", under(parentOfA, leakyClass("100KB/s"))), named("b", under("one", leakyClass("100KB/s"))),
		}
	}
	s := New()
	defer s.Close()
	s.Apply(confs("one"))
	all := take(t, s.Class("a"), 2, 1)
	other := take(t, s.Class("b"), 1, 0)
	s.Apply(confs("two"))
	wantSeated(t, all, true, true)
	wantSeated(t, other, true)
	take(t, s.Class("a"), 2, 1)
}

// TestSeatsUnderAnyUse: nobody is above a bound unless it was lowered or he was moved,
// and nobody waits who need not.
func TestSeatsUnderAnyUse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		parent, a, b := seats()
		classes := []*Class{parent, a, b}
		var all []*sitter
		pick := func(t *rapid.T) *Class { return classes[rapid.IntRange(0, 2).Draw(t, "class")] }
		t.Repeat(map[string]func(*rapid.T){
			"take": func(t *rapid.T) {
				s := new(sitter)
				s.Take(pick(t), s)
				all = append(all, s)
			},
			"leave": func(t *rapid.T) {
				if len(all) > 0 {
					i := rapid.IntRange(0, len(all)-1).Draw(t, "who")
					all[i].Leave()
					all = slices.Delete(all, i, i+1)
				}
			},
			"raise": func(t *rapid.T) {
				c := pick(t)
				c.Set(start, withSeats(c.Policy(), c.Policy().MaxConnections+rapid.IntRange(0, 2).Draw(t, "more")))
			},
			"": func(t *rapid.T) {
				open := map[*Class]int{}
				for _, s := range all {
					if s.Taken() {
						for c := s.class; c != nil; c = c.Parent() {
							open[c]++
						}
					}
				}
				for _, c := range classes {
					if n := open[c]; n != c.seated || n > c.conf.MaxConnections {
						t.Fatalf("%s has %d seats taken, counts %d, may have %d", c.Name(), n, c.seated, c.conf.MaxConnections)
					}
				}
				for _, s := range all {
					if s.Taken() {
						continue
					}
					if !s.line.full() {
						t.Fatalf("somebody waits for %s, which has room", s.line.Name())
					}
				}
			},
		})
	})
}

// TestSeatsConcurrently takes, moves and leaves seats from many goroutines, while
// bounds change; in the end all are free.
func TestSeatsConcurrently(t *testing.T) {
	s := New()
	defer s.Close()
	confs := []policy.Class{
		named("parent", withSeats(leakyClass("1MB/s"), 4)),
		named("a", withSeats(under("parent", leakyClass("100KB/s")), 2)), named("b", under("parent", leakyClass("100KB/s"))),
	}
	s.Apply(confs)
	var users, changes sync.WaitGroup
	stop := make(chan struct{})
	changes.Go(func() {
		for i := 0; !closed(stop); i++ {
			a := s.Class("a")
			a.Set(time.Now(), withSeats(a.Policy(), 1+i%3))
		}
	})
	for range 8 {
		users.Go(func() {
			for i := range 500 {
				seat := new(told)
				seat.Take(s.Class("ab"[i%2:i%2+1]), seat)
				seat.Move(s.Class("ba"[i%2 : i%2+1]))
				seat.Leave()
			}
		})
	}
	users.Wait()
	close(stop)
	changes.Wait()
	for _, c := range s.Classes() {
		if c.seated != 0 || len(c.line) != 0 {
			t.Errorf("%s: %d sit, %d wait", c.Name(), c.seated, len(c.line))
		}
	}
}

// told is a seat whose owner does not care.
type told struct{ Seat }

func (*told) Seated() {}
