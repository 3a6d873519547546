package daemon

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"shaper/policy"
	"shaper/stats"
	"shaper/upstream"
)

// ExplainRequest is the body of POST /v1/explain. It describes a connection, or, if Fields are
// given, a message on it.
type ExplainRequest struct {
	Source      string `json:"source"`                // of the client: an address, or address:port
	Listener    string `json:"listener,omitempty"`    // "": all listeners
	Port        uint16 `json:"port,omitempty"`        // on which the listener listens, or of the server if it is transparent; 0: all ports
	Destination string `json:"destination,omitempty"` // an address of the upstream; "": explain looks it up
	User        string `json:"user,omitempty"`        // who has logged in at an entry
	ServerName  string `json:"server_name,omitempty"` // the name that an entry is asked for
	policy.Fields
}

func (d *daemon) serveExplain(_ caller, r *http.Request) (any, error) {
	var ask ExplainRequest
	if err := decode(r, &ask); err != nil {
		return nil, err
	}
	all, err := explain(r.Context(), d.keeper.view.Load().policy, ask, d.server.Listeners())
	for i := range all {
		d.explainWait(&all[i])
	}
	return all, err
}

// explainWait adds what an item would wait for that came now.
func (d *daemon) explainWait(e *policy.Explanation) {
	class := d.shaper.Class(e.Class)
	if class == nil {
		return
	}
	now := time.Now()
	if why := class.Status().WhyWithKey(now, e.Conn, e.Message.Message()); len(why.Path) > 0 {
		e.WaitsUntil, e.Holds = known(why.At), holdsOf(why)
		e.Waits = "an item that comes now " + leaves(now, e.WaitsUntil, why.Exact)
		if why.Items > 0 {
			e.Waits += fmt.Sprintf("; items that wait before it: %d", why.Items)
		}
	}
	for i := range e.Reactions {
		if r := &e.Reactions[i]; r.Key == "learn" {
			r.Learned = d.learned(r.Class)
		}
	}
	if one := d.engine.fleets.of(e.Class); one != nil {
		e.Shared = one.describe()
	}
	for i := range e.FailOver {
		d.explainWait(&e.FailOver[i])
	}
}

// learned returns the limit that a class has found, or 0.
func (d *daemon) learned(name string) float64 {
	if class := d.shaper.Class(name); class != nil {
		return class.Provider().Learned()
	}
	return 0
}

// Explain answers like a daemon that has the policy in force, without a daemon.
func Explain(ctx context.Context, p *policy.Policy, ask ExplainRequest) ([]policy.Explanation, error) {
	var listeners []stats.ListenerReading
	for _, l := range p.Listeners {
		listeners = append(listeners, stats.ListenerReading{Name: l.Name, Protocol: string(l.Protocol), Addresses: l.Listen})
	}
	return explain(ctx, p, ask, listeners)
}

// explain explains each listener and port that the request allows. It looks up the addresses of
// upstreams only for rules that need them.
func explain(ctx context.Context, p *policy.Policy, ask ExplainRequest, listeners []stats.ListenerReading) ([]policy.Explanation, error) {
	source, err := parseSource(ask.Source)
	if err != nil {
		return nil, err
	}
	var given netip.AddrPort
	if ask.Destination != "" {
		if given, err = parseSource(ask.Destination); err != nil {
			return nil, usageError("destination: %q is not an address; it is like \"192.0.2.1\" or \"192.0.2.1:443\"", ask.Destination)
		}
	}
	ways, err := waysIn(ask, intercepted(p, listeners, cmp.Or(ask.Port, given.Port())))
	if err != nil {
		return nil, err
	}
	if err := ask.Fields.Check(); err != nil {
		return nil, usageError("%v", err)
	}
	classifier := policy.Compile(p)
	all := []policy.Explanation{}
	for _, way := range ways {
		way.Source, way.Destination, way.User, way.ServerName = source, given, ask.User, strings.ToLower(ask.ServerName)
		var to []upstreamAddress
		if l, ok := p.Listener(way.Listener); ok && ask.Destination == "" && classifier.NeedsDestination(l.Name) {
			to = upstreamAddressesOf(ctx, l)
		}
		all = append(all, explainWay(p, classifier, way, to, ask.Fields))
	}
	return all, nil
}

// explainWay explains a connection to the first of the addresses in to. FailOver explains the
// same connection to each later address, for when those before cannot be reached. If to is
// empty, the destination of the connection stays as it is.
func explainWay(p *policy.Policy, c *policy.Classifier, way policy.Conn, to []upstreamAddress, said policy.Fields) policy.Explanation {
	var all []policy.Explanation
	add := func(upstream string) {
		e := c.Explain(way, said)
		e.Upstream, e.Reactions, e.Denied = upstream, p.Reactions(way.Listener, e.Class), denied(p, way)
		all = append(all, e)
	}
	for _, d := range to {
		way.Destination = d.addr
		add(d.upstream)
	}
	if len(to) == 0 {
		add("")
	}
	all[0].FailOver = all[1:]
	return all[0]
}

// denied reports whether the listener of a connection is an entry that does not allow its destination.
// It returns false if the address or the port of that is not known.
func denied(p *policy.Policy, way policy.Conn) bool {
	l, ok := p.Listener(way.Listener)
	if !ok || !l.Mode.IsEntry() {
		return false
	}
	to := way.Destination
	if l.Mode == policy.Transparent { // clients connect to the port of their server
		to = netip.AddrPortFrom(to.Addr(), way.Port)
	}
	return to.Addr().IsValid() && to.Port() != 0 && !l.Allows(way.ServerName, to)
}

