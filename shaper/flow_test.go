package shaper

import (
	"context"
	"errors"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"shaper/policy"
)

// inBubble runs a test on a fake clock, with classes of the policies confs.
func inBubble(t *testing.T, test func(*testing.T, *Shaper), confs ...policy.Class) {
	synctest.Test(t, func(t *testing.T) {
		s := NewOnRuntimeTimer()
		defer s.Close()
		s.Apply(confs)
		test(t, s)
	})
}

// named returns a policy under another name.
func named(name string, conf policy.Class) policy.Class {
	conf.Name = name
	return conf
}

var bg = context.Background()

// waits is a Waiter, or a flow that can be moved.
type waits interface {
	Wait(context.Context, Cost, bool) error
}

// waitIn starts a Wait, and returns a function that waits for its end: it returns how long
// the Wait took, and its error.
func waitIn(ctx context.Context, f waits, cost Cost) func() (time.Duration, error) {
	begin := time.Now()
	var after time.Duration
	done := make(chan error, 1)
	go func() {
		err := f.Wait(ctx, cost, false)
		after = time.Since(begin)
		done <- err
	}()
	synctest.Wait() // it waits, or has left
	return func() (time.Duration, error) { err := <-done; return after, err }
}

// wantWait fails unless a Wait ends like this.
func wantWait(t *testing.T, wait func() (time.Duration, error), want error, after time.Duration) {
	t.Helper()
	if got, err := wait(); !errors.Is(err, want) || got != after {
		t.Errorf("Wait ends after %v with %v, want %v with %v", got, err, after, want)
	}
}

func TestFlowWaitsItsTurn(t *testing.T) {
	inBubble(t, func(t *testing.T, s *Shaper) {
		f, begin := NewWaiter(s.Class("test")), time.Now()
		for i := range 1000 {
			if err := f.Wait(bg, Cost{Bytes: 1000}, i > 0); err != nil {
				t.Fatal(err)
			}
			if got, want := time.Since(begin), time.Duration(i)*ms; got != want {
				t.Fatalf("item %d leaves after %v, want %v", i, got, want)
			}
		}
	}, leakyClass("1MB/s"))
}

func TestFlowWithoutAClass(t *testing.T) {
	f := NewWaiter(nil)
	if err := f.Wait(bg, Cost{Bytes: 1 << 40}, false); err != nil {
		t.Errorf("a flow without a class waits: %v", err)
	}
	ctx, cancel := context.WithCancel(bg)
	cancel()
	if err := f.Wait(ctx, Cost{}, false); err != context.Canceled {
		t.Errorf("a flow whose context has ended returns %v", err)
	}
}

// TestFlowsGetEqualShares runs three flows that always have a piece, and one that sends
// one piece and never comes back.
func TestFlowsGetEqualShares(t *testing.T) {
	inBubble(t, func(t *testing.T, s *Shaper) {
		c := s.Class("test")
		piece := c.Piece()
		stalled := NewWaiter(c)
		if err := stalled.Wait(bg, Cost{Bytes: piece}, false); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(bg, 10*second)
		defer cancel()
		sums := make(chan int64)
		for range 3 {
			go func() {
				f, sum := NewWaiter(c), int64(0)
				for f.Wait(ctx, Cost{Bytes: piece}, true) == nil {
					sum += piece
				}
				sums <- sum
			}()
		}
		total := piece
		for range 3 {
			sum := <-sums
			if want := (10_000_000 - piece) / 3; sum < want-2*piece || sum > want+2*piece {
				t.Errorf("a flow sent %d of 10 MB, want a third, %d", sum, want)
			}
			total += sum
		}
		if total < 10_000_000-piece || total > 10_000_000+2*piece {
			t.Errorf("%d bytes left in 10 s of 1 MB/s", total)
		}
		wantBacklog(t, c, 0, 0)
	}, leakyClass("1MB/s"))
}

func TestFlowCancelChargesNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, s *Shaper) {
		c := s.Class("test")
		first, second, third := NewWaiter(c), NewWaiter(c), NewWaiter(c)
		first.Wait(bg, Cost{Bytes: 1000}, false)
		ctx, cancel := context.WithTimeout(bg, 300*ms)
		defer cancel()
		gaveUp := waitIn(ctx, second, Cost{Bytes: 1000})
		waited := waitIn(bg, third, Cost{Bytes: 1000})
		wantBacklog(t, c, 2, 2000)
		wantWait(t, gaveUp, context.DeadlineExceeded, 300*ms)
		wantWait(t, waited, nil, time.Second)
		wantBacklog(t, c, 0, 0)
		again := waitIn(bg, second, Cost{Bytes: 1000})
		wantWait(t, again, nil, time.Second)
	}, leakyClass("1KB/s"))
}

