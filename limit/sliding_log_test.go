package limit

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"shaper/unit"
)

// A provider takes 20,000 messages in any 15 minutes.
func TestLogIsExactForTwentyThousand(t *testing.T) {
	const n, window = 20_000, 15 * time.Minute
	l := NewSlidingLog(at(0), unit.NewRate(unit.Messages, n, window), window)
	sent := func(i int) time.Duration { return time.Duration(i*i) * 100 } // slower and slower
	for i := range n {
		wantLeave(t, l, sent(i), 1, sent(i))
	}
	for i := range n {
		wantLeave(t, l, sent(n-1), 1, sent(i)+window)
	}
}

// However many leave, the log stays within its bound. What leaves is within the limit,
// and less than it only by the grain.
func TestLogIsBounded(t *testing.T) {
	const limit, window = 1_000_000, second
	l := NewSlidingLog(at(0), perSecond(limit), window)
	left, now := make([]time.Duration, 0, 3*limit), time.Duration(0)
	for range 3 * limit {
		left = append(left, leave(l, now, 1))
		now = left[len(left)-1] + time.Duration(len(left)%900) // mostly a bit faster than the rate
	}
	for i := range 2 * limit {
		if left[i+limit]-left[i] < window {
			t.Fatalf("a million and one left from %v to %v, within a window", left[i], left[i+limit])
		}
	}
	if over := now - 3*second; over > 3*second/32_000 {
		t.Errorf("three million took %v longer than the limit", over)
	}
	if n := len(l.log.slots); n > maxDepartures {
		t.Errorf("the log has %d slots, more than %d", n, maxDepartures)
	}
}

// The log stays within its bound also if a caller takes without Next.
func TestLogIsBoundedWhateverIsTaken(t *testing.T) {
	l := NewSlidingLog(at(0), perSecond(10), second)
	for i := range time.Duration(2 * maxDepartures) {
		l.Take(at(0), at(i), 1)
	}
	if n := len(l.log.slots); n > maxDepartures {
		t.Errorf("the log has %d slots", n)
	}
	last := time.Duration(2*maxDepartures/10) * second // ten in each window
	if next := l.Next(at(0), 0, 1); next.Before(at(last)) {
		t.Errorf("the next item may leave at %v, want %v", next.Sub(start), last)
	}
}

// An idle log takes no memory. A log in use takes as much as it remembers.
func TestLogGrowsAsItIsUsed(t *testing.T) {
	l := NewSlidingLog(at(0), perSecond(20_000), second)
	if n := len(l.log.slots); n != 0 {
		t.Errorf("at first the log has %d slots", n)
	}
	for now := time.Duration(0); now < 100*second; now += second / 8 {
		leave(l, now, 1)
	}
	if n := len(l.log.slots); n != 8 {
		t.Errorf("after 100 s the log has %d slots, want 8", n)
	}
}

// What is taken too early counts from when it would have been due, and what left before still
// counts until its window is over.
func TestLogRemembersWhatLeftBeforeATakeTooEarly(t *testing.T) {
	l := NewSlidingLog(at(0), unit.NewRate(unit.Messages, 60, time.Minute), time.Minute)
	l.Take(at(0), at(second), 60)
	l.Take(at(0), at(50*second), 1)
	l.Take(at(0), at(51*second), 1)
	if next, want := l.Next(at(52*second), 0, 1), at(61*second); !next.Equal(want) {
		t.Errorf("the next item may leave at %v, want %v", next.Sub(start), want.Sub(start))
	}
}

// A writing log has items that take time to leave, in any order.
type writing struct {
	*SlidingLog
	charged, left []event // at is when they were charged, or left
}

func (w *writing) charge(now time.Duration, n int64) {
	w.Take(at(now), at(now), n)
	w.charged = append(w.charged, event{now, n})
}

func (w *writing) leave(i int, now time.Duration) {
	w.Left(at(now), at(w.charged[i].at), w.charged[i].n)
	w.left = append(w.left, event{now, w.charged[i].n})
	w.charged = slices.Delete(w.charged, i, i+1)
}

// leaveWithin has no item take a window to leave.
func (w *writing) leaveWithin(now, window time.Duration) {
	for len(w.charged) > 0 && now-w.charged[0].at >= window {
		w.leave(0, w.charged[0].at+window-1)
	}
}

