package policy

import (
	"fmt"
	"net/netip"
	"slices"
)

// A transparentChecker checks that transparent listeners have what nftables needs, and that they
// and all others have only keys that mean something there.
type transparentChecker struct{ *checker }

const addressesForm = `an address or a prefix, with or without ports, like "203.0.113.0/24:443"; "0.0.0.0/0" stands for all that are public`

// transparent checks what cannot be with mode "transparent", in which clients know of no proxy.
func (c transparentChecker) transparent(key string, l *Listener) {
	for _, one := range []struct{ name, problem, allowed string }{
		{"users", "an intercepted client does not know of a login", `leave it out, or set mode = "socks5" or "connect"`},
		{"tls", "an intercepted client speaks TLS with the server", `leave it out; mode "forward" with tls and upstream_tls reads messages`},
		{"accept_proxy", "an intercepted connection begins with no PROXY header", "leave it out"},
	} {
		if at := key + "." + one.name; c.given(at) && c.sound(at) {
			c.wrong(at, one.problem, one.allowed)
		}
	}
	if at := key + ".keep_source"; l.KeepSource && len(l.Bind) > 0 && c.sound(at, key+".bind") {
		c.wrong(at, "sessions leave from an address of bind", "keep_source, or bind, and not both")
	}
	if at := key + ".intercept"; l.Protocol == UDP && slices.Contains(l.Intercept, FromHost) && c.sound(at, key+".inside") {
		c.wrong(at, "nftables redirects what programs of this host send, and a redirected datagram does not tell where it was sent",
			`"forwarded"; programs of this host get there by mode = "socks5", or by mode = "forward" with an upstream`)
	}
	c.addresses(key+".allow", l.Allow)
	c.addresses(key+".deny", l.Deny)
	if c.listen(key+".listen", l.Listen) && c.sound(key+".allow") {
		c.families(key, l)
	}
}

// listen checks that rules of nftables can lead to the addresses, and reports whether they can.
func (c transparentChecker) listen(key string, all []string) (ok bool) {
	ok = c.sound(key)
	for i, s := range all {
		if _, can := interceptAddress(s); !can && c.sound(key) {
			ok = false
			c.wrong(item(key, i), fmt.Sprintf("rules of nftables cannot lead to %q", s), `an address and a port, like ":15001" or "127.0.0.1:15001"`)
		}
	}
	return ok
}

// families checks that there is an address of listen for each destination that is allowed.
func (c transparentChecker) families(key string, l *Listener) {
	at, host := key+".listen", slices.Contains(l.Intercept, FromHost)
	for i, t := range l.Allow {
		to, ok := l.InterceptAt(t.Prefix.Addr().Is6())
		switch {
		case t.Name != "":
		case !ok:
			c.wrong(item(key+".allow", i), fmt.Sprintf("no address of listen takes connections to %q", t), `listen = ":15001", for example, for both families`)
			return
		case host && !to.Addr().IsUnspecified() && !to.Addr().IsLoopback():
			c.wrong(at, fmt.Sprintf("nftables redirects what programs of this host send to loopback, and %v is another address", to), `":15001", for example`)
			return
		}
	}
}

// InterceptAt returns the address of a transparent listener to which nftables leads connections of
// a family. It is unspecified if the listener is bound to all.
func (l *Listener) InterceptAt(v6 bool) (netip.AddrPort, bool) {
	for _, s := range l.Listen {
		switch at, ok := interceptAddress(s); {
		case !ok:
		case !at.Addr().IsValid() && v6:
			return netip.AddrPortFrom(netip.IPv6Unspecified(), at.Port()), true
		case !at.Addr().IsValid():
			return netip.AddrPortFrom(netip.IPv4Unspecified(), at.Port()), true
		case at.Addr().Is6() == v6:
			return at, true
		}
	}
	return netip.AddrPort{}, false
}

// interceptAddress reads an address of listen to which rules of nftables can lead. Without a host,
// its address is invalid.
func interceptAddress(s string) (netip.AddrPort, bool) {
	e, ok := endpointOf(s)
	host, err := netip.ParseAddr(e.host)
	port, portErr := parsePort(e.port)
	return netip.AddrPortFrom(host.Unmap(), port), ok && portErr == nil && (err == nil && host.Zone() == "" || e.host == "")
}

// addresses checks that targets are addresses.
func (c transparentChecker) addresses(key string, all []Target) {
	if !c.sound(key) {
		return
	}
	for i, t := range all {
		if t.Name != "" {
			c.wrong(item(key, i), fmt.Sprintf("%q is a name, and intercepted clients ask for addresses", t),
				addressesForm)
		}
	}
}

// none checks that a listener that is not transparent has no keys of those that are.
func (c transparentChecker) none(key string) {
	for _, name := range []string{"intercept", "keep_source"} {
		if at := key + "." + name; c.given(at) && c.sound(at) {
			c.wrong(at, "only transparent listeners have it", `leave it out, or set mode = "transparent"`)
		}
	}
}
