package shaper

import (
	"testing"
	"time"

	"shaper/policy"
)

func TestApply(t *testing.T) {
	inBubble(t, func(t *testing.T, s *Shaper) {
		a, b := s.Class("a"), s.Class("b")
		for _, f := range []*Flow{NewFlow(a), NewFlow(b)} {
			f.Wait(bg, Cost{Packets: 1}, false)
			f.Left()
		}
		kept := waitIn(bg, NewFlow(a), Cost{Packets: 1})
		dropped := waitIn(bg, NewFlow(b), Cost{Packets: 1})
		a.Stats.Overlimits.Add(41)

		removed := s.Apply([]policy.Class{named("a", leakyClass("2 packets/s")), named("d", leakyClass("1 packets/s"))})
		if len(removed) != 1 || removed[0] != b || s.Class("b") != nil {
			t.Errorf("removed are %v, want class b", removed)
		}
		if s.Class("a") != a || a.Rate() != rateOf("2 packets/s") || a.Stats.Overlimits.Load() != 42 {
			t.Error("class a has not gone on under its new rate")
		}
		if all := s.Classes(); len(all) != 2 || all[0] != a || all[1] != s.Class("d") || all[1].Name() != "d" {
			t.Errorf("the classes are %v, want a and d", all)
		}
		wantWait(t, kept, nil, second/2)
		wantWait(t, dropped, nil, second) // a class that is gone still empties its queue
		wantWait(t, waitIn(bg, NewFlow(s.Class("d")), Cost{Packets: 1}), nil, 0)
	}, named("a", leakyClass("1 packets/s")), named("b", leakyClass("1 packets/s")))
}

// A class that counts another unit is returned: who used it for what it counted
// is to ask again whether that is the right class.
func TestApplyAnotherUnit(t *testing.T) {
	inBubble(t, func(t *testing.T, s *Shaper) {
		a := s.Class("a")
		changed := s.Apply([]policy.Class{named("a", leakyClass("10 connections/s")), named("b", tokenClass("2 packets/s", 3))})
		if len(changed) != 1 || changed[0] != a || s.Class("a") != a {
			t.Errorf("changed are %v, want class a, which stays", changed)
		}
	}, named("a", leakyClass("10KB/s")), named("b", leakyClass("1 packets/s")))
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
			t.Errorf("class a lets the next leave %v later", got.Sub(a))
		}
		if got := s.Class("b").Next(time.Now()); !got.Equal(b) {
			t.Errorf("class b lets the next leave %v later", got.Sub(b))
		}
		for _, c := range s.Classes() {
			c.Evict(time.Now(), func(*Item) bool { return true })
		}
	}, confs...)
}

// TestLeavesOnTheSystemTimer drives a class by the real clock: none of a
// hundred packets leaves before its time.
func TestLeavesOnTheSystemTimer(t *testing.T) {
	s := New()
	defer s.Close()
	s.Apply([]policy.Class{leakyClass("2000 packets/s")})
	f, last := NewFlow(s.Class("test")), time.Time{}
	for range 100 {
		if err := f.Wait(bg, Cost{Packets: 1}, true); err != nil {
			t.Fatal(err)
		}
		if gap := time.Since(last); gap < 500*time.Microsecond {
			t.Errorf("two packets left within %v", gap)
		}
		last = time.Now()
		f.Left()
	}
}