// Items take time to leave, in any order. No window of the instants at which they left holds more
// than the limit, and an item waits for nothing else.
func TestLogHoldsForWhenItemsLeft(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := setting{limit: rapid.Int64Range(1, 12).Draw(t, "limit"), window: 1000}
		l := &writing{SlidingLog: NewSlidingLog(at(0), s.rate(), s.window)}
		now := time.Duration(0)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			now += time.Duration(rapid.IntRange(0, 300).Draw(t, "pause"))
			l.leaveWithin(now, s.window)
			if n := anyCost(t, s.limit); rapid.Bool().Draw(t, "charge") && !l.Next(at(now), 0, n).After(at(now)) {
				l.charge(now, n)
			} else if len(l.charged) > 0 {
				l.leave(rapid.IntRange(0, len(l.charged)-1).Draw(t, "which"), now)
			}
			n := anyCost(t, s.limit)
			if next := l.Next(at(now), 0, n); !next.After(at(now)) != logAllows(s, append(slices.Clone(l.left), l.charged...), now, n) {
				t.Fatalf("at %d, %d units may leave at %d; left: %v, on their way: %v", now, n, next.Sub(start), l.left, l.charged)
			}
		}
		for i := range l.left {
			if most := mostInWindow(l.left[i].at, l.left, s.window); most > s.limit {
				t.Fatalf("%d units left in the window that ends at %d, of %v", most, l.left[i].at, l.left)
			}
		}
	})
}

// What items that left late cost less is given back, and never more than that: nothing leaves sooner than if
// each had been charged what it costs when it left.
func TestLogGivesBackToItemsThatLeftLate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := setting{limit: rapid.Int64Range(1, 40).Draw(t, "limit"), window: 1000}
		l := NewSlidingLog(at(0), s.rate(), s.window)
		var then []time.Duration // when each item was charged
		var left []event         // when it left, and what it costs
		now, largest := time.Duration(0), rapid.SampledFrom([]int64{1, 1, 3}).Draw(t, "largest")
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			now += time.Duration(rapid.IntRange(0, 200).Draw(t, "pause"))
			n := anyCost(t, s.limit*largest)
			if leaves := !l.Next(at(now), 0, n).After(at(now)); leaves && !logAllows(s, left, now, n) {
				t.Fatalf("at %d, %d units may leave, after %v, charged at %v", now, n, left, then)
			} else if leaves {
				l.Take(at(now), at(now), n)
				then, left = append(then, now), append(left, event{now, n})
			}
			if len(left) == 0 {
				continue
			}
			i := len(left) - 1 - rapid.IntRange(0, min(len(left)-1, 3)).Draw(t, "which")
			if rapid.Bool().Draw(t, "left") && left[i].at == then[i] && now-then[i] < s.window {
				l.Left(at(now), at(then[i]), left[i].n)
				left[i].at = now
			} else if back := rapid.Int64Range(0, left[i].n).Draw(t, "back"); back > 0 && now-then[i] < s.window*time.Duration(largest) {
				l.Amend(at(now), at(then[i]), -back)
				left[i].n -= back
			}
		}
	})
}

// An item of several windows that costs less after all fills only as many as it needs, from when it left. What is
// given back to an item that is out of the log is taken from no other one.
func TestLogGivesBackWindows(t *testing.T) {
	const ms = time.Millisecond
	for name, c := range map[string]struct {
		left, answered time.Duration // 0: it has not left
		back           int64         // of 25 units
		other          int64         // are charged after 3 s
		next           time.Duration // when 10 units may leave
	}{
		"all of it":                     {0, 200 * ms, 25, 0, 200 * ms},
		"two windows":                   {0, 200 * ms, 20, 0, second},
		"one window":                    {0, 200 * ms, 10, 0, 2 * second},
		"less than a window":            {0, 200 * ms, 4, 0, 3 * second},
		"two windows, late":             {0, 1500 * ms, 20, 0, 1500 * ms},
		"one window, late":              {0, 1500 * ms, 10, 0, 2 * second},
		"two windows, after it left":    {500 * ms, 700 * ms, 20, 0, 1500 * ms},
		"late, after it left":           {500 * ms, 2200 * ms, 10, 0, 2500 * ms},
		"too late":                      {0, 3200 * ms, 20, 1, 4 * second},
		"too late, behind a large item": {0, 3200 * ms, 20, 25, 6 * second},
	} {
		l := NewSlidingLog(at(0), perSecond(10), second)
		l.Take(at(0), at(0), 25)
		l.Left(at(c.left), at(0), 25)
		if c.other > 0 {
			l.Take(at(0), at(3*second), c.other)
		}
		l.Amend(at(c.answered), at(0), -c.back)
		if next := latest(l.Next(at(c.answered), 0, 10), at(c.answered)); !next.Equal(at(c.next)) {
			t.Errorf("%s: the next 10 leave at %v, want %v", name, next.Sub(start), c.next)
		}
	}
}

