package shaper

import (
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"shaper/policy"
)

// waiter counts how often it is told that it has its permit.
type waiter struct {
	Permit
	told int
}

func (s *waiter) Acquired()                 { s.told++ }
func (s *waiter) Protocol() policy.Protocol { return policy.TCP }

func withPermits(conf policy.Class, n int) policy.Class {
	conf.MaxConnections = n
	return conf
}

// permits returns a tree of two children with 2 and 3 permits, under a parent with 4.
func threePermits() (parent, a, b *Class) {
	all := NewTree(start, []policy.Class{
		named("parent", withPermits(leakyClass("1MB/s"), 4)),
		named("a", withPermits(under("parent", leakyClass("100KB/s")), 2)),
		named("b", withPermits(under("parent", leakyClass("100KB/s")), 3)),
	})
	return all[0], all[1], all[2]
}

// take asks for permits. It fails unless exactly so many of the first get theirs at once.
func take(t *testing.T, class *Class, n, had int) (all []*waiter) {
	t.Helper()
	for i := range n {
		s := new(waiter)
		if got := s.Acquire(class, s); got != (i < had) {
			t.Errorf("Acquire of permit %d of %s returns %v", i, class.Name(), got)
		}
		all = append(all, s)
	}
	return all
}

func wantOpen(t *testing.T, all []*waiter, open ...bool) {
	t.Helper()
	for i, s := range all {
		if s.IsOpen() != open[i] {
			t.Errorf("IsOpen of permit %d is %v", i, s.IsOpen())
		}
	}
}

// A class in which sessions wait for permits waits, though no item does. The classes above do not.
func TestWaitsForAPermit(t *testing.T) {
	parent, a, _ := threePermits()
	take(t, a, 2, 2)
	holds(t, a.Status().Waits(start), "", "", 0)
	last := take(t, a, 1, 0)
	holds(t, a.Status().Waits(start), "a", HoldPermits, -1)
	holds(t, parent.Status().Waits(start), "", "", 0)
	last[0].Release()
	holds(t, a.Status().Waits(start), "", "", 0)
}

// Sessions that wait in a bucket wait in its class.
func TestWaitsForAPermitOfABucket(t *testing.T) {
	c := NewClass(start, perSource(9, withPermits(leakyClass("1 messages/s"), 2)))
	busy, other := c.Join(start, client(1)), c.Join(start, client(2))
	open := take(t, busy, 2, 2)
	take(t, other, 1, 1)
	holds(t, c.Status().Waits(start), "", "", 0)
	first, second := take(t, busy, 1, 0)[0], take(t, busy, 1, 0)[0]
	holds(t, c.Status().Waits(start), "test", HoldPermits, -1)
	want := []Hold{{"test", ByPermits, time.Time{}, "max_connections allows 2 for each bucket, and all of some are taken; sessions that wait for one to end: 2"}}
	if w := c.Status().Why(start); w.Sessions != 2 || !slices.Equal(w.Path, want) {
		t.Errorf("two wait: %+v", w)
	}
	open[0].Release() // the first gets a permit
	second.Move(other)
	wantOpen(t, []*waiter{first, second}, true, true)
	holds(t, c.Status().Waits(start), "", "", 0)
	if w := c.Status().Why(start); w.Sessions != 0 || len(w.Path) != 0 {
		t.Errorf("nobody waits: %+v", w)
	}
}

func TestPermitsOfAClass(t *testing.T) {
	_, a, _ := threePermits()
	all := take(t, a, 4, 2)
	all[0].Release()
	wantOpen(t, all, false, true, true, false)
	if all[2].told != 1 || all[3].told != 0 {
		t.Errorf("two owners are told %d and %d times", all[2].told, all[3].told)
	}
	all[3].Release() // stops waiting
	all[1].Release()
	all[0].Release() // does nothing the second time
	wantOpen(t, all, false, false, true, false)
	take(t, a, 2, 1)
}

// A full parent holds up its children's sessions. They get permits in the order in which
// they came.
func TestPermitsOfAParent(t *testing.T) {
	parent, a, b := threePermits()
	inA := take(t, a, 3, 2)
	inB := take(t, b, 3, 2)
	last := take(t, parent, 1, 0)
	inA[0].Release() // now the third of a too waits only for the parent
	wantOpen(t, inA, false, true, false)
	wantOpen(t, inB, true, true, true)
	inB[0].Release()
	wantOpen(t, last, true)
	wantOpen(t, inA, false, true, false)
	inA[1].Release()
	wantOpen(t, inA, false, false, true)
}

// More permits, or no bound, take effect at once. Fewer permits throw nobody out.
func TestPermitsAreSet(t *testing.T) {
	_, a, _ := threePermits()
	all := take(t, a, 6, 2)
	a.Set(start, withPermits(a.Policy(), 3))
	wantOpen(t, all, true, true, true, false, false, false)
	a.Set(start, withPermits(a.Policy(), 1))
	all[0].Release()
	all[1].Release()
	wantOpen(t, all, false, false, true, false, false, false)
	a.Set(start, withPermits(a.Policy(), 0))
	wantOpen(t, all, false, false, true, true, true, true) // as many as the parent has permits
}

