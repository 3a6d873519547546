package policy

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
)

// Host says what the field Host of requests contains when an http listener forwards them:
// HostUpstream, HostClient, or a name, optionally with a port. The zero Host is HostUpstream
// for an upstream that is a name and speaks TLS, and HostClient for the others.
type Host string

// The values of Host that are not names.
const (
	HostUpstream Host = "upstream" // the upstream that the request is sent to
	HostClient   Host = "client"   // what the client sent; the request is not changed
)

const hostForm = `"upstream", "client", or a name like "api.example" or "api.example:8443"`

// hostField is the key host. If it is left out, it prints the default for the upstreams.
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

// parseHost reads the key host.
func parseHost(s string) (Host, error) {
	for _, word := range []Host{HostUpstream, HostClient} {
		switch {
		case s == string(word):
			return word, nil
		case strings.EqualFold(s, string(word)): // a host with this name is improbable
			return "", complain(fmt.Sprintf("did you mean %q?", word), "%q is not known", s)
		}
	}
	if addr, err := netip.ParseAddr(s); err == nil && addr.Is6() {
		return "", complain(fmt.Sprintf("write an IPv6 address in brackets: %q", "["+s+"]"), "%q is not a host", s)
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

// hostOf returns Host for one of the upstreams, never the zero Host.
func (l *Listener) hostOf(upstream string) Host {
	host, _, err := net.SplitHostPort(upstream)
	switch {
	case l.Protocol != HTTP:
		return HostClient
	case l.Host != "":
		return l.Host
	case err != nil || isUnix(upstream) || l.UpstreamTLS == nil || !isHostname(host):
		return HostClient
	}
	return HostUpstream
}

// HostFor returns the field Host of requests that are sent to one of the upstreams: "host",
// "host:port" or "[address]:port". It returns "" if they keep that of the client.
func (l *Listener) HostFor(upstream string) string {
	switch host := l.hostOf(upstream); {
	case host == HostClient, upstream == Echo, upstream == Discard, host == HostUpstream && isUnix(upstream):
		return ""
	case host == HostUpstream && strings.HasPrefix(upstream, SRV):
		return ServerName(upstream)
	case host == HostUpstream:
		return upstream
	default:
		return string(host)
	}
}
