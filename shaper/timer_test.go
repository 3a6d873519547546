package shaper

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"shaper/limit"
)

// forEachTimer runs a test on the system's timer and on the runtime's.
func forEachTimer(t *testing.T, test func(*testing.T, timer)) {
	t.Run("system", func(t *testing.T) { test(t, newTimer()) })
	t.Run("runtime", func(t *testing.T) { test(t, newRuntimeTimer()) })
}

// waitUntil waits for the timer, and fails if the wait ends before deadline.
func waitUntil(t *testing.T, clock timer, deadline time.Time) {
	t.Helper()
	if !clock.wait() {
		t.Fatal("wait says that the timer is closed, but it is open")
	}
	if early := time.Until(deadline); early > 0 {
		t.Errorf("wait ended %v early", early)
	}
}

func TestTimerIsNotEarly(t *testing.T) {
	forEachTimer(t, func(t *testing.T, clock timer) {
		defer clock.close()
		for i := range 10 {
			deadline := time.Now().Add(time.Duration(i) * 300 * time.Microsecond)
			clock.set(deadline)
			waitUntil(t, clock, deadline)
		}
	})
}

func TestTimerOfThePast(t *testing.T) {
	forEachTimer(t, func(t *testing.T, clock timer) {
		defer clock.close()
		for _, past := range []time.Time{time.Now(), time.Now().Add(-time.Hour), {}, time.Unix(0, 0)} {
			clock.set(past)
			waitUntil(t, clock, past)
		}
	})
}

func TestTimerMoves(t *testing.T) {
	forEachTimer(t, func(t *testing.T, clock timer) {
		defer clock.close()
		now := time.Now()
		clock.set(now.Add(5 * ms))
		clock.set(now.Add(20 * ms))
		waitUntil(t, clock, now.Add(20*ms))
		clock.set(time.Now().Add(ms))
		clock.set(limit.Never)
		later := time.Now().Add(10 * ms)
		clock.set(later)
		waitUntil(t, clock, later)
	})
}

// Once a wait has ended, the next one lasts until the timer is set again, whether or not the deadline was moved
// before it passed.
func TestTimerGoesOffOnce(t *testing.T) {
	forEachTimer(t, func(t *testing.T, clock timer) {
		rang := make(chan bool)
		go func() {
			defer close(rang)
			for clock.wait() {
				rang <- true
			}
		}()
		for range 20 {
			clock.set(time.Now().Add(time.Hour))
			clock.set(time.Now().Add(ms))
			<-rang
			select {
			case <-rang:
				t.Fatal("wait has returned twice for one deadline")
			case <-time.After(3 * ms):
			}
		}
		clock.close()
		<-rang
	})
}

// TestTimerMovesWhileWaitedFor sets a timer to an hour, and then to now, while somebody
// waits for it or is about to.
func TestTimerMovesWhileWaitedFor(t *testing.T) {
	forEachTimer(t, func(t *testing.T, clock timer) {
		defer clock.close()
		rang := make(chan bool)
		go func() {
			for range 200 {
				rang <- clock.wait()
			}
		}()
		for range 200 {
			clock.set(time.Now().Add(time.Hour))
			clock.set(time.Now())
			if !<-rang {
				t.Fatal("wait says that the timer is closed, but it is open")
			}
		}
	})
}

func TestTimerClose(t *testing.T) {
	forEachTimer(t, func(t *testing.T, clock timer) {
		rang := make(chan bool)
		go func() { rang <- clock.wait() }()
		clock.set(time.Now().Add(time.Hour))
		clock.close()
		if <-rang {
			t.Error("wait returns true although the timer is closed")
		}
		if clock.wait() {
			t.Error("wait returns true for a timer that was closed before")
		}
		clock.set(time.Now()) // must do no harm
	})
}

// TestTimerUnderChange moves a deadline to and fro while somebody waits for it. The last
// deadline must not be lost.
func TestTimerUnderChange(t *testing.T) {
	forEachTimer(t, func(t *testing.T, clock timer) {
		defer clock.close()
		for range 50 {
			var last atomic.Pointer[time.Time]
			var setter sync.WaitGroup
			setter.Go(func() {
				for range 20 {
					clock.set(time.Now().Add(time.Duration(rand.IntN(200)) * time.Microsecond))
				}
				end := time.Now().Add(200 * time.Microsecond)
				last.Store(&end)
				clock.set(end)
			})
			for end := (*time.Time)(nil); end == nil || time.Now().Before(*end); end = last.Load() {
				clock.wait()
			}
			setter.Wait()
		}
	})
}
