package fleet

import (
	"time"

	"shaper/limit"
	"shaper/unit"
)

// A hand is what a lease has been granted and has not used: three blocks at most, the earliest first. A block
// without units is none. The third has room for an item that is larger than the rests of two blocks.
type hand struct {
	machine *Machine
	held    [3]block
	floor   time.Time // no unit before this: a pause of the provider
	last    time.Time // when the last item was charged or, if it is known, when it left
	cost    int64     // what it costs, and what answers have charged since
	over    time.Time // until when it may leave; zero: it had no slot
	keyed   bool      // it is that of a key, not of the class itself
	unheard bool      // the store has not heard of that item, which left at the member's share
	debt    int64     // units that have left without a slot; the next blocks pay
	open    *open     // nil: the class has no windows
	counts  Counts
}

// slotOf returns when an item of n units may leave with the units in hand, after ahead others.
func (h *hand) slotOf(now time.Time, ahead, n int64) (at time.Time, ok bool) {
	if h.debt > 0 {
		return at, false
	}
	next := int64(1) // what the next item costs
	if ahead == 0 {
		next = n
	}
	i, n := ahead+min(n, h.machine.class.burst())-1, ahead+n
	for b := range h.held {
		b := &h.held[b]
		first := h.first(b, now, next)
		units := b.units - first
		if i >= 0 && i < units {
			at, ok = latest(b.slot(first+i), h.free()), true
			if ahead == 0 && h.machine.late.keeps {
				return at, true // first has seen that the item fits
			}
		}
		i, n = i-units, n-units
	}
	return at, ok && n <= 0
}

// inHand returns how many units may still leave, and the slot of the last of them.
func (h *hand) inHand(now time.Time) (units int64, last time.Time) {
	for b := range h.held {
		b := &h.held[b]
		if first := h.first(b, now, 1); first < b.units {
			units += b.units - first
			last = b.slot(b.units - 1)
		}
	}
	return units - h.debt, last
}

// place returns which of the next items have no slots in hand, and how many units the items before them use: all that are
// in hand if there is no such item.
func (h *hand) place(now time.Time, next items, have int64) (rest items, used int64) {
	b, room := 0, int64(0) // of the blocks before b
	for i, n := range next {
		for ; room < n; b++ {
			if b == len(h.held) {
				return next[i:], used
			}
			if h.machine.late.keeps && !h.held[b].joins {
				room = 0 // the slots of an item follow one another
			}
			room += h.held[b].units - h.first(&h.held[b], now, 1)
		}
		room, used = room-n, used+n
	}
	return nil, have
}

// first returns the first unit of a block at which an item of n units may leave at now or later.
func (h *hand) first(b *block, now time.Time, n int64) int64 {
	at := latest(now, h.free())
	switch {
	case b.till.IsZero():
		return b.first(at, n, h.after(b), h.machine.late)
	case b.used < b.units && at.Before(h.till(b)):
		return b.used
	}
	return b.units
}

// till returns until when the units of a block of a window may leave. What the store has granted ends by its clock, as far as that is
// known by now: the clocks may have drifted apart since the grant.
func (h *hand) till(b *block) time.Time {
	if b.local {
		return b.till
	}
	clock := &h.machine.link.clock
	ends := clock.local(b.ends)
	if sure := ends.Add(-clock.error(ends)); sure.Before(b.till) {
		return sure
	}
	return b.till
}

// after returns how many units come after a block whose slots follow directly on its own.
func (h *hand) after(b *block) int64 {
	if next := &h.held[1]; b == &h.held[0] && next.joins {
		return next.remaining()
	}
	return 0
}

// takeFrom uses up to n units of a block, and returns how many.
func (h *hand) takeFrom(b *block, now time.Time, n int64) int64 {
	first := h.first(b, now, n)
	if first == b.units && h.returnable(b) {
		return 0
	}
	switch late := h.machine.late; {
	case first == b.units || !h.over.IsZero():
	case b.till.IsZero():
		h.over = b.over(first, b.fits(n, h.after(b), late), late)
	default:
		h.over = h.till(b)
	}
	h.counts.Expired += first - b.used
	n = min(n, b.units-first)
	b.used = first + n
	again := min(b.again, n)
	b.again, h.counts.Used = b.again-again, h.counts.Used-again
	return n
}

// An open is what the store has granted of the window that is open, and how much of the grant items
// have taken.
type open struct {
	took    [3]taken  // what the last item has of each block in hand
	granted block     // the last one
	since   time.Time // all items since then were charged for this window
}

