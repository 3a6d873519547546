package policy

import (
	"fmt"
	"net/netip"
	"slices"
)

// An entryChecker checks that entries have the keys of entries, and other listeners have not.
type entryChecker struct{ *checker }

// entry checks what only entries have, and what they cannot have.
func (c entryChecker) entry(key string, l *Listener) {
	if !c.sound(key + ".mode") {
		return
	}
	if l.Mode != Transparent {
		transparentChecker(c).none(key)
	}
	if !l.Mode.IsEntry() {
		c.noEntry(key, l)
		return
	}
	mode := fmt.Sprintf("mode %q", l.Mode)
	if at := key + ".upstream"; c.given(at) && c.sound(at) {
		c.wrong(at, "with "+mode+" clients say where they want to go", "leave it out, and write allow")
	}
	if at := key + ".protocol"; c.given(at) && c.sound(at) {
		c.wrong(at, mode+" is what clients speak first", `leave it out; inside = "smpp", for example, says what follows`)
	}
	for _, name := range []string{"balance", "health"} {
		if at := key + "." + name; c.given(at) && c.sound(at) {
			c.wrong(at, "with "+mode+" there are no upstreams to choose from", "leave it out")
		}
	}
	if at := key + ".upstream_tls"; c.given(at) && c.sound(at) {
		c.wrong(at, "with "+mode+" clients speak to the destination themselves", "leave it out")
	}
	if at := key + ".inside"; l.Protocol == UDP && l.Mode != SOCKS5 && l.Mode != Transparent && c.sound(at) {
		c.wrong(at, mode+" carries no datagrams", `leave it out, or set mode = "socks5" or "transparent"`)
	}
	switch l.Mode {
	case SNI:
		c.sni(key, l)
	case Transparent:
		transparentChecker(c).transparent(key, l)
	}
	if at := key + ".allow"; len(l.Allow) == 0 && c.sound(at) {
		form := targetForm
		if l.Mode == Transparent {
			form = addressesForm
		}
		c.wrong(at, "it is missing, so no destination is allowed", form)
	}
}

// sni checks what cannot be with mode "sni", which passes on what it cannot read.
func (c entryChecker) sni(key string, l *Listener) {
	if at := key + ".inside"; l.Protocol.HasMessages() && c.sound(at) {
		c.wrong(at, `with mode "sni" everything is encrypted between the client and the server`, `leave it out; mode "forward" with tls and upstream_tls reads messages`)
	}
	if at := key + ".users"; c.given(at) && c.sound(at) {
		c.wrong(at, "the ClientHello of TLS has no login", `leave it out, or set mode = "socks5" or "connect"`)
	}
	if at := key + ".tls"; l.TLS != nil && c.sound(at) {
		c.wrong(at, `with mode "sni" clients speak TLS with the server`, "leave it out")
	}
	for i, s := range l.Listen {
		if isUnix(s) && c.sound(key+".listen") {
			c.wrong(item(key+".listen", i), `with mode "sni" the port to which a client connects is that of the server, and a unix socket has none`, "an address with a port")
		}
	}
}

// noEntry checks that a listener that forwards has an upstream, and no keys of entries.
func (c entryChecker) noEntry(key string, l *Listener) {
	if at := key + ".upstream"; len(l.Upstream) == 0 && !c.given(at) && c.sound(at) {
		c.wrong(at, `it is missing, and mode "forward" leads there`, upstreamForm)
	}
	for _, name := range []string{"inside", "allow", "deny", "users"} {
		if at := key + "." + name; c.given(at) && c.sound(at) {
			c.wrong(at, "only entries have it", `leave it out, or set mode = "socks5" or "connect"`)
		}
	}
}

// Relayed returns what the listener is for the datagrams of SOCKS clients: one of protocol udp. It
// is nil if the listener relays none, since it has another mode or messages.
func (l *Listener) Relayed() *Listener {
	if !l.relays() {
		return nil
	}
	r := *l
	r.Protocol, r.HalfCloseTimeout = UDP, 0
	r.IdleTimeout = min(l.IdleTimeout, DefaultListener(l.Name, UDP).IdleTimeout)
	return &r
}

// warnOpen warns of entries that other machines may use without a login.
func (c warner) warnOpen() {
	for _, l := range c.p.Listeners {
		if !l.Mode.HasNames() || l.Users != "" { // a transparent listener refuses who connects to itself
			continue
		}
		for i, s := range l.Listen {
			if !isPrivate(s) {
				c.warn(item(join("listener", l.Name)+".listen", i), fmt.Sprintf("whoever reaches %q may use it, since nobody has to log in", s),
					`users = "FILE", or an address like "127.0.0.1:1080"`)
			}
		}
	}
}

// warnPorts warns of destinations whose port has become a part of their address. If that stands in deny, all of it stays open.
func (c warner) warnPorts() {
	warn := func(key string, targets []Target) {
		for i, t := range targets {
			if meant, ok := t.withPort(); ok {
				c.warn(item(key, i), fmt.Sprintf("%q is an address, and %v looks like a port", t, meant.Ports), fmt.Sprintf(`"%v", or "[%v]:1-65535" if it is an address`, meant, t))
			}
		}
	}
	for _, l := range c.p.Listeners {
		key := join("listener", l.Name)
		warn(key+".allow", l.Allow)
		warn(key+".deny", l.Deny)
	}
}

// warnClaims warns of listeners at which any machine may claim any address.
func (c warner) warnClaims() {
	for _, l := range c.p.Listeners {
		if !slices.ContainsFunc(l.Listen, func(s string) bool { return !isPrivate(s) }) {
			continue
		}
		for i, from := range l.AcceptProxy {
			if from.Bits() == 0 {
				c.warn(item(join("listener", l.Name)+".accept_proxy", i), fmt.Sprintf("%q are all addresses, and whoever sends a PROXY header may claim any", from),
					"the networks of your proxies only")
			}
		}
	}
}

// isPrivate reports whether only this host reaches an address.
func isPrivate(address string) bool {
	if isUnix(address) {
		return true
	}
	e, _ := endpointOf(address)
	addr, err := netip.ParseAddr(e.host)
	return err == nil && addr.IsLoopback() || e.host == "localhost"
}
