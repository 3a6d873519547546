package client

import (
	"context"
	"fmt"
	"math"
	"time"

	"shaper/policy"
	"shaper/shaper"
)

// A permit lets a connection be open in the class Limits.Open. The connection holds it while it is open.
type permit struct {
	shaper.Permit
	class *shaper.Class // Limits.Open, or the connection's bucket in it if the class has per
}

// open waits for a permit of max_connections and then for the rate. The caller calls leave
// when the connection closes. If class is nil, open returns a nil permit, which leave accepts.
// The error is that of ctx or wraps a *shaper.RefusedError.
func open(ctx context.Context, class *shaper.Class, peer policy.Conn) (*permit, error) {
	if class == nil {
		return nil, ctx.Err()
	}
	p := &permit{class: class.Join(time.Now(), peer)}
	err := p.acquire(ctx)
	if err == nil {
		const busy = false // this is the first item of its source
		err = shaper.NewWaiter(p.class).Wait(ctx, shaper.Cost{Connections: 1}, busy)
	}
	if err != nil {
		p.leave(time.Now())
		return nil, err
	}
	return p, nil
}

// acquire waits for a permit as the proxy does, for max_wait at most. If overflow is refuse, acquire does
// not wait at all, whereas the proxy waits for 250 ms.
func (p *permit) acquire(ctx context.Context) error {
	acquired := make(permitOwner, 1)
	if p.Acquire(p.class, acquired) {
		return nil
	}
	conf := p.class.Policy()
	if conf.OverflowFor(policy.TCP) == policy.Refuse {
		return noPermit(shaper.ErrQueueFull)
	}
	var patience <-chan time.Time
	if conf.MaxWait > 0 {
		patience = time.After(time.Duration(conf.MaxWait))
	}
	select {
	case <-acquired:
		return nil
	case <-patience:
		return noPermit(shaper.ErrTooLong)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// noPermit returns the error of a connection that gets no permit. Its Retry is the longest duration
// there is, because nobody knows when a permit becomes free.
func noPermit(reason error) error {
	return fmt.Errorf("client: max_connections are open: %w", &shaper.RefusedError{Reason: reason, Retry: math.MaxInt64})
}

// leave gives up the permit, or the wait for it.
func (p *permit) leave(now time.Time) {
	if p == nil {
		return
	}
	p.Release()
	p.class.Quit(now)
}

// permitOwner receives a value when its permit is acquired. Its capacity is 1, so that the
// sender never waits.
type permitOwner chan struct{}

// Acquired implements shaper.PermitOwner.
func (o permitOwner) Acquired() { o <- struct{}{} }

// Protocol implements shaper.PermitOwner.
func (o permitOwner) Protocol() policy.Protocol { return policy.TCP }
