package tc

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"net/netip"
	"slices"
	"strings"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"shaper/policy"
)

// flowerKey is a filter of kind flower. The kernel dissects the packet, and so finds ports
// behind options and extension headers too. A zero value matches everything. Each filter
// has a preference of its own, since flower keeps no order within one.
type flowerKey struct {
	Class               Handle
	EtherType           uint16
	Protocol            uint8 // of IP
	Source, Destination netip.Prefix
	From, To            policy.PortRange // if set, Protocol is TCP or UDP
}

// flowerKeys returns the flower filters of a rule for a family, in their order.
func flowerKeys(r *policy.Rule, f family, class Handle) (all []flowerKey) {
	orAny := func(ports []policy.PortRange) []policy.PortRange {
		if len(ports) == 0 {
			return []policy.PortRange{{}}
		}
		return ports
	}
	for _, source := range bounded(ofFamily(r.Source, f)) {
		for _, destination := range bounded(ofFamily(r.Destination, f)) {
			for _, protocol := range protocolsOf(r) {
				for _, from := range orAny(r.SourcePort) {
					for _, to := range orAny(r.Port) {
						all = append(all, flowerKey{class, etherType(f), uint8(protocol), source, destination, from, to})
					}
				}
			}
		}
	}
	return all
}

// bounded replaces prefixes of length 0 by the zero Prefix. Both are any address, and the
// kernel keeps no mask for it.
func bounded(all []netip.Prefix) []netip.Prefix {
	all = slices.Clone(all)
	for i := range all {
		if all[i].Bits() == 0 {
			all[i] = netip.Prefix{}
		}
	}
	return all
}

// flowerList returns the objects of a list of filters, at one preference after the other.
func flowerList(device string, root Handle, f family, all []flowerKey) (objects []Object) {
	for i, key := range all {
		pref := Pref{flowerPriority(slot{f, 0}) + uint16(i), etherType(f)}
		objects = append(objects, Object{Type: Filter, Device: device, Handle: 1, Parent: root, Kind: "flower", Pref: pref, Params: key})
	}
	return objects
}

func (k flowerKey) options() []byte {
	b := attr32(nil, nl.TCA_FLOWER_CLASSID, uint32(k.Class))
	b = attr(b, nl.TCA_FLOWER_KEY_ETH_TYPE, binary.BigEndian.AppendUint16(nil, k.EtherType)) // without it the kernel ignores addresses
	if k.Protocol != 0 {
		b = attr(b, nl.TCA_FLOWER_KEY_IP_PROTO, []byte{k.Protocol})
	}
	b = attrPrefix(b, sourceAttrs, k.Source)
	b = attrPrefix(b, destinationAttrs, k.Destination)
	b = attrPorts(b, k.Protocol, fromAttrs, k.From)
	return attrPorts(b, k.Protocol, toAttrs, k.To)
}

// prefixAttrs are the numbers of the attributes of an address, by family. The attribute of
// the mask has the next number.
type prefixAttrs [2]int

var (
	sourceAttrs      = prefixAttrs{nl.TCA_FLOWER_KEY_IPV4_SRC, nl.TCA_FLOWER_KEY_IPV6_SRC}
	destinationAttrs = prefixAttrs{nl.TCA_FLOWER_KEY_IPV4_DST, nl.TCA_FLOWER_KEY_IPV6_DST}
)

func attrPrefix(b []byte, at prefixAttrs, p netip.Prefix) []byte {
	if !p.IsValid() {
		return b
	}
	number, mask := at[ipv6], make([]byte, p.Addr().BitLen()/8)
	if p.Addr().Is4() {
		number = at[ipv4]
	}
	for i := range mask {
		mask[i] = ^byte(0xff >> min(max(p.Bits()-8*i, 0), 8))
	}
	return attr(attr(b, number, p.Addr().AsSlice()), number+1, mask)
}

// portAttrs are the numbers of the attributes of a port: of TCP, of UDP, and of a range.
type portAttrs struct{ tcp, udp, first, last int }

var (
	fromAttrs = portAttrs{nl.TCA_FLOWER_KEY_TCP_SRC, nl.TCA_FLOWER_KEY_UDP_SRC, nl.TCA_FLOWER_KEY_PORT_SRC_MIN, nl.TCA_FLOWER_KEY_PORT_SRC_MAX}
	toAttrs   = portAttrs{nl.TCA_FLOWER_KEY_TCP_DST, nl.TCA_FLOWER_KEY_UDP_DST, nl.TCA_FLOWER_KEY_PORT_DST_MIN, nl.TCA_FLOWER_KEY_PORT_DST_MAX}
)

