package shaper

import (
	"testing"
	"testing/synctest"
	"time"

	"shaper/policy"
)

// A slot that is not used in time is lost. So nothing asks for one while a window of the class is full, and what waits asks
// when there is room.
func TestShareWantsNoSlotForAFullWindow(t *testing.T) {
	withMember(t, with(shared20(), limitBy(policy.FixedWindow, "600 messages/h")), func(s *Shaper, member *fakeMember, c *Class) {
		slots, window := member.budgets["0"], member.budgets["1"]
		for range 3 {
			c.Enter(time.Now(), &Item{Owner: &noting{}, Cost: Cost{Messages: 1}})
		}
		s.Told("acme", "")
		synctest.Wait()
		if window.wanted != 3 || slots.wanted != 0 {
			t.Errorf("the window is full, and %d units of it and %d slots are wanted, want 3 and 0", window.wanted, slots.wanted)
		}
		window.have = 3
		s.Told("acme", "")
		synctest.Wait()
		if slots.wanted != 3 {
			t.Errorf("the window has room, and %d slots are wanted, want 3", slots.wanted)
		}
	})
}

// What waits for its class to open wants nothing of the fleet until then.
func TestShareOfAClosedClass(t *testing.T) {
	midnight := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) // when a bubble of synctest begins
	conf := shared20()
	conf.Closed = policy.Span{From: midnight.Add(time.Hour), Until: midnight.Add(2 * time.Hour)}
	withMember(t, conf, func(s *Shaper, member *fakeMember, c *Class) {
		b := member.budgets["0"]
		c.Enter(time.Now(), &Item{Owner: &noting{}, Cost: Cost{Messages: 1}})
		for _, want := range []int64{1, 0, 1} {
			s.Told("acme", "")
			synctest.Wait()
			root, _ := c.lockAt(time.Now())
			wanted := b.wanted
			root.mu.Unlock()
			if wanted != want {
				t.Errorf("at %v the fleet is told of %d items, want %d", time.Now(), wanted, want)
			}
			time.Sleep(time.Hour + time.Second)
		}
	})
}
