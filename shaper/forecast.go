package shaper

import (
	"sort"
	"time"

	"shaper/limit"
)

// A forecast estimates when something leaves that waits at a node, or comes to it at now.
// max_wait and Estimate use it. It asks five questions, each of all classes on the path:
//
//	limits     when have the limits let out what waits before it in its own queue?
//	assured    when has its turn come if its class gets what it is assured, and no more?
//	last       when has each class sent all that waits in it and beneath it?
//	competing  when has its turn come if its class also borrows, as the rule says?
//	goes on    when do pauses, closed times and quiet hours end, and what remains then?
//
// The item leaves no sooner than by limits. If that is not its turn yet, it leaves at the soonest of assured, last
// and competing. What stands still begins when it goes on.
//
// So no estimate is later than all that waits takes to leave, and none is earlier than the item's own queue takes alone;
// TestForecastOfARandomTree plays trees to see that. An estimate may be early in three cases: limits hold items up in turn, a
// window lets more leave at once than the classes above do, or classes are assured more together than those above have.
//
// The caller holds the lock of the tree. A forecast gives back, in each class on the path, what is due of the rate;
// see regulator.regain.
type forecast struct {
	tail // where the item waits, unless it goes before all others
	now  time.Time
	held standstills // of several forecasts at one moment; nil: this one is alone
	most time.Time   // an item that leaves later is refused, however late; zero: no bound
	// allLeave is what allLeave returns for the class that has the bucket; zero: not known.
	allLeave time.Time
}

// forecastAt returns a forecast of what comes to a class at now, or waits there.
func forecastAt(now time.Time, c *Class) forecast {
	return forecast{tail: tail{node: &c.node}, now: now}
}

// allLeave estimates when all that waits in a class with buckets has left the classes above, in one race for all of it. It is zero if the
// class has no buckets, if these compete beneath the buckets of the class above, or if a class above pauses.
func allLeave(now time.Time, c *Class) (at time.Time) {
	f := forecastAt(now, c)
	if c.keys == nil || c.keys.above != nil || f.resumes(&oneOfEach).After(now) {
		return at
	}
	r := race{begins: now, first: &c.asChild, units: c.waitingCost.in(c.kind)}
	r.look(f.allWaiting)
	return r.between(now, later(now, f.last(now, f.allWaiting, &Cost{})), &Cost{})
}

// drained estimates when the last item of the queue leaves, in which something waits.
func (f forecast) drained() time.Time {
	f.own = f.node.queue.Back().Value.Cost
	return f.leaves(&f.own)
}

// entered estimates when an item leaves that enters the class now. An item that is First goes
// before all others.
func (f forecast) entered(it *Item) time.Time {
	if it.First {
		return f.next(&it.Cost)
	}
	return f.leaves(&it.Cost)
}

// leaves estimates when an item leaves that enters the class now.
//
// While a class on the path pauses or is closed, or if quiet hours begin before, what cannot leave sooner begins when that
// ends. What waits beside it goes on meanwhile.
func (f forecast) leaves(cost *Cost) time.Time {
	resumed := f.resumes(cost)
	at := f.behind(f.now, f.allWaiting, cost)
	if resumed.After(f.now) {
		at = later(at, f.behindHeld(resumed, cost))
	}
	switch open := f.opens(later(f.now, resumed), cost); {
	case open == limit.Never:
		return open
	case open.After(f.now):
		at = later(at, f.behindHeld(open, cost))
	}
	if !f.most.IsZero() && at.After(f.most) { // what closes later makes it later still
		return at
	}
	return f.pastClosed(at, cost)
}

// behindHeld is leaves from the moment at which something on the path goes on. Only what stood still until then is ahead.
func (f forecast) behindHeld(until time.Time, cost *Cost) time.Time {
	waiting := func(x *node) still { return f.held.in(x, f.now, until) }
	return later(until, f.behind(until, waiting, cost))
}

