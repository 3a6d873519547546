package client

import (
	"errors"
	"net"
	"sync"
)

// A Listener is a net.Listener whose connections share Limits. Accept holds one connection
// until Limits.Open lets it go; those behind it wait in the kernel. It closes one that the
// class refuses, and goes on to the next.
type Listener struct {
	net.Listener
	Limits Limits

	once    sync.Once
	closing *deadline
	mu      sync.Mutex // one Accept at a time: each would hold a connection of its own
}

// NewListener returns l with a rate that its connections share: of the bytes that they
// read, and as many that they write; or of connections that are accepted.
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

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	l.init()
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.Limits.check(networkOf(l.Addr())); err != nil {
		return nil, l.failed(err)
	}
	for {
		// A connection waits for the class once it is there. Leave that is taken ahead would
		// be kept while nobody comes, and let one more through than the class allows.
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		p, err := open(l.closing, l.Limits.Open, otherEnd(c.RemoteAddr()))
		if err == nil {
			return wrap(c, l.Limits, p), nil
		}
		c.Close()
		if errors.Is(err, net.ErrClosed) {
			return nil, l.failed(err)
		}
	}
}

func (l *Listener) failed(err error) error {
	return &net.OpError{Op: "accept", Net: networkOf(l.Addr()), Addr: l.Addr(), Err: err}
}

func (l *Listener) init() {
	l.once.Do(func() { l.closing = newDeadline() })
}

// Close implements net.Listener. It ends an Accept that waits, and closes the connection
// that Accept holds.
func (l *Listener) Close() error {
	l.init()
	l.closing.close()
	return l.Listener.Close()
}
