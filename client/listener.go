package client

import (
	"errors"
	"net"
	"sync"
)

// A Listener is a net.Listener whose connections share Limits. Accept holds one connection
// until Limits.Open lets it go; those behind it wait in the kernel. If the class refuses a
// connection, Accept closes it and takes the next. Several goroutines may use a Listener at
// the same time. Its fields may not change while it is in use.
type Listener struct {
	net.Listener
	Limits Limits

	once    sync.Once  // makes closing
	closing *deadline  // ends the wait of Accept; set by init, read by all
	mu      sync.Mutex // held by Accept for as long as it takes: two would hold two connections
}

// NewListener returns a Listener whose connections share a rate. A rate of bytes or packets
// limits what they read together, and separately what they write together. A rate of
// connections limits how many Accept returns. A burst of 0 is none.
func NewListener(l net.Listener, rate string, burst int) (*Listener, error) {
	limits, err := newLimits(rate, burst)
	if err != nil {
		return nil, err
	}
	if err := limits.check(networkOf(l.Addr())); err != nil {
		return nil, err
	}
	return &Listener{Listener: l, Limits: limits}, nil
}

// Accept implements net.Listener. After Close the error wraps net.ErrClosed.
func (l *Listener) Accept() (net.Conn, error) {
	l.init()
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.Limits.check(networkOf(l.Addr())); err != nil {
		return nil, l.failed(err)
	}
	for {
		// Accept first and then wait for the class. If it waited first, it would keep the
		// leave while nobody comes, and let one connection more through than the class allows.
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		p, err := open(l.closing, l.Limits.Open, peerAt(c.RemoteAddr()))
		if err == nil {
			return wrap(c, l.Limits, p), nil
		}
		c.Close()
		if errors.Is(err, net.ErrClosed) {
			return nil, l.failed(err)
		}
	}
}

// failed returns the error of an Accept that failed.
func (l *Listener) failed(err error) error {
	return &net.OpError{Op: "accept", Net: networkOf(l.Addr()), Addr: l.Addr(), Err: err}
}

func (l *Listener) init() {
	l.once.Do(func() { l.closing = newDeadline() })
}

// Close implements net.Listener. It ends the wait of Accept, which closes the connection
// that it holds.
func (l *Listener) Close() error {
	l.init()
	l.closing.close()
	return l.Listener.Close()
}