// If all that an item has filled is given back, the next one leaves as from an empty log, and counts from then on.
func TestLogGivesBackAll(t *testing.T) {
	const ms = time.Millisecond
	for _, rate := range []int64{1, 2, 10} {
		l := NewSlidingLog(at(0), perSecond(rate), second)
		l.Take(at(0), at(0), 25)
		l.Amend(at(200*ms), at(0), -25)
		if next := l.Next(at(200*ms), 0, rate); next.After(at(200 * ms)) {
			t.Errorf("with %d a second, the next leave at %v", rate, next.Sub(start))
		}
		l.Take(at(200*ms), at(200*ms), rate)
		if next := l.Next(at(200*ms), 0, 1); !next.Equal(at(1200 * ms)) {
			t.Errorf("with %d a second, those behind them leave at %v, want 1.2s", rate, next.Sub(start))
		}
	}
}

// An item that fits no longer looks like one of several windows that was charged long before. It gives nothing
// back for another one that was.
func TestLogGivesBackToNoOtherIfTheLimitChanges(t *testing.T) {
	const ms = time.Millisecond
	l := NewSlidingLog(at(0), perSecond(10), second)
	l.Take(at(0), at(0), 5)
	l.Take(at(0), at(2500*ms), 5)
	l.SetRate(at(2600*ms), perSecond(2), 0)
	l.Amend(at(2700*ms), at(0), -5)
	l.SetRate(at(2800*ms), perSecond(10), 0)
	if next := l.Next(at(2800*ms), 0, 10); !next.Equal(at(3500 * ms)) {
		t.Errorf("the next 10 leave at %v, want 3.5s", next.Sub(start))
	}
}

// mostInWindow returns how many units left in the window that ends at an instant.
func mostInWindow(end time.Duration, left []event, window time.Duration) (n int64) {
	for _, e := range left {
		if e.at <= end && e.at > end-window {
			n += e.n
		}
	}
	return n
}

// An item that left late counts from then on. What others have been charged stays.
func TestLogCountsFromWhenAnItemLeft(t *testing.T) {
	const ms = time.Millisecond
	l := NewSlidingLog(at(0), perSecond(4), second)
	for _, n := range []int64{1, 2, 1} { // at 0, 10 and 20 ms
		l.Take(at(0), at(time.Duration(l.log.n)*10*ms), n)
	}
	l.Left(at(15*ms), at(10*ms), 2)
	l.Left(at(30*ms), at(0), 1)
	l.Left(at(30*ms), at(20*ms), 1)
	for n, want := range []time.Duration{1: 1015 * ms, 2: 1015 * ms, 3: 1030 * ms, 4: 1030 * ms} {
		if got := l.Next(at(40*ms), 0, int64(n)); n > 0 && !got.Equal(at(want)) {
			t.Errorf("%d units may leave at %v, want %v", n, got.Sub(start), want)
		}
	}
	if l.log.n != 2 {
		t.Errorf("the log has %d entries, want one for each instant", l.log.n)
	}
}

// An item that is told of after a window counts as one that leaves then.
func TestLogCountsAnItemThatTookAWindowToLeave(t *testing.T) {
	l := NewSlidingLog(at(0), perSecond(2), second)
	l.Take(at(0), at(0), 1)
	l.Take(at(0), at(0), 1)
	l.Take(at(0), at(second), 1) // the first two are forgotten
	l.Left(at(3*second/2), at(0), 1)
	wantLeave(t, l, 3*second/2, 1, 2*second)
}

// An item larger than the limit fills windows from when it left. What is given back does not fill them.
func TestLogMovesALargeItem(t *testing.T) {
	l := NewSlidingLog(at(0), perSecond(10), second)
	l.Take(at(0), at(0), 25)
	l.Left(at(second/4), at(0), 25)
	if next := l.Next(at(second/4), 0, 1); !next.Equal(at(13 * second / 4)) {
		t.Errorf("after 25 units at 10 a second, the next leaves at %v", next.Sub(start))
	}
}

// Items that took windows to leave fill one window from when they left, however many they are.
func TestLogCountsOnceWhatTookWindowsToLeave(t *testing.T) {
	l, left := NewSlidingLog(at(0), perSecond(10), second), 40*second
	for i := range time.Duration(300) {
		l.Take(at(0), at(i/10*second), 1)
	}
	for i := range time.Duration(300) {
		l.Left(at(left), at(i/10*second), 1)
	}
	wantLeave(t, l, left, 1, left+second)
}

