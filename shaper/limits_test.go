package shaper

import (
	"errors"
	"testing"
	"time"

	"shaper/limit"
	"shaper/policy"
	"shaper/unit"
)

// One item is on its way out, and a burst of 20 comes behind it. A queue of 10 keeps 10
// and drops 10. One leaves every 100 ms.
func TestLeakyQueueOfTen(t *testing.T) {
	c := NewClass(start, withQueue(leakyClass("10 packets/s"), 10, 0))
	enter(t, c, 0, Leaves, packet(1))
	var kept []*Item
	dropped := 0
	for range 20 {
		it := packet(1)
		if c.Enter(start, it) == Waits {
			kept = append(kept, it)
		} else {
			dropped++
		}
	}
	if len(kept) != 10 || dropped != 10 {
		t.Fatalf("the class keeps %d items and drops %d", len(kept), dropped)
	}
	for i, it := range kept {
		due := time.Duration(i+1) * 100 * ms
		released(t, c, due-1)
		released(t, c, due, it)
	}
}

// The rate is three a second, and seven items come at once after 0.9 s.
func TestClassByAlgorithm(t *testing.T) {
	const came = 900 * ms
	third := func(n time.Duration) time.Duration { return came + (n*second+2)/3 }
	for _, c := range []struct {
		algorithm policy.Algorithm
		left      []time.Duration
	}{
		{policy.Token, []time.Duration{came, came, came, third(1), third(2), third(3), third(4)}},
		{policy.GCRA, []time.Duration{came, came, came, third(1), third(2), third(3), third(4)}},
		{policy.FixedWindow, []time.Duration{came, came, came, second, second, second, 2 * second}},
		{policy.SlidingLog, []time.Duration{came, came, came, came + second, came + second, came + second, came + 2*second}},
		{policy.SlidingWindow, []time.Duration{came, came, came, second + (second+2)/3, second + (2*second+2)/3, 2 * second, 2*second + second/2}},
	} {
		t.Run(string(c.algorithm), func(t *testing.T) {
			conf := classBy(c.algorithm, "3 packets/s")
			if c.algorithm.HasBurst() {
				conf.Burst = policy.Burst{N: 3, Kind: unit.Packets}
			}
			class := NewClass(start, conf)
			for range 7 {
				class.Enter(at(came), packet(1))
			}
			if _, drain := class.Estimate().Drain(at(came)); drain != c.left[6]-came {
				t.Errorf("the class drains in %v, want %v", drain, c.left[6]-came)
			}
			now := came
			for i, want := range c.left[7-class.Backlog().Items:] {
				if now = max(now, class.Next(at(now)).Sub(start)); now != want {
					t.Errorf("item %d of those that wait leaves at %v, want %v", i, now, want)
				}
				class.Release(at(now))
			}
		})
	}
}

// An item that would wait longer than max_wait is refused on arrival. The estimate is
// exact to the item.
func TestMaxWaitByAlgorithm(t *testing.T) {
	for _, algorithm := range algorithms {
		conf := classBy(algorithm, "10 packets/s")
		conf.MaxWait = unit.Duration(2 * second)
		class := NewClass(start, conf)
		verdict, items := Leaves, 0
		for ; verdict != TooLong; items++ {
			verdict = class.Enter(start, packet(1))
		}
		last := time.Duration(0)
		for next := class.Next(start); next != limit.Never; next = class.Next(at(last)) {
			last = max(last, next.Sub(start))
			class.Release(at(last))
			lastLeft(class, at(last))
		}
		if last > 2*second || last < 2*second-second/10 {
			t.Errorf("%s: the last of %d items that the class kept left after %v", algorithm, items, last)
		}
	}
}

