package shaper

import (
	"time"

	"shaper/limit"
	"shaper/policy"
)

// keepIn is Shaper.Keep for one class.
func (b *backing) keepIn(now time.Time, ledger Ledger) {
	c := b.class
	root, now := c.lockAt(now)
	defer root.mu.Unlock()
	if c.keys != nil {
		c.keys.silence = new(silence) // the ledger before may never answer
	}
	withBuckets(c, func(c *Class) {
		if c.backing.ledger = ledger; c.bucketOf != nil {
			c.backing.ledger = b.ledgerOfKeys()
		}
		c.use(c.backing.limiter(now, &c.pace, c.limiter))
		c.backing.note(now)
		c.update(now)
	})
	b.noteFinding(now)
	b.noteKeys(now, false)
	root.wake(now)
}

// resume makes classes go on from leases.
func resume(now time.Time, leases []limit.Lease, class func(name string) *Class) {
	for i := range leases {
		if !leases[i].Expires.After(now) {
			continue
		}
		if name, ok := nameOfFinding(leases[i].Name); ok {
			if c := class(name); c != nil {
				c.backing.resumeFinding(now, leases[i].Record)
			}
		} else if c := class(leases[i].Name); c != nil {
			c.backing.resume(now, &leases[i])
		}
	}
}

// resume is Shaper.Resume for one lease.
func (b *backing) resume(now time.Time, lease *limit.Lease) {
	c := b.class
	root := c.lock()
	defer root.mu.Unlock()
	r, ok := decodeRecord(lease.Record)
	ok = ok && r.kind == c.kind && r.per == c.conf.Per.String()
	switch {
	case c.shadow != nil, c.keys != nil && !c.keys.outlives, b.member != nil && len(lease.Record) == 0:
	case !ok:
		b.exhaust(now)
	case c.keys == nil:
		if l := r.limiter(now, lease); l != nil {
			c.install(now, c.conf, &c.pace, c.pace.takeOver(now, l, &r.pace, r.rate))
			if s, is := c.limiter.(*shared); is { // it was not when the ledger kept it
				s.owe(now, &c.pace, &r.pace)
			}
		} else {
			b.exhaust(now)
		}
	case lease.Key == "":
		c.keys.spend(later(c.keys.spentAt, earlier(lease.Until, now)))
	default:
		b.resumeKey(now, &r, lease)
	}
}

// resumeKey is resume for a key.
func (b *backing) resumeKey(now time.Time, r *record, lease *limit.Lease) {
	var key policy.Key
	k, l := b.class.keys, r.limiter(now, lease)
	if l == nil || key.UnmarshalBinary([]byte(lease.Key)) != nil {
		k.spend(now)
		return
	}
	if k.table.bucketOfKey(key) == nil {
		k.table.remember(now, key, bucketState{k.pace.takeOver(now, l, &r.pace, r.rate), k.pace.assure(now, nil)})
	}
}

// exhaust is Shaper.Exhaust for one class. The caller holds the lock of the tree.
func (b *backing) exhaust(now time.Time) {
	switch c := b.class; {
	case c.shadow != nil:
	case c.keys != nil && c.keys.outlives && c.keys.pace.horizon() > keptFrom:
		c.keys.spend(now)
	case c.keys == nil && c.pace.horizon() > keptFrom:
		c.install(now, c.conf, &c.pace, c.pace.spent(now))
	}
}

// leaseWithoutRecord returns the lease of a class whose fleet counts for it. If the class counts for itself in the next process, it starts
// there as if as much had just left as may leave at once.
func (b *backing) leaseWithoutRecord(now time.Time) limit.Lease {
	lease, p := limit.Lease{Name: b.class.name, At: now}, &b.class.pace
	if b.class.keys != nil {
		p = &b.class.keys.pace
	}
	p.grow(&lease, 0, now)
	return lease
}

// leases is Shaper.Leases for one class.
func (b *backing) leases(now time.Time) (all []limit.Lease) {
	c := b.class
	root, now := c.lockAt(now)
	defer root.mu.Unlock()
	switch {
	case b.member != nil:
		return []limit.Lease{b.leaseWithoutRecord(now)}
	case c.shadow != nil:
		return nil
	}
	if lease, ok := b.finding(now); ok && lease.Expires.After(now) {
		all = append(all, lease)
	}
	withBuckets(c, func(c *Class) {
		if lease := c.backing.record(now); lease.Expires.After(now) && (c.bucketOf == nil || c.bucketOf.outlives) {
			all = append(all, lease)
		}
	})
	if c.keys != nil && c.keys.outlives {
		all = append(all, b.leasesOfKeys(now, true)...)
	}
	return all
}
