package shaper

import (
	"time"

	"shaper/limit"
	"shaper/policy"
)

// isKept reports whether a ledger keeps the budgets of keys.
func (k *keys) isKept() bool {
	return k.ledger() != nil && k.class.backing.member == nil && k.class.shadow == nil && k.pace.horizon() > keptFrom
}

// note makes the ledger keep what the class remembers of keys that nobody uses, if the ledger keeps
// their budgets. If it has done so before (kept), it knows them already, and only has to learn how
// keys start that it does not know.
func (k *keys) note(now time.Time, kept bool) {
	if !k.isKept() {
		return
	}
	ledger, full := k.ledger(), false
	answer := func(now time.Time, granted int64) {
		if granted == limit.NoRoom && !full {
			full = true
			k.noteAll(now, ledger)
		}
	}
	for _, lease := range k.idleLeases(now, !kept) {
		ledger.Ask(lease, answer)
	}
}

// noteAll makes a ledger keep that all keys that the ledger does not know have just been used. It is
// for a ledger that has no room for all keys.
func (k *keys) noteAll(now time.Time, ledger Ledger) {
	root, now := k.class.lockAt(now)
	defer root.mu.Unlock()
	if k.ledger() == ledger {
		ledger.Ask(k.leaseOfAll(now), nil)
	}
}

// idleLeases returns what is remembered of the keys that nobody uses. If keys that nobody knows
// start as after a full burst, the first lease says so. Unless each is set, idleLeases returns
// only that lease.
func (k *keys) idleLeases(now time.Time, each bool) (all []limit.Lease) {
	if !k.spentAt.IsZero() {
		if lease := k.leaseOfAll(k.spentAt); lease.Expires.After(now) {
			all = append(all, lease)
		}
	}
	if !each {
		return all
	}
	k.idle.each(func(key policy.Key, kept keptState) {
		state := restore(now, kept, &k.pace)
		if lease := leaseOf(now, state.limiter, &k.pace, k.pace.rate, k.class.conf.Per); lease.Expires.After(now) {
			lease.Name, lease.Key = k.class.name, keyText(key)
			all = append(all, lease)
		}
	})
	return all
}
