package policy

import "net/netip"

// Filters returns how many filters the rule comes to in the kernel: each value of each
// key with each of the others. Beyond MaxFilters it is anything above that.
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

// ofFamily returns how many prefixes are of a family, that of IPv4 or of IPv6; 1, any
// address, where there are none at all.
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

// IPProtocols returns the protocols by which packets are told apart; none where
// each will do, those without ports too.
func (r *Rule) IPProtocols() []Protocol {
	if len(r.Protocol) == 0 && len(r.Port)+len(r.SourcePort) > 0 {
		return []Protocol{TCP, UDP}
	}
	return r.Protocol
}

// PortMask is the ports of which the bits in Mask are those of Port.
type PortMask struct{ Port, Mask uint16 }

// Masks returns the range as masks, in ascending order: the fewest that hold each
// of its ports and no other.
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

func masks(ranges []PortRange) (all []PortMask) {
	for _, r := range ranges {
		all = append(all, r.Masks()...)
	}
	return all
}
