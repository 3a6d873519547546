package policy

import (
	"net/netip"
	"slices"
)

// Filters returns how many filters the rule needs in the kernel, unless it is ProxyOnly: one for each
// combination of the values of its keys. If it needs more than MaxFilters, Filters returns any number above
// that.
func (r *Rule) Filters() int {
	n := 0
	for _, four := range []bool{true, false} {
		n += ofFamily(r.Source, four) * ofFamily(r.Destination, four)
	}
	for _, values := range []int{len(masks(r.SourcePort)), len(masks(r.Port)), len(r.IPProtocols())} {
		n = min(n*max(values, 1), MaxFilters+1)
	}
	return n
}

// ofFamily returns how many prefixes belong to a family: IPv4 if four is set, else IPv6. It
// returns 1, for any address, if there are no prefixes at all.
func ofFamily(all []netip.Prefix, four bool) (n int) {
	for _, p := range all {
		if p.Addr().Is4() == four {
			n++
		}
	}
	if len(all) == 0 {
		n = 1
	}
	return n
}

// ProxyOnly reports whether the rule asks for what no packet says, so that there are no filters for it: a
// listener, what clients say at an entry, messages, or only protocols of messages.
func (r *Rule) ProxyOnly() bool {
	return len(r.Listener) > 0 || r.looksAtEntries() || r.looksAtMessages() || r.wantsMessages()
}

// wantsMessages reports whether the rule is only for protocols of messages. The protocol of a packet is TCP
// or UDP, whatever it carries.
func (r *Rule) wantsMessages() bool { return len(r.Protocol) > 0 && len(r.IPProtocols()) == 0 }

// IPProtocols returns the protocols that the filters of the rule match. If the rule is not ProxyOnly and
// this returns none, they match packets of any protocol, also of those without ports.
func (r *Rule) IPProtocols() []Protocol {
	if len(r.Protocol) == 0 && len(r.Port)+len(r.SourcePort) > 0 {
		return []Protocol{TCP, UDP}
	}
	return slices.DeleteFunc(slices.Clone(r.Protocol), Protocol.HasMessages)
}

// PortMask stands for all ports that equal Port in the bits of Mask.
type PortMask struct{ Port, Mask uint16 }

// Masks returns the fewest masks that together stand for exactly the ports of the range, in
// ascending order.
func (r PortRange) Masks() (all []PortMask) {
	for first, last := int(r.First), int(r.Last); first <= last; {
		size := 1
		for first&(2*size-1) == 0 && first+2*size-1 <= last {
			size *= 2
		}
		all = append(all, PortMask{uint16(first), uint16(^(size - 1))})
		first += size
	}
	return all
}

// masks returns the masks of all ranges.
func masks(ranges []PortRange) (all []PortMask) {
	for _, r := range ranges {
		all = append(all, r.Masks()...)
	}
	return all
}
