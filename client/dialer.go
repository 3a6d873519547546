package client

import (
	"context"
	"net"
	"time"
)

// A Dialer dials connections that share Limits. Several goroutines may use it at the same
// time. Its fields may not change while it is in use.
type Dialer struct {
	Base   ContextDialer // nil: a net.Dialer
	Limits Limits
}

// A ContextDialer connects. *net.Dialer and *tls.Dialer implement it.
type ContextDialer interface {
	DialContext(ctx context.Context, network, address string) (net.Conn, error)
}

// NewDialer returns a Dialer whose connections share a rate. A rate of bytes or packets
// limits what they read together, and separately what they write together. A rate of
// connections limits how many open. A burst of 0 is none.
func NewDialer(rate string, burst int) (*Dialer, error) {
	limits, err := newLimits(rate, burst)
	if err != nil {
		return nil, err
	}
	if err := limits.check(anyNetwork); err != nil { // DialContext checks the network itself
		return nil, err
	}
	return &Dialer{Limits: limits}, nil
}

// Dial is DialContext with context.Background.
func (d *Dialer) Dial(network, address string) (net.Conn, error) {
	return d.DialContext(context.Background(), network, address)
}

// DialContext waits for Limits.Open and then connects. The context ends both. The Timeout
// of a net.Dialer bounds only connecting. If Limits.Open refuses, the error wraps a
// *shaper.RefusedError.
func (d *Dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	p, err := d.open(ctx, network, address)
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: network, Err: err}
	}
	c, err := d.base().DialContext(ctx, network, address)
	if err != nil {
		p.leave(time.Now())
		return nil, err
	}
	return wrap(c, d.Limits, p), nil
}

func (d *Dialer) base() ContextDialer {
	if d.Base == nil {
		return new(net.Dialer)
	}
	return d.Base
}

// open waits for a permit of Limits.Open for a connection to an address.
func (d *Dialer) open(ctx context.Context, network, address string) (*permit, error) {
	if err := d.Limits.check(network); err != nil {
		return nil, err
	}
	return open(ctx, d.Limits.Open, peerNamed(address))
}
