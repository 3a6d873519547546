package simulate

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"shaper/policy"
)

// entry returns the listener that an arrival comes in through, and its port. The arrival names
// a listener ("" for none) and a port (0 for none). If they do not determine exactly one
// listener, entry returns the problem and what is allowed.
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
	return l, 0, "several listeners are possible", "one of: " + names(all)
}

// listenersAt returns the listeners with a port, for tcp or udp; for both if protocol is "".
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

// ports returns the ports of a listener that its policy gives.
func ports(l policy.Listener) (all []uint16) {
	for _, address := range l.Listen {
		_, port, err := net.SplitHostPort(address)
		if n, bad := strconv.ParseUint(port, 10, 16); err == nil && bad == nil && n > 0 {
			all = append(all, uint16(n))
		}
	}
	return all
}

// firstPort returns a port of a listener; 0 if only the kernel knows it.
func firstPort(l policy.Listener) uint16 {
	if all := ports(l); len(all) > 0 {
		return all[0]
	}
	return 0
}

// connTo returns a client's connection to a listener, as rules see it. Its destination is the
// upstream if that is an address; a name is not looked up, and an entry has none.
func connTo(l policy.Listener, client netip.AddrPort, port uint16) policy.Conn {
	upstream := netip.AddrPort{}
	if len(l.Upstream) > 0 {
		upstream, _ = netip.ParseAddrPort(l.Upstream[0])
	}
	return policy.Conn{Listener: l.Name, Source: client, Port: port, Destination: upstream}
}

// parseClient reads an address with or without a port.
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

// clientForm says what parseClient reads.
const clientForm = `a client is like "10.0.0.1", "10.0.0.1:5000" or "[fd00::1]:5000"`
