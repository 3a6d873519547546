package tc

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"

	"shaper/policy"
)

// The preferences of our single filters. The kernel tries the filter of marks first.
var (
	markPref    = Pref{1, unix.ETH_P_ALL}
	ingressPref = Pref{policy.Major, unix.ETH_P_ALL} // beside the filters of others
)

// family is a kind of address. Packets of each family have their own list of filters.
type family int

const (
	ipv4 family = iota
	ipv6
)

func etherType(f family) uint16 {
	return [...]uint16{ipv4: unix.ETH_P_IP, ipv6: unix.ETH_P_IPV6}[f]
}

// slot is a place for the list of filters of a family. Each family has two: a new list is
// made in one slot while the other one is in force. A list of u32 takes one preference; a
// list of flower takes one for each filter.
type slot struct {
	family family
	n      int // 0 or 1
}

func u32Pref(s slot) Pref { return Pref{uint16(10 + 10*int(s.family) + s.n), etherType(s.family)} }

const mostFlowers = 0x400 // the preferences of a slot for flower

// flowerPriority returns the first preference of a slot for flower.
func flowerPriority(s slot) uint16 { return uint16(0x1000 + (2*int(s.family)+s.n)*mostFlowers) }

// slotOf returns the slot that a preference belongs to, and the kind of filters there; ok
// is false if it belongs to none.
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

// firstTable returns the number of the first u32 table of a slot. All lists of a qdisc
// share the numbers; the kernel numbers its own tables from 0x800 on.
func firstTable(s slot) uint32 { return 1 + tablesOfList*uint32(2*int(s.family)+s.n) }

const tablesOfList = 0x1ff // the most tables that a list may have

// entry is a u32 filter that has no place in a list yet.
type entry struct {
	selector selector
	class    Handle
}

// entries returns the u32 filters of a rule for a family, in their order.
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

// ofFamily returns the prefixes of a family. If the rule has no prefixes at all, it returns
// the zero Prefix, which is any address.
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

// protocolsOf returns the numbers of the IP protocols of a rule; 0 is any.
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

// masksOf returns port ranges as masks. For no ranges it returns the zero PortMask, which
// is any port.
func masksOf(ranges []policy.PortRange) (all []policy.PortMask) {
	for _, r := range ranges {
		all = append(all, r.Masks()...)
	}
	if all == nil {
		all = []policy.PortMask{{}}
	}
	return all
}

// header says where the network header of a family has what filters ask for. Offsets are
// in bytes from its start.
type header struct {
	protocol, shift      int32 // offset of the word with the protocol, and its bit in the word
	source, destination  int32
	ports                int32
	plain, plainMask     uint32 // first word of a header without options; plainMask 0: no test
	fragment, fragmented int32  // offset of a word, and its bits that only later fragments set
}

var headers = map[family]header{
	ipv4: {protocol: 8, shift: 16, source: 12, destination: 16, ports: 20, plain: 0x45000000, plainMask: 0xff000000, fragment: 4, fragmented: 0x1fff},
	ipv6: {protocol: 4, shift: 8, source: 8, destination: 24, ports: 40},
}

// selectorOf returns a selector for packets. It finds ports only in first fragments without
// options (IPv4) or extension headers (IPv6); other packets match no port.
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
		s.add(0, 0, 0) // any packet
	}
	return s
}

// addPrefix adds the match of an address, word by word.
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
