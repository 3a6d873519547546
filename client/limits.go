package client

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"

	"shaper/policy"
	"shaper/shaper"
	"shaper/unit"
)

// Limits are the classes of connections. A nil class limits nothing. Connections may
// share a class, and one class may be in several fields. If a class has a bucket for each
// source or destination (per), the peer's address is both.
type Limits struct {
	Read  *shaper.Class // bytes or packets that connections read
	Write *shaper.Class // bytes or packets that connections write
	Open  *shaper.Class // connections that open, and how many are open at once (max_connections)
}

// anyNetwork stands for one that is not known yet, of streams or of messages.
const anyNetwork = "any"

// check returns an error if Read or Write counts nothing of what a network carries.
func (l Limits) check(network string) error {
	messages, why := keepsMessages(network), "a stream has none"
	switch {
	case network == anyNetwork:
		messages, why = true, "a connection has none"
	case messages:
		why = "a datagram has none"
	}
	for _, class := range []*shaper.Class{l.Read, l.Write} {
		limits := class == nil || class.Counts(unit.Bytes) || messages && class.Counts(unit.Packets)
		if !limits {
			return neverLimits(class, why, "1mbit")
		}
		if class.Messages().HaveKeys() {
			return fmt.Errorf("client: %q has a bucket per %v, and %s", class.Name(), class.Policy().Per, why)
		}
	}
	return nil
}

// networkOf returns the network of an address; "" for a nil address, which some
// implementations of net.Conn have.
func networkOf(a net.Addr) string {
	if a == nil {
		return ""
	}
	return a.Network()
}

// keepsMessages reports whether a network delivers each write as one whole message.
func keepsMessages(network string) bool {
	kind, _, _ := strings.Cut(network, ":") // "ip4:icmp"
	switch kind {
	case "udp", "udp4", "udp6", "ip", "ip4", "ip6", "unixgram", "unixpacket":
		return true
	}
	return false
}

// peerAt returns the identity by which a class with `per` picks the bucket of a connection
// to an address. Connections without an IP address share the bucket of the zero address.
func peerAt(a net.Addr) policy.Conn {
	var at netip.AddrPort
	if a, ok := a.(interface{ AddrPort() netip.AddrPort }); ok {
		at = a.AddrPort()
	}
	return policy.Conn{Source: at, Destination: at, Session: lastSession.Add(1)}
}

// peerNamed is peerAt for an address as text. It looks no name up: a name gets the bucket
// of the zero address.
func peerNamed(address string) policy.Conn {
	at, _ := netip.ParseAddrPort(address)
	return peerAt(net.TCPAddrFromAddrPort(at))
}

// lastSession numbers connections, for classes with a bucket for each connection.
var lastSession atomic.Uint64
