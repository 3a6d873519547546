package nft

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"shaper/policy"
)

// statement is a part of a rule, as nft(8) has it and for the kernel.
type statement struct {
	words string
	exprs []expr.Any
}

// marksOfOurs are the bits that all marks of shaper share: those of classes, and policy.OwnMark.
const (
	marksOfOurs = policy.OwnMark & ourMask
	ourMask     = 0xfffc0000
)

var (
	accepts = statement{"accept", []expr.Any{&expr.Verdict{Kind: expr.VerdictAccept}}}
	returns = statement{"return", []expr.Any{&expr.Verdict{Kind: expr.VerdictReturn}}}

	// isOurs is for packets that shaper sends.
	isOurs = statement{fmt.Sprintf("meta mark & %#x == %#x", ourMask, marksOfOurs), []expr.Any{
		&expr.Meta{Key: expr.MetaKeyMARK, Register: 1},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: native(ourMask), Xor: native(0)},
		equals(native(marksOfOurs)),
	}}
	// isLocal is for packets to this machine.
	isLocal = statement{"fib daddr type local", []expr.Any{
		&expr.Fib{Register: 1, FlagDADDR: true, ResultADDRTYPE: true}, equals(native(unix.RTN_LOCAL)),
	}}
	// isBroadcast is for packets to all machines of a network, also to this one.
	isBroadcast = statement{"fib daddr type broadcast", []expr.Any{
		&expr.Fib{Register: 1, FlagDADDR: true, ResultADDRTYPE: true}, equals(native(unix.RTN_BROADCAST)),
	}}
	// begins is for packets that begin a connection. All later ones have a socket. So connections
	// that were there before go on as they are.
	begins = statement{"tcp flags & (fin | syn | rst | ack) == syn", []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1}, equals([]byte{unix.IPPROTO_TCP}),
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 13, Len: 1},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 1, Mask: []byte{0x17}, Xor: []byte{0}}, equals([]byte{0x02}),
	}}
	// isDatagram is for packets of UDP. Each is led to the listener by itself.
	isDatagram = statement{"meta l4proto udp", []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1}, equals([]byte{unix.IPPROTO_UDP}),
	}}
	// isWildcard is for packets whose socket is bound to all addresses. A connection that is not
	// accepted yet has no such socket.
	isWildcard = statement{"socket wildcard 1", []expr.Any{
		&expr.Socket{Key: expr.SocketKeyWildcard, Register: 1}, equals([]byte{1}),
	}}
	// isTransparent is for packets whose socket may have addresses of other machines.
	isTransparent = statement{"socket transparent 1", []expr.Any{
		&expr.Socket{Key: expr.SocketKeyTransparent, Register: 1}, equals([]byte{1}),
	}}
	// marked makes the kernel route a packet to this machine.
	marked = statement{fmt.Sprintf("meta mark set %#x", policy.InterceptedMark), []expr.Any{
		&expr.Immediate{Register: 1, Data: native(policy.InterceptedMark)},
		&expr.Meta{Key: expr.MetaKeyMARK, SourceRegister: true, Register: 1},
	}}
)

func jumpTo(chain string) statement {
	return statement{"jump " + chain, []expr.Any{&expr.Verdict{Kind: expr.VerdictJump, Chain: chain}}}
}

// intercept hands a packet that would be forwarded to the socket that listens at an address.
func intercept(at netip.AddrPort) []statement {
	ip, family := "ip", byte(unix.NFPROTO_IPV4)
	if at.Addr().Is6() {
		ip, family = "ip6", unix.NFPROTO_IPV6
	}
	proxy := &expr.TProxy{Family: family, TableFamily: unix.NFPROTO_INET, RegPort: 1}
	exprs := []expr.Any{&expr.Immediate{Register: 1, Data: port(at)}}
	to := fmt.Sprintf(":%d", at.Port())
	if !at.Addr().IsUnspecified() {
		proxy.RegAddr, to = 2, at.String()
		exprs = append(exprs, &expr.Immediate{Register: 2, Data: at.Addr().AsSlice()})
	}
	return []statement{{fmt.Sprintf("tproxy %s to %s", ip, to), append(exprs, proxy)}, marked, accepts}
}

// redirect leads a connection of a program of this machine to a port of loopback.
func redirect(at netip.AddrPort) []statement {
	return []statement{{fmt.Sprintf("redirect to :%d", at.Port()), []expr.Any{
		&expr.Immediate{Register: 1, Data: port(at)}, &expr.Redir{RegisterProtoMin: 1},
	}}}
}

func port(at netip.AddrPort) []byte { return binary.BigEndian.AppendUint16(nil, at.Port()) }

func native(n uint32) []byte { return binary.NativeEndian.AppendUint32(nil, n) }

// equals compares register 1.
func equals(data []byte) expr.Any { return &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: data} }
