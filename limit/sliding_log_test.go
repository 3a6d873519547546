package limit

import (
	"testing"
	"time"

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