// taken is what an item has of a block of a window.
type taken struct {
	block block // as it was then
	units int64
}

// clear forgets what the last item has.
func (o *open) clear() {
	if o != nil {
		o.took = [3]taken{}
	}
}

// grant notes a block that the store has granted at now. What is in hand of the window before comes first.
func (o *open) grant(now time.Time, b *block) {
	if b.ends != o.granted.ends {
		o.since = latest(o.since, latest(now, o.granted.till))
	}
	o.granted = *b
}

// note notes what an item has of a block. Only what the store has granted for a window can be used again: another item has
// had its time if it was a slot, and what a member has used of its share is noted for the store.
func (h *hand) note(b int, units int64) {
	if block := h.held[b]; h.open != nil && units > 0 && !block.local {
		h.open.took[b] = taken{block, units}
	}
}

// untake puts what the last item has taken of windows back into the hand, because the item has not left. It returns
// how many units it has put back; the other units are lost.
func (h *hand) untake() (units int64) {
	if h.open == nil {
		return 0
	}
	for i := len(h.open.took) - 1; i >= 0; i-- {
		if t := &h.open.took[i]; t.units > 0 && h.restore(&t.block, t.units) {
			units += t.units
		}
	}
	h.open.clear()
	return units
}

// refund puts units back that an item has not cost which was charged at the time then, as far as nothing pays for what has
// left without: only into the window for which it was charged, and not if the last grant was by a higher rate than the one in
// force. Then the window may hold less than was charged already, and the store alone knows whether there is room.
func (h *hand) refund(now, then time.Time, units int64, rate unit.Rate) {
	o := h.open
	if o == nil || then.Before(o.since) || !now.Before(o.granted.till) || o.granted.rate.Compare(rate) > 0 {
		return
	}
	paid := min(h.debt, units)
	if h.debt -= paid; units > paid {
		h.restore(&o.granted, units-paid)
	}
}

// restore puts units back into their block, or before the others if the block was used up and dropped. It returns false if there is
// no room.
func (h *hand) restore(of *block, units int64) bool {
	for b := range h.held {
		if b := &h.held[b]; b.units > 0 && b.number == of.number && !b.local {
			b.refill(units)
			return true
		}
	}
	if h.isFull() {
		return false
	}
	copy(h.held[1:], h.held[:])
	h.held[0] = *of
	h.held[0].used, h.held[0].again = of.units, 0
	h.held[0].refill(units)
	return true
}

// returnable reports whether the store takes the rest of a block back when its time is over. It is so for a
// sliding log: there, units that have not left would count for the whole window. If the class has
// other limits too, these are many.
func (h *hand) returnable(b *block) bool {
	return h.machine.class.Algorithm == SlidingLog && h.isOfTheStore(b) && b.remaining() > 0
}

// isOfTheStore reports whether the block comes from the store that the machine asks now: the fleet's or the member's own.
func (h *hand) isOfTheStore(b *block) bool {
	return h.machine.mode == FromStore && !b.local || h.machine.mode == OnShare && b.local
}

// drop forgets blocks that are over, and those of the member's own share if own. What is returnable
// stays for giveBack.
func (h *hand) drop(now time.Time, own bool) {
	for b := range h.held {
		b := &h.held[b]
		if own && b.local || h.first(b, now, 1) == b.units && !h.returnable(b) {
			h.counts.Expired += b.remaining()
			*b = block{}
		}
	}
	if h.held[0].units == 0 {
		h.shift()
	}
}

// discard forgets all blocks.
func (h *hand) discard() {
	for b := range h.held {
		h.counts.Expired += h.held[b].remaining()
		h.held[b] = block{}
	}
	if h.open != nil {
		*h.open = open{}
	}
}

// shift drops the first block, and those after it that have no units.
func (h *hand) shift() {
	h.counts.Expired += h.held[0].remaining()
	rest := h.held
	rest[0], h.held = block{}, [3]block{}
	for _, b := range rest {
		if b.units > 0 {
			h.put(b)
		}
	}
	h.held[0].joins = false
}

// add puts a block into the hand, and returns how many of its units pay for what has left without. There is room: the
// Machine asks only then.
func (h *hand) add(b block) (paid int64) {
	paid = min(h.debt, b.units)
	b.used, h.debt = paid, h.debt-paid
	if h.isFull() {
		h.counts.Expired += b.remaining()
		return paid
	}
	h.put(b)
	return paid
}

