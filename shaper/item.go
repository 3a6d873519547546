package shaper

import (
	"time"

	"shaper/leaky"
	"shaper/stats"
	"shaper/unit"
)

// Cost is what one item costs, in every unit that a class may count. Each class
// on the path of the item charges only the unit of its rate.
type Cost struct {
	Bytes, Packets, Messages, Connections int64
}

// in returns the cost in one unit.
func (c Cost) in(kind unit.Kind) int64 {
	switch kind {
	case unit.Bytes:
		return c.Bytes
	case unit.Packets:
		return c.Packets
	case unit.Messages:
		return c.Messages
	case unit.Connections:
		return c.Connections
	}
	return 0
}

// Volume returns the cost as counters have it.
func (c Cost) Volume() stats.VolumeReading {
	return stats.VolumeReading{Bytes: uint64(c.Bytes), Packets: uint64(c.Packets), Messages: uint64(c.Messages), Connections: uint64(c.Connections)}
}

func (c *Cost) add(o *Cost) {
	c.Bytes += o.Bytes
	c.Packets += o.Packets
	c.Messages += o.Messages
	c.Connections += o.Connections
}

// negative returns the cost that, added, takes c away.
func (c Cost) negative() Cost { return Cost{-c.Bytes, -c.Packets, -c.Messages, -c.Connections} }

// Item is what leaves a class as one: a piece of a stream, a datagram or several, a
// message, a new connection. In the queue, several datagrams count as several. The owner
// allocates an item once, and may use it again when it has left. While it waits only its
// class touches it.
type Item struct {
	Cost Cost
	Held int64 // bytes of memory that it holds while it waits
	// Busy says that this use of the item stands for work that was already there when the
	// item left last: its source was not idle in between, so the class may make up for a
	// late departure.
	Busy bool
	// Patient says that the item holds up its own source while it waits, as a piece of a
	// stream does, or a connection. So it needs no room in the queue if the overflow of the
	// class is wait. A datagram is never patient.
	Patient bool
	// Accepted says that the item has waited in this class before, and has not left. So it
	// needs no room in the queue, and no wait is too long for it.
	Accepted bool
	// Settles says that whoever lets the item out calls Left when it has left. Until then,
	// for a second at most, nothing follows it out of a class that counts gaps: however
	// late it is written, no gap comes out short.
	Settles bool
	// Asks says that the item gets an answer. It is in flight until Answered is called,
	// when the answer is there or will not come any more.
	Asks bool
	// Owner is told when the item leaves. It may be nil if Release is called by hand.
	Owner Owner

	// Under the lock of the tree that the item enters.
	arrived time.Time // when it entered
	since   time.Time // since when its source has not been idle, by Busy
	class   *Class    // in whose queue it waits, or has waited last
	charged *Class    // that it has left; nil: none
	place   leaky.Element[Item]
	source  Source // sends its copies, in the shadows on its path
}

// Owner is told when its item, which had to wait, may leave.
type Owner interface {
	// Leave must not block: other items wait behind it.
	Leave(now time.Time)
}
