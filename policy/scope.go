package policy

import (
	"net/netip"
	"slices"
)

// appliesTo reports whether the rule can match anything that comes in through
// the listener.
func (r *Rule) appliesTo(l *Listener) bool {
	return matches(r.Listener, l.Name) && matches(r.Protocol, l.Protocol) && r.hasWhatItLooksAt(l.Protocol) && r.mayMatchPort(l)
}

// matches reports whether a key of a rule takes a value; an empty key takes
// every value.
func matches[T comparable](key []T, value T) bool {
	return len(key) == 0 || slices.Contains(key, value)
}

// portOf reports whether one of the listener's ports is among the rule's.
func (r *Rule) mayMatchPort(l *Listener) bool {
	if len(r.Port) == 0 {
		return true
	}
	ports, known := l.ports()
	return !known || slices.ContainsFunc(ports, func(port uint16) bool { return inRanges(r.Port, port) })
}

// ports returns the ports on which the listener listens. They are not known
// where systemd or the kernel choose one.
func (l *Listener) ports() (ports []uint16, known bool) {
	for _, s := range l.Listen {
		e, ok := endpointOf(s)
		port, err := parsePort(e.port)
		if !ok || err != nil {
			return nil, false
		}
		ports = append(ports, port)
	}
	return ports, true
}

func inRanges(ranges []PortRange, port uint16) bool {
	return slices.ContainsFunc(ranges, func(r PortRange) bool { return r.Contains(port) })
}

// looksAtHTTP and looksAtSMPP report whether the rule asks for what only messages of
// a protocol have.
func (r *Rule) looksAtHTTP() bool { return len(r.Path)+len(r.Method)+len(r.Host) > 0 }

func (r *Rule) looksAtSMPP() bool { return len(r.SystemID)+len(r.SourceAddr) > 0 }

// looksAtMessages reports whether the rule is about messages, not sessions.
func (r *Rule) looksAtMessages() bool { return r.looksAtHTTP() || r.looksAtSMPP() }

// hasWhatItLooksAt reports whether the protocol has what the rule asks messages for.
func (r *Rule) hasWhatItLooksAt(p Protocol) bool {
	return (!r.looksAtHTTP() || p == HTTP) && (!r.looksAtSMPP() || p == SMPP)
}

// firstPrefix returns the index of the first prefix that holds the address, or -1. An IPv4
// address mapped into IPv6 counts as IPv4, and a zone is ignored.
func firstPrefix(prefixes []netip.Prefix, addr netip.Addr) int {
	addr = addr.Unmap().WithZone("")
	return slices.IndexFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(addr) })
}
