package shaper

import (
	"context"
	"errors"
	"sync"
	"time"
)

// Errors of Flow.Wait.
var (
	ErrQueueFull = errors.New("shaper: the queue of the class is full")
	ErrTooLong   = errors.New("shaper: the wait would be longer than max_wait")
)

// Flow is one direction of a session, as its class sees it. It has at most one
// item waiting, a ticket for what it has read and not yet written; so the FIFO
// serves flows in turn, and a peer that stops reading holds up only itself.
//
// One goroutine uses Wait and Left; Move may be called by another.
type Flow struct {
	mu     sync.Mutex
	class  *Class // nil: nothing is limited
	ticket Item
	leaves chan error // of capacity 1: the verdict on a ticket that had to wait
}

// NewFlow returns a flow in a class; a nil class limits nothing.
func NewFlow(class *Class) *Flow {
	f := &Flow{class: class, leaves: make(chan error, 1)}
	f.ticket.Owner = f
	f.ticket.Settles = true
	f.ticket.Patient = true // Wait holds up the source; the class's overflow has the last word
	return f
}

// Class returns the class that the flow is in now; nil for none.
func (f *Flow) Class() *Class {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.class
}

// Wait returns nil when an item of this cost may leave. busy is Item.Busy. It
// returns ErrQueueFull or ErrTooLong where the class overflows, and the
// context's error where that ends first: then nothing was charged.
func (f *Flow) Wait(ctx context.Context, cost Cost, busy bool) error {
	f.mu.Lock()
	if f.class == nil {
		f.mu.Unlock()
		return ctx.Err()
	}
	f.ticket.Cost, f.ticket.Held, f.ticket.Busy = cost, cost.Bytes, busy
	verdict := f.class.Enter(time.Now(), &f.ticket)
	f.mu.Unlock()
	if verdict != Waits {
		return verdict.err()
	}
	select {
	case err := <-f.leaves:
		return err
	case <-ctx.Done():
		if f.cancel() {
			return ctx.Err()
		}
		return <-f.leaves // it left at the same moment
	}
}

// err returns what a verdict means to one who cannot wait.
func (v Verdict) err() error {
	switch v {
	case Full:
		return ErrQueueFull
	case TooLong:
		return ErrTooLong
	}
	return nil
}

// Left says that what Wait allowed has now been written. The class that it was
// charged to is told, whichever the flow has been moved to since.
func (f *Flow) Left() {
	// No lock: nobody else touches a ticket that does not wait.
	if c := f.ticket.charged; c != nil {
		c.Left(time.Now())
	}
}

// Leave implements Owner, for the pacer.
func (f *Flow) Leave(time.Time) { f.leaves <- nil }

func (f *Flow) cancel() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.class != nil && f.class.Cancel(time.Now(), &f.ticket)
}

// Move puts the flow into another class, with the ticket that waits: it goes to
// the end of that queue. A nil class lets it leave at once.
func (f *Flow) Move(class *Class) {
	f.mu.Lock()
	defer f.mu.Unlock()
	old := f.class
	f.class = class
	if old == nil || old == class {
		return
	}
	now := time.Now()
	if !old.Cancel(now, &f.ticket) {
		return
	}
	verdict := Leaves
	if class != nil {
		verdict = class.Enter(now, &f.ticket)
	}
	if verdict != Waits {
		f.leaves <- verdict.err()
	}
}