// behind is leaves from a time on, whatever pauses. waiting returns what waits then in a class on the
// path.
func (f forecast) behind(now time.Time, waiting func(*node) still, cost *Cost) time.Time {
	at := f.limits(now, f.parts(), 0, cost)
	if assured := f.assured(now, cost); assured.After(at) {
		at = later(at, f.competing(now, waiting, at, earlier(assured, f.last(now, waiting, cost)), cost))
	}
	return at
}

// competing returns when the item leaves if its class also borrows: from a time on, and at the latest at another one. If it may as
// well leave at that, competing does not look; and if there is a bound, it only asks on which side of it the item leaves.
func (f forecast) competing(now time.Time, waiting func(*node) still, from, latest time.Time, cost *Cost) time.Time {
	switch {
	case !latest.After(later(from, f.most)):
		return latest
	case now.Equal(f.now) && !f.allLeave.IsZero():
		return earlier(latest, f.allLeave)
	}
	r := race{begins: now, first: f.competitor(), units: f.ahead(), tail: f.tail}
	r.look(waiting)
	if !f.most.IsZero() {
		return earlier(latest, r.leaves(f.most, cost))
	}
	return r.between(from, latest, cost)
}

// competitor returns what takes part for the item: its class or, if that has children, the queue of the class.
func (f forecast) competitor() *contender {
	if f.node.feed != nil {
		return &f.node.ownQueue
	}
	return &f.node.asChild
}

// limits returns when the limits on the path let the item leave behind so many parts of its queue, and behind so much of what
// other groups of the class let leave in their turns, in the unit of the class.
func (f forecast) limits(now time.Time, parts, turns int64, cost *Cost) (at time.Time) {
	for x := f.node; x != nil; x = x.parent.Load() {
		n := portion(f.through(x), parts, f.parts())
		if turns > 0 {
			all := &f.node.class.owner.waitingCost
			n += portion(all.in(x.kind), turns, all.in(f.node.kind))
		}
		at = later(at, x.follows(now, n, f.in(x, cost)))
	}
	return at
}

// last returns when each class on the path has sent all that waits in it and beneath it, if that is more than limits counts.
func (f forecast) last(now time.Time, waiting func(*node) still, cost *Cost) (at time.Time) {
	for x := f.node; x != nil; x = x.parent.Load() {
		all, queued, n := waiting(x), f.through(x), f.in(x, cost)
		others := all.in(x.kind) - f.own.In(x.kind)
		if late := others - all.sooner.in(x.kind); late > queued {
			at = later(at, x.follows(now, late, n))
		}
		if all.from.Before(now) && others > queued {
			at = later(at, x.follows(all.from, others, n))
		}
	}
	return at
}

// assured returns when the item leaves if its class gets what it is assured, whatever others do. The class's own queue is
// assured of nothing if children compete with it.
func (f forecast) assured(now time.Time, cost *Cost) time.Time {
	n, owner, ahead := f.node, f.node.class.owner, f.ahead()
	at := now
	switch groups := owner.quiet.count(); {
	case groups > 0 && groups == owner.feed.children:
		for range 2 { // the second time with those that wake before
			turns := f.turnsOfGroups(now, at, false, ahead+cost.In(n.kind))
			at = later(owner.follows(now, ahead+turns, cost.In(n.kind)), owner.assured.After(now, ahead+turns))
		}
	case n.feed != nil:
		return limit.Never
	default:
		at = n.assured.After(now, ahead)
	}
	return later(at, f.afterBuckets(now, f.parts(), cost))
}

// afterBuckets returns when the item leaves behind so many parts of its queue, and behind the turns of other buckets of its class:
// these may be assured more together than the classes above have. If its bucket is beneath others, it is the topmost of them that
// takes turns. afterBuckets is zero if the class is no bucket.
func (f forecast) afterBuckets(now time.Time, parts int64, cost *Cost) (at time.Time) {
	n := &f.node.class.owner.node
	if n.class.bucketOf == nil {
		return at
	}
	before := f.before().part(parts, f.parts())
	parent := n.parent.Load()
	for ; parent != nil && !n.class.takesTurns(); n, parent = parent, parent.parent.Load() {
		siblings := contest{now, parent, n}.before(before.in(parent.kind) + cost.In(parent.kind))
		before.add(&siblings)
	}
	if parent == nil { // the bucket was given up
		return at
	}
	t := turn{n.class.bucketOf, assured, n.class, before}
	return t.leaves(now, cost)
}

