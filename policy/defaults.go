package policy

import (
	"time"

	"shaper/unit"
)

// The defaults are values, and a file is decoded over them; so what a key is
// worth when it is left out stands here and nowhere else.

// DefaultDaemon returns the section [daemon] of a file that has none.
func DefaultDaemon() Daemon {
	return Daemon{
		// Where systemd's RuntimeDirectory=shaper puts it.
		Control: "/run/shaper/control.sock",
		// Loopback: metrics name classes and must not leak to the network.
		HTTP: "127.0.0.1:9780",
		// Long enough for a request in flight, shorter than the unit's 60 s
		// after which it kills.
		Drain: unit.Duration(30 * time.Second),
	}
}

// DefaultClass returns a class with its defaults; Rate has none and is
// required.
func DefaultClass(name string) Class {
	return Class{
		Name: name,
		// The only algorithm that never sends two items closer than the rate
		// says, and so the one that no provider has a reason to refuse.
		Algorithm: Leaky,
		// The size of tc's default txqueuelen, and a bound for memory where
		// the items are large.
		Queue: Queue{Items: unit.Count{N: 1000, Kind: unit.Items}, Bytes: unit.MiB},
		// As many as one listener has sessions, in some 6 MiB.
		MaxKeys: 65536,
		// In the middle, with room on both sides.
		Priority: 4,
		Weight:   1,
	}
}

// DefaultListener returns a listener with its defaults for a protocol. Listen,
// Upstream and Class have none and are required.
func DefaultListener(name string, protocol Protocol) Listener {
	l := Listener{
		Name:     name,
		Protocol: protocol,
		Mode:     Forward,
		// Three retransmitted SYNs (1, 3, 7 s), then the next upstream.
		ConnectTimeout: unit.Duration(10 * time.Second),
		// A bound for what has been forgotten, far above keep-alives.
		IdleTimeout: unit.Duration(time.Hour),
		// A peer that has closed its direction seldom waits longer for the other one.
		HalfCloseTimeout: unit.Duration(5 * time.Minute),
		// As many as one upstream address has ports.
		MaxSessions: 65536,
	}
	if protocol == UDP {
		// Nothing says that a datagram session has ended, so silence has to.
		// Linux's conntrack forgets a one-way flow after 30 s, a stream after 120 s.
		l.IdleTimeout = unit.Duration(time.Minute)
		l.HalfCloseTimeout = 0
	}
	return l
}

// DefaultTC returns a section with its defaults; Class has none and is required.
func DefaultTC(device string) TC { return TC{Device: device} }
