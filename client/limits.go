package client

import (
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
// source or destination (per), that is the peer.
type Limits struct {
	Read  *shaper.Class // bytes or packets that connections read
	Write *shaper.Class // bytes or packets that they write
	Open  *shaper.Class // connections as they open, and how many are open at once (max_connections)
}

// check returns an error if what is read or written on a network is nothing that its class
// counts.
func (l Limits) check(network string) error {
	messages, why := keepsMessages(network), "a stream has none"
	if messages {
		why = "a datagram has none"
	}
	for _, class := range []*shaper.Class{l.Read, l.Write} {
		limits := class == nil || class.Counts(unit.Bytes) || messages && class.Counts(unit.Packets)
		if !limits {
			return neverLimits(class, why, "1mbit")
		}
	}
	return nil
}

// networkOf returns the network of an address; "" if a net.Conn of somebody's own has no
// address.
func networkOf(a net.Addr) string {
	if a == nil {
		return ""
	}
	return a.Network()
}

// keepsMessages reports whether what is written at once on a network arrives at once.
func keepsMessages(network string) bool {
	kind, _, _ := strings.Cut(network, ":") // "ip4:icmp"
	switch kind {
	case "udp", "udp4", "udp6", "ip", "ip4", "ip6", "unixgram", "unixpacket":
		return true
	}
	return false
}

// otherEnd returns whose buckets a connection to an address has. Connections without an
// address share those of the zero one.
func otherEnd(a net.Addr) policy.Conn {
	var at netip.AddrPort
	if a, ok := a.(interface{ AddrPort() netip.AddrPort }); ok {
		at = a.AddrPort()
	}
	return policy.Conn{Source: at, Destination: at, Session: wrapped.Add(1)}
}

// numbered is otherEnd of an address in text. A name is not looked up: it has the buckets
// of the zero address.
func numbered(address string) policy.Conn {
	at, _ := netip.ParseAddrPort(address)
	return otherEnd(net.TCPAddrFromAddrPort(at))
}

var wrapped atomic.Uint64 // numbers connections