// allWaiting returns what waits in a class on the path and beneath it.
func (f forecast) allWaiting(x *node) still { return still{sum: x.waitingCost, from: f.now} }

// opens returns when no class on the path is closed any more that is closed at a time; a time that has passed if none is.
func (f forecast) opens(now time.Time, cost *Cost) (open time.Time) {
	for x := f.node; x != nil; x = x.parent.Load() {
		if closed := &x.pace.closed; closed.Contains(now) && f.mayClose(x, cost) {
			open = later(open, closed.Until)
		}
	}
	return open
}

// pastClosed returns when an item leaves that would leave at a time if no class on the path closed: what remains of the queue when
// one closes leaves after it has opened.
func (f forecast) pastClosed(at time.Time, cost *Cost) time.Time {
	for x := f.node; x != nil; x = x.parent.Load() {
		at = later(at, f.past(x, at, cost))
	}
	return at
}

// past is pastClosed for one class.
func (f forecast) past(x *node, at time.Time, cost *Cost) time.Time {
	closed := &x.pace.closed
	switch {
	case !closed.Until.After(f.now), at.Before(closed.From), !f.mayClose(x, cost):
		return at
	case closed.From.After(f.now) && f.certain(later(f.now, f.resumes(cost)), nil, f.parts(), cost).Before(closed.From):
		return at // only what other classes send could hold it up until then, and a borrower may go before them
	case closed.From.After(f.now):
		return later(closed.Until, f.certain(closed.Until, x, f.remaining(closed.From), cost))
	}
	return x.pace.whenOpen(at)
}

// remaining returns how many parts of what waits before the item in its queue have not left at a time, if only what is certain leaves
// before.
func (f forecast) remaining(at time.Time) int64 {
	onlyWhatWaits := &Cost{}
	from := later(f.now, f.resumes(onlyWhatWaits))
	gone := sort.Search(int(f.parts()), func(i int) bool { return !f.certain(from, nil, int64(i), &oneOfEach).Before(at) })
	return f.parts() - int64(gone)
}

// certain returns when an item leaves from a time on behind so many parts of the queue, and behind what other
// buckets and groups of the class let leave in their turns, if nothing waits in other classes. closed is the class on the path that
// opens then; nil: none does.
func (f forecast) certain(now time.Time, closed *node, parts int64, cost *Cost) time.Time {
	ahead := portion(f.ahead(), parts, f.parts())
	turns := f.turnsOfGroups(now, now, closed == f.node, ahead+cost.In(f.node.kind))
	return later(f.limits(now, parts, turns, cost), f.afterBuckets(now, parts, cost))
}

// mayClose reports whether a class on the path holds the item up while it is closed.
func (f forecast) mayClose(x *node, cost *Cost) bool {
	return x.class.shadow == nil && f.counts(x, cost)
}

// counts reports whether a class on the path counts the item, or what waits before it in its queue.
func (f forecast) counts(x *node, cost *Cost) bool {
	return f.through(x) > 0 || f.in(x, cost) > 0
}

// in returns what the item costs in a class on the path. If the item costs nothing there, and items that cost something
// have their turn before it, it waits until the class lets those leave: so it counts as one unit.
func (f forecast) in(x *node, cost *Cost) int64 {
	n := cost.In(x.kind)
	if n == 0 && !f.goesFirst(x) {
		return 1
	}
	return n
}

// goesFirst reports whether nothing that costs something in a class on the path has its turn there before the item, as far as that
// is certain.
func (f forecast) goesFirst(x *node) bool {
	if x.waitingCost.in(x.kind) == 0 {
		return true
	}
	k := &f.node.ownQueue
	for y := f.node; ; y = y.parent.Load() {
		if y.feed != nil && !y.feed.comesFirst(f.now, k, x.kind) {
			return false
		}
		if y == x {
			return true
		}
		k = &y.asChild
	}
}

