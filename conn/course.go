package conn

import (
	"net/netip"

	"shaper/upstream"
)

// course is where a session leads: the upstream that it tries or has, the address there, and the
// address of ours that it leaves from. The dial sets it, and it stays when the dial is over. The
// lock of the session guards it.
type course struct {
	// walk stands at the upstream that the session tries or has.
	walk upstream.Walk
	// destination is the address that rules match: the upstream's, once the session dials it.
	// Before, it is that of the first upstream if a rule asks, and otherwise invalid.
	destination netip.AddrPort
	origin      origin // which address of bind the session leaves from
	located     bool   // a rule has asked: the session is in the classes of destination
	reached     bool   // the session has its upstream, at destination
}

// take makes an address of the present upstream the destination, and counts the session there.
func (c *course) take(at upstream.Address) {
	c.walk.Take(at)
	c.destination = at.AddrPort
}

// target returns what counts the session at its upstream; nil if it has chosen none.
func (c *course) target() *upstream.Target { return c.walk.Target() }

// number returns the place of the upstream in the listener's list, from 1; 0 until the session
// has reached it.
func (c *course) number() int {
	if !c.reached {
		return 0
	}
	return c.walk.Number()
}

// address returns the address of the upstream; "" until the session has reached it.
func (c *course) address() string {
	if !c.reached {
		return ""
	}
	return destinationName(c.destination)
}
