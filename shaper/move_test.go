package shaper

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"shaper/policy"
)

// movable is a flow whose owner waits and has a lock, as a session does.
type movable struct {
	mu   sync.Mutex
	flow Flow
	ends chan error // of capacity 1; receives how the wait ended
}

func newMovable(class *Class) *movable {
	m := &movable{ends: make(chan error, 1)}
	m.flow.Init(class, m)
	return m
}

func (m *movable) Leave(time.Time) { m.ends <- nil }

func (m *movable) Wait(ctx context.Context, cost Cost, busy bool) error {
	m.mu.Lock()
	verdict := m.flow.Ask(time.Now(), cost, busy)
	m.mu.Unlock()
	if verdict != Waits {
		return errOf(verdict)
	}
	select {
	case err := <-m.ends:
		return err
	case <-ctx.Done():
	}
	m.mu.Lock()
	cancelled := m.flow.Cancel(time.Now())
	m.mu.Unlock()
	if cancelled {
		return ctx.Err()
	}
	return <-m.ends
}

func (m *movable) Move(class *Class) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if verdict := m.flow.Move(time.Now(), class); verdict != Waits {
		m.ends <- errOf(verdict)
	}
}

func (m *movable) Class() *Class {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.flow.Class()
}

func (m *movable) Left() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.flow.Left(time.Now())
}

// TestMove moves a flow whose ticket waits, after ten seconds of its minute.
func TestMove(t *testing.T) {
	full := withQueue(leakyClass("1 packets/min"), 1, 0)
	full.Overflow = policy.Refuse
	confs := []policy.Class{
		named("slow", leakyClass("1 packets/min")), named("fast", leakyClass("1 packets/s")),
		named("idle", leakyClass("1 packets/min")), named("full", full), named("bytes", leakyClass("1KB/s")),
	}
	for _, c := range []struct {
		to    string
		err   error
		after time.Duration
	}{
		{"fast", nil, 12 * second}, // behind the item that waits there
		{"idle", nil, 10 * second},
		{"full", ErrQueueFull, 10 * second},
		{"bytes", nil, 10 * second},
		{"", nil, 10 * second},
		{"slow", nil, 60 * second},
	} {
		t.Run("to "+c.to, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *Shaper) {
				slow, f := s.Class("slow"), newMovable(s.Class("slow"))
				NewWaiter(slow).Wait(bg, Cost{Packets: 1}, false)
				moved := waitIn(bg, f, Cost{Packets: 1})
				behind := waitIn(bg, NewWaiter(slow), Cost{Packets: 1})
				time.Sleep(10 * second)
				NewWaiter(s.Class("full")).Wait(bg, Cost{Packets: 1}, false)
				stuck := waitIn(bg, NewWaiter(s.Class("full")), Cost{Packets: 1})
				NewWaiter(s.Class("fast")).Wait(bg, Cost{Packets: 1}, false)
				ahead := waitIn(bg, NewWaiter(s.Class("fast")), Cost{Packets: 1})

				f.Move(s.Class(c.to))
				if got := f.Class(); got != s.Class(c.to) {
					t.Errorf("the flow is in %v", got)
				}
				wantWait(t, moved, c.err, c.after)
				wantWait(t, ahead, nil, second)
				gone := time.Minute // without the flow, its turn comes one minute sooner
				if c.to == "slow" {
					gone = 2 * time.Minute
				}
				wantWait(t, behind, nil, gone)
				wantWait(t, stuck, nil, time.Minute)
				for _, class := range s.Classes() {
					wantBacklog(t, class, 0, 0)
				}
			}, confs...)
		})
	}
}

func TestMoveWithoutATicket(t *testing.T) {
	inBubble(t, func(t *testing.T, s *Shaper) {
		a, b := s.Class("a"), s.Class("b")
		f := newMovable(a)
		f.Wait(bg, Cost{Packets: 1}, false)
		f.Move(b)
		wantWait(t, waitIn(bg, f, Cost{Packets: 1}), nil, 0) // b is idle
		f.Move(nil)
		wantWait(t, waitIn(bg, f, Cost{Packets: 1}), nil, 0)
		f.Move(a)
		wantWait(t, waitIn(bg, f, Cost{Packets: 1}), nil, second)
	}, named("a", leakyClass("1 packets/s")), named("b", leakyClass("1 packets/s")))
}

