package leaky

import (
	"time"

	"shaper/limit"
	"shaper/unit"
)

// Gap paces what is counted: messages, packets, connections.
//
// After an item of cost n has left, no item leaves within n/rate. The gap begins
// when the item actually left, as Left says, and not when it was due. The reason:
// some providers refuse whatever comes sooner than 1/rate after the last item that
// they accepted, however good the average is. A late departure that is followed by
// one on time makes such a short gap. A Gap never makes up for lateness.
type Gap struct {
	limit.Start
	rate unit.Rate
	last time.Time // when the last item left
	cost int64     // what that item costs

	taken time.Time // when that item was charged
}

// NewGap returns a Gap that has let nothing out yet.
func NewGap(rate unit.Rate) *Gap { return &Gap{rate: rate} }

// Next implements limit.Limiter.
func (g *Gap) Next(now time.Time, ahead, _ int64) time.Time {
	if g.rate.IsZero() {
		return limit.Never
	}
	free := limit.After(g.last, g.rate.Time(g.cost))
	if ahead == 0 {
		return free
	}
	if free.Before(now) {
		free = now
	}
	return limit.After(free, g.rate.Time(ahead))
}

// Take implements limit.Limiter. If an item leaves before the gap has ended, what remains of that gap is
// added to its own.
func (g *Gap) Take(_, now time.Time, n int64) {
	owed, part := g.rest(now)
	g.cost, g.taken = min(n+owed, maxCost), now
	g.Left(now.Add(part), now, n)
}

// rest returns what remains of the gap at now: so many units, and the time of a part of one.
func (g *Gap) rest(now time.Time) (units int64, part time.Duration) {
	rest := limit.After(g.last, g.rate.Time(g.cost)).Sub(now)
	switch {
	case rest <= 0:
		return 0, 0
	case g.rate.IsZero():
		return g.cost, 0
	}
	units = min(g.rate.Units(rest), g.cost)
	return units, max(rest-g.rate.Time(units), 0)
}

// Left implements limit.Settler. It moves the beginning of the gap to now: only the last item has a gap.
func (g *Gap) Left(now, _ time.Time, _ int64) {
	if now.After(g.last) {
		g.last = now
	}
}

// Alone implements limit.Settler: a gap begins only when the item before it has left.
func (g *Gap) Alone() bool { return true }

// Amend implements limit.Amender. It makes the gap after the last item shorter or longer; an
// item before that one has had its gap. What costs more makes a gap of its own if the last one
// has passed.
func (g *Gap) Amend(now, then time.Time, n int64) {
	switch {
	case n >= 0 && limit.After(g.last, g.rate.Time(g.cost)).After(now):
		g.cost = min(g.cost+n, maxCost)
	case n >= 0:
		g.Take(now, now, n)
	case !then.Before(g.taken):
		g.cost = max(g.cost+n, 0)
	}
}

// maxCost bounds a cost to which others are added, so that no sum overflows.
const maxCost = 1 << 60

// Memory implements limit.Limiter.
func (g *Gap) Memory(time.Time) (m limit.Memory, whole bool) {
	return limit.Memory{Until: limit.After(g.last, g.rate.Time(g.cost)), At: g.last, Used: [2]int64{g.cost}}, true
}

// Remember implements limit.Limiter.
func (g *Gap) Remember(m limit.Memory) { g.last, g.cost = m.At, m.Used[0] }

// SetRate implements limit.Limiter. The gap after the last departure becomes that
// of the new rate.
func (g *Gap) SetRate(_ time.Time, rate unit.Rate, _ int64) { g.rate = rate }