func TestPermitMoves(t *testing.T) {
	_, a, b := threePermits()
	all := take(t, a, 3, 2)
	full := take(t, b, 2, 2) // the parent is full too
	all[0].Move(b)           // gets a permit there although none is free; its permit in a is free, but none of the parent
	wantOpen(t, all, true, true, false)
	full[0].Release()
	wantOpen(t, all, true, true, true)
	elsewhere := NewClass(start, withPermits(leakyClass("1MB/s"), 1))
	for _, s := range all {
		s.Move(elsewhere)
	}
	wantOpen(t, all, true, true, true)
	take(t, elsewhere, 1, 0)
	take(t, a, 2, 2)
}

// A reload that moves classes moves the sessions too: those that are open and those that
// wait.
func TestPermitsOnReload(t *testing.T) {
	confs := func(parentOfA string) []policy.Class {
		return []policy.Class{
			named("one", withPermits(leakyClass("1MB/s"), 1)), named("two", withPermits(leakyClass("1MB/s"), 3)),
			named("a", under(parentOfA, leakyClass("100KB/s"))), named("b", under("one", leakyClass("100KB/s"))),
		}
	}
	s := New()
	defer s.Close()
	s.Apply(confs("one"))
	all := take(t, s.Class("a"), 2, 1)
	other := take(t, s.Class("b"), 1, 0)
	s.Apply(confs("two"))
	wantOpen(t, all, true, true)
	wantOpen(t, other, true)
	take(t, s.Class("a"), 2, 1)
}

// TestPermitsUnderAnyUse holds three rules. No class is above its bound unless the bound was
// lowered or sessions were moved there. No session waits that need not. No session is
// overtaken by one that came to its class later.
func TestPermitsUnderAnyUse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		parent, a, b := threePermits()
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
				c.Set(start, withPermits(c.Policy(), c.Policy().MaxConnections+rapid.IntRange(0, 2).Draw(t, "more")))
			},
			"": func(t *rapid.T) {
				holdPermits(t, all, classes)
				for _, c := range classes {
					if c.admitted > c.conf.MaxConnections {
						t.Fatalf("in %s %d are admitted, and %d is the most", c.Name(), c.admitted, c.conf.MaxConnections)
					}
				}
			},
		})
	})
}

// holdPermits fails unless the classes count correctly which classes have admitted which sessions, no
// session waits that need not, and all are in the order in which they came.
func holdPermits(t *rapid.T, all []*waiter, classes []*Class) {
	open, admitted := map[*Class]int{}, map[*Class]int{}
	waits, queued := map[*Class]bool{}, map[*Class]int{}
	for _, s := range all {
		if !s.IsOpen() {
			queued[s.waitsIn.of]++
		}
		switch {
		case s.IsOpen() && waits[s.class]:
			t.Fatalf("a session has overtaken another one in %s", s.class.Name())
		case s.IsOpen():
		case !s.waitsIn.isFull():
			t.Fatalf("a session waits for %s, which has room", s.waitsIn.of.Name())
		default:
			waits[s.class] = true
		}
		for c := s.class; c != nil && &c.permits != s.waitsIn; c = c.Parent() {
			if admitted[c]++; s.IsOpen() {
				open[c]++
			}
		}
	}
	for _, c := range classes {
		if open[c] != c.open || admitted[c] != c.admitted {
			t.Fatalf("%s counts %d open sessions and %d admitted ones, want %d and %d", c.Name(), c.open, c.admitted, open[c], admitted[c])
		}
		if queued[c] != c.queued {
			t.Fatalf("%s counts %d sessions that wait there, want %d", c.Name(), c.queued, queued[c])
		}
	}
}

// TestPermitsUnderAnyReload moves three classes under each other and elsewhere, with other
// bounds, while some sessions wait.
func TestPermitsUnderAnyReload(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := NewOnRuntimeTimer()
		defer s.Close()
		draw := func(what string, n int) int { return rapid.IntRange(0, n).Draw(t, what) }
		apply := func() (removed []*Class) {
			parents := [][]string{{"", "root"}, {"", "root", "a"}, {"", "root", "a", "b"}}
			confs := []policy.Class{named("root", withPermits(leakyClass("1MB/s"), draw("bound", 5)))}
			for i, names := range parents {
				conf := withPermits(leakyClass("100KB/s"), draw("bound", 3))
				conf.Parent = names[draw("parent", len(names)-1)]
				confs = append(confs, named("abc"[i:i+1], conf))
			}
			return s.Apply(confs)
		}
		apply()
		var all []*waiter
		t.Repeat(map[string]func(*rapid.T){
			"take": func(*rapid.T) {
				one := new(waiter)
				one.Acquire(s.Class([]string{"root", "a", "b", "c"}[draw("class", 3)]), one)
				all = append(all, one)
			},
			"leave": func(*rapid.T) {
				if len(all) > 0 {
					i := draw("who", len(all)-1)
					all[i].Release()
					all = slices.Delete(all, i, i+1)
				}
			},
			"reload": func(*rapid.T) { apply() },
			"":       func(t *rapid.T) { holdPermits(t, all, s.Classes()) },
		})
	})
}

