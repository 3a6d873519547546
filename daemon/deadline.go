package daemon

import (
	"context"
	"time"

	"shaper/policy"
	"shaper/stats"
)

// run ends sets and undoes reloads when their time has come, until the context ends.
func (k *keeper) run(ctx context.Context) {
	for {
		timer := time.NewTimer(k.untilNext())
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-k.rearm:
			timer.Stop()
		case <-timer.C:
			k.expire()
		}
	}
}

// untilNext returns how long it is until a set ends or a reload is undone.
func (k *keeper) untilNext() time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	next := k.current.firstEnd()
	if k.pending != nil {
		next = earlier(next, k.pending.at)
	}
	if next.IsZero() || k.stopped {
		return time.Hour // publish wakes run earlier
	}
	return time.Until(next)
}

// expire ends the sets whose time has come, and undoes a reload that nobody has confirmed in
// time.
func (k *keeper) expire() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.stopped {
		return
	}
	now := time.Now()
	if k.pending != nil && !now.Before(k.pending.at) {
		k.rollBack(now)
	}
	next, ended := k.current.withoutEnded(now)
	if len(ended) == 0 {
		return
	}
	k.logChange(byTimer, "set ended", k.enforceSets(next))
}

// rollbackRetry is how long after a failure a rollback is tried again.
const rollbackRetry = 10 * time.Second

// rollBack puts in force what was confirmed last, without the sets that have ended meanwhile.
// If that fails, it tries again after rollbackRetry. The caller holds mu.
func (k *keeper) rollBack(now time.Time) {
	before := k.current
	to, _ := k.pending.back.withoutEnded(now)
	if err := k.enforce(to); err != nil {
		k.log.Error("rollback failed; trying again", "after", rollbackRetry, "err", err)
		k.pending.at = now.Add(rollbackRetry)
		k.publish()
		return
	}
	k.pending = nil
	// OK stays false: what is in force is not what the file says.
	k.outcome = stats.ReloadReading{Time: now, Succeeded: now,
		Error: "the reload was undone: it was not confirmed in time"}
	k.publish()
	k.logChange(byTimer, "rollback", policy.Diff(before.policy, to.policy), "before", before.policy.Hash, "after", to.policy.Hash)
}