// TestFlowCancelLetsASmallerOneGo cancels a large item. The tokens suffice for the small
// item behind it.
func TestFlowCancelLetsASmallerOneGo(t *testing.T) {
	inBubble(t, func(t *testing.T, s *Shaper) {
		c := s.Class("test")
		ctx, cancel := context.WithTimeout(bg, 50*ms)
		defer cancel()
		NewWaiter(c).Wait(bg, Cost{Bytes: 1000}, false)
		large := waitIn(ctx, NewWaiter(c), Cost{Bytes: 1000})
		small := waitIn(bg, NewWaiter(c), Cost{Bytes: 100})
		wantWait(t, large, context.DeadlineExceeded, 50*ms)
		wantWait(t, small, nil, 100*ms)

		c.Enter(time.Now(), packet(1000))
		small = waitIn(bg, NewWaiter(c), Cost{Bytes: 100})
		c.Evict(time.Now(), func(it *Item) bool { return it.Cost.Bytes == 1000 })
		wantWait(t, small, nil, 100*ms)
	}, tokenClass("1KB/s", 1000))
}

// TestFlowCancelInTheInstantOfLeaving lets a deadline coincide with the departure. Either
// the item left and is charged, or it did not leave and is not charged.
func TestFlowCancelInTheInstantOfLeaving(t *testing.T) {
	inBubble(t, func(t *testing.T, s *Shaper) {
		c := s.Class("test")
		f, next := NewWaiter(c), time.Now().Add(second)
		f.Wait(bg, Cost{Packets: 1}, false)
		for range 200 {
			ctx, cancel := context.WithDeadline(bg, next)
			err := f.Wait(ctx, Cost{Packets: 1}, false)
			cancel()
			if !time.Now().Equal(next) {
				t.Fatalf("Wait ended %v late", time.Since(next))
			}
			if err != nil { // nothing was charged, so the next item need not wait
				if err = f.Wait(bg, Cost{Packets: 1}, false); err != nil || !time.Now().Equal(next) {
					t.Fatalf("a cancelled item was charged: %v", err)
				}
			}
			next = next.Add(second)
		}
	}, leakyClass("1 packets/s"))
}

// TestFlowCancelIsAnError moves a deadline back as soon as it has passed. Wait must not
// return nil: that would let out what nobody has paid for.
func TestFlowCancelIsAnError(t *testing.T) {
	inBubble(t, func(t *testing.T, s *Shaper) {
		passed := make(chan struct{})
		close(passed)
		wait := waitIn(movedBack{bg, passed}, NewWaiter(s.Class("test")), Cost{Bytes: 1})
		wantWait(t, wait, os.ErrDeadlineExceeded, 0)
		wantBacklog(t, s.Class("test"), 0, 0)
	}, leakyClass("0B/s"))
}

// movedBack is a context that was done, and has no error when it is asked.
type movedBack struct {
	context.Context
	done chan struct{}
}

func (c movedBack) Done() <-chan struct{} { return c.done }

func TestFlowOverflow(t *testing.T) {
	conf := withQueue(leakyClass("1 packets/s"), 2, 0)
	conf.Overflow = policy.Refuse
	conf.MaxWait = 3 * 1e9
	inBubble(t, func(t *testing.T, s *Shaper) {
		c := s.Class("test")
		NewWaiter(c).Wait(bg, Cost{Packets: 1}, false)
		waits := waitIn(bg, NewWaiter(c), Cost{Packets: 2})
		wantWait(t, waitIn(bg, NewWaiter(c), Cost{Packets: 1}), ErrQueueFull, 0)
		c.Set(time.Now(), withQueue(c.Policy(), 3, 0))
		wantWait(t, waitIn(bg, NewWaiter(c), Cost{Packets: 1}), nil, 3*time.Second)
		wantWait(t, waits, nil, time.Second)
	}, conf)
}

func TestFlowTooLong(t *testing.T) {
	conf := leakyClass("1 packets/s")
	conf.Overflow = policy.Refuse
	conf.MaxWait = 1e9
	inBubble(t, func(t *testing.T, s *Shaper) {
		c := s.Class("test")
		NewWaiter(c).Wait(bg, Cost{Packets: 1}, false)
		waits := waitIn(bg, NewWaiter(c), Cost{Packets: 1})
		wantWait(t, waitIn(bg, NewWaiter(c), Cost{Packets: 1}), ErrTooLong, 0)
		wantWait(t, waits, nil, time.Second)
	}, conf)
}

func TestFlowSetReachesWaitingFlowsAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, s *Shaper) {
		c := s.Class("test")
		NewWaiter(c).Wait(bg, Cost{Bytes: 1000}, false)
		one := waitIn(bg, NewWaiter(c), Cost{Bytes: 1000})
		two := waitIn(bg, NewWaiter(c), Cost{Bytes: 1000})
		time.Sleep(second)
		setRateNow(c, "0B/s")
		time.Sleep(time.Hour)
		setRateNow(c, "1MB/s") // 900 of the first 1000 bytes are still owed
		wantWait(t, one, nil, time.Second+time.Hour+900*time.Microsecond)
		wantWait(t, two, nil, time.Second+time.Hour+1900*time.Microsecond)
	}, leakyClass("100B/s"))
}

