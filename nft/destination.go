package nft

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"shaper/policy"
)

// destination is which packets of a protocol a rule is for. The zero destination is all packets.
type destination struct {
	protocol policy.Protocol // TCP or UDP
	prefix   netip.Prefix
	special  bool             // those in the set of special addresses of the family of prefix, whatever the prefix
	ports    policy.PortRange // the zero PortRange is all
}

func (d destination) is6() bool { return d.prefix.Addr().Is6() }

func (d destination) family() int {
	if d.is6() {
		return unix.AF_INET6
	}
	return unix.AF_INET
}

// words returns the destination as nft(8) has it.
func (d destination) words() string {
	if !d.prefix.IsValid() {
		return ""
	}
	ip := "ip"
	if d.is6() {
		ip = "ip6"
	}
	switch {
	case d.special:
		return fmt.Sprintf("%s daddr @%s", ip, specialName(d.is6()))
	case d.prefix.Bits() == 0 && d.is6():
		ip = "meta nfproto ipv6"
	case d.prefix.Bits() == 0:
		ip = "meta nfproto ipv4"
	case d.prefix.IsSingleIP():
		ip += " daddr " + d.prefix.Addr().String()
	default:
		ip += " daddr " + d.prefix.String()
	}
	if d.ports == (policy.PortRange{}) {
		return ip + " meta l4proto " + string(d.protocol)
	}
	return ip + " " + string(d.protocol) + " dport " + d.ports.String()
}

// exprs returns the destination for the kernel. sets are those of the table, by name.
func (d destination) exprs(sets map[string]*nftables.Set) (all []expr.Any) {
	if !d.prefix.IsValid() {
		return nil
	}
	nfproto, offset := byte(unix.NFPROTO_IPV4), uint32(16)
	if d.is6() {
		nfproto, offset = unix.NFPROTO_IPV6, 24
	}
	all = append(all, &expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1}, equals([]byte{nfproto}))
	size := uint32(d.prefix.Addr().BitLen() / 8)
	load := &expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: size}
	switch {
	case d.special:
		s := sets[specialName(d.is6())]
		return append(all, load, &expr.Lookup{SourceRegister: 1, SetName: s.Name, SetID: s.ID})
	case d.prefix.Bits() == 0:
	case d.prefix.IsSingleIP():
		all = append(all, load, equals(d.prefix.Addr().AsSlice()))
	default:
		all = append(all, load, &expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: size, Mask: maskOf(d.prefix), Xor: make([]byte, size)}, equals(d.prefix.Addr().AsSlice()))
	}
	protocol := byte(unix.IPPROTO_TCP)
	if d.protocol == policy.UDP {
		protocol = unix.IPPROTO_UDP
	}
	all = append(all, &expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1}, equals([]byte{protocol}))
	if d.ports == (policy.PortRange{}) {
		return all
	}
	all = append(all, &expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2})
	first, last := binary.BigEndian.AppendUint16(nil, d.ports.First), binary.BigEndian.AppendUint16(nil, d.ports.Last)
	if d.ports.First == d.ports.Last {
		return append(all, equals(first))
	}
	return append(all, &expr.Cmp{Op: expr.CmpOpGte, Register: 1, Data: first}, &expr.Cmp{Op: expr.CmpOpLte, Register: 1, Data: last})
}
