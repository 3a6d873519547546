package shaper

import (
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
}

// front returns the item of the queue that leaves first; nil if none waits.
func (l *line) front() *Item {
	if e := l.queue.Front(); e != nil {
		return e.Value
	}
	return nil
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

// noteWaiting keeps keys.waiting right when something has come into a bucket or left it.
func (k *keys) noteWaiting(c *Class) {
	waits, last := c.waiting > 0, len(k.waiting)-1
	switch {
	case waits == (c.seat > 0):
	case waits:
		k.waiting = append(k.waiting, c)
		c.seat = int32(len(k.waiting))
	default:
		moved := k.waiting[last]
		k.waiting[c.seat-1], moved.seat = moved, c.seat
		k.waiting[last], k.waiting, c.seat = nil, k.waiting[:last], 0
	}
}
