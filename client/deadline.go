package client

import (
	"net"
	"os"
	"sync"
	"time"
)

// A deadline is a context that ends at a time, which set moves. Closing it ends it for
// good. Unlike other contexts it may start again after its end, if set moves the time into
// the future: then Err returns nil though a channel that Done returned before is closed.
// Waiter.Wait allows for that.
type deadline struct {
	mu     sync.Mutex    // guards the fields below; no other lock is taken under it
	timer  *time.Timer   // calls pass when the time comes; nil: none is set
	done   chan struct{} // closed while passed
	passed bool
	closed bool
}

func newDeadline() *deadline { return &deadline{done: make(chan struct{})} }

// set moves the deadline to t. The zero time means no deadline. A closed deadline stays.
func (d *deadline) set(t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil && !d.timer.Stop() {
		d.timer = nil // it has fired, and pass ignores a timer that is not d.timer
	}
	if d.closed {
		return
	}
	if d.passed && (t.IsZero() || time.Until(t) > 0) {
		d.done, d.passed = make(chan struct{}), false
	}
	switch remaining := time.Until(t); {
	case t.IsZero():
	case remaining <= 0:
		d.end()
	default:
		var timer *time.Timer
		timer = time.AfterFunc(remaining, func() { d.pass(&timer) })
		d.timer = timer
	}
}

// pass ends the deadline if the timer that fires is the one that set started last.
func (d *deadline) pass(timer **time.Timer) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if *timer == d.timer {
		d.end()
	}
}

// end closes done once. The caller holds mu.
func (d *deadline) end() {
	if !d.passed {
		d.passed = true
		close(d.done)
	}
}

// close ends the deadline for good. It may be called twice.
func (d *deadline) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil {
		d.timer.Stop()
	}
	d.closed = true
	d.end()
}

// Done implements context.Context.
func (d *deadline) Done() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.done
}

// Err implements context.Context. It returns net.ErrClosed after close,
// os.ErrDeadlineExceeded once the time has passed, and else nil.
func (d *deadline) Err() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.closed:
		return net.ErrClosed
	case d.passed:
		return os.ErrDeadlineExceeded
	}
	return nil
}

// Deadline implements context.Context. It reports none, since the time may move.
func (d *deadline) Deadline() (time.Time, bool) { return time.Time{}, false }

// Value implements context.Context. It holds none.
func (d *deadline) Value(any) any { return nil }
