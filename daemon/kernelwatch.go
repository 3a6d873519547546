package daemon

import (
	"context"
	"errors"
	"sync"
	"time"

	"shaper/tc"
)

// run keeps the kernel equal to the policy until ctx ends. It mends the kernel a moment after a
// device has come back or somebody else has changed it. It begins to watch when the first
// policy needs it.
func (k *kernel) run(ctx context.Context) {
	var watching sync.WaitGroup
	defer watching.Wait()
	watch := sync.OnceFunc(func() {
		watching.Go(func() {
			if err := k.watch(ctx, k.isKept, k.wake); err != nil {
				k.log.Error("shaper no longer sees changes in the kernel at once; restart it", "err", err, "looks_every", lookTime)
			}
		})
	})
	timer, look := time.NewTimer(0), time.NewTicker(lookTime)
	timer.Stop()
	look.Stop() // until there is something to look at
	defer look.Stop()
	var t backoff
	armed := false // the timer runs, and later changes do not put it off
	for {
		select {
		case <-ctx.Done():
			return
		case <-k.changed:
			watch()
			look.Reset(lookTime)
			if !armed {
				timer.Reset(t.delay(time.Now()))
				armed = true
			}
		case <-look.C:
			timer.Reset(0)
		case <-timer.C:
			armed = false
			changes, err := k.mend()
			if len(changes) > 0 {
				t.mended(time.Now())
				k.told(changes)
			}
			if err != nil {
				timer.Reset(retryTime)
			}
		}
	}
}

// backoff is how long after a change the kernel is compared with the policy. It doubles each
// time that the kernel had to be mended, and starts again after retryTime without that.
type backoff struct {
	last time.Time // when the kernel was last mended
	next time.Duration
}

// delay returns how long to wait after a change at now.
func (t *backoff) delay(now time.Time) time.Duration {
	if now.Sub(t.last) > retryTime {
		t.next = settleTime
	}
	return t.next
}

// mended says that the kernel was mended at now.
func (t *backoff) mended(now time.Time) {
	t.last, t.next = now, min(2*max(t.next, settleTime), longestBackoff)
}

// isKept reports whether a device is one that the policy shapes, or a mirror of one.
func (k *kernel) isKept(device string) bool {
	names := k.devices.Load()
	return names != nil && len(*names) > 0 && ((*names)[device] || tc.IsMirror(device))
}

// mend makes the kernel equal to the policy again, and returns how many objects it has changed, by
// device.
func (k *kernel) mend() (corrected map[string]int, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.netlink == nil {
		return nil, nil
	}
	corrected, err = k.apply(k.policy)
	changes := 0
	for _, n := range corrected {
		changes += n
	}
	if changes > 0 {
		_, swept := k.netlink.Sweep()
		err = errors.Join(err, swept)
	}
	k.note(changes, err)
	switch {
	case err == nil && changes > 0:
		k.log.Warn("the kernel differed from the policy; shaper has corrected it", "changes", changes)
	case err != nil:
		k.log.Error("the kernel differs from the policy, and shaper cannot correct it; it tries again", "err", err, "again", retryTime)
	}
	return corrected, err
}