// put puts a block after the others.
func (h *hand) put(b block) {
	for i := range h.held {
		if h.held[i].units == 0 {
			h.held[i] = b
			return
		}
	}
}

// isFull reports whether there is no room for a block.
func (h *hand) isFull() bool { return h.held[len(h.held)-1].units > 0 }

// move moves slots to where the store has moved them, and reports whether it has moved any. Slots that are over are lost first, and
// so is a block if its last item would begin after until: an item of several units reaches beyond that, as it does when it is granted.
func (h *hand) move(now, until time.Time, moved Stamp) (any bool) {
	for i := range h.held {
		b := &h.held[i]
		by := moved.Sub(b.ends)
		if b.local || b.remaining() == 0 || by <= 0 {
			continue
		}
		any = true
		h.counts.Expired += b.lose(h.first(b, now, 1))
		if b.at, b.ends = b.at.Add(by), moved; b.slot(max(b.units-int64(b.need), b.used)).After(until) {
			h.counts.Expired += b.lose(b.units)
		}
	}
	return any
}

// Left says that the item which Take has charged last has left at now. That may be much later, if the process has lost its
// processor in between. Then the store has to know by how much: it moves the slots of others by that. Such a slot comes as soon as it
// may, so an error of the clock counts as well.
func (h *hand) Left(now time.Time) {
	h.last = latest(h.last, now)
	if late := now.Sub(h.over); late > 0 && !h.over.IsZero() && h.othersHear() {
		m := h.machine
		m.overdue = max(m.overdue, min(late+m.link.clock.error(now), m.class.Rate.Time(h.cost)))
	}
}

// othersHear reports whether each other member hears of a late item before a slot comes that has moved: it calls once in half of the
// time after which it counts as silent. If gaps are shorter, some would move their slots before others do. Members call about keys when they
// need something, so nobody moves the slots of a key.
func (h *hand) othersHear() bool {
	m := h.machine
	return !h.keyed && m.late.keeps && m.mode == FromStore && m.class.Rate.Time(1) > m.class.timing().busy/2+m.link.rtt
}

// Over returns until when the item that Take has charged last may leave: then its slot, or its window, is over. It is the
// zero time if the item had none.
func (h *hand) Over() time.Time { return h.over }

// use notes that an item of n units leaves now. If that is too early, it is none: an answer charges more, and the gap grows by
// that, as in leaky.Gap. An item never comes before free, so nothing adds up from one item to the next.
func (h *hand) use(now time.Time, n int64) {
	if h.machine.late.keeps && (h.machine.class.Rate.IsZero() || h.gap().After(now)) {
		h.cost = min(h.cost+n, maxCost)
		return
	}
	h.last, h.cost, h.unheard = now, n, false
}

// unuse says that the last item, of n units, has not left. Then no gap follows it: otherwise an item that came too late to be sent
// would make the next one late, and so on until the block ends. The gap before it was over when it was charged.
func (h *hand) unuse(n int64) { h.cost = max(h.cost-n, 0) }

// maxCost bounds a cost to which others are added, so that no sum overflows.
const maxCost = 1 << 60

// free returns when the next unit may leave, whatever is in hand.
func (h *hand) free() time.Time { return latest(h.floor, h.gap()) }

// gap returns when the gap after the last item ends, at the rate now in force, as in leaky.Gap. Only a leaky bucket keeps items
// apart, and slots of which the store has not heard the last. A rate of 0 has no gaps: it blocks.
func (h *hand) gap() time.Time {
	switch c := &h.machine.class; {
	case c.Algorithm != Slots || c.Rate.IsZero():
		return time.Time{}
	case h.machine.late.keeps:
		return limit.After(h.last, c.Rate.Time(h.cost)).Add(-c.Late)
	case h.unheard:
		return limit.After(h.last, c.Rate.Time(1))
	}
	return time.Time{}
}

// raise lets no unit leave before floor.
func (h *hand) raise(floor time.Time) {
	if floor.After(h.floor) {
		h.floor = floor
	}
}

// ahead returns how long after a call leaves the first slot begins that it can get, at least.
func (h *hand) ahead(now time.Time) time.Duration {
	m := h.machine
	if m.mode == OnShare {
		return 0
	}
	return m.link.lead(m.current) + m.link.arrival(now)
}

// Counts returns the totals since the Lease was made.
func (h *hand) Counts() Counts { return h.counts }