// intercepted replaces the ports of transparent listeners by that of the server: to it, clients connect.
// It is 0 if it is not known.
func intercepted(p *policy.Policy, listeners []stats.ListenerReading, port uint16) []stats.ListenerReading {
	all := slices.Clone(listeners)
	for i := range all {
		if l, ok := p.Listener(all[i].Name); ok && l.Mode == policy.Transparent {
			all[i].Addresses = []string{net.JoinHostPort("", strconv.Itoa(int(port)))}
		}
	}
	return all
}

// parseSource reads "10.1.2.3", "10.1.2.3:4567", "::1" or "[::1]:4567". Without a port, the
// port is 0.
func parseSource(s string) (netip.AddrPort, error) {
	if ap, err := netip.ParseAddrPort(s); err == nil && ap.Port() != 0 { // no client has port 0
		return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port()), nil
	}
	a, err := netip.ParseAddr(strings.Trim(s, "[]"))
	if err != nil {
		return netip.AddrPort{}, usageError("source: %q is not an address; it is like \"10.1.2.3\" or \"10.1.2.3:4567\"", s)
	}
	return netip.AddrPortFrom(a.Unmap(), 0), nil
}

// waysIn returns each listener and port that a request allows.
func waysIn(ask ExplainRequest, listeners []stats.ListenerReading) (ways []policy.Conn, err error) {
	var names []string
	misfit := ""
	for _, l := range listeners {
		names = append(names, l.Name)
		if ask.Listener != "" && ask.Listener != l.Name {
			continue
		}
		if field := ask.Misfit(policy.Protocol(l.Protocol)); field != "" {
			misfit = field
			continue
		}
		ports := portsOf(l)
		switch {
		case ask.Port == 0:
		case slices.Contains(ports, ask.Port), ask.Listener != "" && hasUnknownPort(l):
			ports = []uint16{ask.Port}
		case ask.Listener != "":
			return nil, usageError("listener %q does not listen on port %d; it listens on %s", l.Name, ask.Port, strings.Join(l.Addresses, ", "))
		default:
			continue
		}
		for _, port := range ports {
			ways = append(ways, policy.Conn{Listener: l.Name, Port: port})
		}
	}
	switch {
	case len(ways) > 0:
		return ways, nil
	case misfit != "":
		return nil, usageError("no message there has %s: messages of protocol http have path, method, host and header, those of smpp have system_id, source_addr, recipient, data_coding and esm_class", misfit)
	case ask.Listener != "":
		return nil, usageError("there is no listener %q; %s", ask.Listener, policy.Hint(ask.Listener, "listeners", names))
	}
	return nil, usageError("no listener listens on port %d; listeners: %s", ask.Port, strings.Join(names, ", "))
}

// portsOf returns the ports of a listener. A port that the kernel chooses is 0 until the
// listener is bound.
func portsOf(l stats.ListenerReading) (ports []uint16) {
	for _, text := range l.Addresses {
		if port := portOf(text); !slices.Contains(ports, port) {
			ports = append(ports, port)
		}
	}
	return ports
}

// hasUnknownPort reports whether a listener may listen on a port that its addresses do not tell: the kernel
// chooses it, or a socket unit of systemd has it.
func hasUnknownPort(l stats.ListenerReading) bool {
	return slices.ContainsFunc(l.Addresses, func(address string) bool {
		_, isUnix := policy.UnixName(address)
		return !isUnix && portOf(address) == 0
	})
}

// portOf returns the port of an address; 0 if the address does not tell it, or has none.
func portOf(address string) uint16 {
	_, port, _ := net.SplitHostPort(address)
	n, _ := strconv.ParseUint(port, 10, 16)
	return uint16(n)
}

// lookupPatience bounds how long explain looks up the upstreams of a listener.
const lookupPatience = 2 * time.Second

// upstreamAddress is an address of an upstream; the zero AddrPort for echo:, discard: and unix
// sockets.
type upstreamAddress struct {
	upstream string
	addr     netip.AddrPort
}

// upstreamAddressesOf returns the addresses of a listener's upstreams in the order in which a
// session tries them; none if no name resolves.
func upstreamAddressesOf(ctx context.Context, l policy.Listener) (all []upstreamAddress) {
	ctx, cancel := context.WithTimeout(ctx, lookupPatience)
	defer cancel()
	for _, name := range l.Upstream {
		for _, addr := range resolve(ctx, name) {
			if l.Reaches(addr.Addr()) {
				all = append(all, upstreamAddress{name, addr})
			}
		}
	}
	if l.Protocol == policy.UDP && len(all) > 1 {
		all = all[:1] // a datagram does not tell whether anybody is there, so nothing fails over
	}
	return all
}

// resolve returns the addresses of an upstream; none if its name does not resolve.
func resolve(ctx context.Context, name string) (all []netip.AddrPort) {
	if at, known := upstream.Literal(name); known {
		return []netip.AddrPort{at.AddrPort}
	}
	answer, _ := upstream.System().Lookup(ctx, name, nil)
	for _, at := range answer.Addresses {
		all = append(all, at.AddrPort)
	}
	return all
}