// An item of several windows is in the log until the last of these has passed, so it is not charged again before.
func TestLogMovesALargeItemThatTookAWindowToLeave(t *testing.T) {
	l := NewSlidingLog(at(0), perSecond(10), second)
	l.Take(at(0), at(0), 25)
	l.Left(at(3*second/2), at(0), 25)
	wantLeave(t, l, 3*second/2, 1, 9*second/2)
}

// If the limit has changed since an item was charged, the item fills as many windows from when it left as
// the limit of then says. Where it was noted by a lower limit, it stays.
func TestLogMovesAnItemWhenTheLimitHasChanged(t *testing.T) {
	const ms = time.Millisecond
	for name, c := range map[string]struct {
		n, before, behind int64 // units, and the limits
		left, next        time.Duration
	}{
		"fits no longer":            {10, 10, 5, 500 * ms, 2500 * ms},
		"nothing may leave":         {10, 10, 0, 500 * ms, 1500 * ms},
		"more than both":            {25, 10, 5, 500 * ms, 5500 * ms},
		"more than both, late":      {25, 10, 5, 1500 * ms, 6500 * ms},
		"more than both, forgotten": {25, 10, 5, 3500 * ms, 8500 * ms},
		"fits now":                  {25, 10, 25, 500 * ms, 3000 * ms},
		"fits now, late":            {25, 10, 25, 1500 * ms, 3000 * ms},
	} {
		l := NewSlidingLog(at(0), perSecond(c.before), second)
		l.Take(at(0), at(0), c.n)
		l.SetRate(at(100*ms), perSecond(c.behind), 0)
		l.Left(at(c.left), at(0), c.n)
		l.SetRate(at(c.left), perSecond(max(c.behind, 1)), 0)
		if next := l.Next(at(c.left), 0, max(c.behind, 1)); !next.Equal(at(c.next)) {
			t.Errorf("%s: the next leaves at %v, want %v", name, next.Sub(start), c.next)
		}
	}
}

// Nothing leaves that the limit of now has no room for beside what left in the window, though it was another
// limit when that was charged.
func TestLogHoldsForWhenItemsLeftIfTheLimitChanges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := setting{limit: 10, window: 1000}
		l := &writing{SlidingLog: NewSlidingLog(at(0), s.rate(), s.window)}
		now := time.Duration(0)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			now += time.Duration(rapid.IntRange(0, 300).Draw(t, "pause"))
			l.leaveWithin(now, s.window)
			n := rapid.Int64Range(1, 60).Draw(t, "n")
			allowed := !l.Next(at(now), 0, n).After(at(now))
			if used := mostInWindow(now, append(slices.Clone(l.left), l.charged...), s.window); allowed && used+min(n, s.limit) > s.limit {
				t.Fatalf("at %d, %d units may leave by a limit of %d; left: %v, on their way: %v", now, n, s.limit, l.left, l.charged)
			}
			switch step := rapid.IntRange(0, 2).Draw(t, "step"); {
			case step == 0 && allowed:
				l.charge(now, n)
			case step == 1 && len(l.charged) > 0:
				l.leave(rapid.IntRange(0, len(l.charged)-1).Draw(t, "which"), now)
			case step == 2:
				s.limit = rapid.Int64Range(1, 40).Draw(t, "limit")
				l.SetRate(at(now), s.rate(), 0)
			}
		}
	})
}

// Telling when items left takes no memory but for the log, however many leave.
func TestLogIsBoundedWhenItemsLeaveLate(t *testing.T) {
	l, now := NewSlidingLog(at(0), perSecond(100_000), second), time.Duration(0)
	for i := range time.Duration(300_000) {
		now = max(now, l.Next(at(now), 0, 1).Sub(start))
		l.Take(at(now), at(now), 1)
		l.Left(at(now+i%7), at(now), 1)
		now += 3
	}
	if n := len(l.log.slots); n > maxDepartures {
		t.Errorf("the log has %d slots, more than %d", n, maxDepartures)
	}
	if left := l.logged(); left > 100_000 {
		t.Errorf("the log has %d units", left)
	}
}

// What it costs to tell a full log when an item has left, while n others are on their way.
func BenchmarkLogLeft(b *testing.B) {
	for _, n := range []time.Duration{0, 1, 100} {
		b.Run(strconv.Itoa(int(n)), func(b *testing.B) {
			l, now := NewSlidingLog(at(0), perSecond(1000), second), time.Duration(0)
			b.ReportAllocs()
			for b.Loop() {
				now = max(now+100, l.Next(at(now), 0, 1).Sub(start))
				l.Take(at(now), at(now), 1)
				l.Left(at(now+1), at(now-n*100), 1)
			}
		})
	}
}
