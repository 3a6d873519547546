package shaper

// A ring holds the contenders of one band and priority, which take turns. The rule is
// start-time fair queueing (Goyal, Vin and Cheng, SIGCOMM 1996). The ring has a clock of
// its own. By that clock an item takes its cost divided by the weight of its contender.
// Each contender has a time, at, when its next turn begins. The one with the earliest time
// sends:
//
//	turn begins     at = max(at, clock - longest)    when it takes its seat
//	an item leaves  clock = max(clock, at), at += cost/weight
//
// The clock shows when the latest turn began, and no contender sends before those whose
// turns begin earlier. So
//
//	clock - longest <= at <= clock + longest
//
// for every contender in the ring. longest is the most that an item has taken lately. Take
// two contenders that stay in the ring from one moment to another. The at of each moves by
// what it sends in this ring, divided by its weight, and the two are never further apart
// than 2 * longest. So
//
//	|sent/weight of the one - sent/weight of the other| <= 4 * longest
//
// for any weights and costs, and whatever else each of them sends, such as a contender
// within its assured rate. Here longest is the largest value that it had meanwhile.
//
// Lately means in the present epoch of the ring or in the epoch before. An epoch ends when
// the clock has moved by more than longest. An item of an older epoch left when the clock
// showed the begin of the last epoch, or earlier, and it took at most what longest was in
// that epoch. The clock has moved by more than that since. So it has passed the at that
// this item led to, and at <= clock + longest holds without the item. The other half holds
// too: the clock moves only to the earliest turn, and longest shrinks only when the clock
// moves.
//
// The first turn of a new contender comes when all others have had a turn: it begins at
// last, the latest at so far. Some item led to that, so at <= clock + longest holds for
// the new contender too.
//
// A contender that leaves the ring keeps its turn. Contenders leave often: a class has a
// gap of its own after each item, or nothing waits there until its one session has written
// what left. A contender that comes back and has missed turns goes before the others for
// as long as one item takes. It loses the rest, since idle time earns nothing.
type ring struct {
	line    alarms // the seats, by when their turns begin
	clock   int64  // when the latest turn began
	last    int64  // the latest time at which a turn will begin
	longest int64  // the most that an item has taken in this epoch and the one before
	recent  int64  // the most that an item has taken in this epoch
	epoch   int64  // when this epoch began
	floor   int64  // the largest clock - longest so far: no turn begins before
}

// By the clock of a ring, a unit of cost takes ticksPerUnit if the weight is 1. So weights
// up to 10,000 hold to within a thousandth. An item that costs more than maxCost counts as
// one that costs maxCost. The clock wraps round after 2^40 units, which does no harm: all
// times in the ring are closer together than that.
const (
	ticksPerUnit = 1 << 24
	maxCost      = 1 << 36
)

// join puts the seat of a contender into the ring.
func (r *ring) join(seat *alarm) { r.line.put(seat, r.begins(seat)) }

// begins returns when the next turn of a contender begins, if it takes its seat now or has it.
func (r *ring) begins(seat *alarm) int64 {
	at := seat.key
	if seat.index == 0 && uint64(at-r.floor) > uint64(r.last-r.floor) { // it has missed more, or the clock has wrapped round
		at = r.floor
	}
	return at
}

// pay charges an item to the turn of a contender. An item that costs nothing counts as one
// that costs 1. A turn takes at least one tick, even if the weight is above ticksPerUnit:
// else nobody would come after it.
func (r *ring) pay(seat *alarm, cost, weight int64) {
	takes := max(min(max(cost, 1), maxCost)*ticksPerUnit/weight, 1)
	r.clock = latest(r.clock, seat.key)
	r.longest, r.recent = max(r.longest, takes), max(r.recent, takes)
	if r.clock-r.epoch > r.longest {
		r.longest, r.recent, r.epoch = r.recent, takes, r.clock
	}
	r.floor = latest(r.floor, r.clock-r.longest)
	seat.key += takes
	r.last = latest(r.last, seat.key)
}

// reweigh gives a contender another weight. It then waits for its next turn as long as its
// last item takes at the new weight, and no longer than a new contender waits.
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
