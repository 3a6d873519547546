package policy

import (
	"fmt"
	"net/netip"
)

// An upstreamChecker checks how the upstreams of a listener are chosen, checked and reached.
type upstreamChecker struct{ *checker }

// upstreams checks the keys of a listener that say how its upstreams are chosen and checked.
func (c upstreamChecker) upstreams(key string, l *Listener) {
	if !c.sound(key+".protocol", key+".balance", key+".health", key+".upstream") {
		return
	}
	if l.Balance == LeastInFlight && !l.Protocol.Refuses() {
		c.wrong(key+".balance", fmt.Sprintf("which message of %s answers which is not known, so nothing is known to be in flight", l.Protocol), `"least-connections", or "round-robin"`)
	}
	if l.Weights != nil && l.Balance == InOrder {
		c.wrong(key+".upstream", "a weight means nothing while the upstreams are tried in order", `set balance = "round-robin", or leave the weights out`)
	}
	c.health(key+".health", l)
}

// health checks the checks of a listener's upstreams.
func (c upstreamChecker) health(key string, l *Listener) {
	h := l.Health
	kinds := 0
	for _, set := range []bool{h.TCP, h.HTTP != "", h.SMPP} {
		if set {
			kinds++
		}
	}
	switch {
	case h == (Health{}):
	case l.Protocol == UDP:
		c.wrong(key, "the listener is for udp, and an upstream of datagrams cannot be asked", "leave it out")
	case kinds > 1:
		c.wrong(key, "an address is checked in one way", "one of tcp, http and smpp")
	case kinds == 0 && c.given(key+".tcp"): // nothing else asks for a check either
		c.wrong(key+".tcp", "false leaves no check", `true, or http or smpp in its place; without health, only an address that a session could not reach is checked`)
	case h.Timeout > h.Every:
		c.wrong(key+".timeout", fmt.Sprintf("%q is longer than every, %q", h.Timeout, h.Every), "at most every")
	}
}

// bind checks that each upstream of a listener can be reached.
func (c upstreamChecker) bind(key string, l *Listener) {
	if !c.sound(key+".upstream", key+".bind") {
		return
	}
	for i, s := range l.Upstream {
		e, _ := endpointOf(s)
		if addr, err := netip.ParseAddr(e.host); err == nil && !l.Reaches(addr) {
			c.wrong(item(key+".upstream", i), fmt.Sprintf("%q cannot be reached from an address of bind (%s)", s, few(l.Bind)),
				"both are IPv4, or both are IPv6")
		}
	}
}
