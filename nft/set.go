package nft

import (
	"net/netip"

	"github.com/google/nftables"

	"shaper/policy"
)

// set is a set of prefixes.
type set struct {
	name     string
	prefixes []netip.Prefix
}

// specialName is the name of the set of special addresses of a family.
func specialName(v6 bool) string {
	if v6 {
		return "special6"
	}
	return "special4"
}

// specials returns the special addresses of a family.
func specials(v6 bool) set {
	s := set{name: specialName(v6)}
	for _, p := range policy.Specials() {
		if p.Addr().Is6() == v6 {
			s.prefixes = append(s.prefixes, p)
		}
	}
	return s
}

// kind returns the type of the elements.
func (s set) kind() nftables.SetDatatype {
	if s.prefixes[0].Addr().Is6() {
		return nftables.TypeIP6Addr
	}
	return nftables.TypeIPAddr
}

// elements returns the prefixes as intervals: the first address, and the first one after the last.
func (s set) elements() (all []nftables.SetElement) {
	for _, p := range s.prefixes {
		all = append(all, nftables.SetElement{Key: p.Addr().AsSlice()})
		if after := lastOf(p).Next(); after.IsValid() {
			all = append(all, nftables.SetElement{Key: after.AsSlice(), IntervalEnd: true})
		}
	}
	return all
}

// lastOf returns the last address of a prefix.
func lastOf(p netip.Prefix) netip.Addr {
	last := p.Addr().AsSlice()
	for i, bits := range maskOf(p) {
		last[i] |= ^bits
	}
	addr, _ := netip.AddrFromSlice(last)
	return addr
}

// maskOf returns the mask of a prefix.
func maskOf(p netip.Prefix) []byte {
	mask := make([]byte, p.Addr().BitLen()/8)
	for i := range p.Bits() {
		mask[i/8] |= 0x80 >> (i % 8)
	}
	return mask
}