// resumes returns when no class on the path pauses any more that counts the item.
func (f forecast) resumes(cost *Cost) (until time.Time) {
	for n := f.node; n != nil; n = n.parent.Load() {
		n.regain(f.now)
		if n.throttle.until.After(f.now) && f.counts(n, cost) {
			until = later(until, n.pausedUntil())
		}
	}
	return until
}

// turnsOfGroups returns what leaves from now until a time if each of the others lets at most so much leave. Those
// that are in quiet hours all the time let nothing leave. wakes says that only those still have something that have slept until now.
func (f forecast) turnsOfGroups(now, until time.Time, wakes bool, most int64) (all int64) {
	owner := f.node.class.owner
	if f.node != &owner.node && !wakes {
		all = min(most, owner.queueCost)
	}
	for _, group := range owner.quiet.inUse {
		closed := &group.pace.closed
		if asleep := closed.Contains(now) && !closed.Until.Before(until); asleep || f.node == &group.node {
			continue
		}
		if _, slept := (standstill{f.now, now}).holds(&group.node, &group.node); slept || !wakes {
			all += min(most, group.queueCost)
		}
	}
	return all
}

// room estimates when there is room for what costs so much and was refused now, if nothing
// else comes first: when the first item that waits has left, and the others leave within
// maxWait. A maxWait of 0 is no bound, and neither is that of a class with a shadow. If the item
// would wait through quiet hours, there is room when they end: many are refused at night, and if
// they came maxWait before, they would wait longer.
func (f forecast) room(cost *Cost, maxWait time.Duration) time.Time {
	n, at := f.node, f.now
	if maxWait > 0 && n.class.shadow == nil {
		leaves := f.leaves(cost)
		if leaves == limit.Never {
			return limit.Never
		}
		at = later(at, leaves.Add(-maxWait))
		if n.pace.quieted && !leaves.Before(n.pace.closed.Until) {
			at = later(at, n.pace.closed.Until)
		}
	}
	if front := n.front(); front != nil && !n.queue.HasRoom(int(cost.Packets), cost.Bytes) {
		at = later(at, f.next(&front.Cost))
	}
	return at
}

// quota returns the limit that sets room: the limit of the first item that waits, if that item has to leave before, or else
// the limit of what was refused.
func (f forecast) quota(cost *Cost, maxWait time.Duration) Quota {
	front, none := f.node.front(), func(tail, *node) int64 { return 0 }
	if front != nil && !f.node.queue.HasRoom(int(cost.Packets), cost.Bytes) && !f.room(cost, maxWait).After(f.next(&front.Cost)) {
		quota, _ := f.slowest(&front.Cost, none)
		return quota
	}
	quota, at := f.slowest(cost, tail.through)
	if at.Before(f.leaves(cost)) && !f.resumes(cost).After(at) { // what others send makes it later than its own queue does
		quota, _ = f.slowest(cost, tail.others)
	}
	return quota
}

// slowest returns which limit on the path lets the item leave last if so much leaves before it in each class, and when. It
// returns that of the class if no limit holds the item up, or if something else does for longer.
func (f forecast) slowest(cost *Cost, ahead func(tail, *node) int64) (quota Quota, at time.Time) {
	at, quota = f.now, f.node.pace.asQuota(f.node.class.name)
	for x := f.node; x != nil; x = x.parent.Load() {
		before, n := ahead(f.tail, x), f.in(x, cost)
		until := x.follows(f.now, before, n)
		if !until.After(at) {
			continue
		}
		at = until
		if r := x.pace.numbered(x.holding(f.now, before, max(n, 1))); r != nil {
			quota = r.asQuota(x.class.name)
		} else {
			quota = f.node.pace.asQuota(f.node.class.name)
		}
	}
	return quota, at
}

// next estimates when an item leaves that goes before all others of its class, if no item
// goes before it in a class above.
func (f forecast) next(cost *Cost) time.Time {
	at := f.now
	for x := f.node; x != nil; x = x.parent.Load() {
		at = later(at, x.expectedAt(f.now, cost.In(x.kind)))
	}
	return at
}
