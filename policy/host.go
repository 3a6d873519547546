package policy

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
)

// Host is which server the requests of an http listener ask for: HostUpstream,
// HostClient, or a name, perhaps with a port. The zero Host is HostUpstream for an
// upstream that is a name and has TLS, and HostClient for the others.
type Host string

// What Host may be beside a name.
const (
	HostUpstream Host = "upstream" // the one that the request is sent to
	HostClient   Host = "client"   // the one that the client has asked for; nothing is changed
)

const hostForm = `"upstream", "client", or a name like "api.example" or "api.example:8443"`

// hostField prints what the default comes to.
var hostField = func() field[Listener] {
	f := one("host", hostForm, func(l *Listener) *Host { return &l.Host }, parseHost)
	f.get = func(l *Listener) string {
		isName := func(s string) bool { return l.hostOf(s) == HostUpstream }
		switch {
		case l.Host != "":
			return string(l.Host)
		case !slices.ContainsFunc(l.Upstream, isName):
			return string(HostClient)
		case slices.ContainsFunc(l.Upstream, func(s string) bool { return !isName(s) }):
			return "upstream for names, client for addresses"
		}
		return string(HostUpstream)
	}
	return f
}()

func parseHost(s string) (Host, error) {
	for _, word := range []Host{HostUpstream, HostClient} {
		switch {
		case s == string(word):
			return word, nil
		case strings.EqualFold(s, string(word)): // nobody means a host of this name
			return "", complain(fmt.Sprintf("did you mean %q?", word), "%q is not known", s)
		}
	}
	if addr, err := netip.ParseAddr(s); err == nil && addr.Is6() {
		return "", complain(fmt.Sprintf("an address of IPv6 stands in brackets: %q", "["+s+"]"), "%q is not a host", s)
	}
	name, port, err := net.SplitHostPort(s)
	if err != nil {
		name, port, err = net.SplitHostPort(s + ":80")
	}
	if addr, errAddr := netip.ParseAddr(name); err != nil || !isHostname(name) && (errAddr != nil || addr.Zone() != "") {
		return "", complain(hostForm, "%q is not a host", s)
	}
	if _, err := parsePort(port); err != nil {
		return "", complain(hostForm, "%q has no valid port", s)
	}
	return Host(s), nil
}

// hostOf returns Host as it is for one of the upstreams.
func (l *Listener) hostOf(upstream string) Host {
	host, _, err := net.SplitHostPort(upstream)
	switch {
	case l.Protocol != HTTP:
		return HostClient
	case l.Host != "":
		return l.Host
	case err != nil || l.UpstreamTLS == nil || !isHostname(host):
		return HostClient
	}
	return HostUpstream
}

// HostFor returns the host that requests ask for that are sent to one of the upstreams:
// "host", "host:port" or "[address]:port"; "" where they ask as the client did.
func (l *Listener) HostFor(upstream string) string {
	switch host := l.hostOf(upstream); {
	case host == HostClient, upstream == Echo, upstream == Discard:
		return ""
	case host == HostUpstream:
		return upstream
	default:
		return string(host)
	}
}
