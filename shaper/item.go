package shaper

import (
	"time"

	"shaper/leaky"
	"shaper/stats"
	"shaper/unit"
)

// Cost is what one item costs, in every unit that a class may count. Each class on the
// path of the item charges only the unit of its rate. A copy goes through
// memory, since the compiler keeps at most four fields in registers.
type Cost struct {
	Bytes, Packets, Messages int64
	Connections, Tokens      int32 // 32 bits each, because each session has items
}

// Minus returns by how much an item that costs c costs more than one that costs o.
func (c Cost) Minus(o Cost) Cost {
	return Cost{c.Bytes - o.Bytes, c.Packets - o.Packets, c.Messages - o.Messages, c.Connections - o.Connections, c.Tokens - o.Tokens}
}

// In returns the cost in one unit; 0 if nothing counts in it.
func (c *Cost) In(kind unit.Kind) int64 {
	switch kind {
	case unit.Bytes:
		return c.Bytes
	case unit.Packets:
		return c.Packets
	case unit.Messages:
		return c.Messages
	case unit.Connections:
		return int64(c.Connections)
	case unit.Tokens:
		return int64(c.Tokens)
	}
	return 0
}

// Volume returns the cost of one item as counters have it. An item that costs messages counts
// as one message.
func (c Cost) Volume() stats.VolumeReading {
	v := stats.VolumeReading{Bytes: uint64(c.Bytes), Packets: uint64(c.Packets), Messages: uint64(c.Messages), Connections: uint64(c.Connections), Tokens: uint64(c.Tokens)}
	if c.Messages > 0 {
		v.Requests = 1
	}
	return v
}

// A sum is what several items cost together, in every unit. Pass a pointer to it; see Cost.
type sum struct{ bytes, packets, messages, connections, tokens int64 }

// in returns the sum in one unit.
func (s *sum) in(kind unit.Kind) int64 {
	switch kind {
	case unit.Bytes:
		return s.bytes
	case unit.Packets:
		return s.packets
	case unit.Messages:
		return s.messages
	case unit.Connections:
		return s.connections
	case unit.Tokens:
		return s.tokens
	}
	return 0
}

// count adds n items that cost c each. If n is negative, it takes them away.
func (s *sum) count(c *Cost, n int64) {
	s.bytes += n * c.Bytes
	s.packets += n * c.Packets
	s.messages += n * c.Messages
	s.connections += n * int64(c.Connections)
	s.tokens += n * int64(c.Tokens)
}

func (s *sum) add(o *sum) {
	s.bytes += o.bytes
	s.packets += o.packets
	s.messages += o.messages
	s.connections += o.connections
	s.tokens += o.tokens
}

// negative returns the sum to add if s is to be taken away.
func (s sum) negative() sum {
	return sum{-s.bytes, -s.packets, -s.messages, -s.connections, -s.tokens}
}

// Item is what leaves a class as one: a piece of a stream, one or more datagrams, a
// message, a new connection. In the queue, several datagrams count as several. The owner
// allocates an item once, and may use it again when it has left. While the item waits,
// only its class touches it.
type Item struct {
	Cost Cost
	Held int64 // bytes of memory that it holds while it waits
	// Busy says that the source was not idle since the item left last: the work was already
	// there. So the class may make up for a late departure.
	Busy bool
	// Patient says that the item holds up its own source while it waits, as a piece of a
	// stream or a connection does. It needs no room in the queue if the overflow of the
	// class is wait. A datagram is never patient.
	Patient bool
	// Accepted says that the item has waited in this class before, and has not left. It
	// needs no room in the queue, and no wait is too long for it.
	Accepted bool
	// First says that the item has had a turn before all that waits in the class, and has to leave
	// after all: its provider has refused it, or it could not be sent then. It needs no room in the
	// queue, and goes before the others.
	First bool
	// Settles says that the caller calls Left when the item has left. Until then nothing
	// follows it out of a class that counts gaps, for a second at most. So no gap becomes
	// too short, however late the item is written. A sliding log holds nothing up; it counts
	// the item from then on.
	Settles bool
	// Asks says that the item gets an answer. It is in flight until Answered is called:
	// when the answer has come or will never come.
	Asks bool
	// Owner is told when the item leaves. It may be nil if the caller drives the class by
	// hand.
	Owner Owner

	// Guarded by the lock of the tree that the item enters.
	arrived time.Time           // when it entered; once it has left, when it left
	since   time.Time           // since when its source has not been idle, by Busy
	class   *Class              // in whose queue it waits, or waited last
	place   leaky.Element[Item] // its place there
	charged *Class              // the class that it has left; nil: none
	verdict Verdict             // what became of it after it waited
	lasts   uint32              // how many nanoseconds after arrived it may be sent, as far as 32 bits go; 0: at any time
	source  *Source             // sends copies of it to the shadows on its path; nil: it has sent none
}

// Departed returns when the item has left its class, which has charged it then.
func (it *Item) Departed() time.Time { return it.arrived }

// Verdict returns what became of an item that has waited, when Owner is told: Leaves, or TooLong if it has turned out that
// it would wait longer than max_wait. Then it was not charged.
func (it *Item) Verdict() Verdict { return it.verdict }

// HasPerished reports whether what a fleet has granted for the item is over by now, and the item has not been sent yet. The owner
// asks right before it sends the item, and then does not send it: Return offers it again. Between the turn of an
// item and its sending, a process may lose its processor, and then another member has the next slot too soon after.
func (it *Item) HasPerished(clock func() time.Time) bool {
	return it.lasts > 0 && it.verdict == Leaves && clock().Sub(it.arrived) > time.Duration(it.lasts)
}

// behind returns the item that follows this one in the queue of its class; nil if none does.
func (it *Item) behind() *Item {
	if e := it.place.Next(); e != nil {
		return e.Value
	}
	return nil
}

// mirror returns what sends copies of a patient item to shadows; nil for no item, and for
// one that is not patient.
func (it *Item) mirror() *Source {
	if it == nil || !it.Patient {
		return nil
	}
	if it.source == nil {
		it.source = &Source{}
	}
	return it.source
}

// Owner is told when an item that had to wait may leave, or is refused after all; see Item.Verdict.
type Owner interface {
	// Leave must not block: other items wait behind this one. No tree is locked.
	Leave(now time.Time)
}

// unitCost is the cost of an item that costs one unit.
func unitCost(kind unit.Kind) Cost {
	if kind == unit.Connections {
		return Cost{Connections: 1}
	}
	return Cost{Bytes: 1, Packets: 1, Messages: 1, Tokens: 1}
}
