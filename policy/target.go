package policy

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Target is an item of the keys allow and deny: where a client of an entry may want to go.
type Target struct {
	// Name is a host name, "*.example" for all names beneath one, or "*" for every name. If it
	// is "", Prefix holds.
	Name   string
	Prefix netip.Prefix
	// Ports are those of the destination; the zero PortRange is all.
	Ports PortRange
}

const targetForm = `a destination is like "api.example:443", "*.example", "203.0.113.0/24" or "[2001:db8::1]:8000-8100"`

// parseTarget reads a name, an address or a prefix, with or without ports.
func parseTarget(s string) (t Target, err error) {
	if strings.Contains(s, "://") {
		return t, complain(targetForm, "%q is a URL", s)
	}
	host, ports := s, ""
	if i := strings.LastIndexByte(s, ':'); i >= 0 && (strings.HasPrefix(s, "[") && s[i-1] == ']' || strings.Count(s, ":") == 1) {
		host, ports = s[:i], s[i+1:]
		if t.Ports, err = ParsePortRange(ports); err != nil {
			return t, complain(complaintOf(err).allowed, "what follows %q is not a port", host+":") // it may be the value of a field of HTTP
		}
	}
	if inner, ok := strings.CutPrefix(host, "["); ok {
		if host, ok = strings.CutSuffix(inner, "]"); !ok {
			return t, complain(targetForm, "a bracket is not closed")
		}
	}
	if t.Prefix, err = parsePrefix(host); err == nil {
		return t, nil
	}
	if first, _, several := strings.Cut(host, ":"); several {
		return t, complain(targetForm, "what follows %q is no part of an address", first+":") // as above
	}
	if strings.Contains(host, "/") {
		return t, err
	}
	t.Prefix, t.Name = netip.Prefix{}, strings.ToLower(strings.TrimSuffix(host, "."))
	if host != "*" && !isHostname(strings.TrimPrefix(t.Name, "*.")) {
		return Target{}, complain(targetForm, "%q is neither a name nor an address", s)
	}
	return t, nil
}

// usualPorts are ports that people write after an address.
var usualPorts = []string{"22", "25", "53", "80", "110", "143", "389", "443", "465", "587", "636", "853", "993", "995", "1080", "2775", "3128", "5060", "5432", "8000", "8080", "8443"}

// withPort returns what an address may have been meant for: the last group of IPv6 looks like a port, and what is before it is
// an address. Servers often have their port as all that follows the "::", like 2001:db8::53, so that is no sign.
func (t Target) withPort() (meant Target, ok bool) {
	if t.Name != "" || !t.Prefix.IsSingleIP() || t.Ports != (PortRange{}) {
		return Target{}, false
	}
	s := t.Prefix.Addr().String()
	i := strings.LastIndexByte(s, ':')
	if i < 1 || s[i-1] == ':' || !slices.Contains(usualPorts, s[i+1:]) {
		return Target{}, false
	}
	meant, err := parseTarget("[" + s[:i] + "]" + s[i:])
	return meant, err == nil
}

// String prints the target so that parseTarget reads it back.
func (t Target) String() string {
	host := t.Name
	if host == "" {
		host = t.Prefix.String()
		if t.Prefix.IsSingleIP() {
			host = t.Prefix.Addr().String()
		}
	}
	if t.Ports == (PortRange{}) {
		return host
	}
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	return host + ":" + t.Ports.String()
}

// MarshalText is String.
func (t Target) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// UnmarshalText is parseTarget.
func (t *Target) UnmarshalText(text []byte) (err error) {
	*t, err = parseTarget(string(text))
	return err
}

// matchesName reports whether the target is for a name, in lower case.
func (t Target) matchesName(name string) bool {
	suffix, all := strings.CutPrefix(t.Name, "*")
	switch {
	case t.Name == "" || name == "":
		return false
	case all:
		return strings.HasSuffix(name, suffix)
	}
	return name == t.Name
}

// matchesPort reports whether the target is for a port.
func (t Target) matchesPort(port uint16) bool {
	return t.Ports == (PortRange{}) || t.Ports.Contains(port)
}

