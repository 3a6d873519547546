package client

import (
	"net"
	"os"
	"sync"
	"time"
)

// A deadline is a context whose end can be moved, as the deadlines of net.Pipe can. It
// ends for good when it is closed. Before that, set may bring it back after its end,
// which other contexts never do. So an Err of nil does not take back a Done that was
// closed; Waiter.Wait knows that.
type deadline struct {
	mu     sync.Mutex
	timer  *time.Timer
	done   chan struct{} // closed while the deadline has passed
	passed bool
	closed bool
}

func newDeadline() *deadline { return &deadline{done: make(chan struct{})} }

// set moves the deadline to t; the zero time is none.
func (d *deadline) set(t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil && !d.timer.Stop() {
		d.timer = nil // it is going off: pass sees that it is not the one
	}
	if d.closed {
		return
	}
	if d.passed && (t.IsZero() || time.Until(t) > 0) {
		d.done, d.passed = make(chan struct{}), false
	}
	switch left := time.Until(t); {
	case t.IsZero():
	case left <= 0:
		d.end()
	default:
		var timer *time.Timer
		timer = time.AfterFunc(left, func() { d.pass(&timer) })
		d.timer = timer
	}
}

// pass is called when a timer goes off; only the one set last counts.
func (d *deadline) pass(timer **time.Timer) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if *timer == d.timer {
		d.end()
	}
}

func (d *deadline) end() {
	if !d.passed {
		d.passed = true
		close(d.done)
	}
}

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

// Err implements context.Context.
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

// Deadline implements context.Context. It says none: the time may be moved.
func (d *deadline) Deadline() (time.Time, bool) { return time.Time{}, false }

// Value implements context.Context.
func (d *deadline) Value(any) any { return nil }
