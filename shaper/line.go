package shaper

import (
	"shaper/leaky"
	"shaper/unit"
)

// A Backlog is what waits at one moment.
type Backlog struct {
	Items int64 // several datagrams that wait together count as what they are
	Bytes int64 // payload
}

func (b Backlog) plus(o Backlog) Backlog { return Backlog{b.Items + o.Items, b.Bytes + o.Bytes} }

// A line is what waits in a class and beneath it. The lock of the tree guards it.
type line struct {
	queue     leaky.Queue[Item] // of the class itself
	patient   bool              // what holds up its own source waits even if the queue has no room
	queueCost int64             // of all items there, in the unit of the class

	// Of the class and all beneath it.
	beneath  Cost
	waiting  int64 // items; a datagram of a train is one
	someFree bool  // something may cost nothing in the unit of the class
}

// front returns the item of the queue that has waited longest; nil if none waits.
func (l *line) front() *Item {
	if e := l.queue.Front(); e != nil {
		return e.Value
	}
	return nil
}

// waitsRegardless reports whether an item waits even if the queue has no room: what holds
// up its own source is bounded by the number of sources, and what has been accepted by the
// room that there was.
func (l *line) waitsRegardless(it *Item) bool { return it.Accepted || it.Patient && l.patient }

// count notes that so many more items of that cost, or fewer, wait in the class or
// beneath it.
func (l *line) count(kind unit.Kind, cost *Cost, items int64) {
	l.beneath.add(cost)
	l.waiting += items
	if items < 0 {
		l.someFree = l.someFree && l.waiting > 0
	} else if cost.in(kind) == 0 {
		l.someFree = true
	}
}

func (l *line) backlog() Backlog { return Backlog{Items: l.waiting, Bytes: l.beneath.Bytes} }
