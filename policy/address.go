package policy

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// SRV begins an upstream that is a service: "srv:_smpp._tcp.example" (RFC 2782).
const SRV = "srv:"

// systemdPrefix begins a listen address that names a socket of systemd.
const systemdPrefix = "systemd:"

// PortRange is the range of ports from First to Last, both included.
type PortRange struct{ First, Last uint16 }

// ParsePortRange reads a port such as "443" or a range such as "8000-8100".
// Ports are from 1 to 65535.
func ParsePortRange(s string) (PortRange, error) {
	first, last, isRange := strings.Cut(s, "-")
	if !isRange {
		last = first
	}
	from, err1 := parsePort(first)
	to, err2 := parsePort(last)
	switch {
	case err1 != nil || err2 != nil:
		return PortRange{}, complain(portForm, "%q is not a port", s)
	case from > to:
		return PortRange{}, complain(fmt.Sprintf(`the lower port comes first: "%d-%d"`, to, from), "%q is an empty range", s)
	}
	return PortRange{from, to}, nil
}

// parsePort reads a port without a sign or leading zeros.
func parsePort(s string) (uint16, error) {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil || n == 0 || strconv.FormatUint(n, 10) != s {
		return 0, strconv.ErrSyntax
	}
	return uint16(n), nil
}

// Contains reports whether port is in the range.
func (r PortRange) Contains(port uint16) bool { return r.First <= port && port <= r.Last }

// String prints the range so that ParsePortRange reads it back.
func (r PortRange) String() string {
	if r.First == r.Last {
		return strconv.Itoa(int(r.First))
	}
	return fmt.Sprintf("%d-%d", r.First, r.Last)
}

// MarshalText is String.
func (r PortRange) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText is ParsePortRange.
func (r *PortRange) UnmarshalText(text []byte) (err error) {
	*r, err = ParsePortRange(string(text))
	return err
}

