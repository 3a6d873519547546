package frame

import (
	"fmt"
	"math"
	"time"
)

// A Protocol is how messages are written on a connection.
type Protocol string

// Protocols that have messages.
const (
	SMPP    Protocol = "smpp"
	HTTP    Protocol = "http"
	ISO8583 Protocol = "iso8583"
	Lines   Protocol = "lines"
)

// Settings say how the messages of a connection are framed.
type Settings struct {
	Protocol Protocol

	// The following are for ISO 8583 only.
	Prefix         Prefix // how the length is written
	IncludesPrefix bool   // the length also counts the bytes of the prefix
	Header         int    // bytes between the prefix and the message type, such as the 5 of a TPDU
}

// Check returns an error that says what is wrong with the settings; nil if they are valid.
func (s Settings) Check() error {
	switch s.Protocol {
	case SMPP, HTTP, Lines:
		if s != (Settings{Protocol: s.Protocol}) {
			return fmt.Errorf("frame: %s takes no length prefix", s.Protocol)
		}
		return nil
	case ISO8583:
		return s.checkPrefix()
	}
	return fmt.Errorf("frame: %q is not a protocol with messages", s.Protocol)
}

// Bound returns the most bytes that a message, a head or a line may have: a scanner never
// needs a longer p.
func (s Settings) Bound() int {
	switch s.Protocol {
	case SMPP:
		return maxPDU
	case ISO8583:
		return s.Prefix.size() + s.Prefix.most()
	}
	return maxHead // maxLine is the same
}

// NewLink returns the link of a new connection. It panics if the settings do not pass Check.
func NewLink(s Settings) Link {
	switch s.Protocol {
	case SMPP:
		return newSMPP()
	case HTTP:
		return newHTTP()
	case ISO8583:
		return newISO8583(s)
	case Lines:
		return newLines()
	}
	panic(s.Check())
}

// A Link scans both directions of one connection between a client and a provider, and keeps
// what each direction must know of the other. It is not safe for concurrent use.
type Link interface {
	// Up scans what the client sends, and Down what the provider sends.
	Up() Scanner
	Down() Scanner

	// Read sets m to what rules see of a counted message of Up, which Up has found before. p
	// holds the message, or its head.
	Read(p []byte, m *Message)

	// Room reports whether another counted message may be sent now: whether fewer than 4,096
	// requests of SMPP have no answer. HTTP always has room, because Up holds while 64
	// requests have no answer.
	Room() bool

	// Sent says that a counted message of Up leaves for the provider at now. The link
	// remembers it until its answer ends, or Expire or Drop forgets it. SMPP accepts it even
	// without Room. In HTTP, Up holds from the head of a request until Sent or Refuse is
	// called.
	Sent(m *Message, now time.Time)

	// Again says that the provider has refused the request that was sent last, and that it is
	// to be sent again. Its answer may still be on its way. Sent or Refuse follows.
	Again()

	// Refuse says that a Refusable message is not sent but refused. whole says that the last
	// message that Down found has been passed on to its end. If Refuse returns true, the
	// caller may write the refusal at once, wherever a message of Down ends. If it returns
	// false, Due returns the message when its turn has come.
	Refuse(m *Message, whole bool) (now bool)

	// Due returns each refused message once, when its turn to be answered has come; false if
	// there is none. Call it after a message of Down has ended, and when Down holds.
	Due() (m Message, ok bool)

	// AppendRefusal appends the refusal of a message to dst. It reads no bytes of the message.
	// It allocates only if dst has no room.
	AppendRefusal(dst []byte, m *Message, r Refusal) []byte

	// InFlight returns how many requests were sent and have no answer yet. A request of HTTP
	// is answered when its response ends.
	InFlight() int

	// Expire forgets the requests that were sent before a time and have no answer, and calls
	// gone for each. In HTTP it does nothing: a response belongs to a request by its place
	// alone.
	Expire(before time.Time, gone func(tag uint16))

	// Drop forgets all requests in flight, and calls gone for each. Call it when the
	// connection has ended.
	Drop(gone func(tag uint16))
}

// A Scanner finds the messages of one direction. It copies no payload and keeps no p.
type Scanner interface {
	// Next returns what p begins with, and how many bytes that is; see Event. p begins where
	// the last event ended, and holds everything that was read since. After More, the next p
	// begins with the same bytes. n is 0 only with More, Hold and an error.
	//
	// An error is an *Error. Nothing behind it can be framed, and each later call returns it
	// again.
	Next(p []byte) (n int, ev Event, err error)

	// Message returns the message that the last Whole or Head began. It is valid until the
	// next one; copy it to keep it. The fields for rules, and its PDU, point into the p of
	// that event, except SystemID, which the scanner owns.
	Message() *Message

	// Need returns, after More, how many bytes the next p must have at least.
	Need() int

	// Opaque returns how many of the next bytes belong to a body or a tunnel, and so may pass
	// without Next; [Endless] if all do. Skip says that n of them have passed, and returns
	// Body, End or Tunnel for them.
	Opaque() int64
	Skip(n int64) Event

	// End says that the stream ends behind p, which is what remained after More. It returns
	// More if the stream ends between messages, Whole if p is a message, and End if the body
	// ends here. Otherwise it returns an *Error.
	End(p []byte) (Event, error)
}

// Endless is the length of what only the end of the stream ends.
const Endless = math.MaxInt64

// An Event says what bytes begin with.
type Event uint8

const (
	// More: the rest is needed before anything can be said.
	More Event = iota
	// Whole: a whole message.
	Whole
	// Head: the head of a message. Its body follows as Body, and ends with End.
	Head
	// Body: a piece of a body.
	Body
	// End: the last piece of a body. The message ends with it.
	End
	// Tunnel: bytes that belong to no message. Only such bytes follow.
	Tunnel
	// Blank: an empty line before a request of HTTP. It belongs to no message, and is not to be
	// passed on.
	Blank
	// Hold: the scanner cannot go on before the other direction does, or before Sent or Refuse
	// is called.
	Hold
)

var eventNames = [...]string{"more", "whole", "head", "body", "end", "tunnel", "blank", "hold"}

func (e Event) String() string { return eventNames[e] }
