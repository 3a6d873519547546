package shaper

import (
	"time"

	"shaper/limit"
	"shaper/policy"
)

// keepsKeys reports whether the ledger keeps the budgets of the keys of the class; false if the class has no buckets. The lock of the
// tree is held.
func (b *backing) keepsKeys() bool {
	k := b.class.keys
	return k != nil && b.ledgerOfKeys() != nil && b.member == nil && b.class.shadow == nil && k.pace.horizon() > keptFrom
}

// noteKeys makes the ledger keep what the class remembers of keys that nobody uses, if keepsKeys. kept says that it was so before:
// then the ledger knows these keys already, and only has to learn how the others begin. The lock of the tree is held.
func (b *backing) noteKeys(now time.Time, kept bool) {
	if !b.keepsKeys() {
		return
	}
	ledger, full := b.ledgerOfKeys(), false
	answer := func(now time.Time, granted int64) {
		if granted == limit.NoRoom && !full {
			full = true
			b.noteAllKeys(now, ledger)
		}
	}
	for _, lease := range b.leasesOfKeys(now, !kept) {
		ledger.Ask(lease, answer)
	}
}

// noteAllKeys makes a ledger keep that all keys that the ledger does not know have just been used. It is
// for a ledger that has no room for all keys. It takes the lock of the tree, since a ledger calls it.
func (b *backing) noteAllKeys(now time.Time, ledger Ledger) {
	root, now := b.class.lockAt(now)
	defer root.mu.Unlock()
	if b.ledgerOfKeys() == ledger {
		ledger.Ask(b.leaseOfAllKeys(now), nil)
	}
}

// leasesOfKeys returns leases of what is remembered of the keys that nobody uses. If keys of which nothing is remembered
// begin as after a full burst, the first lease says so. Unless each is set, leasesOfKeys returns only that lease. The class
// has buckets, and the lock of the tree is held.
func (b *backing) leasesOfKeys(now time.Time, each bool) (all []limit.Lease) {
	k := b.class.keys
	if !k.spentAt.IsZero() {
		if lease := b.leaseOfAllKeys(k.spentAt); lease.Expires.After(now) {
			all = append(all, lease)
		}
	}
	if !each {
		return all
	}
	k.table.each(func(key policy.Key, kept keptState) {
		state := restore(now, kept, &k.pace)
		if lease := leaseOf(now, state.limiter, &k.pace, k.pace.rate, b.class.conf.Per); lease.Expires.After(now) {
			lease.Name, lease.Key = b.class.name, keyText(key)
			all = append(all, lease)
		}
	})
	return all
}
