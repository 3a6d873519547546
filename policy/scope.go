package policy

import (
	"slices"
	"strings"
)

// appliesTo reports whether the rule can match anything that comes in through
// the listener.
func (r *Rule) appliesTo(l *Listener) bool {
	return matches(r.Listener, l.Name) && matches(r.Protocol, l.Protocol) && r.hasWhatItLooksAt(l.Protocol) && r.portOf(l)
}

// matches reports whether a key of a rule takes a value; an empty key takes
// every value.
func matches[T comparable](key []T, value T) bool {
	return len(key) == 0 || slices.Contains(key, value)
}

// portOf reports whether one of the listener's ports is among the rule's.
func (r *Rule) portOf(l *Listener) bool {
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

func isSystemd(addr string) bool { return strings.HasPrefix(addr, systemdPrefix) }
