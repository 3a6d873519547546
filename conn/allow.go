package conn

import (
	"net/netip"
	"slices"

	"shaper/entry"
	"shaper/policy"
	"shaper/upstream"
)

// These functions say where clients of an entry may go, by TCP or with datagrams.

// mayLead reports whether a destination may lead to an address that the policy allows. If not, its
// name need not be looked up.
func mayLead(l *policy.Listener, to entry.Destination) bool {
	if to.Name == "" {
		return l.Allows("", addressIn(to))
	}
	return l.MayLead(to.Name, to.Port)
}

// seen returns the addresses of a destination, if they are known. It starts no lookup.
func seen(names *upstream.Names, to entry.Destination) (addrs []upstream.Address, known bool) {
	if to.Name == "" {
		return []upstream.Address{{AddrPort: addressIn(to)}}, true
	}
	addrs, _, _ = names.Seen(to.Upstream())
	return addrs, len(addrs) > 0
}

// allowed returns those addresses of a destination that the policy allows.
func allowed(l *policy.Listener, to entry.Destination, addrs []upstream.Address) []upstream.Address {
	denied := func(at upstream.Address) bool { return !l.Allows(to.Name, at.AddrPort) }
	return slices.DeleteFunc(slices.Clone(addrs), denied)
}

// addressIn returns the address of a destination without a name.
func addressIn(to entry.Destination) netip.AddrPort { return netip.AddrPortFrom(to.Addr, to.Port) }

// upstreamIn returns the name that a target allows at one port, as it is looked up; "" if the target allows
// more than one name or port.
func upstreamIn(t policy.Target) string {
	if t.Name == "" || t.Name[0] == '*' || t.Ports.First != t.Ports.Last || t.Ports.First == 0 {
		return ""
	}
	return entry.Destination{Name: t.Name, Port: t.Ports.First}.Upstream()
}

// destinationAt returns the destination that is an address.
func destinationAt(at netip.AddrPort) entry.Destination {
	return entry.Destination{Addr: at.Addr(), Port: at.Port()}
}
