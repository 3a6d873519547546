// Package simulate sends a workload through a policy in virtual time: what
// would have waited, for how long, and what would have been lost. It drives the
// classes that the proxy drives, and for messages the same exchange, by times of its own;
// so a day takes as long as its arithmetic, and the same workload always gives the same
// report.
//
// A [Source] yields arrivals: a [Load] generates them, [ReadTrace] and
// [ReadCapture] read them. [Run] has them enter the classes of a policy and
// returns a [Report].
//
// Files call downwards only:
//
//	simulate    what goes in, and Run
//	load        arrivals that are generated
//	trace       arrivals from a file of lines: CSV or JSON
//	lines       reading such a file line by line
//	capture     arrivals from a file of packets
//	packet      addresses and payload of a packet
//	entry       the listener through which an arrival comes in
//	run         a simulation in progress: event after event
//	send        what a sender sends of an arrival
//	link        a connection of a protocol with messages, and the exchange in it
//	inbox       one direction of a link: messages that are described, not written out
//	posted      a message on its way
//	parcel      any other item on its way: a piece, a datagram, a connection
//	sender      a source, and its next arrival
//	tree        the classes, and when each tree lets an item go
//	agenda      the events of a run, in the order of time
//	departures  the file of what has left
//	plot        the image of a report
//	report      what a run has come to
//	tally       what is counted of a class
//	curve       the course of a class, for a plot
package simulate

import (
	"net/netip"
	"time"

	"shaper/policy"
)

// Arrival is something that a client sends.
type Arrival struct {
	At       time.Time
	Conn     policy.Conn   // whose it is, as rules see it
	Message  policy.Fields // what rules see of it, where it is a message
	Bytes    int64         // of payload
	Messages int64
	// Opens says that it stands for a new connection where those are counted.
	// What does not is not looked at there: it belongs to one that has been let in.
	Opens bool
	// Bare says that it carries nothing, and only opens: it is no message.
	Bare bool
	// Returns says that it comes back from the upstream: it is of the return class,
	// and where there is none it is not looked at.
	Returns bool
}

// Source is one origin of arrivals.
type Source struct {
	// Next sets the next arrival, which is not before the last one. After the
	// last it returns io.EOF, and for what cannot be read policy.Errors.
	Next func(*Arrival) error
	// Holds says that the source sends nothing more while it is not read from: while a
	// class with overflow "wait" has an item of it waiting, or the connection holds as many
	// messages as it may. What it would have sent meanwhile comes afterwards.
	Holds bool
}

// Options say how a simulation runs.
type Options struct {
	// For is how long it takes in virtual time. What waits then is reported as
	// such. 0 goes on until everything has left that ever can.
	For time.Duration
	// Curves has the report hold what [Plot] draws.
	Curves bool
	// Departures, unless it is nil, is told of each item that leaves, in order.
	Departures func(*Departure) error
}

// Departure is an item that leaves.
type Departure struct {
	At, Arrived time.Time
	Class       string
	Source      netip.AddrPort
	Bytes       int64
}

// Epoch is when generated workloads begin. It is the zero of times that are
// given in seconds, and like all whole seconds a boundary of windows.
var Epoch = time.Unix(0, 0).UTC()

// Run sends what the sources yield through a policy that package policy has
// read. An item leaves at the moment at which it may.
func Run(p *policy.Policy, sources []Source, o Options) (*Report, error) {
	r, err := newRun(p, sources, o)
	if err != nil {
		return nil, err
	}
	if err := r.run(); err != nil {
		return nil, err
	}
	return r.report(), nil
}
