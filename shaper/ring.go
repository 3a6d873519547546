package shaper

// A ring is the contenders of one band and priority, which take turns. The rule is
// start-time fair queueing (Goyal, Vin and Cheng, SIGCOMM 1996): the ring has a clock of
// its own, by which an item takes a second for each unit that it costs, divided by the
// weight of its contender. Each contender has a time at which its next turn begins, and
// the one with the earliest sends:
//
//	turn begins     at = max(at, clock - longest)    when it takes its seat
//	an item leaves  clock = max(clock, at), at += cost/weight
//
// The clock stands where the latest turn began, and no contender sends before those whose
// turns begin earlier. So
//
//	clock - longest <= at <= clock + longest
//
// for all in the ring; longest is the most that an item has taken lately. Take two that
// are in the ring from one moment to another: at moves on by what each sends in this ring,
// divided by its weight, and the two are never further apart than 2 * longest. So
//
//	|sent/weight of the one - sent/weight of the other| <= 4 * longest
//
// for any weights and costs, and whatever else each of them sends, as a contender within
// its assured rate does. Here longest is the largest that it was meanwhile.
//
// Lately means in the present epoch of the ring or in the one before. An epoch ends when
// the clock has moved on by more than longest. An item of an older epoch left when the
// clock stood where the last epoch began, or earlier, and took no more than longest was
// in that epoch. The clock has moved on by more than that since. So it has passed the at
// that this item led to, and at <= clock + longest holds without the item. The other half
// holds, too: the clock moves only to the earliest turn, and longest becomes less only
// when the clock moves.
//
// The first turn of a new contender comes when all others have had one: it begins at last,
// the latest at so far. Some item led to that, so at <= clock + longest holds for the new
// one as well.
//
// A contender that leaves the ring keeps its turn. To leave is the rule rather than the
// exception: a class has a gap of its own after each item, or nothing waits there until
// its one session has sent what left. A contender that has missed turns comes before the
// others when it is back, for as long as one item takes; the rest is lost, as idle time
// earns nothing.
type ring struct {
	line    alarms // the seats, by when their turns begin
	clock   int64  // the latest at which a turn has begun
	last    int64  // the latest at which a turn is to begin
	longest int64  // the most that an item has taken lately: in this epoch and the one before
	recent  int64  // the most that one has taken in this epoch
	epoch   int64  // when this epoch began, by the clock
	floor   int64  // clock - longest, at most so far: no turn begins before
}

// By the clock of a ring, a unit of cost takes secondOfRing if the weight is 1. An item
// that costs more than mostOfTurn counts as one of that cost. So weights up to 10,000 hold
// to within a thousandth. After 2^40 units the clock goes round, which does no harm: all
// times in the ring are closer together.
const (
	secondOfRing = 1 << 24
	mostOfTurn   = 1 << 36
)

// join puts the seat of a contender into the ring.
func (r *ring) join(seat *alarm) {
	at := seat.key
	if uint64(at-r.floor) > uint64(r.last-r.floor) { // it has missed more, or the clock has gone round
		at = r.floor
	}
	r.line.put(seat, at)
}

// pay charges the turn of a contender for an item. An item that costs nothing counts as
// one that costs 1. A turn takes some time, even if the weight is above secondOfRing;
// else nobody would come after it.
func (r *ring) pay(seat *alarm, cost, weight int64) {
	takes := max(min(max(cost, 1), mostOfTurn)*secondOfRing/weight, 1)
	r.clock = latest(r.clock, seat.key)
	r.longest, r.recent = max(r.longest, takes), max(r.recent, takes)
	if r.clock-r.epoch > r.longest {
		r.longest, r.recent, r.epoch = r.recent, takes, r.clock
	}
	r.floor = latest(r.floor, r.clock-r.longest)
	seat.key += takes
	r.last = latest(r.last, seat.key)
}

// reweigh gives a contender another weight. It waits for its next turn as long as its last
// item takes by that weight, and no longer than a new contender waits.
func (r *ring) reweigh(seat *alarm, old, next int64) {
	wait := seat.key - r.clock
	if old == next || wait <= 0 {
		return
	}
	key := r.clock + min(wait/next, (r.last-r.clock)/old)*old
	if seat.index == 0 {
		seat.key = key
	} else {
		r.line.put(seat, key)
	}
}

// latest returns the later of two times by the clock of a ring.
func latest(a, b int64) int64 {
	if before(a, b) {
		return b
	}
	return a
}
