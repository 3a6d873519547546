package shaper

import (
	"testing"
	"time"

	"shaper/policy"
)

func TestApply(t *testing.T) {
	inBubble(t, func(t *testing.T, s *Shaper) {
		a, b := s.Class("a"), s.Class("b")
		for _, f := range []*Waiter{NewWaiter(a), NewWaiter(b)} {
			f.Wait(bg, Cost{Packets: 1}, false)
		}
		kept := waitIn(bg, NewWaiter(a), Cost{Packets: 1})
		dropped := waitIn(bg, NewWaiter(b), Cost{Packets: 1})
		a.Stats.Overlimits.Add(41)

		removed := s.Apply([]policy.Class{named("a", leakyClass("2 packets/s")), named("d", leakyClass("1 packets/s"))})
		if len(removed) != 1 || removed[0] != b || s.Class("b") != nil {
			t.Errorf("Apply removed %v, want class b", removed)
		}
		if s.Class("a") != a || a.Rate() != rateOf("2 packets/s") || a.Stats.Overlimits.Load() != 42 {
			t.Error("class a is another class, or has not got its new rate")
		}
		if all := s.Classes(); len(all) != 2 || all[0] != a || all[1] != s.Class("d") || all[1].Name() != "d" {
			t.Errorf("the classes are %v, want a and d", all)
		}
		wantWait(t, kept, nil, second/2)
		wantWait(t, dropped, nil, second) // a class that is gone still lets out what waits
		wantWait(t, waitIn(bg, NewWaiter(s.Class("d")), Cost{Packets: 1}), nil, 0)
	}, named("a", leakyClass("1 packets/s")), named("b", leakyClass("1 packets/s")))
}

// A class that is to count another unit is replaced. The new class has the counters of the
// old one, and no burst. What waits in the old class can be moved.
func TestApplyAnotherUnit(t *testing.T) {
	for _, c := range []struct {
		from, to policy.Class
		next     time.Duration
	}{
		{leakyClass("1 packets/s"), leakyClass("1460B/s"), second},
		{leakyClass("1 packets/s"), leakyClass("10MB/s"), 730 * time.Microsecond},
		{leakyClass("1KB/s"), leakyClass("10 packets/s"), second / 10},
		{leakyClass("1KB/s"), tokenClass("10 packets/s", 100), second / 10},
	} {
		inBubble(t, func(t *testing.T, s *Shaper) {
			old, f := s.Class("test"), newMovable(s.Class("test"))
			old.Enter(time.Now(), packet(1000))
			old.Stats.Refused[0].Add(41)
			wait := waitIn(bg, f, Cost{Bytes: 1000, Packets: 1})
			removed := s.Apply([]policy.Class{c.to})
			now := s.Class("test")
			if len(removed) != 1 || removed[0] != old || now == old || now.Rate() != c.to.Rate {
				t.Fatalf("Apply removed %v, want the old class, and another one in its place", removed)
			}
			wantBacklog(t, now, 1, 1000)
			f.Move(now)
			wantWait(t, wait, nil, c.next)
			wantBacklog(t, now, 0, 0)
			if n := now.Stats.Refused[0].Bytes.Load(); n != 41 {
				t.Errorf("the counters start again: %d", n)
			}
		}, c.from)
	}
}

func TestApplyTwiceChangesNothing(t *testing.T) {
	confs := []policy.Class{named("a", leakyClass("3B/s")), named("b", tokenClass("3 packets/s", 7))}
	inBubble(t, func(t *testing.T, s *Shaper) {
		for _, c := range s.Classes() {
			for range 20 {
				c.Enter(time.Now(), packet(1))
			}
		}
		a, b := s.Class("a").Next(time.Now()), s.Class("b").Next(time.Now())
		for range 1000 {
			s.Apply(confs)
		}
		if got := s.Class("a").Next(time.Now()); !got.Equal(a) {
			t.Errorf("class a lets the next item leave %v later", got.Sub(a))
		}
		if got := s.Class("b").Next(time.Now()); !got.Equal(b) {
			t.Errorf("class b lets the next item leave %v later", got.Sub(b))
		}
		for _, c := range s.Classes() {
			c.Evict(time.Now(), func(*Item) bool { return true })
		}
	}, confs...)
}

// TestLeavesOnTheSystemTimer drives a class by the real clock. None of a hundred packets
// leaves before its time.
func TestLeavesOnTheSystemTimer(t *testing.T) {
	s := New()
	defer s.Close()
	s.Apply([]policy.Class{leakyClass("2000 packets/s")})
	f, last := NewWaiter(s.Class("test")), time.Time{}
	for range 100 {
		err := f.Do(bg, Cost{Packets: 1}, true, func() error {
			if gap := time.Since(last); gap < 500*time.Microsecond {
				t.Errorf("two packets left within %v", gap)
			}
			last = time.Now()
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
