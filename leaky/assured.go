package leaky

import (
	"math"
	"time"

	"shaper/limit"
	"shaper/unit"
)

// Assured tells when a class that may borrow is within the rate that it is
// assured: HTB's bucket of `rate` beside that of `ceil` (net/sched/sch_htb.c).
// It holds nothing up, and decides only who goes first.
//
// Over any window t in which it always has something ready, a class that is
// served whenever Next allows it gets at least rate*t less one item, however
// late it is served each time, so long as it does not fall behind by more than
// maxCredit, or the time of maxItems of its largest items where that is longer. Idle
// time earns nothing.
type Assured struct {
	debt
	largest int64 // item that has been charged
}

// maxCredit is how much of the time in which it waited for others a class may
// make up for. A round of all its siblings fits into it; and where more is
// assured than there is, one that goes first starves the others no longer.
const (
	maxCredit = time.Second
	maxItems  = 16 // for rates so low that a round takes seconds
)

// NewAssured returns an Assured that has been idle until now.
func NewAssured(now time.Time, rate unit.Rate) *Assured {
	return &Assured{debt: debt{rate: rate, base: now, paid: now}}
}

// Next returns from when on the class is within its assured rate: limit.Never
// under a rate of 0.
func (a *Assured) Next() time.Time { return a.free(0) }

// After returns when ahead more units have left at the assured rate.
func (a *Assured) After(now time.Time, ahead int64) time.Time {
	if a.free(0).Before(now) {
		return limit.After(now, a.rate.Time(ahead))
	}
	return a.free(ahead)
}

// Take charges n units for an item that leaves at now, and that nothing but its
// siblings has held up since since.
func (a *Assured) Take(since, now time.Time, n int64) {
	if since.After(a.free(0)) {
		a.settle(since)
	}
	a.largest = max(a.largest, min(n, math.MaxInt64/maxItems))
	if now.Add(-maxCredit).After(a.free(0)) {
		if latest := now.Add(-max(maxCredit, a.rate.Time(maxItems*a.largest))); latest.After(a.free(0)) {
			a.settle(latest)
		}
	}
	a.owe(n)
}

// SetRate puts a new rate in force at now. What is owed is owed at that rate.
func (a *Assured) SetRate(now time.Time, rate unit.Rate) {
	if rate != a.rate {
		a.rerate(now, rate)
	}
}