// No change of the algorithm or of the window lets items leave at once that had to wait
// before.
func TestSetAnyAlgorithmGivesNoBurst(t *testing.T) {
	var confs []policy.Class
	for _, algorithm := range algorithms {
		confs = append(confs, classBy(algorithm, "10 packets/s"))
		if algorithm.HasWindow() {
			longer := classBy(algorithm, "10 packets/s")
			longer.Window.Length = unit.Duration(3 * second)
			confs = append(confs, longer, classBy(algorithm, "600 packets/min"))
		}
	}
	for _, algorithm := range algorithms[2:5] {
		confs = append(confs, with(classBy(algorithm, "10 packets/s"), limitBy(policy.GCRA, "12 packets/s"), limitBy(policy.SlidingLog, "30 packets/min")))
	}
	for _, from := range confs {
		for _, to := range confs {
			if len(to.Also) < len(from.Also) {
				continue // what waited for a limit that goes may leave
			}
			class := NewClass(start, from)
			for range 50 {
				class.Enter(start, packet(1))
			}
			waited := class.Backlog().Items
			for range 5 {
				class.Set(start, to)
				class.Set(start, from)
			}
			class.Set(start, to)
			for class.Release(start) != nil {
				lastLeft(class, start)
			}
			if left := waited - class.Backlog().Items; left > 0 {
				t.Errorf("from %s %v to %s %v: %d items leave at once", from.Algorithm, from.Own().WindowInForce(), to.Algorithm, to.Own().WindowInForce(), left)
			}
		}
	}
}

// A window of the same length takes its new limit at once. What has left counts against
// that.
func TestSetRateOfAWindow(t *testing.T) {
	for _, algorithm := range algorithms[3:] {
		class := NewClass(start, classBy(algorithm, "10 packets/s"))
		for range 30 {
			class.Enter(start, packet(1))
		}
		class.Set(start, classBy(algorithm, "15 packets/s"))
		for range 5 {
			if class.Release(start) == nil {
				t.Errorf("%s: ten have left under a limit of 15, and no more may leave", algorithm)
			}
		}
		if class.Release(start) != nil {
			t.Errorf("%s: 16 have left under a limit of 15", algorithm)
		}
	}
}

// With headroom, a window holds fewer units, and whole ones.
func TestHeadroomOfAWindow(t *testing.T) {
	for _, algorithm := range algorithms[3:] {
		conf := classBy(algorithm, "30 packets/s")
		conf.Headroom = 30_000 // 3 %: 29.1
		class := NewClass(start, conf)
		for range 29 {
			enter(t, class, 0, Leaves, packet(1))
		}
		enter(t, class, 0, Waits, packet(1))
	}
}

// A stream of pieces reaches the rate of its window, even if that is small.
func TestPieceOfAWindow(t *testing.T) {
	for _, algorithm := range algorithms[3:] {
		for _, rate := range []string{"10B/s", "100B/s", "1500B/s", "2000B/s", "64KiB/s", "20mbit", "10gbit", "6MB/min"} {
			class := NewClass(start, classBy(algorithm, rate))
			window := class.Policy().Rate.Units(class.Policy().Own().WindowInForce())
			piece := class.Piece()
			if piece < 1 || piece > window || piece > MaxPiece {
				t.Errorf("%s of %s: a piece is %d", algorithm, rate, piece)
			}
			whole := window / piece * piece
			if algorithm == policy.SlidingWindow {
				whole -= piece
			}
			if whole*100 < window*97 && window > 64 {
				t.Errorf("%s of %s: whole pieces of %d make %d of %d", algorithm, rate, piece, whole, window)
			}
		}
	}
}

func TestWindowsOfRateZero(t *testing.T) {
	for _, algorithm := range algorithms[2:] {
		class := NewClass(start, classBy(algorithm, "10 packets/s"))
		class.Set(start, classBy(algorithm, "0 packets/s"))
		it := packet(1)
		enter(t, class, time.Hour, Waits, it)
		if next := class.Next(at(time.Hour)); next != limit.Never {
			t.Errorf("%s: under a rate of 0 the next item leaves at %v", algorithm, next)
		}
		class.Set(at(time.Hour), classBy(algorithm, "10 packets/s"))
		released(t, class, time.Hour, it)
	}
}