// specials are the ranges that no name and no wider prefix allows: this host, its networks, its link
// with the metadata of clouds (168.63.129.16 is that of Azure), and those in which other addresses are
// embedded (IANA's special-purpose registries).
var specials = prefixList("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "168.63.129.16/32", "169.254.0.0/16", "172.16.0.0/12",
	"192.0.0.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "224.0.0.0/4", "240.0.0.0/4",
	"::/96", "::ffff:0:0:0/96", "64:ff9b::/96", "64:ff9b:1::/48", "100::/64", "2001::/23", "2002::/16", "5f00::/16", "fc00::/7", "fe80::/10", "fec0::/10", "ff00::/8")

// Specials returns the ranges that no wider prefix of Allow allows.
func Specials() []netip.Prefix { return slices.Clone(specials) }

// SpecialOf returns the special range in which a prefix is.
func SpecialOf(p netip.Prefix) (netip.Prefix, bool) {
	special, ok := specialOf(p.Addr())
	return special, ok && p.Bits() >= special.Bits()
}

func prefixList(texts ...string) (all []netip.Prefix) {
	for _, s := range texts {
		all = append(all, netip.MustParsePrefix(s))
	}
	return all
}

// LeadsTo says for people where a listener leads: its upstreams, or what clients of an entry choose
// from.
func (l *Listener) LeadsTo() string {
	if l.Mode.IsEntry() {
		return fmt.Sprintf("%s to %s", l.Mode, few(l.Allow))
	}
	return list(l.Upstream)
}

// Allows reports whether a client of an entry may be connected to an address. name is what the
// client has asked for; "" if that was the address. The listener allows what Allow names and Deny does
// not. An address in one of the special ranges must be named by a prefix within that range. If
// an IPv4 address is embedded in the address, the listener must allow that one too.
func (l *Listener) Allows(name string, to netip.AddrPort) bool {
	addr := to.Addr().Unmap()
	if !addr.IsValid() || addr.Zone() != "" || !l.allows(name, addr, to.Port()) {
		return false
	}
	inner, embedded := embeddedIn(addr)
	return !embedded || l.allows(name, inner, to.Port())
}

// allows is Allows without what is embedded.
func (l *Listener) allows(name string, addr netip.Addr, port uint16) bool {
	for _, t := range l.Deny {
		if t.matchesPort(port) && (t.matchesName(name) || t.Prefix.Contains(addr)) {
			return false
		}
	}
	special, isSpecial := specialOf(addr)
	return slices.ContainsFunc(l.Allow, func(t Target) bool {
		switch {
		case !t.matchesPort(port):
			return false
		case t.Prefix.Contains(addr):
			return !isSpecial || t.Prefix.Bits() >= special.Bits()
		}
		return !isSpecial && t.matchesName(name)
	})
}

// MayLead reports whether a name may lead to an address that a client of an entry may be connected
// to. If not, it need not be looked up.
func (l *Listener) MayLead(name string, port uint16) bool {
	denied := func(t Target) bool { return t.matchesPort(port) && t.matchesName(name) }
	allowed := func(t Target) bool { return t.matchesPort(port) && (t.Name == "" || t.matchesName(name)) }
	return !slices.ContainsFunc(l.Deny, denied) && slices.ContainsFunc(l.Allow, allowed)
}

// specialOf returns the special range that an address is in.
func specialOf(addr netip.Addr) (netip.Prefix, bool) {
	i := slices.IndexFunc(specials, func(p netip.Prefix) bool { return p.Contains(addr) })
	if i < 0 {
		return netip.Prefix{}, false
	}
	return specials[i], true
}

// embeddedIn returns the IPv4 address that is embedded in an address: by NAT64 (RFC 6052, RFC
// 8215), by SIIT (RFC 2765), by 6to4 (RFC 3056), or as an IPv4-compatible address (RFC 4291).
func embeddedIn(addr netip.Addr) (inner netip.Addr, ok bool) {
	special, _ := specialOf(addr)
	b := addr.As16()
	switch special.String() {
	case "64:ff9b::/96", "::ffff:0:0:0/96", "::/96":
		return netip.AddrFrom4([4]byte(b[12:16])), addr != netip.IPv6Loopback() && addr != netip.IPv6Unspecified()
	case "64:ff9b:1::/48":
		return netip.AddrFrom4([4]byte{b[6], b[7], b[9], b[10]}), true
	case "2002::/16":
		return netip.AddrFrom4([4]byte(b[2:6])), true
	}
	return inner, false
}
