package exchange

import (
	"sync"
	"time"
	"unsafe"

	"shaper/buffer"
	"shaper/frame"
	"shaper/policy"
	"shaper/shaper"
)

// A message is a message on its way: the whole of it, or its head.
type message struct {
	item     shaper.Item
	lane     *lane
	class    *shaper.Class // nil: nothing limits it
	follower Follower      // is told what becomes of it; nil: nobody
	payload  payload

	// The fields of frame.Message that are needed later. None points into the bytes.
	command, sequence uint32
	tag               uint16
	refusable, close  bool
	inOrder           bool
	late              bool // it came after the connection had begun to retire, and never leaves

	// What tells its cost in another class; see move.charge.
	whole bool // its bytes are all of it
	said  said // by its body

	// For a message that may be sent again; see retry.
	repeatable bool
	held       bool      // it waits in the connection, and not yet in its class; see hold
	attempts   uint8     // how often the provider has refused it
	number     uint32    // among the messages of the lane that were kept; 0: it was not
	at         time.Time // when it was sent, or since when it is held

	stage      stage
	prev, next *message // in the list that it is in
}

// A stage says how far a message has come, and so which list it is in.
type stage uint8

const (
	unlisted   stage = iota // in no list: at the front of the input, on its way out, or dropped
	queued                  // in the list waiting, and in the queue of its class
	missed                  // in the list waiting, and its turn is lost
	parked                  // in the list parked
	behind                  // in the list behind
	unanswered              // in the list sent
)

var messages = sync.Pool{New: func() any { return new(message) }}

// newMessage returns the message that a lane has found, for a class. It counts as a use of tag.
func newMessage(l *lane, class *shaper.Class, tag uint16) *message {
	m, f := messages.Get().(*message), &l.found.message
	m.lane, m.class, m.payload = l, class, payload{in: &l.in, n: int32(l.found.size)}
	m.follower, l.found.follower = l.found.follower, nil
	m.whole, m.said = l.found.whole, l.found.said
	m.command, m.sequence, m.tag = f.Command, f.Sequence, tag
	l.x.classes.use(tag)
	m.refusable, m.close, m.inOrder, m.repeatable = f.Refusable, f.Close, f.InOrder, f.Repeatable && f.Refusable
	if o := l.x.origin; o != nil && l.isUp() {
		seen := Seen(f)
		m.payload.rewrite(o, f.Host, seen.Header("Host"))
	}
	m.item = shaper.Item{
		Cost: shaper.Cost{Messages: f.Cost, Tokens: l.found.tokens, Bytes: int64(m.payload.n)}, Held: int64(m.payload.n), Settles: true, Owner: m, Asks: l.asks(),
	}
	return m
}

// release gives the memory of a message back, and ends its use of its tag. Nobody uses it then.
func (m *message) release() {
	m.payload.release()
	m.lane.x.classes.disuse(m.lane.x.now, m.tag)
	*m = message{}
	messages.Put(m)
}

// frame returns the message for a call of the link. It is valid until the next call of frame.
func (m *message) frame() *frame.Message {
	f := &m.lane.x.current
	*f = frame.Message{Kind: frame.Counted, Cost: m.item.Cost.Messages, Refusable: m.refusable, Close: m.close,
		Command: m.command, Sequence: m.sequence, Tag: m.tag}
	return f
}

// leaveUnsent tells the class that the item of the message has left although nothing was sent.
func (m *message) leaveUnsent(now time.Time) {
	m.item.Left(now)
	if m.item.Asks {
		m.class.Provider().Answered(now, false)
	}
}

// drop takes a message out of the queue of its class. It returns false if the class has just let it go, and Leave is
// about to be called, so that Take releases it. Then its charge is given back here: later its class may be the bucket
// of another key.
func (m *message) drop() bool {
	now := m.lane.x.now
	if m.class.Cancel(now, &m.item) {
		return true
	}
	if m.item.Verdict() == shaper.Leaves {
		m.leaveUnsent(now)
		m.class.Provider().Settle(now, m.item.Departed(), shaper.Cost{}.Minus(m.item.Cost))
	}
	return false
}

// messageMemory is what a message takes while it waits, in bytes, without its buffer.
const messageMemory = policy.MessageHolds - buffer.Min

// This does not compile if messageMemory is too small.
const _ = messageMemory - unsafe.Sizeof(message{}) - unsafe.Sizeof(buffer.Buffer{})

// A list holds messages in the order of their arrival.
type list struct {
	first, last *message
	n           int
	bytes       int // payload
}

// insert puts a message before another one, or at the end if that is nil.
func (q *list) insert(m, before *message) {
	m.next, m.prev = before, q.last
	if before != nil {
		m.prev = before.prev
	}
	if m.prev == nil {
		q.first = m
	} else {
		m.prev.next = m
	}
	if before == nil {
		q.last = m
	} else {
		before.prev = m
	}
	q.n++
	q.bytes += int(m.payload.n)
}

// follow gives each message of the list a follower.
func (q *list) follow(follow func() Follower) {
	for m := q.first; m != nil; m = m.next {
		m.follower = follow()
	}
}

func (q *list) remove(m *message) {
	if m.prev == nil {
		q.first = m.next
	} else {
		m.prev.next = m.next
	}
	if m.next == nil {
		q.last = m.prev
	} else {
		m.next.prev = m.prev
	}
	m.prev, m.next = nil, nil
	q.n--
	q.bytes -= int(m.payload.n)
}