// parsePrefix reads an address or a prefix. It turns an IPv4 address mapped into IPv6 into
// the IPv4 address.
func parsePrefix(s string) (netip.Prefix, error) {
	if addr, err := netip.ParseAddr(s); err == nil && addr.Zone() == "" {
		addr = addr.Unmap()
		return netip.PrefixFrom(addr, addr.BitLen()), nil
	}
	p, err := netip.ParsePrefix(s)
	if err != nil {
		return netip.Prefix{}, complain(prefixForm, "%q is not an address or a prefix", s)
	}
	if p.Addr().Is4In6() && p.Bits() >= 96 {
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	if p != p.Masked() {
		return netip.Prefix{}, complain(fmt.Sprintf("the prefix is %q", p.Masked()), "%q has bits set after the prefix", s)
	}
	return p, nil
}

// parseAddr reads an address, and unmaps an IPv4 address mapped into IPv6.
func parseAddr(s string) (netip.Addr, error) {
	addr, err := netip.ParseAddr(s)
	if err != nil {
		return netip.Addr{}, complain(addrForm, "%q is not an address", s)
	}
	return addr.Unmap(), nil
}

// Reaches reports whether a connection from an address of ours can reach another: both are of
// one family. An invalid address is none, or not known yet.
func Reaches(from, to netip.Addr) bool {
	return !from.IsValid() || !to.IsValid() || from.Unmap().Is4() == to.Unmap().Is4()
}

// Reaches reports whether a connection from an address of Bind can reach an address.
func (l *Listener) Reaches(to netip.Addr) bool {
	return len(l.Bind) == 0 || slices.ContainsFunc(l.Bind, func(from netip.Addr) bool { return Reaches(from, to) })
}

// bindsBoth reports whether Bind has addresses of both families. Then the destination says which
// of them a session can have.
func (l *Listener) bindsBoth() bool {
	return slices.ContainsFunc(l.Bind, func(from netip.Addr) bool { return !Reaches(from, l.Bind[0]) })
}

// parseListen reads "host:port", a unix socket or "systemd:NAME".
func parseListen(s string) (string, error) {
	if name, ok := strings.CutPrefix(s, systemdPrefix); ok {
		if !isName(name) {
			return "", complain("the FileDescriptorName= of the socket unit: letters a-z and A-Z, digits, - and _", "%q names no socket", s)
		}
		return s, nil
	}
	if isUnix(s) {
		return parseUnix(s)
	}
	if port, all := strings.CutPrefix(s, "*:"); all {
		return "", complain(fmt.Sprintf("write %q for all addresses of this machine", ":"+port), "%q has neither an address nor a host name", s)
	}
	return hostPort(s, 0, listenForm)
}

// parseUpstream reads "host:port", "srv:_service._proto.name", a unix socket, Echo or Discard.
func parseUpstream(s string) (string, error) {
	if s == Echo || s == Discard {
		return s, nil
	}
	if isUnix(s) {
		return parseUnix(s)
	}
	if service, ok := strings.CutPrefix(s, SRV); ok {
		return s, checkService(service)
	}
	if strings.Contains(s, "://") {
		return "", urlComplaint(s)
	}
	addr, err := hostPort(s, 1, upstreamForm)
	if err != nil {
		if near := nearest(s, []string{Echo, Discard}); near != "" {
			return "", complain(fmt.Sprintf("did you mean %q?", near), "%q is not an upstream", s)
		}
		return "", err
	}
	if strings.HasPrefix(addr, ":") {
		return "", complain(upstreamForm, "%q has no host", s)
	}
	return addr, nil
}

// checkService checks the name of a service (RFC 2782).
func checkService(s string) error {
	parts := strings.SplitN(s, ".", 3)
	if len(parts) < 3 || len(parts[0]) < 2 || len(parts[1]) < 2 || s[0] != '_' || parts[1][0] != '_' || !isHostname(s) {
		return complain(`a service is like "srv:_smpp._tcp.example.com"`, "%q is not a service", s)
	}
	return nil
}

// schemes are the schemes of URLs that people write for an upstream: the default port of
// each, and whether it means TLS.
var schemes = map[string]struct {
	port string
	tls  bool
}{
	"http": {"80", false}, "https": {"443", true}, "ws": {"80", false}, "wss": {"443", true},
	"smpp": {"2775", false}, "smpps": {"3550", true}, "tls": {"", true}, "ssl": {"", true},
}

// urlComplaint says how to write an upstream that is given as a URL. It repeats only the scheme and
// the host, since all the rest may be secret.
func urlComplaint(s string) error {
	u, err := url.Parse(s)
	if err != nil || u.Hostname() == "" {
		return complain(upstreamForm, "a URL is not an upstream")
	}
	scheme := schemes[u.Scheme]
	port := cmp.Or(u.Port(), scheme.port)
	addr := net.JoinHostPort(u.Hostname(), cmp.Or(port, "PORT"))
	if _, err := hostPort(addr, 1, upstreamForm); port != "" && err != nil {
		return err
	}
	remedy := fmt.Sprintf("write %q", addr)
	if scheme.tls {
		remedy += ", and upstream_tls = true beside it"
	}
	if strings.Trim(u.Path, "/") != "" || u.RawQuery != "" {
		remedy += "; a path is not part of an upstream"
	}
	return complain(remedy, "%q is a URL", u.Scheme+"://"+u.Host)
}

// parseHTTP reads "host:port", or "" for no address.
func parseHTTP(s string) (string, error) {
	if s == "" {
		return "", nil
	}
	return hostPort(s, 0, httpForm)
}

// parseHTTPHost reads a name by which a browser may ask for the dashboard.
func parseHTTPHost(s string) (string, error) {
	if !isHostname(s) {
		return "", complain(hostsForm, "%q is not the name of a host", s)
	}
	return strings.ToLower(strings.TrimSuffix(s, ".")), nil
}

// hostPort checks "host:port" and returns it in canonical form. lowest is the lowest valid
// port: 0 if the kernel may choose one, else 1.
func hostPort(s string, lowest uint64, form string) (string, error) {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return "", complain(form, "%q is not host:port", s)
	}
	n, err := strconv.ParseUint(port, 10, 64)
	if err != nil || n < lowest || n > 65535 {
		return "", complain(fmt.Sprintf("a port is from %d to 65535", lowest), "%q has no valid port", s)
	}
	if addr, err := netip.ParseAddr(host); err == nil && addr.Is6() && !addr.Is4In6() && addr.IsLinkLocalUnicast() && addr.Zone() == "" {
		return "", complain(fmt.Sprintf("write %q with the name of an interface", net.JoinHostPort(host+"%INTERFACE", port)), "%q is link-local, and names no interface", s)
	} else if err == nil {
		host = addr.String()
	} else if host != "" && !isHostname(host) {
		return "", complain(form, "%q has neither an address nor a host name", s)
	}
	return net.JoinHostPort(host, strconv.FormatUint(n, 10)), nil
}

