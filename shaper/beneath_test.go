package shaper

import (
	"maps"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"shaper/policy"
)

// oldest returns for how long something has waited in each class that has something waiting, by name.
func oldest(s *Shaper) map[string]time.Duration {
	all := map[string]time.Duration{}
	for c, w := range s.Waiting(time.Now(), nil) {
		all[c.Name()] = w.Oldest
	}
	return all
}

// wantOldest fails unless exactly these classes have something waiting, for so long.
func wantOldest(t *testing.T, s *Shaper, want map[string]time.Duration) {
	t.Helper()
	if got := oldest(s); !maps.Equal(got, want) {
		t.Errorf("the oldest items have waited for %v, want %v", got, want)
	}
}

// holdIn makes an item wait in a class, and returns it.
func holdIn(t *testing.T, c *Class, cost Cost) *Item {
	t.Helper()
	it := &Item{Cost: cost, Held: 1, Owner: &noting{}}
	for c.Enter(time.Now(), it) == Leaves {
		it.Left(time.Now())
	}
	return it
}

// The oldest item of a class is the one that has waited for longest in it or beneath it, although nothing has left.
// What has left does not count.
func TestOldestOfATree(t *testing.T) {
	for rate, cost := range map[string]Cost{
		"1 packets/day": {Packets: 1, Bytes: 100}, "1bit": {Bytes: 1 << 20}, "1 messages/day": {Messages: 1}, "1 connections/day": {Connections: 1},
	} {
		slow := leakyClass(rate)
		confs := []policy.Class{named("top", leakyClass("1GB/s")), under("top", named("a", slow)), under("top", named("b", slow)), named("idle", slow)}
		inBubble(t, func(t *testing.T, s *Shaper) {
			wantOldest(t, s, map[string]time.Duration{})
			first := holdIn(t, s.Class("a"), cost)
			time.Sleep(time.Hour)
			holdIn(t, s.Class("b"), cost)
			holdIn(t, s.Class("a"), cost)
			time.Sleep(16 * time.Hour)
			wantOldest(t, s, map[string]time.Duration{"top": 17 * time.Hour, "a": 17 * time.Hour, "b": 16 * time.Hour})
			s.Class("a").Cancel(time.Now(), first)
			wantOldest(t, s, map[string]time.Duration{"top": 16 * time.Hour, "a": 16 * time.Hour, "b": 16 * time.Hour})
		}, confs...)
	}
}

// An item that goes before others is not the oldest: those have waited for longer.
func TestOldestBehindAFirst(t *testing.T) {
	inBubble(t, func(t *testing.T, s *Shaper) {
		c := s.Class("test")
		holdIn(t, c, Cost{Packets: 1})
		for range 3 {
			time.Sleep(time.Minute)
			c.Enter(time.Now(), &Item{Cost: Cost{Packets: 1}, First: true, Owner: &noting{}})
		}
		time.Sleep(time.Minute)
		wantOldest(t, s, map[string]time.Duration{"test": 4 * time.Minute})
	}, leakyClass("1 packets/day"))
}

// Of a class with buckets, all of them count, and those of its groups.
func TestOldestOfKeysAndGroups(t *testing.T) {
	inBubble(t, func(t *testing.T, s *Shaper) {
		c := s.Class("test")
		for n := range 5 {
			holdIn(t, c.Join(time.Now(), client(n)), Cost{Packets: 1})
			time.Sleep(time.Minute)
		}
		wantOldest(t, s, map[string]time.Duration{"top": 5 * time.Minute, "test": 5 * time.Minute})
	}, named("top", leakyClass("1GB/s")), under("top", perSource(9, leakyClass("1 packets/day"))))
	quiet := promotions(t, `per = "source_addr"`)
	inBubble(t, func(t *testing.T, s *Shaper) {
		s.Apply(asAt(time.Since(start)+22*time.Hour, quiet))
		india := joins(time.Since(start), s.Class("promotions"), "9198")
		india.Enter(time.Now(), sms())
		time.Sleep(time.Minute)
		wantOldest(t, s, map[string]time.Duration{"promotions": time.Minute})
	}, quiet...)
}

// What waits for the store of a fleet waits.
func TestOldestOfAShared(t *testing.T) {
	withMember(t, shared20(), func(s *Shaper, _ *fakeMember, c *Class) {
		c.Enter(time.Now(), &Item{Owner: &noting{}, Cost: Cost{Messages: 1}, Held: 10})
		time.Sleep(time.Hour)
		wantOldest(t, s, map[string]time.Duration{"acme": time.Hour})
	})
}

