package tc

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"

	"shaper/policy"
)

// The preferences of our filters: that of the marks comes first.
var (
	markPref    = Pref{1, unix.ETH_P_ALL}
	ingressPref = Pref{policy.Major, unix.ETH_P_ALL} // beside those of others
)

// family is a kind of address: its packets have lists of filters of their own.
type family int

const (
	ipv4 family = iota
	ipv6
)

func etherType(f family) uint16 {
	return [...]uint16{ipv4: unix.ETH_P_IP, ipv6: unix.ETH_P_IPV6}[f]
}

// A list of filters is made anew beside the one that is in force, and so each family has
// two slots for one. One of u32 has one preference, one of flower one for each filter.
type slot struct {
	family family
	n      int // 0 or 1
}

func u32Pref(s slot) Pref { return Pref{uint16(10 + 10*int(s.family) + s.n), etherType(s.family)} }

const mostFlowers = 0x400 // preferences of a slot

func flowerPriority(s slot) uint16 { return uint16(0x1000 + (2*int(s.family)+s.n)*mostFlowers) }

// slotOf returns the slot that a preference is of, and the kind of its filters.
func slotOf(p Pref) (s slot, kind string, ok bool) {
	for _, s := range slots {
		first := flowerPriority(s)
		switch {
		case p == u32Pref(s):
			return s, "u32", true
		case p.Protocol == etherType(s.family) && p.Priority >= first && p.Priority < first+mostFlowers:
			return s, "flower", true
		}
	}
	return slot{}, "", false
}

var slots = []slot{{ipv4, 0}, {ipv4, 1}, {ipv6, 0}, {ipv6, 1}}

// firstTable returns the number of the first table of a list: the tables of all lists
// of a qdisc are numbered together, below 800.
func firstTable(s slot) uint32 { return 1 + tablesOfList*uint32(2*int(s.family)+s.n) }

const tablesOfList = 0x1ff

// entry is a filter before it has its place in a list.
type entry struct {
	selector selector
	class    Handle
}

// entries returns the filters of a rule for a family, in their order.
func entries(r *policy.Rule, f family, class Handle) (all []entry) {
	for _, source := range ofFamily(r.Source, f) {
		for _, destination := range ofFamily(r.Destination, f) {
			for _, protocol := range protocolsOf(r) {
				for _, from := range masksOf(r.SourcePort) {
					for _, to := range masksOf(r.Port) {
						all = append(all, entry{selectorOf(f, source, destination, protocol, from, to), class})
					}
				}
			}
		}
	}
	return all
}

// ofFamily returns the prefixes of a family; the zero Prefix, any address, where
// the rule has none at all.
func ofFamily(all []netip.Prefix, f family) (some []netip.Prefix) {
	if len(all) == 0 {
		return []netip.Prefix{{}}
	}
	for _, p := range all {
		if p.Addr().Is4() == (f == ipv4) {
			some = append(some, p)
		}
	}
	return some
}

// protocolsOf returns the numbers of the protocols of a rule; 0 for any.
func protocolsOf(r *policy.Rule) (all []uint32) {
	for _, p := range r.IPProtocols() {
		if p == policy.UDP {
			all = append(all, unix.IPPROTO_UDP)
		} else {
			all = append(all, unix.IPPROTO_TCP)
		}
	}
	if all == nil {
		all = []uint32{0}
	}
	return all
}

// masksOf returns ports as masks; the zero PortMask, any port, for none.
func masksOf(ranges []policy.PortRange) (all []policy.PortMask) {
	for _, r := range ranges {
		all = append(all, r.Masks()...)
	}
	if all == nil {
		all = []policy.PortMask{{}}
	}
	return all
}

// header is where the network header of a family has what filters ask for.
type header struct {
	protocol, shift      int32 // the word, and how far in it
	source, destination  int32
	ports                int32
	plain, plainMask     uint32 // the first word, where nothing comes before the ports
	fragment, fragmented int32  // the word and the bits that say it is not the first one; 0: none
}

var headers = map[family]header{
	ipv4: {protocol: 8, shift: 16, source: 12, destination: 16, ports: 20, plain: 0x45000000, plainMask: 0xff000000, fragment: 4, fragmented: 0x1fff},
	ipv6: {protocol: 4, shift: 8, source: 8, destination: 24, ports: 40},
}

// selectorOf matches packets. Ports are where they are without options (IPv4) or
// extension headers (IPv6), and in the first fragment only; other packets have none.
func selectorOf(f family, source, destination netip.Prefix, protocol uint32, from, to policy.PortMask) (s selector) {
	h := headers[f]
	ports := from.Mask|to.Mask != 0
	if ports && h.plainMask != 0 {
		s.add(0, h.plain, h.plainMask)
		s.add(h.fragment, 0, uint32(h.fragmented))
	}
	if protocol != 0 {
		s.add(h.protocol, protocol<<h.shift, 0xff<<h.shift)
	}
	s.addPrefix(h.source, source)
	s.addPrefix(h.destination, destination)
	if ports {
		s.add(h.ports, uint32(from.Port)<<16|uint32(to.Port), uint32(from.Mask)<<16|uint32(to.Mask))
	}
	if s.n == 0 {
		s.add(0, 0, 0) // each packet
	}
	return s
}

// addPrefix matches an address, word by word.
func (s *selector) addPrefix(offset int32, p netip.Prefix) {
	if !p.IsValid() {
		return
	}
	b := p.Addr().AsSlice()
	for bits := p.Bits(); bits > 0; bits -= 32 {
		mask := ^uint32(0)
		if bits < 32 {
			mask <<= 32 - bits
		}
		s.add(offset, binary.BigEndian.Uint32(b), mask)
		offset, b = offset+4, b[4:]
	}
}
