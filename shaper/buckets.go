package shaper

import (
	"iter"
	"net/netip"
	"time"

	"shaper/policy"
)

// Buckets are all buckets of a class: a class with `per` has one for each client, or for whatever
// the policy tells apart. A nil class, and a class without `per`, have none. Buckets is a
// value of one pointer: to get it costs nothing.
type Buckets struct{ class *Class }

// Buckets returns the buckets of the class. The class may be nil.
func (c *Class) Buckets() Buckets { return Buckets{c} }

// Per reports whether the class has buckets, and kind tells them apart. It takes no lock.
func (b Buckets) Per(kind policy.PerKind) bool {
	return b.class != nil && b.class.keys != nil && b.class.keys.per.Has(kind)
}

// Keys returns how many keys have a bucket of their own or are remembered at now. It takes
// the lock of the tree.
func (b Buckets) Keys(now time.Time) int {
	c := b.class
	if c == nil || c.keys == nil {
		return 0
	}
	root, now := c.lockAt(now)
	defer root.mu.Unlock()
	c.keys.forget(now, 1000)
	return c.keys.table.len()
}

// Soonest chooses among addresses of ours. It returns the one from which a session can send
// soonest, because the bucket of that address is free first. Among equals it returns the one with
// the fewest sessions, and among these the first. Without addresses it returns the zero Addr. If
// messages tell the buckets apart too, nobody knows yet which bucket a session needs, and Soonest
// returns the first address. The class must have buckets. Soonest takes the lock of the tree.
func (b Buckets) Soonest(now time.Time, conn policy.Conn, from iter.Seq[netip.Addr]) (soonest netip.Addr) {
	c := b.class
	root, now := c.lockAt(now)
	defer root.mu.Unlock()
	var best freedom
	for conn.Bind = range from {
		if c.keys.byMessage {
			return conn.Bind
		}
		bucket := c.keys.bucket(now, c.keys.keyOf(&conn, nil))
		if f := freedomOf(now, bucket); !soonest.IsValid() || f.before(best) {
			soonest, best = conn.Bind, f
		}
		retireIfUnused(now, bucket)
	}
	return soonest
}

// freedom is how free a bucket is for one more session.
type freedom struct {
	waiting  int       // how many sessions have to end before one more gets a permit
	at       time.Time // when its next item leaves
	sessions int64     // that have joined it
}

// freedomOf returns how free a bucket is. The caller holds the lock of the tree.
func freedomOf(now time.Time, c *Class) freedom {
	f := freedom{sessions: c.joined.Load(), waiting: c.permits.waiters.Len()}
	if c.permits.isFull() {
		f.waiting++
	}
	cost := unitCost(c.kind)
	f.at = later(now, forecastAt(now, c).leaves(&cost))
	return f
}

// before reports whether f is more free than g.
func (f freedom) before(g freedom) bool {
	if f.waiting != g.waiting {
		return f.waiting < g.waiting
	}
	if !f.at.Equal(g.at) {
		return f.at.Before(g.at)
	}
	return f.sessions < g.sessions
}
