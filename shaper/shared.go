package shaper

import (
	"math"
	"slices"
	"time"

	"shaper/limit"
	"shaper/unit"
)

// A shared limiter lets out what the fleet has granted, by each limit of the class. It tells the
// budgets how much waits, so that they get more.
//
// The limiter within counts what this process has let out. It holds nothing up: the class goes
// on from it without a burst if its budget is no longer shared.
type shared struct {
	limit.Limiter
	member  Member
	class   *Class
	limits  []Limit       // of the class; without those that are Joined
	budgets []Budget      // of each of these
	outside limit.Limiter // all budgets together

	latest  time.Time // the latest time at which somebody asked
	wanted  int64     // what the budgets were told last: how many units wait; see Budget.Want
	next    []int64   // and what the next items need
	costs   []int64   // what ask is about to tell them in place of next
	slot    time.Time // when the next item may leave, as of the last ask; limit.Never: nothing is in hand
	held    time.Time // until when nothing leaves, as the budgets were told; see Budget.Hold
	refused time.Time // until when a window has nothing for some item, as the store has said
	noted   bool      // the class is in node.overdue of its root
}

// shared returns a shared limiter around l, which counts what this process lets out.
func (b *backing) shared(now time.Time, p *pace, l limit.Limiter) *shared {
	c, key := b.class, b.key()
	s := &shared{Limiter: l, member: b.member, class: c, wanted: -1}
	var parts []limit.Limiter
	for i, l := range p.limits() {
		if !l.Joined {
			budget := b.member.Budget(i, key)
			budget.SetRate(now, l.Rate, l.Burst)
			s.limits, s.budgets, parts = append(s.limits, l), append(s.budgets, budget), append(parts, budget)
		}
	}
	if s.outside = parts[0]; len(parts) > 1 {
		s.outside = limit.NewAll(limit.Span{}, parts...)
	}
	return s
}

// owe tells the budgets of windows what the class has used of the windows before it was shared: the fleet does not know
// that. If a limit goes on from no limit of old, it counts as spent here although nothing has left, so owe tells nothing of
// it. Nobody calls owe for a class that was shared before, since the fleet knows what that class has used. Nor does anybody
// call it for a bucket, since the fleet knows the bucket by another key.
func (s *shared) owe(now time.Time, p, old *pace) {
	parts, next, origins := limit.Parts(s.Limiter), 0, p.origins(old)
	for i, l := range p.limits() {
		if l.Joined {
			continue
		}
		if budget := s.budgets[next]; l.Window > 0 && origins[i] >= 0 {
			r := restraint{rate: l.Rate, window: l.Window}
			q := r.quota(now, parts[i], "")
			budget.Owe(now, q.Size-q.Remaining, q.Resets)
		}
		next++
	}
}

// bare implements backed.
func (s *shared) bare() limit.Limiter { return s.Limiter }

// Next implements limit.Limiter. Unlike Next of other limiters, it changes something: it tells
// the budgets what waits.
func (s *shared) Next(now time.Time, ahead, n int64) time.Time {
	if closed := s.class.pace.closed; closed.Contains(now) {
		s.want(now, 0, nothing)
		return closed.Until
	}
	if n > 0 {
		s.ask(now, n)
	}
	at := s.outside.Next(now, ahead, n)
	s.slot = at
	if at == limit.Never && s.held.After(now) {
		at = earlier(s.held, now.Add(holdPatience)) // the tree asks again then
	}
	return at
}

// holdPatience is how long a class waits before it looks again when the classes above let it leave: a
// reload may have made that sooner.
const holdPatience = time.Second

// idle implements backed.
func (s *shared) idle(now time.Time) {
	if !s.class.pace.closed.Contains(now) {
		s.ask(now, 1)
	}
}

// left implements backed.
func (s *shared) left(now time.Time) {
	for _, b := range s.budgets {
		b.Left(now)
	}
}

// over implements backed.
func (s *shared) over() (at time.Time) {
	for _, b := range s.budgets {
		at = earlierKnown(at, b.Over())
	}
	return at
}

// lost implements backed.
func (s *shared) lost(then time.Time, n int64) {
	for _, b := range s.budgets {
		b.Lost(then, n)
	}
}

// ask tells the budgets what waits in the class and beneath it. An item of n units may be next. Nothing is wanted if
// what waits beneath the class cannot leave before somebody tells it.
func (s *shared) ask(now time.Time, n int64) {
	c := s.class
	units, items := s.awake(now)
	if now.Before(s.latest) {
		return
	}
	s.latest = now
	head := c.asChild.upcoming().asChild.head
	if items == 0 || head == nil {
		s.want(now, 0, nothing)
		return
	}
	s.costs = append(s.costs[:0], n)
	if cost := head.Cost.In(c.kind); cost > 0 {
		n = cost
		units = s.yield(now, max(units, n), n, &head.Cost)
		s.costs = s.following(head, append(s.costs[:0], n))
	}
	s.want(now, max(units, n), s.costs)
}

// mostTold is of how many items at most a class tells its budgets what each of them costs.
const mostTold = 32

