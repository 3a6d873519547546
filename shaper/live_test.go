package shaper

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A class that nobody closes follows the clock, also that of a bubble. It leaves no
// goroutine behind: goleak looks for one after all tests, synctest after this one.
func TestLiveClass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		class := NewLiveClass(leakyClass("10 messages/s"))
		begin := time.Now()
		for round := range 3 {
			waiter := NewWaiter(class)
			for i := range 4 {
				if err := waiter.Wait(t.Context(), Cost{Messages: 1}, false); err != nil {
					t.Fatal(err)
				}
				if got, want := time.Since(begin), time.Duration(i)*100*ms; got != want {
					t.Errorf("round %d: message %d leaves after %v, want %v", round, i, got, want)
				}
			}
			time.Sleep(time.Hour) // nothing waits
			begin = time.Now()
		}
	})
}

// When the last waiter gives up, the goroutine ends, long before the item would have left.
func TestLiveClassEndsWithTheLastToWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		class := NewLiveClass(leakyClass("1 messages/h"))
		pacer := class.waker.(*pacer)
		class.Pass(time.Now(), Cost{Messages: 1})
		for range 3 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if err := NewWaiter(class).Wait(ctx, Cost{Messages: 1}, false); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatal(err)
			}
			cancel()
			synctest.Wait()
			pacer.mu.Lock()
			if pacer.timer != nil {
				t.Error("the class has a timer although nothing waits")
			}
			pacer.mu.Unlock()
		}
	})
}

// Waiters that come while the goroutine ends are woken too, on the system's timer.
func TestLiveClassComesAndGoes(t *testing.T) {
	class := NewLiveClass(leakyClass("20000 messages/s"))
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			waiter := NewWaiter(class)
			for range 200 {
				if err := waiter.Wait(t.Context(), Cost{Messages: 1}, false); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
}

// A bubble has its own clock, and a Shaper there follows it.
func TestShaperFollowsTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New()
		defer s.Close()
		waiter := NewWaiter(s.NewClass(leakyClass("1 messages/h")))
		begin := time.Now()
		for range 2 {
			if err := waiter.Wait(t.Context(), Cost{Messages: 1}, false); err != nil {
				t.Fatal(err)
			}
		}
		if got := time.Since(begin); got != time.Hour {
			t.Errorf("two messages take %v, want 1h", got)
		}
	})
}
