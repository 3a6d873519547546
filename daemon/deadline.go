package daemon

import (
	"context"
	"time"

	"shaper/policy"
	"shaper/stats"
)

// run ends sets, undoes reloads and follows schedules when their time has come, until the context
// ends.
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

// clockPatience is how long a schedule may be wrong after somebody has set the clock.
const clockPatience = time.Minute

// untilNext returns how long it is until a set ends, a reload is undone or a schedule changes
// something.
func (k *keeper) untilNext() time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	next := k.current.firstEnd()
	if k.pending != nil && !k.stopped {
		next = earlier(next, k.pending.at)
	}
	_, change := k.current.policy.Scheduled(k.looked)
	switch next = earlier(next, change); {
	case next.IsZero():
		return time.Hour // publish wakes run earlier
	case !change.IsZero():
		return min(time.Until(next), clockPatience)
	}
	return time.Until(next)
}

// expire ends the sets whose time has come, follows schedules, and undoes a reload that nobody has confirmed in
// time, unless shaper stops: then it goes on with what it has.
func (k *keeper) expire() {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	if k.pending != nil && !k.stopped && !now.Before(k.pending.at) {
		k.rollBack(now)
	}
	if next, ended := k.current.withoutEnded(now); len(ended) > 0 {
		k.logChange(byTimer, Record{What: "set ended", Changes: k.enforceSets(next)})
	}
	k.reschedule(now)
}

// reschedule puts in force what schedules say at now. The caller holds mu.
func (k *keeper) reschedule(now time.Time) {
	p, looked := k.current.policy, k.looked
	k.looked = now // also if nothing has changed: untilNext looks for what comes after it
	var changed []policy.Class
	for _, c := range p.Classes {
		before, _ := c.Scheduled(looked)
		if after, _ := c.Scheduled(now); !after.Equal(before) {
			changed = append(changed, c)
		}
	}
	if len(changed) == 0 {
		return
	}
	k.engine.set(p, changed)
	k.logChange(byTimer, Record{What: scheduleApplied, Changes: policy.Diff(p.AtTime(looked), p.AtTime(now))})
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
	k.notify(inForceState(to.policy.Hash))
	k.logChange(byTimer, Record{What: "rollback", Changes: policy.Diff(before.policy, to.policy)})
}
