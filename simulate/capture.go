package simulate

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net/netip"
	"time"

	"shaper/policy"
)

// ReadCapture returns what reads the packets of a capture, a classic pcap file
// (draft-ietf-opsawg-pcap) or a pcapng file (draft-ietf-opsawg-pcapng): of either
// byte order, with times of any resolution, of Ethernet, raw IP or Linux's cooked
// capture.
//
// What counts is what goes to the port of a listener over its protocol: a UDP
// datagram with its payload; a TCP segment with its payload, retransmitted or
// not; a SYN as a new connection. So does what comes back from there, as that of
// the return class. All else is passed over: what carries nothing, and fragments
// but the first. A packet that was cut short counts with all that was sent.
//
// A file that is none, or is cut short, gives policy.Errors.
func ReadCapture(p *policy.Policy, name string, in io.Reader) (Source, error) {
	c := &capture{policy: p, file: name, in: bufio.NewReaderSize(in, 64<<10), entries: map[entrance]policy.Listener{}}
	if err := c.begin(); err != nil {
		return Source{}, err
	}
	for _, l := range p.Listeners {
		for _, port := range ports(l) {
			if same := listenersAt(p, l.Protocol, port); len(same) > 1 {
				return Source{}, c.wrong("one listener for a port and protocol", "port %d is that of the listeners %s", port, names(same))
			}
			c.entries[entrance{l.Protocol, port}] = l
		}
	}
	return Source{Next: c.next}, nil
}

// An entrance is what a packet shows of the listener it goes to.
type entrance struct {
	protocol policy.Protocol
	port     uint16
}

// A capture is a file of packets that is being read.
type capture struct {
	policy  *policy.Policy
	file    string
	in      *bufio.Reader
	read    func() (frame, error)
	records int // that have been begun
	last    time.Time
	entries map[entrance]policy.Listener
	packet  []byte
}

// A frame is a packet as the file has it; its bytes are in capture.packet.
type frame struct {
	at   time.Time
	link uint32
	sent int // bytes, of which the file may have fewer
}

// maxRecord is the largest that libpcap writes.
const maxRecord = 256 << 10

const wholeFile = "a file that is whole"

func (c *capture) wrong(allowed, problem string, args ...any) error {
	key := "capture"
	if c.records > 0 {
		key = fmt.Sprintf("packet %d", c.records)
	}
	return policy.Errors{{File: c.file, Key: key, Problem: fmt.Sprintf(problem, args...), Allowed: allowed}}
}

// begin looks what kind of file it is.
func (c *capture) begin() (err error) {
	magic, err := c.in.Peek(4)
	if err != nil {
		return c.wrong(captureForm, "the file has no header: %v", err)
	}
	if binary.BigEndian.Uint32(magic) == sectionHeader {
		n := &pcapng{capture: c}
		c.read = n.record
		return n.section()
	}
	f := &pcap{capture: c}
	c.read = f.record
	return f.header()
}

const captureForm = "a pcap or pcapng file"

// links are the link types that are read, and what finds the IP packet in them.
var links = map[uint32]func([]byte) []byte{
	1: ethernet, 12: raw, 14: raw, 101: raw, 113: cooked, 228: raw, 229: raw, 276: cooked2,
}

const linkForm = "Ethernet (1), raw IP (101) or Linux cooked (113, 276)"

// next returns the next packet to a listener, or back from it. Packets that several
// processors have seen may stand a little out of order: they come with the time of
// the one before.
func (c *capture) next(a *Arrival) error {
	for {
		r, err := c.read()
		if err != nil {
			return err
		}
		if r.at.Before(c.last) {
			r.at = c.last
		}
		c.last = r.at
		s, ok := dissect(links[r.link](c.packet), r.sent-len(c.packet))
		if ok && c.arrival(a, &s) {
			a.At = r.at
			return nil
		}
	}
}

// arrival sets what a segment stands for; false where that is nothing.
func (c *capture) arrival(a *Arrival, s *segment) bool {
	empty := s.protocol == policy.TCP && s.payload == 0
	if l, ours := c.entries[entrance{s.protocol, s.to.Port()}]; ours {
		*a = Arrival{Conn: connTo(l, s.from, s.to.Port()), Bytes: int64(s.payload), Opens: s.opens}
		return !empty || s.opens
	}
	l, ours := c.entries[entrance{s.protocol, s.from.Port()}]
	if ours && !empty {
		*a = Arrival{Conn: connTo(l, s.to, s.from.Port()), Bytes: int64(s.payload), Returns: true}
	}
	return ours && !empty
}

// load reads the stored bytes of a packet.
func (c *capture) load(stored, sent uint32) error {
	if stored > maxRecord || sent < stored || sent > 1<<30 {
		return c.wrong(fmt.Sprintf("at most %d bytes, and no more than were sent", maxRecord), "it has %d of %d bytes", stored, sent)
	}
	if cap(c.packet) < int(stored) {
		c.packet = make([]byte, stored)
	}
	c.packet = c.packet[:stored]
	return c.full(c.packet)
}

// full reads exactly so much.
func (c *capture) full(b []byte) error {
	if _, err := io.ReadFull(c.in, b); err != nil {
		return c.wrong(wholeFile, "it is cut short")
	}
	return nil
}

// A segment is what is looked at of a packet.
type segment struct {
	protocol policy.Protocol
	from, to netip.AddrPort
	payload  int
	opens    bool // it is a SYN
}

const (
	etherIPv4 = 0x0800
	etherIPv6 = 0x86dd
)

func raw(b []byte) []byte { return b }

// ethernet returns what is in a frame, behind its VLAN tags; nil if that is not IP.
func ethernet(b []byte) []byte {
	for at := 12; len(b) >= at+2; at += 4 {
		switch binary.BigEndian.Uint16(b[at:]) {
		case etherIPv4, etherIPv6:
			return b[at+2:]
		case 0x8100, 0x88a8: // 802.1Q, 802.1ad
		default:
			return nil
		}
	}
	return nil
}

// cooked and cooked2 are what Linux captures on all interfaces.
func cooked(b []byte) []byte { return behind(b, 14, 16) }

func cooked2(b []byte) []byte { return behind(b, 0, 20) }

func behind(b []byte, kind, header int) []byte {
	if len(b) < header {
		return nil
	}
	if k := binary.BigEndian.Uint16(b[kind:]); k != etherIPv4 && k != etherIPv6 {
		return nil
	}
	return b[header:]
}

// dissect reads an IP packet of which the last bytes may be missing; false for
// what has no ports.
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
	if total == 0 { // the card was to cut it: it is as long as the capture says
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
	left := int(binary.BigEndian.Uint16(b[4:]))
	if left == 0 {
		left = len(rest) + missing
	}
	for {
		length := 8
		switch {
		case protocol != 0 && protocol != 43 && protocol != 44 && protocol != 60:
			return transport(protocol, from, to, rest, left)
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
		protocol, rest, left = rest[0], rest[length:], left-length
	}
}

// transport reads what begins with a header of TCP or UDP and was so long.
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
