//go:build !js

package simulate

import (
	"encoding/binary"
	"net/netip"

	"shaper/policy"
)

// A segment is what a packet says that matters here.
type segment struct {
	protocol policy.Protocol
	from, to netip.AddrPort
	payload  int
	opens    bool // the packet is a SYN
}

const (
	etherIPv4 = 0x0800
	etherIPv6 = 0x86dd
)

func raw(b []byte) []byte { return b }

func ethernet(b []byte) []byte { return afterHeader(b, 12, 14) }

// cooked and cooked2 find the IP packet in captures of all interfaces of Linux.
func cooked(b []byte) []byte { return afterHeader(b, 14, 16) }

func cooked2(b []byte) []byte { return afterHeader(b, 0, 20) }

// afterHeader returns what follows a link header and its VLAN tags; nil if that is not IP.
// kind is where the header has the type of what follows. A tag ends with such a type, too.
func afterHeader(b []byte, kind, header int) []byte {
	for len(b) >= header {
		switch binary.BigEndian.Uint16(b[kind:]) {
		case etherIPv4, etherIPv6:
			return b[header:]
		case 0x8100, 0x88a8, 0x9100: // 802.1Q, 802.1ad, and an older number
			kind, header = header+2, header+4
		default:
			return nil
		}
	}
	return nil
}

// dissect reads an IP packet. missing bytes of its end are not in b. The result is false if
// the packet has no ports.
func dissect(b []byte, missing int) (s segment, ok bool) {
	if len(b) < 1 {
		return s, false
	}
	switch b[0] >> 4 {
	case 4:
		return dissect4(b, missing)
	case 6:
		return dissect6(b, missing)
	}
	return s, false
}

func dissect4(b []byte, missing int) (s segment, ok bool) {
	if len(b) < 20 {
		return s, false
	}
	header, total := int(b[0]&15)*4, int(binary.BigEndian.Uint16(b[2:]))
	if total == 0 { // the network card was to split it; the capture tells its length
		total = len(b) + missing
	}
	if header < 20 || len(b) < header || binary.BigEndian.Uint16(b[6:])&0x1fff > 0 {
		return s, false
	}
	from, to := netip.AddrFrom4([4]byte(b[12:16])), netip.AddrFrom4([4]byte(b[16:20]))
	return transport(b[9], from, to, b[header:], total-header)
}

func dissect6(b []byte, missing int) (s segment, ok bool) {
	if len(b) < 40 {
		return s, false
	}
	from, to := netip.AddrFrom16([16]byte(b[8:24])), netip.AddrFrom16([16]byte(b[24:40]))
	protocol, rest := b[6], b[40:]
	remaining := int(binary.BigEndian.Uint16(b[4:]))
	if remaining == 0 {
		remaining = len(rest) + missing
	}
	for {
		length := 8
		switch {
		case protocol != 0 && protocol != 43 && protocol != 44 && protocol != 60:
			return transport(protocol, from, to, rest, remaining)
		case len(rest) < 8:
			return s, false
		case protocol == 44 && binary.BigEndian.Uint16(rest[2:])&^7 > 0: // a later fragment
			return s, false
		case protocol != 44:
			length += int(rest[1]) * 8
		}
		if len(rest) < length {
			return s, false
		}
		protocol, rest, remaining = rest[0], rest[length:], remaining-length
	}
}

// transport reads a TCP or UDP header and what follows it. length is the length of both as
// sent.
func transport(protocol byte, from, to netip.Addr, b []byte, length int) (s segment, ok bool) {
	header := 8
	switch {
	case protocol == 17 && len(b) >= 8:
		s.protocol = policy.UDP
	case protocol == 6 && len(b) >= 14:
		s.protocol = policy.TCP
		header = int(b[12]>>4) * 4
		s.opens = b[13]&0x12 == 0x02 // SYN without ACK
	default:
		return s, false
	}
	s.from = netip.AddrPortFrom(from, binary.BigEndian.Uint16(b))
	s.to = netip.AddrPortFrom(to, binary.BigEndian.Uint16(b[2:]))
	s.payload = length - header
	return s, s.payload >= 0 && (s.protocol == policy.UDP || header >= 20)
}
