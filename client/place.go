package client

import (
	"context"
	"fmt"
	"math"
	"time"

	"shaper/policy"
	"shaper/shaper"
)

// A place is what a connection holds in Limits.Open while it is open: its bucket, if the
// class has several, and a slot of max_connections.
type place struct {
	class *shaper.Class
	slot  shaper.Slot
}

// open waits for a slot of max_connections and then for the rate. The caller calls leave
// when the connection closes. For a nil class it returns nil, which leave accepts. The error
// is that of ctx or wraps a *shaper.RefusedError.
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

// acquire waits for a slot as the proxy does, for max_wait at most. If overflow is refuse, it does not
// wait at all, not even the 250 ms of the proxy.
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

// tooMany returns the error of a connection that gets no slot. Its Retry is without end,
// since nobody knows when a slot becomes free.
func tooMany(reason error) error {
	return fmt.Errorf("client: max_connections are open: %w", &shaper.RefusedError{Reason: reason, Retry: math.MaxInt64})
}

// leave gives up the place, or the wait for one.
func (p *place) leave(now time.Time) {
	if p == nil {
		return
	}
	p.slot.Release()
	p.class.Quit(now)
}

// slotOwner receives a value when its slot is acquired. Its capacity is 1, so that the
// sender never waits.
type slotOwner chan struct{}

// Acquired implements shaper.SlotOwner.
func (o slotOwner) Acquired() { o <- struct{}{} }

// Protocol implements shaper.SlotOwner.
func (o slotOwner) Protocol() policy.Protocol { return policy.TCP }
