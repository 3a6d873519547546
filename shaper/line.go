package shaper

import (
	"math/bits"
	"time"

	"shaper/leaky"
	"shaper/unit"
)

// A Backlog is what waits at a moment.
type Backlog struct {
	Items int64 // each datagram counts, even if several wait together
	Bytes int64 // payload
}

func (b Backlog) plus(o Backlog) Backlog { return Backlog{b.Items + o.Items, b.Bytes + o.Bytes} }

// A line is what waits in a class and beneath it. The lock of the tree guards it.
type line struct {
	// Of the class itself.
	queue     leaky.Queue[Item]
	queueCost int64 // of all items in queue, in the unit of the class
	patient   bool  // overflow is wait: patient items need no room in queue

	// Of the class and all beneath it.
	waiting     int64 // items; see Backlog.Items
	waitingCost sum   // of all these items
	someFree    bool  // one of them may cost nothing in the unit of the class
	depth       int64 // of a bucket: what the turns of all these items cost, as noted in depths
}

// front returns the item of the queue that leaves first; nil if none waits.
func (l *line) front() *Item {
	if e := l.queue.Front(); e != nil {
		return e.Value
	}
	return nil
}

// enqueue puts an item at the end of the queue, or before all others if it is First. The sums stay as they are.
func (l *line) enqueue(it *Item) {
	it.place.Value, it.place.Bytes, it.place.Items = it, it.Held, int(it.Cost.Packets)
	if it.First {
		l.queue.PushFront(&it.place)
	} else {
		l.queue.Push(&it.place)
	}
}

// oldest returns when the item came that has waited in the queue for longest; zero if none waits. Items that are First
// stand before others that came earlier.
func (l *line) oldest() (came time.Time) {
	for e := l.queue.Front(); e != nil; e = e.Next() {
		came = earlierKnown(came, e.Value.arrived)
		if !e.Value.First {
			break
		}
	}
	return came
}

// needsNoRoom reports whether an item waits even if the queue has no room. The number of
// sources bounds patient items, and the room that there was bounds accepted ones.
func (l *line) needsNoRoom(it *Item) bool { return it.Accepted || it.Patient && l.patient }

// count adds items, and what they cost together, to what waits in the class and beneath
// it. kind is the unit of the class. Negative numbers take away.
func (l *line) count(kind unit.Kind, cost *sum, items int64) {
	l.waitingCost.add(cost)
	l.waiting += items
	l.someFree = l.waiting > 0 && (l.someFree || cost.in(kind) == 0)
}

func (l *line) backlog() Backlog { return Backlog{Items: l.waiting, Bytes: l.waitingCost.bytes} }

// noteWaiting keeps keys.waiting and the depths right when something has come into a bucket or left it.
func (k *keys) noteWaiting(c *Class) {
	if depth := max(c.waitingCost.in(k.class.kind), c.waiting); k.above == nil && depth != c.depth { // a turn costs at least 1
		k.class.feed.depths.count(c.depth, -1)
		k.class.feed.depths.count(depth, 1)
		c.depth = depth
	}
	switch waits := c.waiting > 0; {
	case waits == c.waits:
	case waits:
		c.place.Value, c.waits = c, true
		k.waiting.Push(&c.place)
	default:
		k.waiting.Remove(&c.place)
		c.waits = false
	}
}

// depths counts the buckets of a class by how deep they are: number i counts those whose depth has i binary
// digits. So it is known what many buckets let leave in so many turns, without a look at each of them.
type depths [64]struct{ buckets, depth int64 }

// count adds n buckets of a depth. Of those in which nothing waits, it keeps no true count.
func (d *depths) count(depth, n int64) {
	at := &d[bits.Len64(uint64(depth))]
	at.buckets += n
	at.depth += n * depth
}

// upTo returns how much leaves if each of the buckets lets at most so much leave, of what it has: at most a
// quarter more than that. total is what they have together, or more.
func (d *depths) upTo(most, total int64) (all int64) {
	for i := 1; i <= bits.Len64(uint64(total)); i++ {
		switch at := &d[i]; {
		case at.buckets == 0:
		case i < bits.Len64(uint64(most)), at.depth/at.buckets <= most:
			all += at.depth
		default:
			all += at.buckets * most
		}
	}
	return all
}