// TestWaitHasLeft holds that 20 messages a second leave although nobody calls Left.
func TestWaitHasLeft(t *testing.T) {
	inBubble(t, func(t *testing.T, s *Shaper) {
		for _, several := range []bool{false, true} {
			w, begin := NewWaiter(s.Class("test")), time.Now()
			for range 20 {
				if several {
					w = NewWaiter(s.Class("test"))
				}
				if err := w.Wait(bg, Cost{Messages: 1}, true); err != nil {
					t.Fatal(err)
				}
			}
			if took := time.Since(begin); took > second {
				t.Errorf("20 messages took %v", took)
			}
		}
	}, leakyClass("20 messages/s"))
}

// TestDoCountsFromTheEnd lets an item take 30 ms to leave. The gap begins then, also if
// the item fails or its owner panics.
func TestDoCountsFromTheEnd(t *testing.T) {
	failed := errors.New("failed")
	inBubble(t, func(t *testing.T, s *Shaper) {
		for name, leave := range map[string]func() error{
			"leaves": func() error { return nil },
			"fails":  func() error { return failed },
			"panics": func() error { panic(failed) },
		} {
			begin := time.Now()
			do(t, name, NewWaiter(s.Class("test")), leave)
			wantWait(t, waitIn(bg, NewWaiter(s.Class("test")), Cost{Messages: 1}), nil, 50*ms)
			if after := time.Since(begin); after != 80*ms {
				t.Errorf("%s: the next item leaves after %v", name, after)
			}
			time.Sleep(second)
		}
	}, leakyClass("20 messages/s"))
}

// do lets an item leave that takes 30 ms. It fails unless Do ends as leave does.
func do(t *testing.T, name string, w *Waiter, leave func() error) {
	t.Helper()
	defer func() {
		if panics := recover() != nil; panics != (name == "panics") {
			t.Errorf("%s: Do panics: %t", name, panics)
		}
	}()
	err := w.Do(bg, Cost{Messages: 1}, false, func() error { time.Sleep(30 * ms); return leave() })
	if (err != nil) != (name == "fails") {
		t.Errorf("%s: Do returns %v", name, err)
	}
}

// TestDoNothingThatMayNotLeave ends the context before the item may leave. Do does not
// call leave.
func TestDoNothingThatMayNotLeave(t *testing.T) {
	inBubble(t, func(t *testing.T, s *Shaper) {
		ctx, cancel := context.WithTimeout(bg, second)
		defer cancel()
		err := NewWaiter(s.Class("test")).Do(ctx, Cost{Messages: 1}, false, func() error {
			t.Error("Do called leave")
			return nil
		})
		if err != context.DeadlineExceeded {
			t.Errorf("Do returns %v", err)
		}
	}, leakyClass("0 messages/s"))
}

// TestFlowLeft writes an item late. The gap begins then, in the class that was charged.
func TestFlowLeft(t *testing.T) {
	inBubble(t, func(t *testing.T, s *Shaper) {
		c, other := s.Class("test"), s.Class("other")
		NewWaiter(other).Wait(bg, Cost{Packets: 1}, false)
		f := newMovable(c)
		f.Wait(bg, Cost{Packets: 1}, false)
		waits := waitIn(bg, NewWaiter(c), Cost{Packets: 1})
		elsewhere := waitIn(bg, NewWaiter(other), Cost{Packets: 1})
		f.Move(other)
		time.Sleep(400 * ms)
		f.Left()
		wantWait(t, waits, nil, 1400*ms)
		wantWait(t, elsewhere, nil, time.Second)
		f.Wait(bg, Cost{Bytes: 1}, false) // which costs no packets
		f.Left()
		wantWait(t, waitIn(bg, NewWaiter(other), Cost{Packets: 1}), nil, 600*ms)
	}, leakyClass("1 packets/s"), named("other", leakyClass("1 packets/s")))
}

func TestShaperClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewOnRuntimeTimer()
		s.Apply([]policy.Class{leakyClass("1 packets/s")})
		c := s.Class("test")
		NewWaiter(c).Wait(bg, Cost{Packets: 1}, false)
		ctx, cancel := context.WithTimeout(bg, time.Minute)
		defer cancel()
		waits := waitIn(ctx, NewWaiter(c), Cost{Packets: 1})
		s.Close()
		wantWait(t, waits, context.DeadlineExceeded, time.Minute) // nothing leaves any more
		wantBacklog(t, c, 0, 0)
	})
}
