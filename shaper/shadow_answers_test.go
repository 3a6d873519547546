package shaper

import (
	"testing"
	"time"

	"shaper/policy"
)

// asking returns a message that gets an answer.
func asking() *Item { return &Item{Cost: Cost{Messages: 1, Bytes: 100}, Held: 100, Asks: true} }

// A class gets a shadow or an in_flight while items are in flight. Their answers are not
// answers to the copies in the shadow.
func TestShadowIsSetWhileInFlight(t *testing.T) {
	conf := withQueue(tokenClass("1000 messages/s", 1000), 100, 0)
	conf.InFlight = 2
	c := NewClass(start, conf)
	enter(t, c, 0, Leaves, asking(), asking())
	c.Set(at(1*ms), inShadow(conf))
	enter(t, c, 2*ms, Leaves, asking(), asking(), asking())
	c.Provider().Answered(at(3*ms), true) // the answers to what left before
	c.Provider().Answered(at(4*ms), true)
	if n := c.Status().Shadow(at(5 * ms)); n.Wait.Read().Count != 2 || c.shadow.class().InFlight() != 2 {
		t.Errorf("%d copies have left and %d are in flight, want 2 and 2", n.Wait.Read().Count, c.shadow.class().InFlight())
	}
	c.Provider().Answered(at(6*ms), true)
	if n := c.Status().Shadow(at(7 * ms)); n.Wait.Read().Count != 3 {
		t.Errorf("%d copies have left, want 3", n.Wait.Read().Count)
	}
	conf.InFlight = 0
	c.Set(at(8*ms), inShadow(conf))
	c.Provider().Answered(at(9*ms), true)
	c.Provider().Answered(at(9*ms), true)
	conf.InFlight = 2
	c.Set(at(10*ms), inShadow(conf))
	c.Status().Shadow(at(second))
	if n := c.shadow.class().InFlight(); n != 0 || c.InFlight() != 0 {
		t.Errorf("%d copies are in flight, and %d items really", n, c.InFlight())
	}
}

// If a class leaves its parent, what is in flight in the class gets no answer there. If a
// class gets a parent, what is in flight in the class is not in flight in the parent's
// shadow.
func TestShadowOfWhatMovesAway(t *testing.T) {
	s := newShaper(newRuntimeTimer())
	defer s.Close()
	top := withQueue(tokenClass("1000 messages/s", 1000), 100, 0)
	top.Name, top.InFlight = "top", 2
	top = inShadow(top)
	leaf := named("leaf", tokenClass("1000 messages/s", 1000))
	s.Apply([]policy.Class{top, under("top", leaf)})
	c := s.Class("leaf")
	for range 2 {
		if c.Enter(time.Now(), asking()) != Leaves {
			t.Fatal("the message waits")
		}
	}
	up := s.Class("top")
	s.Apply([]policy.Class{top, leaf})
	if n := up.shadow.class().InFlight(); n != 0 {
		t.Errorf("%d copies are in flight, and no item really", n)
	}
	s.Apply([]policy.Class{top, under("top", leaf)})
	if c.Enter(time.Now(), asking()) != Leaves {
		t.Fatal("the message waits")
	}
	c.Provider().Answered(time.Now(), true) // the messages that came with the class
	c.Provider().Answered(time.Now(), true)
	if n, m := up.shadow.class().InFlight(), up.InFlight(); n != 1 || m != 1 {
		t.Errorf("%d copies are in flight, and %d items really; want 1 and 1", n, m)
	}
	c.Provider().Answered(time.Now(), true)
	if n, m := up.shadow.class().InFlight(), up.InFlight(); n != 0 || m != 0 {
		t.Errorf("%d copies are in flight, and %d items really", n, m)
	}
}

// in_flight counts messages also in a class of bytes. It would hold up their senders.
func TestShadowOfAnswersInBytes(t *testing.T) {
	conf := leakyClass("1GB/s")
	conf.InFlight = 2
	c := NewClass(start, inShadow(conf))
	for range 4 {
		it := asking()
		it.Patient = true
		enter(t, c, 0, Leaves, it)
	}
	if got := of(c.Status().Shadow(at(ms))); got.delayed < 2 || got.waits.Count != 2 {
		t.Errorf("of 4 messages the shadow counts %s, want 2 that have left and 2 that wait", got)
	}
	for n := range 4 {
		c.Provider().Answered(at(time.Duration(n+2)*ms), true)
	}
	c.Status().Shadow(at(second))
	if n := c.shadow.class().InFlight(); n != 0 {
		t.Errorf("%d copies are in flight at the end", n)
	}
}
