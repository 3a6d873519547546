package policy

import (
	"net/netip"
	"slices"
)

// appliesTo reports whether the rule can match a connection or a message of the listener.
func (r *Rule) appliesTo(l *Listener) bool {
	return r.isFor(l) && r.hasWhatItLooksAt(l)
}

// isFor reports whether the rule may match the name, the protocol and a port of the listener.
func (r *Rule) isFor(l *Listener) bool {
	return matches(r.Listener, l.Name) && matches(r.Protocol, l.Protocol) && r.mayMatchPort(l)
}

// matches reports whether a key of a rule matches a value. A key without values matches all.
func matches[T comparable](key []T, value T) bool {
	return len(key) == 0 || slices.Contains(key, value)
}

// mayMatchPort reports whether the rule matches a port of the listener, or may match one that
// is not known yet.
func (r *Rule) mayMatchPort(l *Listener) bool {
	if len(r.Port) == 0 {
		return true
	}
	ports, known := l.ports()
	return !known || slices.ContainsFunc(ports, func(port uint16) bool { return inRanges(r.Port, port) })
}

// ports returns the ports to which clients of the listener connect. They are not known if systemd
// or the kernel chooses one of them, or nftables leads other ports to the listener.
func (l *Listener) ports() (ports []uint16, known bool) {
	if l.Mode == Transparent {
		return nil, false
	}
	for _, s := range l.Listen {
		if isUnix(s) {
			continue // it has no port
		}
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

// looksAtHTTP reports whether the rule has keys for messages of HTTP.
func (r *Rule) looksAtHTTP() bool { return len(r.Path)+len(r.Method)+len(r.Host)+len(r.Header) > 0 }

// looksAtSMPP reports whether the rule has keys for messages of SMPP.
func (r *Rule) looksAtSMPP() bool {
	return len(r.SystemID)+len(r.SourceAddr)+len(r.Recipient)+len(r.DataCoding)+len(r.ESMClass) > 0
}

// looksAtMessages reports whether the rule decides for messages, not for connections.
func (r *Rule) looksAtMessages() bool { return r.looksAtHTTP() || r.looksAtSMPP() }

// looksAtEntries reports whether the rule looks at what clients say at an entry.
func (r *Rule) looksAtEntries() bool { return len(r.User)+len(r.ServerName) > 0 }

// hasWhatItLooksAt reports whether connections and messages of the listener have what the rule
// looks at.
func (r *Rule) hasWhatItLooksAt(l *Listener) bool {
	return (!r.looksAtHTTP() || l.Protocol == HTTP) && (!r.looksAtSMPP() || l.Protocol == SMPP) &&
		(len(r.User) == 0 || l.Users != "") && (len(r.ServerName) == 0 || l.Mode.HasNames())
}

// firstPrefix returns the index of the first prefix that holds the address, or -1. An IPv4
// address mapped into IPv6 counts as IPv4, and a zone is ignored.
func firstPrefix(prefixes []netip.Prefix, addr netip.Addr) int {
	addr = addr.Unmap().WithZone("")
	return slices.IndexFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(addr) })
}
