package policy

import (
	"math/bits"

	"shaper/unit"
)

// The protocols of this version.
const (
	TCP     Protocol = "tcp"     // a stream of bytes
	UDP     Protocol = "udp"     // datagrams
	SMPP    Protocol = "smpp"    // messages: submits, one for each destination
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

// Network returns what carries the clients of the listener: TCP or UDP. Clients that want SOCKS to
// relay datagrams ask for that over TCP.
func (l *Listener) Network() Protocol {
	if l.Mode == SOCKS5 {
		return TCP
	}
	return l.Protocol.Network()
}

// relays reports whether the listener relays datagrams for SOCKS clients.
func (l *Listener) relays() bool { return l.Mode == SOCKS5 && !l.Protocol.HasMessages() }

// HasMessages reports whether the protocol consists of messages.
func (p Protocol) HasMessages() bool { return p != TCP && p != UDP }

// Refuses reports whether the protocol has an answer that refuses a message.
func (p Protocol) Refuses() bool { return p == SMPP || p == HTTP }

// Counts reports whether one direction of the protocol, downstream if back is set, has
// anything that a class with that Kind counts.
func (p Protocol) Counts(kind unit.Kind, back bool) bool {
	switch kind {
	case unit.Packets:
		return p == UDP
	case unit.Messages:
		return p.HasMessages() && !(back && p == HTTP) // a response answers a request
	case unit.Tokens:
		return p == HTTP && !back
	case unit.Connections:
		return p != UDP && !back
	}
	return true
}

// The memory of messages that wait on one connection.
const (
	// ConnectionHolds is the most memory that messages take that wait on one connection.
	ConnectionHolds = 16 * unit.MiB
	// MessageHolds is the memory that a message of up to 128 bytes takes. A message of up
	// to 256 bytes takes 128 bytes more, and so on for each power of two.
	MessageHolds = 512
)

// Holds returns the memory that a message or a datagram of that size takes while it waits, in
// bytes; see MessageHolds.
func Holds(bytes int64) int64 {
	const least = 128
	return MessageHolds - least + max(least, int64(1)<<bits.Len64(uint64(max(bytes, 1)-1)))
}
