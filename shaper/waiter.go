package shaper

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"time"
)

// The reasons in a RefusedError of Waiter.Wait and Waiter.Do.
var (
	ErrQueueFull = errors.New("shaper: the queue of the class is full")
	ErrTooLong   = errors.New("shaper: the wait would be longer than max_wait")
)

// A RefusedError says why a class refused an item, and when it will have room.
type RefusedError struct {
	Reason error // ErrQueueFull or ErrTooLong
	// Retry estimates how long it takes until there is room, if nothing else comes first.
	// It is the longest Duration if there never will be room.
	Retry time.Duration
}

func (e *RefusedError) Error() string {
	if e.Retry == math.MaxInt64 {
		return e.Reason.Error()
	}
	return fmt.Sprintf("%v; retry in %v", e.Reason, e.Retry.Round(time.Millisecond))
}

// Unwrap returns the reason.
func (e *RefusedError) Unwrap() error { return e.Reason }

// Waiter lets a goroutine wait until its items may leave. Wait is for items that leave in
// no time, Do for items that take time to leave. One goroutine at a time uses a Waiter.
type Waiter struct {
	flow   Flow
	leaves wakeUp // gets a value when the ticket that waits may leave
}

// wakeUp is the Owner of the ticket of a Waiter: a channel of capacity 1.
type wakeUp chan struct{}

// Leave implements Owner.
func (w wakeUp) Leave(time.Time) { w <- struct{}{} }

// NewWaiter returns a Waiter in a class; a nil class limits nothing.
func NewWaiter(class *Class) *Waiter {
	w := &Waiter{leaves: make(wakeUp, 1)}
	w.flow.Init(class, w.leaves)
	return w
}

// NewRequestWaiter is NewWaiter for items that get an answer. An item that has left is in
// flight until the caller calls Class().Provider().Answered once for it.
func NewRequestWaiter(class *Class) *Waiter {
	w := NewWaiter(class)
	w.flow.ticket.Asks = true
	return w
}

// Class returns the class that the waiter is in; nil for none.
func (w *Waiter) Class() *Class { return w.flow.Class() }

// Wait waits until an item of this cost may leave, and returns nil. The item counts as
// having left then: gaps begin at that moment. busy is Item.Busy. Wait returns a
// *RefusedError if the class refuses the item, and the error of the context if that ends
// first. If Wait returns an error, nothing is charged.
func (w *Waiter) Wait(ctx context.Context, cost Cost, busy bool) error {
	return w.Do(ctx, cost, busy, nil)
}

// Do is Wait for an item that takes time to leave: it calls leave when the item may leave,
// and returns what leave returns. Gaps begin when leave returns, and a sliding log counts from
// then on. Until then nothing follows the item out of a class that counts gaps, for a second
// at most. If the item may not leave, Do does not call leave. A nil leave takes no time.
func (w *Waiter) Do(ctx context.Context, cost Cost, busy bool, leave func() error) error {
	if err := w.wait(ctx, cost, busy); err != nil {
		return err
	}
	defer w.left()
	if leave == nil {
		return nil
	}
	return leave()
}

// wait is Wait, but the caller calls left when the item has left.
func (w *Waiter) wait(ctx context.Context, cost Cost, busy bool) error {
	if w.flow.Class() == nil {
		return ctx.Err()
	}
	verdict := w.flow.Ask(time.Now(), cost, busy)
	for ; verdict == Waits; verdict = w.flow.Turn(time.Now) {
		select {
		case <-w.leaves:
		case <-ctx.Done():
			if w.flow.Cancel(time.Now()) {
				// If somebody moves a deadline back just as it passes, the error is gone. A nil
				// would let out what has just been cancelled.
				return cmp.Or(ctx.Err(), os.ErrDeadlineExceeded)
			}
			<-w.leaves // the pacer has just let it go
		}
	}
	return w.refusal(verdict, cost)
}

// left says that the item has left now.
func (w *Waiter) left() { w.flow.Left(time.Now()) }

// refusal returns the error for a verdict; nil if the item leaves.
func (w *Waiter) refusal(v Verdict, cost Cost) error {
	switch v {
	case Full:
		return &RefusedError{ErrQueueFull, w.flow.class.Estimate().Retry(time.Now(), cost)}
	case TooLong:
		return &RefusedError{ErrTooLong, w.flow.class.Estimate().Retry(time.Now(), cost)}
	}
	return nil
}
