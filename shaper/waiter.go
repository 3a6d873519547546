package shaper

import (
	"cmp"
	"context"
	"errors"
	"os"
	"time"
)

// Errors of Waiter.Wait.
var (
	ErrQueueFull = errors.New("shaper: the queue of the class is full")
	ErrTooLong   = errors.New("shaper: the wait would be longer than max_wait")
)

// Waiter is a Flow for a goroutine that waits until its items may leave. One
// goroutine at a time uses it.
type Waiter struct {
	flow   Flow
	leaves chan struct{} // of capacity 1: a ticket that had to wait may leave
}

// NewWaiter returns a waiter in a class; a nil class limits nothing.
func NewWaiter(class *Class) *Waiter {
	w := &Waiter{leaves: make(chan struct{}, 1)}
	w.flow.Init(class, w)
	return w
}

// Class returns the class that the waiter is in; nil for none.
func (w *Waiter) Class() *Class { return w.flow.Class() }

// Wait returns nil when an item of this cost may leave. busy is Item.Busy. It
// returns ErrQueueFull or ErrTooLong where the class overflows, and the
// context's error where that ends first: then nothing was charged.
func (w *Waiter) Wait(ctx context.Context, cost Cost, busy bool) error {
	if w.flow.Class() == nil {
		return ctx.Err()
	}
	verdict := w.flow.Ask(time.Now(), cost, busy)
	if verdict != Waits {
		return verdict.Err()
	}
	select {
	case <-w.leaves:
		return nil
	case <-ctx.Done():
		if !w.flow.Cancel(time.Now()) {
			<-w.leaves // it left at the same moment
			return nil
		}
		// A deadline that is moved back as it passes has no error any more, and
		// nil would let out what has just been cancelled.
		return cmp.Or(ctx.Err(), os.ErrDeadlineExceeded)
	}
}

// Left says that what Wait allowed has now left.
func (w *Waiter) Left() { w.flow.Left(time.Now()) }

// Leave implements Owner, for the pacer.
func (w *Waiter) Leave(time.Time) { w.leaves <- struct{}{} }

// Err returns what a verdict means to one who cannot wait; nil where the item
// leaves, or waits.
func (v Verdict) Err() error {
	switch v {
	case Full:
		return ErrQueueFull
	case TooLong:
		return ErrTooLong
	}
	return nil
}
