package shaper

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"shaper/policy"
)

// treeFlows are flows that always have a message. They note what left when.
type treeFlows struct {
	mu      sync.Mutex
	left    map[string][]time.Time // by class
	flows   sync.WaitGroup
	stop    context.CancelFunc
	context context.Context
}

func newTreeFlows() *treeFlows {
	f := &treeFlows{left: map[string][]time.Time{}}
	f.context, f.stop = context.WithCancel(bg)
	return f
}

// start starts a flow that sends in the class that has this name now.
func (f *treeFlows) start(c *Class) {
	f.flows.Go(func() {
		flow := NewWaiter(c)
		for i := 0; flow.Wait(f.context, Cost{Bytes: 100, Messages: 1}, i > 0) == nil; i++ {
			f.mu.Lock()
			f.left[c.Name()] = append(f.left[c.Name()], time.Now())
			f.mu.Unlock()
		}
	})
}

// between returns how many messages left the classes in a span of time.
func (f *treeFlows) between(from, to time.Time, names ...string) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, name := range names {
		for _, at := range f.left[name] {
			if !at.Before(from) && at.Before(to) {
				n++
			}
		}
	}
	return n
}

// TestReloadOfATree reloads while three classes of a parent send. Shares follow at once,
// nothing is lost, and the parent never sends a message too soon.
func TestReloadOfATree(t *testing.T) {
	a, b, c := child("a", "10"), child("b", "5"), child("c", "0")
	synctest.Test(t, func(t *testing.T) {
		s := NewOnRuntimeTimer()
		defer s.Close()
		f := newTreeFlows()
		confs := []policy.Class{root30(), a, b, c}
		s.Apply(confs)
		for _, class := range s.Classes()[:3] {
			f.start(class)
			f.start(class)
		}
		wantShares := func(what string, wantA, wantB, wantC int) {
			t.Helper()
			from := time.Now()
			time.Sleep(10 * second)
			for name, want := range map[string]int{"a": wantA, "b": wantB, "c": wantC} {
				if got := f.between(from, time.Now(), name); got < want-2 || got > want+2 {
					t.Errorf("%s: %s sent %d messages in ten seconds, want %d", what, name, got, want)
				}
			}
		}
		wantShares("at first", 150, 100, 50)
		s.Apply([]policy.Class{root30(), a, b, withPriority(0, c)})
		wantShares("c first", 100, 50, 150)
		s.Apply([]policy.Class{root30(), withWeight(4, a), b, c})
		wantShares("a weighs four", 200, 75, 25)
		s.Class("a").Set(time.Now(), ceiling("12 messages/s", under("root", a)))
		wantShares("a has a ceil", 100, 125, 75) // its gap is three slots of the parent
		between := child("between", "15")
		s.Apply([]policy.Class{root30(), a, b, between, under("between", c)})
		wantShares("c under another", 100, 50, 150)
		s.Apply([]policy.Class{root30(), a, b, withPriority(0, between), under("between", ceiling("5 messages/s", c))})
		wantShares("and slower", 150, 100, 50)
		f.stop()
		f.flows.Wait()
		for _, class := range s.Classes() {
			wantBacklog(t, class, 0, 0)
			if class.waitingCost != (sum{}) {
				t.Errorf("a cost of %v waits beneath %s, but nobody waits", class.waitingCost, class.Name())
			}
		}
		wantGaps(t, f, second/30)
	})
}

// wantGaps fails if two departures are closer.
func wantGaps(t *testing.T, f *treeFlows, gap time.Duration) {
	t.Helper()
	var all []time.Time
	for _, times := range f.left {
		all = append(all, times...)
	}
	for i, x := range all {
		for _, y := range all[i+1:] {
			if d := y.Sub(x).Abs(); d < gap {
				t.Fatalf("two messages leave within %v", d)
			}
		}
	}
}

