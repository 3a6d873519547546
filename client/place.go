package client

import (
	"context"
	"fmt"
	"math"
	"time"

	"shaper/policy"
	"shaper/shaper"
)

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
