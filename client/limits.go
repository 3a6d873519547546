package client

import (
	"context"
	"fmt"
	"math"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"shaper/policy"
	"shaper/shaper"
	"shaper/unit"
)

// Limits are the classes of connections. A nil class limits nothing. Connections may
// share a class, and one class may be in several fields.
//
// A class that has a bucket for each source or each destination (per) has one for each
// peer.
type Limits struct {
	Read  *shaper.Class // bytes or packets that connections read
	Write *shaper.Class // bytes or packets that they write
	Open  *shaper.Class // connections as they open, and how many are open at once (max_connections)
}

// NewClass returns a class that limits to a rate, with a burst of what the rate counts.
// Whoever finds no room waits.
func NewClass(rate string, burst int) (*shaper.Class, error) {
	conf, err := configure(rate, burst)
	if err != nil {
		return nil, err
	}
	return shaper.NewLiveClass(conf), nil
}

// newLimits returns classes of a rate for what it counts: each way has one of its own.
func newLimits(rate string, burst int) (Limits, error) {
	conf, err := configure(rate, burst)
	if err != nil {
		return Limits{}, err
	}
	if conf.Rate.Kind() == unit.Connections {
		return Limits{Open: shaper.NewLiveClass(conf)}, nil
	}
	return Limits{Read: shaper.NewLiveClass(conf), Write: shaper.NewLiveClass(conf)}, nil
}

// mostBurst is what a policy bounds a burst by, too.
const mostBurst = 1 << 43

// configure returns the policy of a class: a leaky bucket, or with a burst a token
// bucket.
func configure(rate string, burst int) (policy.Class, error) {
	parsed, err := unit.ParseRate(rate)
	if err != nil {
		return policy.Class{}, fmt.Errorf("client: %w", err)
	}
	if burst < 0 || int64(burst) > mostBurst {
		return policy.Class{}, fmt.Errorf("client: %d is not a burst; it is from 0, for none, to %d", burst, int64(mostBurst))
	}
	conf := policy.DefaultClass(rate)
	conf.Rate, conf.Overflow = parsed, policy.Wait
	if burst > 0 {
		conf.Algorithm, conf.Burst = policy.Token, policy.Burst{N: int64(burst), Kind: parsed.Kind()}
	}
	return conf, nil
}

// check returns an error if a class counts nothing of what a network carries.
func (l Limits) check(network string) error {
	messages, why := keepsMessages(network), "a stream has none"
	if messages {
		why = "a datagram has none"
	}
	for _, class := range []*shaper.Class{l.Read, l.Write} {
		limits := class == nil || class.Counts(unit.Bytes) || messages && class.Counts(unit.Packets)
		if !limits {
			return neverLimits(class, why, "1mbit")
		}
	}
	return nil
}

// neverLimits returns the error of a class that counts nothing of what it is to limit.
func neverLimits(class *shaper.Class, why, instead string) error {
	kind := class.Rate().Kind()
	return fmt.Errorf("client: %q counts %v, and %s: it would never limit; a rate here is like %q", class.Name(), kind, why, instead)
}

// networkOf returns the network of an address; "" if a net.Conn of somebody's own has no
// address.
func networkOf(a net.Addr) string {
	if a == nil {
		return ""
	}
	return a.Network()
}

// keepsMessages reports whether what is written at once on a network arrives at once.
func keepsMessages(network string) bool {
	switch network {
	case "udp", "udp4", "udp6", "ip", "ip4", "ip6", "unixgram", "unixpacket":
		return true
	}
	return false
}

// otherEnd returns whose buckets a connection to an address has. Connections without an
// address share those of the zero one.
func otherEnd(a net.Addr) policy.Conn {
	var at netip.AddrPort
	if a, ok := a.(interface{ AddrPort() netip.AddrPort }); ok {
		at = a.AddrPort()
	}
	return policy.Conn{Source: at, Destination: at, Session: wrapped.Add(1)}
}

// numbered is otherEnd of an address in text. A name is not looked up: it has the buckets
// of the zero address.
func numbered(address string) policy.Conn {
	at, _ := netip.ParseAddrPort(address)
	return otherEnd(net.TCPAddrFromAddrPort(at))
}

var wrapped atomic.Uint64 // numbers connections

// A place is that of a connection among those that are open in a class.
type place struct {
	class *shaper.Class
	slot  shaper.Slot
}

// open waits until one more connection may be open, and then until it may open. The
// caller leaves the place when the connection is closed. A nil class has no places.
func open(ctx context.Context, class *shaper.Class, who policy.Conn) (*place, error) {
	if class == nil {
		return nil, ctx.Err()
	}
	p := &place{class: class.Join(time.Now(), who)}
	err := p.acquire(ctx)
	if err == nil {
		err = shaper.NewWaiter(p.class).Wait(ctx, shaper.Cost{Connections: 1}, false)
	}
	if err != nil {
		p.leave(time.Now())
		return nil, err
	}
	return p, nil
}

// acquire waits for a slot, as a session of the proxy does.
func (p *place) acquire(ctx context.Context) error {
	acquired := make(slotOwner, 1)
	if p.slot.Acquire(p.class, acquired) {
		return nil
	}
	conf := p.class.Policy()
	if conf.OverflowFor(policy.TCP) == policy.Refuse {
		return tooMany(shaper.ErrQueueFull)
	}
	var patience <-chan time.Time
	if conf.MaxWait > 0 {
		patience = time.After(time.Duration(conf.MaxWait))
	}
	select {
	case <-acquired:
		return nil
	case <-patience:
		return tooMany(shaper.ErrTooLong)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// tooMany returns why a connection got no slot. Nobody knows when there is one.
func tooMany(reason error) error {
	return fmt.Errorf("client: max_connections are open: %w", &shaper.RefusedError{Reason: reason, Retry: math.MaxInt64})
}

// leave gives up the place, or the wait for it.
func (p *place) leave(now time.Time) {
	if p == nil {
		return
	}
	p.slot.Release()
	p.class.Quit(now)
}

// slotOwner is told of a slot: a channel of capacity 1.
type slotOwner chan struct{}

// Acquired implements shaper.SlotOwner.
func (o slotOwner) Acquired() { o <- struct{}{} }
