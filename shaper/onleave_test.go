package shaper

import (
	"context"
	"errors"
	"testing"
	"time"
)

// TestOnLeaveGoesOn: while OnLeave keeps asking, Wait waits, and each ticket
// leaves at its time; when it does not, Wait returns.
func TestOnLeaveGoesOn(t *testing.T) {
	inBubble(t, func(t *testing.T, s *Shaper) {
		f, begin := NewFlow(s.Class("a")), time.Now()
		var left []time.Duration
		f.OnLeave = func(now time.Time) bool {
			left = append(left, now.Sub(begin))
			f.Left()
			return len(left) < 5 && f.Again(now, Cost{Packets: 1}, true)
		}
		f.Wait(bg, Cost{Packets: 1}, false)
		f.Left()
		if err := f.Wait(bg, Cost{Packets: 1}, true); err != nil {
			t.Fatal(err)
		}
		for i, at := range left {
			if want := time.Duration(i+1) * second; at != want {
				t.Errorf("ticket %d left at %v, want %v", i, at, want)
			}
		}
		if got := time.Since(begin); len(left) != 5 || got != 5*second {
			t.Errorf("Wait returned after %d tickets and %v, want 5 and 5s", len(left), got)
		}
	}, named("a", leakyClass("1 packets/s")))
}

// TestOnLeaveEndsWithTheContext: a flow whose OnLeave always asks again is
// given up all the same, and charges nothing more.
func TestOnLeaveEndsWithTheContext(t *testing.T) {
	inBubble(t, func(t *testing.T, s *Shaper) {
		ctx, cancel := context.WithTimeout(bg, 10*second)
		defer cancel()
		f, tickets := NewFlow(s.Class("a")), 0
		f.OnLeave = func(now time.Time) bool {
			tickets++
			f.Left()
			return f.Again(now, Cost{Packets: 1}, true)
		}
		f.Wait(bg, Cost{Packets: 1}, false)
		f.Left()
		if err := f.Wait(ctx, Cost{Packets: 1}, true); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Wait: %v, want the context's error", err)
		}
		if tickets < 9 || tickets > 10 {
			t.Errorf("%d tickets left in ten seconds", tickets)
		}
		if n := s.Class("a").Stats.BacklogItems.Load(); n != 0 {
			t.Errorf("%d items still wait", n)
		}
	}, named("a", leakyClass("1 packets/s")))
}

// TestAgainOverflows: what Again has no room for is what Wait returns.
func TestAgainOverflows(t *testing.T) {
	conf := named("a", leakyClass("1 packets/s"))
	conf.Overflow, conf.MaxWait = "refuse", 1 // nothing may wait: the first finds the class idle
	inBubble(t, func(t *testing.T, s *Shaper) {
		class := s.Class("a")
		f := NewFlow(class)
		f.OnLeave = func(now time.Time) bool { return f.Again(now, Cost{Packets: 1}, true) }
		loose := conf
		loose.MaxWait = 0
		class.Set(time.Now(), loose)
		f.Wait(bg, Cost{Packets: 1}, false)
		f.Left()
		done := waitIn(bg, f, Cost{Packets: 1})
		class.Set(time.Now(), conf)
		wantWait(t, done, ErrTooLong, second)
	}, conf)
}

// TestMoveDuringOnLeave: Wait does not return while the pacer is still in
// OnLeave, although a Move has let the next ticket go meanwhile.
func TestMoveDuringOnLeave(t *testing.T) {
	inBubble(t, func(t *testing.T, s *Shaper) {
		f, running := NewFlow(s.Class("a")), false
		f.OnLeave = func(now time.Time) bool {
			running = true
			waits := f.Again(now, Cost{Packets: 1}, false)
			f.Move(nil)
			time.Sleep(second) // the pacer is held up
			running = false
			return waits
		}
		f.Wait(bg, Cost{Packets: 1}, false)
		f.Left()
		if err := f.Wait(bg, Cost{Packets: 1}, false); err != nil || running {
			t.Errorf("Wait: %v, while OnLeave runs: %v", err, running)
		}
	}, named("a", leakyClass("1 packets/s")))
}