// A session that its class admits first is the next one that the class above admits, even if
// others have come to the class since.
func TestPermitsInOrder(t *testing.T) {
	parent, _, b := threePermits()
	above := take(t, parent, 2, 2)
	inB := take(t, b, 4, 2) // the parent is full
	above[0].Release()      // the third of b gets its permit
	inB = append(inB, take(t, b, 1, 0)...)
	above[1].Release() // nobody gets its permit: b is full
	wantOpen(t, inB, true, true, true, false, false)
	inB[0].Release()
	wantOpen(t, inB, false, true, true, true, false)
}

// A removed class gives no permits while sessions are moved out of it. Then those that stay
// get the free permits.
func TestPermitsOfARemovedClass(t *testing.T) {
	s := New()
	defer s.Close()
	one, other := named("one", withPermits(leakyClass("1MB/s"), 2)), named("other", withPermits(leakyClass("1MB/s"), 2))
	child := named("a", under("one", leakyClass("100KB/s")))
	s.Apply([]policy.Class{one, other, child})
	all := take(t, s.Class("one"), 1, 1)
	take(t, s.Class("a"), 1, 1)
	all = append(all, take(t, s.Class("one"), 3, 0)...)
	child.Parent = ""
	removed := s.Apply([]policy.Class{other, child})
	wantOpen(t, all, true, false, false, false)
	for _, one := range all[:3] {
		one.Move(s.Class("other"))
	}
	wantOpen(t, all, true, true, false, false)
	removed[0].LetIn()
	wantOpen(t, all, true, true, false, true)
}

// A session that moves from one child to another frees nothing in their parent for others.
func TestPermitMovesBeneathAParent(t *testing.T) {
	parent, a, b := threePermits()
	all := append(take(t, a, 2, 2), take(t, b, 2, 2)...)
	waits := take(t, parent, 1, 0)
	all[0].Move(b)
	wantOpen(t, waits, false)
	all[1].Release()
	wantOpen(t, waits, true)
}

// TestPermitsConcurrently takes, moves and releases permits in many goroutines while bounds
// change. In the end all are free.
func TestPermitsConcurrently(t *testing.T) {
	s := New()
	defer s.Close()
	confs := []policy.Class{
		named("parent", withPermits(leakyClass("1MB/s"), 4)),
		named("a", withPermits(under("parent", leakyClass("100KB/s")), 2)), named("b", under("parent", leakyClass("100KB/s"))),
	}
	s.Apply(confs)
	var users, changes sync.WaitGroup
	stop := make(chan struct{})
	changes.Go(func() {
		for i := 0; !closed(stop); i++ {
			a := s.Class("a")
			a.Set(time.Now(), withPermits(a.Policy(), 1+i%3))
		}
	})
	for range 8 {
		users.Go(func() {
			for i := range 500 {
				permit := new(told)
				permit.Acquire(s.Class("ab"[i%2:i%2+1]), permit)
				permit.Move(s.Class("ba"[i%2 : i%2+1]))
				permit.Release()
			}
		})
	}
	users.Wait()
	close(stop)
	changes.Wait()
	for _, c := range s.Classes() {
		if c.open != 0 || c.admitted != 0 || c.waiters.Len() != 0 {
			t.Errorf("%s: %d sessions are open, %d wait", c.Name(), c.open, c.waiters.Len())
		}
	}
}

// told is the owner of a permit, and ignores what it is told.
type told struct{ Permit }

func (*told) Acquired()                 {}
func (*told) Protocol() policy.Protocol { return policy.TCP }

// BenchmarkPermitsLeave lets very many sessions wait, and leave in any order.
func BenchmarkPermitsLeave(b *testing.B) {
	const n = 1 << 16
	all := make([]told, n)
	for b.Loop() {
		_, class, _ := threePermits()
		for i := range all {
			all[i].Acquire(class, &all[i])
		}
		for _, i := range rand.Perm(n) {
			all[i].Release()
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/permit")
}

// BenchmarkPermitsTaken lets as many sessions wait for a class as for its parent, in turns.
func BenchmarkPermitsTaken(b *testing.B) {
	const n = 1 << 16
	parent, class, other := threePermits()
	parent.Set(start, withPermits(parent.Policy(), 3))
	held, waiting := make([]told, 3), make([]told, 2*n)
	for i := range held {
		held[i].Acquire([]*Class{class, other}[i%2], &held[i])
	}
	for i := range waiting {
		waiting[i].Acquire([]*Class{class, other}[i%2], &waiting[i])
	}
	i := 0
	for b.Loop() {
		s := &waiting[(2*i+i/n)%len(waiting)]
		class := s.class
		s.Release()
		s.Acquire(class, s)
		h := &held[i%len(held)]
		class = h.class
		h.Release()
		h.Acquire(class, h)
		i++
	}
}
