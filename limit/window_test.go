package limit

import (
	"testing"
	"time"

	"shaper/unit"
)

func windows(now time.Time, n int64, window time.Duration) map[string]Limiter {
	rate := unit.NewRate(unit.Packets, n, window)
	return map[string]Limiter{
		"fixed":   NewFixedWindow(now, rate, window),
		"log":     NewSlidingLog(now, rate, window),
		"sliding": NewSlidingWindow(now, rate, window),
	}
}

// wantLeave fails unless n units leave at d, if they may from now on.
func wantLeave(t *testing.T, l Limiter, now time.Duration, n int64, d time.Duration) {
	t.Helper()
	if got := leave(l, now, n); got != d {
		t.Errorf("from %v on, %d leave at %v, want %v", now, n, got, d)
	}
}

// A window begins when that of the wall clock does.
func TestWindowsAreThoseOfTheClock(t *testing.T) {
	for window, next := range map[time.Duration]time.Duration{
		second: second, time.Minute: time.Minute - 30*second, 15 * time.Minute: 15*time.Minute - 90*second, 24 * time.Hour: 24*time.Hour - 90*second,
	} {
		began := at(90 * second)
		for name, l := range windows(began, 10, window) {
			l.Take(began, began, 10)
			got := l.Next(began, 0, 10).Sub(began)
			want := map[string]time.Duration{"fixed": next, "log": window, "sliding": next + window}[name]
			if got != want {
				t.Errorf("%s: after %v a window of %v is free, want %v", name, got, window, want)
			}
		}
	}
}

// Setting the wall clock moves no window, since windows follow the monotonic clock.
func TestWindowsFollowTheMonotonicClock(t *testing.T) {
	began := time.Now()
	l := NewFixedWindow(began, perSecond(10), second)
	l.Take(began, began, 10)
	free := l.Next(began, 0, 1)
	if !free.Round(0).Equal(began.Truncate(second).Add(second)) {
		t.Errorf("the limiter began at %v and is free at %v", began, free)
	}
	if free == free.Round(0) {
		t.Error("the departure time has no reading of the monotonic clock")
	}
}

func TestWindowGoesBackToNone(t *testing.T) {
	for name, l := range windows(at(0), 10, second) {
		wantLeave(t, l, 10*second, 10, 10*second)
		for range 2 { // a clock that goes back stays in the present window
			if got := l.Next(at(0), 0, 1); !got.After(at(10 * second)) {
				t.Errorf("%s: an item may leave at %v", name, got)
			}
			l.Take(at(0), at(0), 0)
		}
	}
}

// An item that is larger than a window passes, and later windows pay for it.
func TestWindowLargerItem(t *testing.T) {
	for name, want := range map[string]time.Duration{"fixed": 2 * second, "log": 3*second + second/2, "sliding": 3 * second} {
		t.Run(name, func(t *testing.T) {
			l := windows(at(0), 10, second)[name]
			wantLeave(t, l, second/2, 25, second/2)
			wantLeave(t, l, second/2, 5, want)
		})
	}
}

// A larger item waits until nothing else counts.
func TestWindowLargerItemWaits(t *testing.T) {
	for name, want := range map[string]time.Duration{"fixed": second, "log": 1500 * time.Millisecond, "sliding": 2 * second} {
		l := windows(at(0), 10, second)[name]
		l.Take(at(0), at(second/2), 1)
		if got := l.Next(at(second/2), 0, 11).Sub(start); got != want {
			t.Errorf("%s: 11 leave under a limit of 10 at %v, want %v", name, got, want)
		}
	}
}

// What has left in the window counts against a new limit.
func TestWindowSetRate(t *testing.T) {
	for name, l := range windows(at(0), 10, second) {
		l.Take(at(0), at(0), 10)
		l.SetRate(at(0), perSecond(15), 0)
		wantLeave(t, l, 0, 5, 0)
		l.SetRate(at(0), perSecond(3), 0)
		if got := l.Next(at(0), 0, 1); got.Before(at(second)) {
			t.Errorf("%s: 15 have left under a limit of 3, and one more may leave at %v", name, got)
		}
		l.SetRate(at(0), perSecond(15), 0)
		if got := l.Next(at(0), 0, 1); got.Before(at(second)) {
			t.Errorf("%s: 15 have left under a limit of 15, and one more may leave at %v", name, got)
		}
	}
}

// Under a load that never pauses the fixed window and the log reach the limit. The
// sliding window reaches one less, or a half if the limit is one.
func TestWindowUnderLoad(t *testing.T) {
	for _, limit := range []int64{1, 2, 10} {
		for name, l := range windows(at(0), limit, second) {
			now, items := time.Duration(0), int64(0)
			for ; now < 1000*second; items++ {
				now = leave(l, now, 1)
			}
			want := 1000 * limit
			if name == "sliding" {
				want = max(1000*(limit-1), 500) + 1 // one more in the first window
			}
			if items < want || items > want+2 {
				t.Errorf("%s, limit %d: %d left in 1000 windows, want %d", name, limit, items, want)
			}
		}
	}
}

// The largest counts and windows lose no unit and gain none.
func TestWindowWithoutRounding(t *testing.T) {
	const limit, window = 1 << 43, 7 * 24 * time.Hour
	l := NewSlidingWindow(at(0), unit.NewRate(unit.Bytes, limit, window), window)
	free := at(0).Truncate(window).Add(window)
	l.Take(free, free, limit)
	// limit*(1-x) + 1 <= limit if x is 1/limit of the window or more
	want := free.Add(window + (window+limit-1)/limit)
	if got := l.Next(free, 0, 1); !got.Equal(want) {
		t.Errorf("a byte may leave %v too late", got.Sub(want))
	}
	want = free.Add(window + window/2)
	if got := l.Next(free, 0, limit/2); !got.Equal(want) {
		t.Errorf("half the limit may leave %v too late", got.Sub(want))
	}
}
