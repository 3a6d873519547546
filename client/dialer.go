package client

import (
	"context"
	"net"
	"time"
)

// A Dialer dials connections that share Limits.
type Dialer struct {
	Base   ContextDialer // nil: a net.Dialer
	Limits Limits
}

// A ContextDialer connects: a *net.Dialer does, and a *tls.Dialer.
type ContextDialer interface {
	DialContext(ctx context.Context, network, address string) (net.Conn, error)
}

// NewDialer returns a Dialer on a net.Dialer whose connections share a rate: of the bytes
// or packets that they read, and as many that they write; or of connections that open.
func NewDialer(rate string, burst int) (*Dialer, error) {
	limits, err := newLimits(rate, burst)
	if err != nil {
		return nil, err
	}
	if err := limits.check("udp"); err != nil { // DialContext checks the network itself
		return nil, err
	}
	return &Dialer{Limits: limits}, nil
}

// Dial is DialContext without an end.
func (d *Dialer) Dial(network, address string) (net.Conn, error) {
	return d.DialContext(context.Background(), network, address)
}

// DialContext waits for Limits.Open and then connects. The context ends both. The Timeout
// of a net.Dialer is for connecting only.
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

// open returns the place of a connection to an address.
func (d *Dialer) open(ctx context.Context, network, address string) (*place, error) {
	if err := d.Limits.check(network); err != nil {
		return nil, err
	}
	return open(ctx, d.Limits.Open, numbered(address))
}
