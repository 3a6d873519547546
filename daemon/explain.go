package daemon

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"shaper/policy"
	"shaper/stats"
)

// ExplainRequest is the body of POST /v1/explain.
type ExplainRequest struct {
	Source   string `json:"source"`             // the client: an address, or address:port
	Listener string `json:"listener,omitempty"` // "": all of them
	Port     uint16 `json:"port,omitempty"`     // that the client connects to; 0: those of the listener
}

// serveExplain explains each way in that the request leaves open.
func (d *daemon) serveExplain(_ caller, r *http.Request) (any, error) {
	var ask ExplainRequest
	if err := decode(r, &ask); err != nil {
		return nil, err
	}
	source, err := parseSource(ask.Source)
	if err != nil {
		return nil, err
	}
	p := d.keeper.view.Load().policy
	ways, err := waysIn(ask, d.server.Listeners())
	if err != nil {
		return nil, err
	}
	classifier := policy.Compile(p)
	all := []policy.Explanation{}
	for _, way := range ways {
		way.Source = source
		if l, ok := p.Listener(way.Listener); ok && classifier.NeedsDestination(l.Name) {
			all = append(all, explainEach(classifier, way, destinationsOf(r.Context(), l)))
		} else {
			all = append(all, classifier.Explain(way))
		}
	}
	return all, nil
}

// explainEach explains a way in that leads to the first of several addresses, and what
// becomes of it where those before cannot be reached.
func explainEach(c *policy.Classifier, way policy.Conn, to []destination) policy.Explanation {
	var all []policy.Explanation
	for _, d := range to {
		way.Destination = d.addr
		e := c.Explain(way)
		e.Upstream = d.upstream
		all = append(all, e)
	}
	if len(all) == 0 {
		return c.Explain(way)
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
	for _, l := range listeners {
		names = append(names, l.Name)
		if ask.Listener != "" && ask.Listener != l.Name {
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
	case ask.Listener != "":
		return nil, usageError("there is no listener %q; %s", ask.Listener, policy.Hint(ask.Listener, "listeners", names))
	}
	return nil, usageError("no listener listens on port %d; listeners: %s", ask.Port, strings.Join(names, ", "))
}

// portsOf returns the ports at which a listener is bound.
func portsOf(l stats.ListenerReading) (ports []uint16) {
	for _, text := range l.Addresses {
		if a, err := netip.ParseAddrPort(text); err == nil && !slices.Contains(ports, a.Port()) {
			ports = append(ports, a.Port())
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
