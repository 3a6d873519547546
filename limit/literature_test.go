package limit

import (
	"testing"
	"time"

	"shaper/unit"
)

// The examples that texts on rate limiting give, to the number.

// A bucket of 10 fills at 2 a second.
func TestBucketOfTen(t *testing.T) {
	for name, l := range map[string]Limiter{
		"token": NewToken(at(0), perSecond(2), 10),
		"gcra":  NewGCRA(at(0), perSecond(2), 10),
	} {
		t.Run(name, func(t *testing.T) {
			for range 10 {
				wantLeave(t, l, 0, 1, 0)
			}
			wantLeave(t, l, 0, 1, second/2)
			wantLeave(t, l, 0, 1, second)
			wantLeave(t, l, 3*second, 4, 3*second) // two seconds bring four
			wantLeave(t, l, 3*second, 1, 3*second+second/2)
			wantLeave(t, l, time.Hour, 10, time.Hour) // an hour brings ten, the burst
			wantLeave(t, l, time.Hour, 1, time.Hour+second/2)
		})
	}
}

// 100 a second with a burst of 5.
func TestGCRAOfAHundred(t *testing.T) {
	l := NewGCRA(at(0), perSecond(100), 5)
	for i := range time.Duration(100) {
		wantLeave(t, l, 0, 1, max(i-4, 0)*10*time.Millisecond)
	}
}

// 100 come at 0.99 s and 100 at 1.01 s; the limit is 100 a second.
func TestBoundary(t *testing.T) {
	const first, then = 990 * time.Millisecond, 1010 * time.Millisecond
	for name, want := range map[string]int{
		"fixed":   100, // all: twice the limit in 20 ms
		"log":     0,   // the second hundred may leave at 1.99 s
		"sliding": 1,   // 100 * 99% + 1
	} {
		l := windows(at(0), 100, second)[name]
		for range 100 {
			wantLeave(t, l, first, 1, first)
		}
		if got := passes(l, then, 100); got != want {
			t.Errorf("%s: of 100 at 1.01 s %d pass, want %d", name, got, want)
		}
	}
	l := windows(at(0), 100, second)["log"]
	leave(l, first, 100)
	wantLeave(t, l, then, 100, second+first)
}

// passes offers so many items to a policer at one instant, and counts those that may
// leave.
func passes(l Limiter, now time.Duration, items int) (n int) {
	for range items {
		if !l.Next(at(now), 0, 1).After(at(now)) {
			l.Take(at(now), at(now), 1)
			n++
		}
	}
	return n
}

// 80 left in the window before, and 30 in this one, 40 % of which is over. They count as
// 78, so of 100, 22 more may leave.
func TestEightyAndThirty(t *testing.T) {
	const window = time.Minute
	l := NewSlidingWindow(at(0), unit.NewRate(unit.Packets, 100, window), window)
	wantLeave(t, l, 10*second, 80, 10*second)
	wantLeave(t, l, window+12*second, 30, window+12*second)
	now := window + 24*second
	if got := passes(l, now, 100); got != 22 {
		t.Errorf("at 40 %% of the window %d may leave, want 22", got)
	}
	wantLeave(t, l, now, 1, now+window/80) // when one of the 80 has faded
}