// A busy flow that moves away and back earns nothing by that: its bucket, which remembers nothing by then, does not make up
// for the time before.
func TestMovesEarnNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, s *Shaper) {
		const rate, piece, quantum, rounds = 10_000, 1460, 2920, 20
		f, start := newMovable(nil), time.Now()
		for range rounds {
			bucket := s.Class("test").Join(time.Now(), client(1))
			f.Move(bucket)
			for range 2 {
				f.Wait(bg, Cost{Bytes: piece}, true)
				f.Left()
			}
			f.Move(s.Class("other"))
			bucket.Quit(time.Now())
			time.Sleep(150 * ms) // until the bucket owes nothing
		}
		if most := rate*time.Since(start).Seconds() + quantum; rounds*2*piece > most {
			t.Errorf("%d bytes leave, want %.0f at most", rounds*2*piece, most)
		}
	}, perSource(10, leakyClass("10KB/s")), named("other", leakyClass("10KB/s")))
}

// TestMoveAndCancelInOneInstant moves a flow at the instant at which its context ends.
func TestMoveAndCancelInOneInstant(t *testing.T) {
	inBubble(t, func(t *testing.T, s *Shaper) {
		c := s.Class("test")
		NewWaiter(c).Wait(bg, Cost{Packets: 1}, false)
		for i := range 200 {
			f := newMovable(c)
			ctx, cancel := context.WithCancel(bg)
			wait := waitIn(ctx, f, Cost{Packets: 1})
			if i%2 == 0 {
				cancel()
			}
			f.Move(nil)
			cancel()
			if _, err := wait(); err != nil && err != context.Canceled {
				t.Fatalf("Wait returns %v", err)
			}
			wantBacklog(t, c, 0, 0)
		}
	}, leakyClass("1 packets/h"))
}

// TestFlowsUnderChange lets flows wait, give up and move while rates and algorithms
// change, on the real clock. Each Wait must end, and nothing may remain.
func TestFlowsUnderChange(t *testing.T) {
	s := New()
	defer s.Close()
	confs := []policy.Class{
		named("a", leakyClass("10MB/s")), named("b", tokenClass("20MB/s", 5000)), named("c", leakyClass("20000 packets/s")),
	}
	s.Apply(confs)
	pick := func() *Class { return s.Class(string("abcd"[rand.IntN(4)])) } // there is no d

	var flows, others sync.WaitGroup
	stop := make(chan struct{})
	var all []*movable
	for range 8 {
		f := newMovable(pick())
		all = append(all, f)
		flows.Go(func() { useFlow(t, f) })
	}
	others.Go(func() { // one goroutine moves, one changes classes
		for !closed(stop) {
			all[rand.IntN(len(all))].Move(pick())
		}
	})
	others.Go(func() {
		for !closed(stop) {
			i, from := rand.IntN(2), confs[rand.IntN(2)] // c counts another unit
			s.Class(confs[i].Name).Set(time.Now(), named(confs[i].Name, from))
		}
	})
	flows.Wait()
	close(stop)
	others.Wait()
	for _, c := range s.Classes() {
		wantBacklog(t, c, 0, 0)
		if cost, _ := c.Estimate().Drain(time.Now()); cost != 0 {
			t.Errorf("class %s: a cost of %d waits, but nobody waits", c.Name(), cost)
		}
	}
}

// useFlow waits a few hundred times, and sometimes gives up.
func useFlow(t *testing.T, f *movable) {
	for i := range 300 {
		ctx, cancel := context.WithCancel(bg)
		switch i % 3 {
		case 0:
			go cancel()
		case 1:
			cancel()
		}
		err := f.Wait(ctx, Cost{Bytes: 1000, Packets: 1}, i%2 == 0)
		if err != nil && err != context.Canceled {
			t.Errorf("Wait returns %v", err)
		}
		f.Left()
		cancel()
	}
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// errOf returns the reason for a verdict.
func errOf(v Verdict) error {
	return map[Verdict]error{Full: ErrQueueFull, TooLong: ErrTooLong}[v]
}