// A datagram that is larger than a window leaves when nothing else counts.
func TestDatagramLargerThanTheWindow(t *testing.T) {
	for _, algorithm := range algorithms[3:] {
		class := NewClass(start, classBy(algorithm, "100B/s"))
		big := packet(1500)
		enter(t, class, 0, Leaves, packet(100))
		enter(t, class, 0, Waits, big)
		released(t, class, 2*second, big)
		small := packet(1)
		enter(t, class, 3*second, Waits, small) // 15 windows pay first
		released(t, class, 15*second)
		released(t, class, 19*second, small)
	}
}

// Retry says when there is room, and at that moment there is.
func TestRetry(t *testing.T) {
	type confOf = func(policy.Class) policy.Class
	for name, c := range map[string]struct {
		conf confOf
		want time.Duration
	}{
		"queue":            {func(c policy.Class) policy.Class { return withQueue(c, 3, 0) }, 100 * ms},
		"max_wait":         {func(c policy.Class) policy.Class { c.MaxWait = unit.Duration(250 * ms); return c }, 50 * ms},
		"policer":          {func(c policy.Class) policy.Class { c.MaxWait = unit.Duration(1); return c }, 100*ms - 1},
		"queue, by bytes":  {func(c policy.Class) policy.Class { return withQueue(c, 0, 300) }, 100 * ms},
		"both, the longer": {func(c policy.Class) policy.Class { c.MaxWait = unit.Duration(150 * ms); return withQueue(c, 3, 0) }, 50 * ms},
	} {
		t.Run(name, func(t *testing.T) {
			class := NewClass(start, c.conf(leakyClass("10 packets/s")))
			for class.Enter(start, packet(100)) <= Waits {
			}
			cost := packet(100).Cost
			retry := class.Estimate().Retry(start, cost)
			if retry != c.want {
				t.Errorf("Retry is %v, want %v", retry, c.want)
			}
			for it := class.Release(at(retry)); it != nil; it = class.Release(at(retry)) {
			}
			if v := class.Enter(at(retry), packet(100)); v > Waits {
				t.Errorf("the item is refused again then: %v", v)
			}
		})
	}
}

// A policer is a bucket without a queue. Retry says when there is a token.
func TestPolicer(t *testing.T) {
	conf := tokenClass("2 packets/s", 10)
	conf.MaxWait = 1
	class := NewClass(start, conf)
	for n := range 12 {
		if v := class.Enter(start, packet(1)); (v == Leaves) != (n < 10) {
			t.Errorf("packet %d: %v", n, v)
		}
	}
	if retry := class.Estimate().Retry(start, Cost{Packets: 1}); retry != 500*ms-1 {
		t.Errorf("Retry is %v, want half a second", retry)
	}
	conf.Rate = rateOf("0 packets/s")
	class.Set(start, conf)
	if retry := class.Estimate().Retry(start, Cost{Packets: 1}); retry != 1<<63-1 {
		t.Errorf("under a rate of 0 Retry is %v", retry)
	}
}

// A Waiter whose item is refused gets the reason and the time.
func TestWaiterIsToldWhenToRetry(t *testing.T) {
	inBubble(t, func(t *testing.T, s *Shaper) {
		c := s.Class("a")
		if !c.Pass(time.Now(), Cost{Packets: 1}) {
			t.Fatal("the first item is refused")
		}
		w := NewWaiter(c)
		for _, again := range []bool{true, false} {
			err := w.Wait(t.Context(), Cost{Packets: 1}, false)
			var refused *RefusedError
			if !again {
				if err != nil {
					t.Errorf("after that time the item is refused: %v", err)
				}
				continue
			}
			if !errors.As(err, &refused) || !errors.Is(err, ErrTooLong) || refused.Retry != 100*ms-1 {
				t.Fatalf("Wait returns %v, want a RefusedError", err)
			}
			if text := err.Error(); text != "shaper: the wait would be longer than max_wait; retry in 100ms" {
				t.Errorf("the error is %q", text)
			}
			time.Sleep(refused.Retry)
		}
	}, named("a", func() policy.Class {
		c := leakyClass("10 packets/s")
		c.MaxWait, c.Overflow = 1, policy.Refuse
		return c
	}()))
}
