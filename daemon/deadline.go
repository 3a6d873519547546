package daemon

import (
	"context"
	"time"

	"shaper/policy"
	"shaper/stats"
)

// run ends what has a time to end, until the context does.
func (k *keeper) run(ctx context.Context) {
	for {
		timer := time.NewTimer(k.untilNext())
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-k.moved:
			timer.Stop()
		case <-timer.C:
			k.expire()
		}
	}
}

// untilNext returns how long nothing has to be ended.
func (k *keeper) untilNext() time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	next := k.now.firstEnd()
	if k.undo != nil {
		next = earlier(next, k.undo.at)
	}
	if next.IsZero() || k.stopped {
		return time.Hour // publish says when there is more
	}
	return time.Until(next)
}

// expire ends the sets whose time is over, and undoes a reload that nobody has
// confirmed.
func (k *keeper) expire() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.stopped {
		return
	}
	now := time.Now()
	if k.undo != nil && !now.Before(k.undo.at) {
		k.rollBack(now)
	}
	next, ended := k.now.at(now)
	if len(ended) == 0 {
		return
	}
	k.changed(byTimer, "set ended", k.adopt(next))
}

// rollbackRetry is when a rollback that failed is tried again.
const rollbackRetry = 10 * time.Second

func (k *keeper) rollBack(now time.Time) {
	before := k.now
	to, _ := k.undo.to.at(now)
	if err := k.enter(to); err != nil {
		k.log.Error("rollback failed; trying again", "after", rollbackRetry, "err", err)
		k.undo.at = now.Add(rollbackRetry)
		k.publish()
		return
	}
	k.undo = nil
	// The file is not what is in force: that is not a success.
	k.outcome = stats.ReloadReading{Time: now, Succeeded: now,
		Error: "the reload was undone: it was not confirmed in time"}
	k.publish()
	k.changed(byTimer, "rollback", policy.Diff(before.policy, to.policy), "before", before.policy.Hash, "after", to.policy.Hash)
}
