package frame

import (
	"fmt"
	"math"
	"time"
)

// Protocol is what is inside a connection.
type Protocol string

// The protocols that have messages.
const (
	SMPP    Protocol = "smpp"
	HTTP    Protocol = "http"
	ISO8583 Protocol = "iso8583"
	Lines   Protocol = "lines"
)

// Settings say how the messages of a connection are framed.
type Settings struct {
	Protocol Protocol

	// ISO 8583 only.
	Prefix         Prefix // of what kind the length is
	IncludesPrefix bool   // the length counts the bytes of the prefix too
	Header         int    // bytes between the prefix and the message type, such as the 5 of a TPDU
}

// Check returns what is wrong with the settings; nil if nothing is.
func (s Settings) Check() error {
	switch s.Protocol {
	case SMPP, HTTP, Lines:
		if s != (Settings{Protocol: s.Protocol}) {
			return fmt.Errorf("frame: %s has no length prefix to set", s.Protocol)
		}
		return nil
	case ISO8583:
		return s.checkPrefix()
	}
	return fmt.Errorf("frame: %q is no protocol of messages", s.Protocol)
}

// Bound returns the most bytes that a scanner has to be given at once.
func (s Settings) Bound() int {
	switch s.Protocol {
	case SMPP:
		return maxPDU
	case ISO8583:
		return s.Prefix.size() + s.Prefix.most()
	}
	return maxHead // and maxLine
}

// NewLink returns the link of one connection. The settings have passed Check.
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

// A Link is a connection from a client to a provider, with what the two
// directions have to know of each other. It is not safe for concurrent use.
type Link interface {
	// Up scans what the client sends, Down what the provider does.
	Up() Scanner
	Down() Scanner

	// Room reports whether one more counted message should be sent before an
	// answer has come: fewer than 4,096 requests of SMPP, or 64 of HTTP, have
	// none. Each that is sent is remembered.
	Room() bool

	// Sent tells that a counted message of Up leaves for the provider; now is
	// what Expire compares with. In SMPP it may be sent without Room, as one that
	// has waited since there was some. In HTTP, Up holds until Sent or Refuse is
	// called.
	Sent(m *Message, now time.Time)

	// Refuse tells that a message that is Refusable is answered here instead. whole says
	// that what Down has found has been passed on to its end. If Refuse returns true the
	// refusal may be written at once, wherever a message of Down ends; else when Due says so.
	Refuse(m *Message, whole bool) (now bool)

	// Due returns, once, the next refused message whose turn to be answered has
	// come, and whether there is one. Ask when a message of Down has ended, and
	// where Down holds.
	Due() (m Message, ok bool)

	// AppendRefusal appends the answer to a refused message, of which nothing
	// is used that lies in the bytes of its head. It allocates only where dst
	// has no room.
	AppendRefusal(dst []byte, m *Message, r Refusal) []byte

	// InFlight returns how many requests were sent and are not answered. One in
	// HTTP is, when its response has ended.
	InFlight() int

	// Expire forgets the requests that were sent before a time and are not
	// answered, and calls gone for each. In HTTP, where a response is known by its
	// place only, there are none.
	Expire(before time.Time, gone func(tag uint16))

	// Drop forgets all that is in flight, and calls gone for each. The connection
	// has ended.
	Drop(gone func(tag uint16))
}

// A Scanner finds the messages of one direction.
type Scanner interface {
	// Next says what p begins with, and how many bytes that is; see Event. p
	// begins where the event before ended and holds all that was read since.
	// After More, the next p begins with the same bytes. n is not 0, but with
	// More, Hold, and an error.
	//
	// An error is an *Error: where this message ends is not known, and so
	// nothing behind it can be. The same comes again.
	Next(p []byte) (n int, ev Event, err error)

	// Message returns the message that the last Whole or Head began. It stays
	// until the next one; copy it to keep it. What rules look at lies in the p of
	// that event, but for SystemID, which lies in the scanner.
	Message() *Message

	// Need returns, after More, the least bytes p must have for more to be told.
	Need() int

	// Opaque returns how many bytes from here on are of a body, or of no message,
	// and so may pass by without Next; [Endless] for all that come. Skip tells
	// that n of them have, which is Body, End or Tunnel.
	Opaque() int64
	Skip(n int64) Event

	// End says what the end of the stream makes of what is left after More: More
	// that it ends between messages, Whole that p is one, End that the body has
	// ended.
	End(p []byte) (Event, error)
}

// Endless is the number of bytes of what only the end of the stream ends.
const Endless = math.MaxInt64

// An Event is what bytes are the beginning of.
type Event uint8

const (
	// More: of something that is not all there. Nothing is told of it yet.
	More Event = iota
	// Whole: a message, to its end.
	Whole
	// Head: the head of a message. Its body follows, as Body and at last End.
	Head
	// Body: a piece of a body.
	Body
	// End: the last piece of a body.
	End
	// Tunnel: of no message, and nor is anything behind it.
	Tunnel
	// Hold: it cannot be told before the other direction has gone on, or a
	// request was sent or refused.
	Hold
)

var eventNames = [...]string{"more", "whole", "head", "body", "end", "tunnel", "hold"}

func (e Event) String() string { return eventNames[e] }