// isHostname reports whether s is a host name (RFC 1123, and underscores). A name whose last
// label is a number is a mistyped address (RFC 3696).
func isHostname(s string) bool {
	labels := strings.Split(strings.TrimSuffix(s, "."), ".")
	for _, label := range labels {
		if !isName(label) || len(label) > 63 {
			return false
		}
	}
	_, err := strconv.Atoi(labels[len(labels)-1])
	return err != nil && len(s) <= 253
}

// An endpoint is a listen or upstream address, in a form that can be compared.
type endpoint struct {
	host string // in lower case, without a final dot; "" for a unix socket
	port string
	unix string // the name of a unix socket; "" for none
}

// endpointOf returns the endpoint of an address. It returns false if the address has no
// host and port, or the port is not known yet.
func endpointOf(s string) (endpoint, bool) {
	if name, ok := UnixName(s); ok {
		return endpoint{unix: name}, true
	}
	host, port, err := net.SplitHostPort(s)
	if err != nil || port == "0" {
		return endpoint{}, false // systemd:, echo:, or a port that the kernel chooses
	}
	return endpoint{host: strings.ToLower(strings.TrimSuffix(host, ".")), port: port}, true
}

// addrs returns the addresses that a connection to the endpoint reaches. It returns none if
// the host is a name that has to be looked up.
func (e endpoint) addrs() []netip.Addr {
	v4, v6 := netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()
	if e.host == "" || e.host == "localhost" {
		return []netip.Addr{v4, v6}
	}
	addr, err := netip.ParseAddr(e.host)
	switch {
	case err != nil:
		return nil
	case addr.Unmap() == netip.IPv4Unspecified():
		return []netip.Addr{v4} // a connection to the unspecified address reaches this host
	case addr == netip.IPv6Unspecified():
		return []netip.Addr{v4, v6}
	}
	return []netip.Addr{addr.Unmap().WithZone("")}
}

// wildcard reports for which families a socket bound to the endpoint listens on all
// addresses.
func (e endpoint) wildcard() (v4, v6 bool) {
	addr, err := netip.ParseAddr(e.host)
	v6 = e.host == "" || err == nil && addr == netip.IPv6Unspecified()
	v4 = e.host == "" || err == nil && addr.Unmap() == netip.IPv4Unspecified()
	return v4, v6
}

// reachedBy reports whether a connection to target arrives at a socket that listens on e.
// It does not look up names.
func (e endpoint) reachedBy(target endpoint) bool {
	if e == target {
		return true
	}
	if e.port != target.port || e.unix != target.unix {
		return false
	}
	v4, v6 := e.wildcard()
	for _, to := range target.addrs() {
		// A socket on :: also accepts IPv4, unless IPV6_V6ONLY is set.
		if to.IsLoopback() && (v6 || v4 && to.Is4()) {
			return true
		}
		for _, at := range e.addrs() {
			if at == to {
				return true
			}
		}
	}
	return false
}

// collides reports whether the kernel refuses to bind sockets to both endpoints.
func (e endpoint) collides(o endpoint) bool {
	if e.port != o.port || e.unix != o.unix {
		return false
	}
	if e.host == o.host {
		return true
	}
	e4, e6 := e.wildcard()
	o4, o6 := o.wildcard()
	if e4 && o4 || e6 && o6 {
		return true
	}
	return e.coveredBy(o4, o6) || o.coveredBy(e4, e6) || e.reachedBy(o) && !e4 && !e6 && !o4 && !o6
}

// coveredBy reports whether the host is an address, and another socket listens on all
// addresses of its family.
func (e endpoint) coveredBy(v4, v6 bool) bool {
	if own4, own6 := e.wildcard(); own4 || own6 {
		return false // 0.0.0.0 and [::] can both be bound, each for its family
	}
	for _, addr := range e.addrs() {
		if v4 && addr.Is4() || v6 && addr.Is6() {
			return true
		}
	}
	return false
}

// isSystemd reports whether a listen address names a socket of systemd.
func isSystemd(addr string) bool { return strings.HasPrefix(addr, systemdPrefix) }
