package daemon

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"shaper/policy"
	"shaper/stats"
)

// ExplainRequest is the body of POST /v1/explain. It is about a connection, or about a
// message of one where something is said of that.
type ExplainRequest struct {
	Source      string `json:"source"`                // the client: an address, or address:port
	Listener    string `json:"listener,omitempty"`    // "": all of them
	Port        uint16 `json:"port,omitempty"`        // that the client connects to; 0: those of the listener
	Destination string `json:"destination,omitempty"` // an address of the upstream; "": it is looked up
	policy.Fields
}

func (d *daemon) serveExplain(_ caller, r *http.Request) (any, error) {
	var ask ExplainRequest
	if err := decode(r, &ask); err != nil {
		return nil, err
	}
	return explain(r.Context(), d.keeper.view.Load().policy, ask, d.server.Listeners())
}

// Explain answers without a daemon what one would that has the policy in force.
func Explain(ctx context.Context, p *policy.Policy, ask ExplainRequest) ([]policy.Explanation, error) {
	var listeners []stats.ListenerReading
	for _, l := range p.Listeners {
		listeners = append(listeners, stats.ListenerReading{Name: l.Name, Protocol: string(l.Protocol), Addresses: l.Listen})
	}
	return explain(ctx, p, ask, listeners)
}

// explain explains each way in that the request leaves open.
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
	ways, err := waysIn(ask, listeners)
	if err != nil {
		return nil, err
	}
	classifier := policy.Compile(p)
	all := []policy.Explanation{}
	for _, way := range ways {
		way.Source, way.Destination = source, given
		var to []destination
		if l, ok := p.Listener(way.Listener); ok && ask.Destination == "" && classifier.NeedsDestination(l.Name) {
			to = destinationsOf(ctx, l)
		}
		all = append(all, explainEach(classifier, way, to, ask.Fields))
	}
	return all, nil
}

// explainEach explains a way in that leads to the first of several addresses, and what
// becomes of it where those before cannot be reached. No address leaves it as it is.
func explainEach(c *policy.Classifier, way policy.Conn, to []destination, said policy.Fields) policy.Explanation {
	var all []policy.Explanation
	for _, d := range to {
		way.Destination = d.addr
		e := c.Explain(way, said)
		e.Upstream = d.upstream
		all = append(all, e)
	}
	if len(all) == 0 {
		return c.Explain(way, said)
	}
	all[0].FailOver = all[1:]
	return all[0]
}

// parseSource reads "10.1.2.3", "10.1.2.3:4567", "::1" or "[::1]:4567".
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

// waysIn returns the listeners and ports that a request can mean. A port that
// none listens on may be asked for where the listener is given.
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
		if ask.Port != 0 && (ask.Listener != "" || slices.Contains(ports, ask.Port)) {
			ports = []uint16{ask.Port}
		} else if ask.Port != 0 {
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
		return nil, usageError("no message there has %s: a listener with protocol http has path, method and host, one with smpp system_id and source_addr", misfit)
	case ask.Listener != "":
		return nil, usageError("there is no listener %q; %s", ask.Listener, policy.Hint(ask.Listener, "listeners", names))
	}
	return nil, usageError("no listener listens on port %d; listeners: %s", ask.Port, strings.Join(names, ", "))
}

// portsOf returns the ports of a listener; 0 for one that is not known before it is
// bound.
func portsOf(l stats.ListenerReading) (ports []uint16) {
	for _, text := range l.Addresses {
		_, port, _ := net.SplitHostPort(text)
		n, _ := strconv.ParseUint(port, 10, 16)
		if !slices.Contains(ports, uint16(n)) {
			ports = append(ports, uint16(n))
		}
	}
	return ports
}

const lookupPatience = 2 * time.Second

// destination is an address that a session may be led to; the zero AddrPort for what is
// built in.
type destination struct {
	upstream string
	addr     netip.AddrPort
}

// destinationsOf returns the addresses of a listener's upstreams in the order in which
// they are tried, for rules that ask; none where no name resolves.
func destinationsOf(ctx context.Context, l policy.Listener) (all []destination) {
	ctx, cancel := context.WithTimeout(ctx, lookupPatience)
	defer cancel()
	for _, upstream := range l.Upstream {
		for _, addr := range addressesOf(ctx, upstream) {
			if !l.Bind.IsValid() || !addr.IsValid() || l.Bind.Is4() == addr.Addr().Is4() {
				all = append(all, destination{upstream, addr})
			}
		}
	}
	if l.Protocol == policy.UDP && len(all) > 1 {
		all = all[:1] // nobody learns whether that one is there
	}
	return all
}

func addressesOf(ctx context.Context, upstream string) (all []netip.AddrPort) {
	if upstream == policy.Echo || upstream == policy.Discard {
		return []netip.AddrPort{{}}
	}
	host, port, err := net.SplitHostPort(upstream)
	if err != nil {
		return nil
	}
	n, errPort := net.DefaultResolver.LookupPort(ctx, "tcp", port)
	addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil || errPort != nil {
		return nil
	}
	for _, addr := range addrs {
		all = append(all, netip.AddrPortFrom(addr.Unmap(), uint16(n)))
	}
	return all
}
