package leaky

import (
	"math"
	"time"

	"shaper/limit"
	"shaper/unit"
)

// Assured tells when a class that may borrow is within its assured rate. It is
// HTB's token bucket of `rate` beside that of `ceil` (net/sched/sch_htb.c). It holds
// nothing up: it decides only who goes first.
//
// Take a class that always has something ready, and that is served whenever Next
// allows it, however late each time. Over any window t it gets at least rate*t
// less one item, unless it falls behind by more than maxCredit, or by more than
// maxItems of its largest items if these take longer. Idle time earns nothing.
type Assured struct {
	debt
	largest int64 // cost of the largest item that was charged
}

// A class makes up for maxCredit of the time in which it waited for its siblings.
// One turn of each of them fits into that time. If the classes are assured more
// than their parent has, a class that goes first starves the others no longer
// than that.
const (
	maxCredit = time.Second
	maxItems  = 16 // for rates so low that turns take seconds
)

// NewAssured returns an Assured that has been idle until now.
func NewAssured(now time.Time, rate unit.Rate) *Assured {
	return &Assured{debt: debt{rate: rate, base: now, paid: now}}
}

// Next returns since when, or from when on, the class is within its assured rate:
// limit.Never under a rate of 0.
func (a *Assured) Next() time.Time { return a.paidAt(0) }

// After returns when ahead more units will have left at the assured rate; now if a is nil: then all is assured.
func (a *Assured) After(now time.Time, ahead int64) time.Time {
	if a == nil {
		return now
	}
	if a.paidAt(0).Before(now) {
		return limit.After(now, a.rate.Time(ahead))
	}
	return a.paidAt(ahead)
}

// Take charges n units for an item that leaves at now. Since the time since, only
// siblings of the class have held the item up.
func (a *Assured) Take(since, now time.Time, n int64) {
	if since.After(a.paidAt(0)) {
		a.clear(since)
	}
	a.largest = max(a.largest, min(n, math.MaxInt64/maxItems))
	if now.Add(-maxCredit).After(a.paidAt(0)) {
		if latest := now.Add(-max(maxCredit, a.rate.Time(maxItems*a.largest))); latest.After(a.paidAt(0)) {
			a.clear(latest)
		}
	}
	a.owe(n)
}

// Amend corrects what an item was charged: it costs n units more, or fewer if n is negative.
// What was paid for already is not given back.
func (a *Assured) Amend(now time.Time, n int64) {
	switch paid := a.paidAt(0); {
	case n >= 0:
		a.Take(now, now, n)
	case paid == limit.Never:
		a.owed = max(a.owed+n, 0)
	case paid.After(now):
		a.setRate(now, a.rate)
		a.owed = max(a.owed+n, 0)
		a.fold()
	}
}

// SetRate puts a new rate in force at now. What is owed drains at that rate.
func (a *Assured) SetRate(now time.Time, rate unit.Rate) {
	if rate != a.rate {
		a.setRate(now, rate)
	}
}
