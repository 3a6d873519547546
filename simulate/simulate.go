// Package simulate sends a workload through a policy in virtual time: what
// would have waited, for how long, and what would have been lost. It drives the
// classes that the proxy drives, and for messages the same exchange, by times of its own;
// so a day takes as long as its arithmetic, and the same workload always gives the same
// report.
//
// A [Source] yields arrivals: a [Load] generates them, [ReadTrace] and
// [ReadCapture] read them. [Run] has them enter the classes of a policy and
// returns a [Report].
package simulate

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
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

// LeftOut says which keys of a policy a simulation does not obey, and why; nothing
// where it obeys all of it.
func LeftOut(p *policy.Policy) (notes []string) {
	for _, c := range p.Classes {
		note := func(uses bool, key, why string) {
			if uses {
				notes = append(notes, fmt.Sprintf("class.%s.%s is not simulated: %s", c.Name, key, why))
			}
		}
		note(c.InFlight > 0, "in_flight", "nobody answers")
		note(c.OnThrottle != policy.OnThrottle{}, "on_throttle", "no provider says that it is too fast")
		note(c.Adapt, "adapt", "no provider says that it is too fast")
		note(c.MaxConnections > 0, "max_connections", "how long a session is open is not known")
		note(c.Shadow, "shadow", "what the class would do is not computed, and it limits nothing")
	}
	return notes
}

// entry returns through which listener something comes that names a listener
// ("" for none) and a port (0 for none), and the port; or what is wrong with
// that, and what is allowed. Only what can be meant in one way is found.
func entry(p *policy.Policy, listener string, port uint16) (l policy.Listener, at uint16, problem, allowed string) {
	if listener != "" {
		l, ok := p.Listener(listener)
		if !ok {
			return l, 0, fmt.Sprintf("there is no listener %q", listener), "listeners: " + names(p.Listeners)
		}
		if port == 0 {
			port = firstPort(l)
		}
		return l, port, "", ""
	}
	all := p.Listeners
	if port > 0 {
		if at := listenersAt(p, "", port); len(at) > 0 || len(all) > 1 {
			all = at
		}
	}
	switch len(all) {
	case 0:
		return l, 0, fmt.Sprintf("no listener has port %d", port), "a port of one, or the name of a listener: " + names(p.Listeners)
	case 1:
		return entry(p, all[0].Name, port)
	}
	return l, 0, "which listener it comes in through is not said", "one of: " + names(all)
}

// listenersAt returns the listeners of a port, over TCP or UDP, or both if that is "".
func listenersAt(p *policy.Policy, protocol policy.Protocol, port uint16) (found []policy.Listener) {
	for _, l := range p.Listeners {
		if (protocol == "" || l.Protocol.Network() == protocol) && slices.Contains(ports(l), port) {
			found = append(found, l)
		}
	}
	return found
}

func names(listeners []policy.Listener) string {
	all := make([]string, len(listeners))
	for i, l := range listeners {
		all[i] = l.Name
	}
	return strings.Join(all, ", ")
}

// ports returns the ports of a listener that its policy tells.
func ports(l policy.Listener) (all []uint16) {
	for _, address := range l.Listen {
		_, port, err := net.SplitHostPort(address)
		if n, bad := strconv.ParseUint(port, 10, 16); err == nil && bad == nil && n > 0 {
			all = append(all, uint16(n))
		}
	}
	return all
}

// firstPort returns a port of a listener; 0 where only the kernel knows it.
func firstPort(l policy.Listener) uint16 {
	if all := ports(l); len(all) > 0 {
		return all[0]
	}
	return 0
}

// connTo returns what rules see of a client of a listener. Where the upstream is
// an address, that is the destination; a name is not looked up.
func connTo(l policy.Listener, client netip.AddrPort, port uint16) policy.Conn {
	upstream, _ := netip.ParseAddrPort(l.Upstream[0])
	return policy.Conn{Listener: l.Name, Source: client, Port: port, Destination: upstream}
}

// parseClient reads an address, with or without a port.
func parseClient(s string) (netip.AddrPort, error) {
	if client, err := netip.ParseAddrPort(s); err == nil {
		return client, nil
	}
	addr, err := netip.ParseAddr(s)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("%q is not a client", s)
	}
	return netip.AddrPortFrom(addr, 0), nil
}

// clientForm says what parseClient takes.
const clientForm = `a client is like "10.0.0.1", "10.0.0.1:5000" or "[fd00::1]:5000"`
