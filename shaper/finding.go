package shaper

import (
	"encoding/binary"
	"math"
	"strings"
	"time"

	"shaper/limit"
)

// findingOf begins the name of a lease that holds what a class has learned. No class has such a
// name.
const findingOf = "learn:"

// finding returns a lease of no units that holds what the class has learned; false if it does not
// learn. If it has found no limit, the lease has expired.
func (b *backing) finding(now time.Time) (lease limit.Lease, ok bool) {
	l := b.class.throttle.learner
	if l == nil || b.class.bucketOf != nil {
		return lease, false
	}
	lease = limit.Lease{Name: findingOf + b.class.name, At: now, Until: now, Expires: limit.Never}
	if !l.found {
		lease.Expires = now
	}
	for _, f := range [...]float64{l.level, l.low, l.high} {
		lease.Record = binary.LittleEndian.AppendUint64(lease.Record, math.Float64bits(f))
	}
	return lease, true
}

// noteFinding makes the ledger keep what the class has learned.
func (b *backing) noteFinding(now time.Time) {
	if b.ledger == nil {
		return
	}
	if lease, ok := b.finding(now); ok {
		b.ledger.Ask(lease, nil)
	}
}

// resumeFinding makes the class go on from what another process has learned.
func (b *backing) resumeFinding(now time.Time, record []byte) {
	c := b.class
	root := c.lock()
	defer root.mu.Unlock()
	l := c.throttle.learner
	if l == nil || len(record) != 3*8 {
		return
	}
	var f [3]float64
	for i := range f {
		f[i] = math.Float64frombits(binary.LittleEndian.Uint64(record[8*i:]))
		if !(f[i] >= 0 && f[i] < math.MaxInt32) {
			return
		}
	}
	if l.goOn(now, f[0], f[1], f[2]); !c.passive {
		c.setRate(now)
	}
}

// nameOfFinding returns the class whose finding a lease of that name holds; false if it holds none.
func nameOfFinding(lease string) (class string, ok bool) { return strings.CutPrefix(lease, findingOf) }
