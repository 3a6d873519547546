package shaper

import (
	"cmp"
	"context"
	"errors"
	"os"
	"sync"
	"time"
)

// Errors of Flow.Wait.
var (
	ErrQueueFull = errors.New("shaper: the queue of the class is full")
	ErrTooLong   = errors.New("shaper: the wait would be longer than max_wait")
)

// errGivenUp is for Wait alone: its context has ended, and Again has seen it.
var errGivenUp = errors.New("shaper: given up")

// Flow is one direction of a session, as its class sees it. It has at most one
// item waiting, a ticket for what it has read and not yet written; so the FIFO
// serves flows in turn, and a peer that stops reading holds up only itself.
//
// One goroutine uses Wait and Left; Move may be called by another.
type Flow struct {
	mu      sync.Mutex
	class   *Class // nil: nothing is limited
	ticket  Item
	leaves  chan error // of capacity 1: the verdict on a ticket that had to wait
	ending  bool       // Wait is being given up: Again has nothing to ask for
	inside  bool       // OnLeave is being called
	settled bool       // meanwhile Move or cancel has ended the wait that Again began; again says how
	again   error      // what Again could not wait for

	// OnLeave, where it is set, is called when a ticket that waited may leave,
	// and Wait goes on waiting. It moves what can be moved without blocking,
	// asks for the next ticket with Again, and returns whether that waits; if
	// not, Wait returns. So a flow that only its class holds up costs no switch
	// of goroutines. It is set while no Wait is under way; the pacer calls it.
	OnLeave func(now time.Time) (waits bool)
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
	f.ending = false
	verdict := f.enter(time.Now(), cost, busy)
	f.mu.Unlock()
	if verdict != Waits {
		return verdict.err()
	}
	select {
	case err := <-f.leaves:
		return err
	case <-ctx.Done():
		if !f.cancel() {
			if err := <-f.leaves; err != errGivenUp {
				return err // it left at the same moment
			}
		}
		// A deadline that is moved back as it passes has no error any more, and
		// nil would let out what has just been cancelled.
		return cmp.Or(ctx.Err(), os.ErrDeadlineExceeded)
	}
}

// Again is Wait from within OnLeave: it returns true if the next ticket waits.
// Else OnLeave is to return false, and Wait says whether the ticket may leave.
func (f *Flow) Again(now time.Time, cost Cost, busy bool) (waits bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.ending:
		f.again = errGivenUp
		return false
	case f.class == nil:
		return false
	}
	verdict := f.enter(now, cost, busy)
	f.again = verdict.err()
	return verdict == Waits
}

func (f *Flow) enter(now time.Time, cost Cost, busy bool) Verdict {
	f.ticket.Cost, f.ticket.Held, f.ticket.Busy = cost, cost.Bytes, busy
	return f.class.Enter(now, &f.ticket)
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
	f.ticket.Left(time.Now())
}

// Leave implements Owner, for the pacer.
func (f *Flow) Leave(now time.Time) {
	f.enterLeave(true)
	waits := f.OnLeave != nil && f.OnLeave(now)
	if settled, err := f.enterLeave(false); !waits || settled {
		f.leaves <- err
	}
}

// enterLeave notes that OnLeave begins or has ended, and returns what was
// settled meanwhile.
func (f *Flow) enterLeave(inside bool) (settled bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	settled, err = f.settled, f.again
	f.inside, f.settled = inside, false
	if inside {
		f.again = nil
	}
	return settled, err
}

// settle ends a wait; what Wait returns must not overtake OnLeave.
func (f *Flow) settle(err error) {
	if f.inside {
		f.settled, f.again = true, err
		return
	}
	f.leaves <- err
}

// cancel gives up waiting; false where the ticket is leaving at this moment.
func (f *Flow) cancel() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ending = true
	if f.class == nil || !f.class.Cancel(time.Now(), &f.ticket) {
		return false
	}
	if f.inside {
		f.settle(errGivenUp)
		return false
	}
	return true
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
		f.settle(verdict.err())
	}
}