// What waits in a class that is gone counts for the class above, and what waits in one that was replaced counts for the new one.
func TestOldestOfFormerClasses(t *testing.T) {
	top, a := named("top", leakyClass("1GB/s")), under("top", named("a", leakyClass("1 packets/day")))
	inBubble(t, func(t *testing.T, s *Shaper) {
		holdIn(t, s.Class("a"), Cost{Packets: 1})
		time.Sleep(time.Hour)
		s.Apply([]policy.Class{top})
		time.Sleep(time.Hour)
		if got := s.Waiting(time.Now(), nil)[s.Class("top")].Oldest; got != 2*time.Hour {
			t.Errorf("beneath a class that lost its child, the oldest item has waited for %v", got)
		}
	}, top, a)
	inBubble(t, func(t *testing.T, s *Shaper) {
		holdIn(t, s.Class("a"), Cost{Packets: 1})
		time.Sleep(time.Hour)
		s.Apply([]policy.Class{top, under("top", named("a", leakyClass("1 messages/day")))})
		wantOldest(t, s, map[string]time.Duration{"top": time.Hour, "a": time.Hour})
	}, top, a)
}

// Waiting of one class tells about it and those beneath it, and nothing else.
func TestWaitingOfOneClass(t *testing.T) {
	inBubble(t, func(t *testing.T, s *Shaper) {
		for _, name := range []string{"a", "b"} {
			holdIn(t, s.Class(name), Cost{Packets: 1})
		}
		time.Sleep(time.Second)
		got := s.Waiting(time.Now(), s.Class("a"))
		if len(got) != 1 || got[s.Class("a")].Oldest != time.Second {
			t.Errorf("got %v", got)
		}
	}, named("top", leakyClass("1GB/s")), under("top", named("a", leakyClass("1 packets/day"))), under("top", named("b", leakyClass("1 packets/day"))))
}

// A tree is empty when the last class of it is: the latest of what its classes say, and never if one of them never is.
func TestDrainOfATree(t *testing.T) {
	confs := []policy.Class{named("top", leakyClass("1GB/s")), under("top", named("account", leakyClass("100 packets/s"))),
		under("account", named("a", leakyClass("1 packets/h"))), under("account", named("b", leakyClass("1 packets/min"))), under("top", named("off", leakyClass("0 packets/s")))}
	inBubble(t, func(t *testing.T, s *Shaper) {
		wantDrains := func(want map[string]time.Duration) {
			t.Helper()
			got := map[string]time.Duration{}
			for c, w := range s.Waiting(time.Now(), nil) {
				got[c.Name()] = w.Drain
			}
			if !maps.Equal(got, want) {
				t.Errorf("the classes are empty in %v, want %v", got, want)
			}
		}
		for _, name := range []string{"a", "b", "b"} {
			holdIn(t, s.Class(name), Cost{Packets: 1})
		}
		wantDrains(map[string]time.Duration{"top": time.Hour, "account": time.Hour, "a": time.Hour, "b": time.Minute})
		s.Class("off").Enter(time.Now(), &Item{Cost: Cost{Packets: 1}, Owner: &noting{}})
		wantDrains(map[string]time.Duration{"top": math.MaxInt64, "account": time.Hour, "a": time.Hour, "b": time.Minute, "off": math.MaxInt64})
	}, confs...)
}

// A class waits for what holds up the item that is to leave first of all beneath it. If that waits only for its turn, so does the
// class. It does not wait for the permits of a class beneath it.
func TestHoldOfATree(t *testing.T) {
	confs := []policy.Class{named("top", leakyClass("1GB/s")), under("top", named("hour", leakyClass("1 packets/h"))),
		under("top", named("minute", leakyClass("1 packets/min"))), under("top", named("off", leakyClass("0 packets/s"))), under("top", named("permits", withPermits(leakyClass("1GB/s"), 1)))}
	inBubble(t, func(t *testing.T, s *Shaper) {
		wantHold := func(when, class, want string) {
			t.Helper()
			got := "nothing"
			if h := s.Waiting(time.Now(), nil)[s.Class(class)].For; h != nil {
				got = h.String()
				if !h.Until.IsZero() {
					got += ", " + time.Until(h.Until).String()
				}
			}
			if got != want {
				t.Errorf("%s: %s waits for %s, want %s", when, class, got, want)
			}
		}
		take(t, s.Class("permits"), 2, 1)
		wantHold("sessions wait", "top", "nothing")
		wantHold("sessions wait", "permits", "max_connections of class permits")
		s.Class("off").Enter(time.Now(), &Item{Cost: Cost{Packets: 1}, Owner: &noting{}})
		wantHold("nobody knows for how long", "top", "0 packets/s of class off")
		holdIn(t, s.Class("hour"), Cost{Packets: 1})
		wantHold("one waits for an hour", "top", "1 packets/h of class hour, 1h0m0s")
		holdIn(t, s.Class("minute"), Cost{Packets: 1})
		wantHold("one for a minute", "top", "1 packets/min of class minute, 1m0s")
		time.Sleep(time.Minute)
		synctest.Wait()
		wantHold("that has left", "top", "1 packets/h of class hour, 59m0s")
	}, confs...)
}
