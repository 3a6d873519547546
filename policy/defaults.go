package policy

import (
	"time"

	"shaper/unit"
)

// A file is decoded over the values in this file, so every default stands here.

// DefaultDaemon returns the section [daemon] of a file that has none.
func DefaultDaemon() Daemon {
	return Daemon{
		// The directory is that of RuntimeDirectory=shaper in the systemd unit.
		Control: "/run/shaper/control.sock",
		// Only loopback, since metrics name classes and must not leak to the network.
		HTTP:  "127.0.0.1:9780",
		State: StateOfService,
		// Long enough for a request in flight, and shorter than the 60 s after which
		// systemd kills the daemon.
		Drain: unit.Duration(30 * time.Second),
		// An operator who pays for 1,000 messages a second wants no fewer. It costs some 30 us of
		// a processor for each.
		Punctual: true,
	}
}

// StateOfService is the default of Daemon.State. The daemon replaces $STATE_DIRECTORY by the directory
// that systemd makes for the state of a service. If there is none, as in a shell, it keeps nothing.
const StateOfService = "$STATE_DIRECTORY/state"

// DefaultClass returns a class with its defaults. Rate has none and is required.
func DefaultClass(name string) Class {
	return Class{
		Name: name,
		// The only algorithm that never sends two items closer together than the rate
		// says, so no provider has a reason to refuse them.
		Algorithm: Leaky,
		// The first is the default txqueuelen of Linux. The second bounds the memory if
		// items are large.
		Queue: Queue{Items: unit.Count{N: 1000, Kind: unit.Items}, Bytes: unit.MiB},
		// As many as a listener has sessions. They take about 6 MiB.
		MaxKeys: 65536,
		// In the middle, with room above and below.
		Priority: 4,
		Weight:   1,
	}
}

// DefaultListener returns a listener with the defaults for its protocol. Listen, Upstream
// and Class have none and are required.
func DefaultListener(name string, protocol Protocol) Listener {
	l := Listener{
		Name:     name,
		Protocol: protocol,
		Mode:     Forward,
		Balance:  InOrder,
		// Time for three retransmitted SYNs (after 1, 3 and 7 s), before the next
		// upstream is tried.
		ConnectTimeout: unit.Duration(10 * time.Second),
		// Ends forgotten sessions. It is far longer than the interval of keep-alives.
		IdleTimeout: unit.Duration(time.Hour),
		// A peer that has ended one direction seldom waits longer for the other one.
		HalfCloseTimeout: unit.Duration(5 * time.Minute),
		// The number of ports of one upstream address.
		MaxSessions: 65536,
	}
	if protocol == UDP {
		// Datagrams have no end, so a session ends when it is idle. Linux's conntrack
		// forgets a one-way flow after 30 s, and a two-way one after 120 s.
		l.IdleTimeout = unit.Duration(time.Minute)
		l.HalfCloseTimeout = 0
	}
	return l
}

// DefaultTC returns a section with its defaults; Class has none and is required.
func DefaultTC(device string) TC { return TC{Device: device} }

// DefaultFleet returns a fleet with its defaults. Address has none and is required.
func DefaultFleet(name string) Fleet {
	return Fleet{
		Name:   name,
		Prefix: "shaper:",
		// Far longer than a round trip in one data centre, and short enough for clients to
		// bear.
		Deadline: unit.Duration(50 * time.Millisecond),
	}
}
