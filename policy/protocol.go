package policy

import (
	"math/bits"

	"shaper/unit"
)

// The protocols of this version.
const (
	TCP     Protocol = "tcp"     // a stream of bytes
	UDP     Protocol = "udp"     // datagrams
	SMPP    Protocol = "smpp"    // messages: submits, by their destinations
	HTTP    Protocol = "http"    // messages: requests of HTTP/1.1
	ISO8583 Protocol = "iso8583" // messages behind a length
	Lines   Protocol = "lines"   // messages: lines
)

// Network returns what carries the protocol: TCP or UDP.
func (p Protocol) Network() Protocol {
	if p == UDP {
		return UDP
	}
	return TCP
}

// HasMessages reports whether a message can be told from another in it.
func (p Protocol) HasMessages() bool { return p != TCP && p != UDP }

// Refuses reports whether the protocol has a way to say that a message is one too
// many.
func (p Protocol) Refuses() bool { return p == SMPP || p == HTTP }

// Counts reports whether what goes one way of the protocol has any of what a class
// counts.
func (p Protocol) Counts(kind unit.Kind, back bool) bool {
	switch kind {
	case unit.Packets:
		return p == UDP
	case unit.Messages:
		return p.HasMessages() && !(back && p == HTTP) // a response answers a request
	case unit.Connections:
		return p != UDP && !back
	}
	return true
}

// What waits of one connection of a protocol with messages.
const (
	// ConnectionHolds is the most memory that the messages of a connection take which
	// wait there.
	ConnectionHolds = 16 * unit.MiB
	// MessageHolds is what a message of up to 128 bytes takes of that. One of up to 256
	// bytes takes 128 more, and so on by powers of two.
	MessageHolds = 512
)

// Holds returns the memory that a message, or a datagram, of so many bytes takes while it
// waits: what MessageHolds says.
func Holds(bytes int64) int64 {
	const least = 128
	return MessageHolds - least + max(least, int64(1)<<bits.Len64(uint64(max(bytes, 1)-1)))
}