// following adds to the cost of the next item those of the items that follow it in its queue, as many as a fleet grants
// slots for at once: so it grants whole items. If something waits in other queues, it is not known what follows. If all cost
// one unit, the first says so of the others: then a departure is no news for the budgets.
func (s *shared) following(head *Item, costs []int64) []int64 {
	c, slots := s.class, s.perishing()
	if slots == nil || int64(head.class.queue.Len()) < c.waiting {
		return costs
	}
	most := slots.Rate.Units(2 * longestGrant)
	for e := head.place.Next(); e != nil && len(costs) < mostTold && most > 0; e = e.Next() {
		if n := e.Value.Cost.In(c.kind); n > 0 {
			costs = append(costs, n)
			most -= n
		}
	}
	if slices.Max(costs) == 1 {
		return costs[:1]
	}
	return costs
}

// awake returns what waits in the class and beneath it, without what waits for quiet hours of the
// class to end: how many units, and how many items.
func (s *shared) awake(now time.Time) (units, items int64) {
	c := s.class
	units, items = c.waitingCost.in(c.kind), c.waiting
	for _, group := range c.quiet.inUse {
		if group.pace.closed.Contains(now) {
			units, items = units-group.waitingCost.in(c.kind), items-group.waiting
		}
	}
	return units, items
}

// relax tells the budgets that nothing is wanted, if nothing waits, or what waits cannot leave until
// quiet hours end or an answer comes.
func (s *shared) relax(now time.Time) {
	c := s.class
	if _, items := s.awake(now); items == 0 || c.awaitsAnswers() {
		s.want(now, 0, nothing)
	}
}

// nothing is what the next item needs if there is none.
var nothing = []int64{0}

// want tells the budgets how many units wait, and how many each of the next items needs. A slot that is
// not used in time is lost. So if there are several limits, those without a window are asked only when
// the windows have room.
func (s *shared) want(now time.Time, units int64, next []int64) {
	if units == s.wanted && slices.Equal(next, s.next) && len(s.budgets) == 1 {
		return
	}
	s.wanted, s.next = units, append(s.next[:0], next...)
	room := true
	for i, b := range s.budgets {
		if s.limits[i].Window > 0 {
			b.Want(now, units, next...)
			room = room && b.Next(now, 0, max(next[0], 1)) != limit.Never
		}
	}
	if !room {
		units, next = 0, nothing
	}
	for i, b := range s.budgets {
		if s.limits[i].Window == 0 {
			b.Want(now, units, next...)
		}
	}
}

// Estimate implements limit.Estimator.
func (s *shared) Estimate(now time.Time, ahead, n int64) time.Time {
	return s.estimate(asItIs{}, now, ahead, n)
}

// estimate implements budgeted.
func (s *shared) estimate(own hastener, now time.Time, ahead, n int64) time.Time {
	return estimate(s.budgets, s.class.pace.closed, own, now, ahead, n)
}

// holding implements budgeted.
func (s *shared) holding(now time.Time, ahead, n int64) (part int) {
	return holding(s.budgets, s.parts(), s.class.pace.closed, now, ahead, n)
}

// parts returns which limit of the class each of the budgets is, as limit.Holding counts, and then the number of the closed time.
func (s *shared) parts() (all []int) {
	p := &s.class.pace
	for i, l := range p.limits() {
		if !l.Joined {
			all = append(all, p.slowest(i, &l))
		}
	}
	return append(all, 1+p.further())
}

// Take implements limit.Limiter.
func (s *shared) Take(since, now time.Time, n int64) {
	s.Limiter.Take(since, now, n)
	s.use(since, now, n)
	if len(s.next) > 1 && s.next[0] == n { // the budgets do the same
		s.next = slices.Delete(s.next, 0, 1)
	}
}

// use tells the budgets that so many units are used.
func (s *shared) use(since, now time.Time, n int64) {
	s.outside.Take(since, now, n)
	if s.refused.After(now) { // perhaps it has too little for the next item
		s.noteOverdue(now, s.class.root())
	}
	s.wanted = max(s.wanted-n, 0)
}

// noteOverdue makes the tree look whether the next items of a shared class wait for longer than they may. root is
// the root of the class.
func (s *shared) noteOverdue(now time.Time, root *node) {
	s.refused = s.refusedUntil(now, math.MaxInt64)
	if s.refused.After(now) && !s.noted {
		root.overdue, s.noted = append(root.overdue, s.class), true
	}
}

// refusedUntil returns the latest RefusedUntil of the budgets that have windows.
func (s *shared) refusedUntil(now time.Time, n int64) (until time.Time) {
	for i, b := range s.budgets {
		if s.limits[i].Window > 0 {
			until = later(until, b.RefusedUntil(now, n))
		}
	}
	return until
}

// Amend implements limit.Amender.
func (s *shared) Amend(now, then time.Time, n int64) {
	limit.Amend(s.Limiter, now, then, n)
	if n > 0 {
		s.use(now, now, n)
		return
	}
	limit.Amend(s.outside, now, then, n)
}

// SetRate implements limit.Limiter, for the limit of the class itself.
func (s *shared) SetRate(now time.Time, rate unit.Rate, burst int64) {
	s.Limiter.SetRate(now, rate, burst)
	if own := &s.limits[0]; own.Rate.Compare(rate) < 0 {
		rate = own.Rate // of a limit that has joined
	}
	s.budgets[0].SetRate(now, rate, s.limits[0].Burst)
}

// forget drops what a limiter has of its budgets, if the limiter is shared.
func forget(l limit.Limiter) {
	if s, ok := l.(*shared); ok {
		for _, b := range s.budgets {
			b.Forget()
		}
	}
}

// key returns the key by which the members of a fleet know the class: that of a bucket, or "".
func (b *backing) key() string {
	if b.class.bucketOf == nil {
		return ""
	}
	return keyText(b.class.key)
}
