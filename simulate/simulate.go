// Package simulate sends a workload through a policy in virtual time. It reports what would
// have waited, for how long, and what would have been lost. It drives the classes that the
// proxy drives, and for messages the same exchange, with virtual times. So a day takes only as
// long as its arithmetic, and the same workload always gives the same report.
//
// A [Source] yields arrivals: a [Load] generates them, and [ReadTrace] and [ReadCapture] read
// them from files. [Run] sends them through the classes of a policy and returns a [Report].
//
// Files call downwards only:
//
//	workload    a workload as a person gives it
//	simulate    what goes in, and Run
//	load        arrivals that are generated
//	trace       arrivals from a file of lines: CSV or JSON
//	lines       reading such a file line by line
//	capture     arrivals from a file of packets
//	packet      addresses and payload of a packet
//	entry       the listener through which an arrival comes in
//	deal        spreads arrivals over the members of a fleet
//	simulation  a simulation in progress: event after event
//	run         one shaper in it
//	send        what a sender sends of an arrival
//	link        a connection of a protocol with messages, and the exchange in it
//	bind        the address of ours that a connection leaves from
//	inbox       one direction of a link: messages that are described, not written out
//	message     a message on its way
//	parcel      any other item on its way: a piece, a datagram, a connection
//	sender      a source, and its next arrival
//	member      what a member of a fleet has of a shared class
//	store       the store of a fleet
//	tree        the classes, and when each tree lets an item go
//	agenda      the events of a run, in the order of time
//	departures  the file of what has left
//	plot        the image of a report
//	report      what a run has come to
//	tally       what is counted of a class
//	curve       the course of a class, for a plot
//	level       the course of its token bucket
package simulate

import (
	"errors"
	"net/netip"
	"slices"
	"time"

	"shaper/policy"
	"shaper/shaper"
)

// An Arrival is something that a client sends.
type Arrival struct {
	At       time.Time
	Conn     policy.Conn   // its connection, as rules see it
	Message  policy.Fields // what rules see of it if it is a message
	Bytes    int64         // of payload
	Messages int64
	// Cost is what a message itself says that it costs, if the cost of its class looks at that,
	// and Used what its answer says; 0 if they say nothing. Answers come at once.
	Cost, Used int64
	// Opens says that the arrival stands for a new connection, if its class counts
	// connections. Without Opens, such a class ignores it: it belongs to a connection that was
	// let in before.
	Opens bool
	// Bare says that the arrival only opens a connection and carries nothing.
	Bare bool
	// Returns says that the arrival comes back from the upstream. It enters the return class;
	// if there is none, it is ignored.
	Returns bool
}

// A Source yields arrivals.
type Source struct {
	// Next sets the next arrival, which is not before the last one. It returns io.EOF after
	// the last, and policy.Errors if the source cannot be read.
	Next func(*Arrival) error
	// Holds says that the source sends nothing while it is not read from: while an item of it
	// waits in a class with overflow "wait", or while its connection holds as many messages as
	// it may. The source sends the rest later.
	Holds bool
}

// Options say how a simulation runs.
type Options struct {
	// For is how long the simulation takes in virtual time. Items that wait at its end are
	// reported as waiting. With 0 it ends when nothing more can leave.
	For time.Duration
	// Curves makes the report hold what [Plot] draws, and [Class.Course] returns.
	Curves bool
	// MaxSteps bounds the simulation: an item that arrives or leaves is a step, and so is what a
	// fleet does in between. With 0 there is no bound.
	MaxSteps int
	// Departures is called for each item that leaves, in order. It does not keep the Departure. It may be nil.
	Departures func(*Departure) error
}

// A Departure is an item that leaves.
type Departure struct {
	At, Arrived time.Time
	Class       string
	Source      netip.AddrPort
	Bytes       int64
	Cost        shaper.Cost
	Member      int // of a fleet, counted from 1; 0: there is no fleet
}

// Epoch is when generated workloads begin, and the zero of times that are given in seconds. It
// is a boundary of windows, as each whole second is.
var Epoch = time.Unix(0, 0).UTC()

// ErrTooLong is the error of a simulation that takes more than Options.MaxSteps.
var ErrTooLong = errors.New("too much happens in this simulation")

// Run sends what the sources yield through a policy. Each item leaves at the earliest moment
// at which it may. Errors come from sources and from Departures.
func Run(p *policy.Policy, sources []Source, o Options) (*Report, error) {
	return play(p, [][]Source{sources}, nil, o)
}

// RunFleet is Run for a fleet: each member has the policy, and sources of its own. The store answers
// after a delay. The members run the protocol of package fleet against its model of a store, and
// have known each other for a time when the workload begins. The report is that of all members
// together, and holds that of each. A policy without a shared class gives policy.Errors.
func RunFleet(p *policy.Policy, members [][]Source, delay time.Duration, o Options) (*Report, error) {
	if !slices.ContainsFunc(p.Classes, func(c policy.Class) bool { return c.Shared != "" }) {
		return nil, policy.Errors{{File: p.Path, Key: "shared", Problem: "no class is shared, so nothing is common to the members of a fleet",
			Allowed: `shared = "NAME" in a class, and a section [fleet.NAME] with the address of a store`}}
	}
	return play(p, members, newStores(p, delay), o)
}

func play(p *policy.Policy, sources [][]Source, stores *stores, o Options) (*Report, error) {
	s, err := newSimulation(p, o, sources, stores)
	if err != nil {
		return nil, err
	}
	if err := s.play(); err != nil {
		return nil, err
	}
	return s.report(), nil
}