// TestReloadMovesTheTree moves a class with a child, and what waits in both, from one tree
// to another. Then it makes the class a tree of its own.
func TestReloadMovesTheTree(t *testing.T) {
	fast := func(name, parent string) policy.Class {
		return under(parent, named(name, leakyClass("1000 messages/s")))
	}
	confs := func(parent string) []policy.Class {
		return []policy.Class{named("p", leakyClass("1 messages/s")), named("q", leakyClass("10 messages/s")),
			fast("mid", parent), fast("leaf", "mid")}
	}
	inBubble(t, func(t *testing.T, s *Shaper) {
		leaf, left := s.Class("leaf"), make(chan time.Time, 1000)
		for range 200 {
			leaf.Enter(time.Now(), &Item{Cost: Cost{Messages: 1}, Owner: departed{leaf, left}})
		}
		for _, c := range []struct {
			parent string
			want   int // in ten seconds, with the one that an idle parent lets out at once
		}{{"p", 10}, {"q", 100}, {"p", 10}} {
			s.Apply(confs(c.parent))
			before := len(left)
			time.Sleep(10 * second)
			if got := len(left) - before; got < c.want-1 || got > c.want+1 {
				t.Errorf("under %s %d messages left in ten seconds, want %d", c.parent, got, c.want)
			}
		}
		s.Apply(confs(""))
		time.Sleep(second)
		if len(left) != 199 {
			t.Errorf("%d items left, want all but the first", len(left))
		}
		if p := s.Class("p"); p.feed != nil || p.waitingCost != (sum{}) {
			t.Error("p still has a feed")
		}
	}, confs("p")...)
}

// TestReloadTurnsATreeOver puts a parent under its child, and lets a class between two
// others count another unit.
func TestReloadTurnsATreeOver(t *testing.T) {
	inBubble(t, func(t *testing.T, s *Shaper) {
		a, b := s.Class("a"), s.Class("b")
		removed := s.Apply([]policy.Class{under("b", named("a", leakyClass("2 messages/s"))), named("b", leakyClass("1 messages/s")),
			under("a", named("c", leakyClass("2 messages/s")))})
		if len(removed) != 0 || a.root().class != b || s.Class("c").root().class != b {
			t.Errorf("the root of a is %s", a.root().class.Name())
		}
		f := NewWaiter(s.Class("c"))
		for range 3 {
			f.Wait(bg, Cost{Messages: 1, Packets: 1}, true)
		}
		wait := waitIn(bg, f, Cost{Messages: 1, Packets: 1})
		removed = s.Apply([]policy.Class{under("b", named("a", leakyClass("1 packets/min"))), named("b", leakyClass("1 messages/s")),
			under("a", named("c", leakyClass("2 messages/s")))})
		if len(removed) != 1 || removed[0] != a || a.root().class != b || s.Class("c").root().class != b || s.Class("a") == a {
			t.Errorf("Apply removed %v", removed)
		}
		wantWait(t, wait, nil, time.Minute) // the new a gives no burst
	}, named("a", leakyClass("2 messages/s")), under("a", named("b", leakyClass("1 messages/s"))))
}

// TestTreesUnderChange lets flows send while their classes change and move between trees,
// on the real clock. The race detector looks on, and nothing may remain.
func TestTreesUnderChange(t *testing.T) {
	s := New()
	defer s.Close()
	rate := leakyClass("5MB/s")
	variants := [][]policy.Class{
		{named("a", rate), named("b", rate), named("c", rate)},
		{named("a", rate), under("a", named("b", rate)), under("b", named("c", rate))},
		{under("c", named("a", rate)), under("c", named("b", rate)), named("c", rate)},
		{named("a", rate), under("a", named("b", tokenClass("5MB/s", 10_000))), under("a", named("c", rate))},
	}
	s.Apply(variants[0])
	var flows, others sync.WaitGroup
	stop := make(chan struct{})
	for i := range 6 {
		f := newMovable(s.Class(string("abc"[i%3])))
		flows.Go(func() { useFlow(t, f) })
	}
	others.Go(func() {
		for i := 0; !closed(stop); i++ {
			s.Apply(variants[i%4])
			time.Sleep(100 * time.Microsecond)
		}
	})
	flows.Wait()
	close(stop)
	others.Wait()
	for _, c := range s.Classes() {
		wantBacklog(t, c, 0, 0)
		if c.waitingCost != (sum{}) {
			t.Errorf("a cost of %v waits beneath %s, but nobody waits", c.waitingCost, c.Name())
		}
	}
}