func attrPorts(b []byte, protocol uint8, at portAttrs, r policy.PortRange) []byte {
	port := func(n uint16) []byte { return binary.BigEndian.AppendUint16(nil, n) }
	switch {
	case r == policy.PortRange{}:
		return b
	case r.First != r.Last:
		return attr(attr(b, at.first, port(r.First)), at.last, port(r.Last))
	case protocol == unix.IPPROTO_UDP:
		return attr(b, at.udp, port(r.First))
	}
	return attr(b, at.tcp, port(r.First))
}

func (k flowerKey) words() string {
	var w []string
	if k.Protocol != 0 {
		w = append(w, "ip_proto "+map[uint8]string{unix.IPPROTO_TCP: "tcp", unix.IPPROTO_UDP: "udp"}[k.Protocol])
	}
	for _, one := range []struct {
		word string
		p    netip.Prefix
	}{{"src_ip", k.Source}, {"dst_ip", k.Destination}} {
		if one.p.IsValid() {
			w = append(w, fmt.Sprintf("%s %v", one.word, one.p))
		}
	}
	for _, one := range []struct {
		word string
		r    policy.PortRange
	}{{"src_port", k.From}, {"dst_port", k.To}} {
		if one.r != (policy.PortRange{}) {
			w = append(w, fmt.Sprintf("%s %v", one.word, one.r))
		}
	}
	return strings.Join(append(w, "classid "+k.Class.String()), " ")
}

// known are the attributes that our filters may have. A filter with others is not ours.
var known = map[int]bool{
	nl.TCA_FLOWER_CLASSID: true, nl.TCA_FLOWER_KEY_ETH_TYPE: true, nl.TCA_FLOWER_KEY_IP_PROTO: true, nl.TCA_FLOWER_FLAGS: true, nl.TCA_FLOWER_IN_HW_COUNT: true,
	nl.TCA_FLOWER_KEY_IPV4_SRC: true, nl.TCA_FLOWER_KEY_IPV4_SRC_MASK: true, nl.TCA_FLOWER_KEY_IPV4_DST: true, nl.TCA_FLOWER_KEY_IPV4_DST_MASK: true,
	nl.TCA_FLOWER_KEY_IPV6_SRC: true, nl.TCA_FLOWER_KEY_IPV6_SRC_MASK: true, nl.TCA_FLOWER_KEY_IPV6_DST: true, nl.TCA_FLOWER_KEY_IPV6_DST_MASK: true,
	nl.TCA_FLOWER_KEY_TCP_SRC: true, nl.TCA_FLOWER_KEY_TCP_SRC_MASK: true, nl.TCA_FLOWER_KEY_TCP_DST: true, nl.TCA_FLOWER_KEY_TCP_DST_MASK: true,
	nl.TCA_FLOWER_KEY_UDP_SRC: true, nl.TCA_FLOWER_KEY_UDP_SRC_MASK: true, nl.TCA_FLOWER_KEY_UDP_DST: true, nl.TCA_FLOWER_KEY_UDP_DST_MASK: true,
	nl.TCA_FLOWER_KEY_PORT_SRC_MIN: true, nl.TCA_FLOWER_KEY_PORT_SRC_MAX: true, nl.TCA_FLOWER_KEY_PORT_DST_MIN: true, nl.TCA_FLOWER_KEY_PORT_DST_MAX: true,
}

// parseFlower reads the parameters of a flower filter from a dump.
func parseFlower(options []byte) Params {
	m := parseAttrs(options)
	for number := range m {
		if !known[number] {
			return opaque{string(options)}
		}
	}
	k := flowerKey{Class: Handle(m.u32(nl.TCA_FLOWER_CLASSID))}
	if b := m[nl.TCA_FLOWER_KEY_ETH_TYPE]; len(b) == 2 {
		k.EtherType = binary.BigEndian.Uint16(b)
	}
	if b := m[nl.TCA_FLOWER_KEY_IP_PROTO]; len(b) == 1 {
		k.Protocol = b[0]
	}
	k.Source, k.Destination = m.prefix(sourceAttrs), m.prefix(destinationAttrs)
	k.From, k.To = m.ports(fromAttrs), m.ports(toAttrs)
	return k
}

func (m attrs) prefix(at prefixAttrs) netip.Prefix {
	for _, number := range at {
		addr, ok := netip.AddrFromSlice(m[number])
		if !ok {
			continue
		}
		length := 0
		for _, b := range m[number+1] {
			length += bits.OnesCount8(b)
		}
		return netip.PrefixFrom(addr, length)
	}
	return netip.Prefix{}
}

func (m attrs) ports(at portAttrs) (r policy.PortRange) {
	read := func(number int) uint16 {
		if len(m[number]) < 2 {
			return 0
		}
		return binary.BigEndian.Uint16(m[number])
	}
	if r = (policy.PortRange{First: read(at.first), Last: read(at.last)}); r.Last != 0 {
		return r
	}
	port := max(read(at.tcp), read(at.udp))
	return policy.PortRange{First: port, Last: port}
}
