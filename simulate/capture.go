//go:build !js

package simulate

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"shaper/policy"
)

// ReadCapture returns a source that reads the packets of a capture: a classic pcap file
// (draft-ietf-opsawg-pcap) or a pcapng file (draft-ietf-opsawg-pcapng). Both may have either
// byte order, and packets of Ethernet, raw IP or Linux's cooked capture, with or without VLAN
// tags. The times of pcapng are decimal fractions of a second, as all known programs write
// them.
//
// What goes to the port of a listener, over its protocol, is an arrival: a UDP datagram with
// its payload; a TCP segment with its payload, even if it is retransmitted; a SYN as a new
// connection. What comes back from that port enters the return class. Everything else is
// skipped, and so are packets without payload and all fragments but the first. A packet of
// which the capture holds only a part counts with its full length.
//
// If a file is no capture, or is cut short, the error is policy.Errors.
func ReadCapture(p *policy.Policy, name string, in io.Reader) (Source, error) {
	c := &capture{policy: p, file: name, entries: map[entrance]policy.Listener{}}
	if err := c.open(bufio.NewReaderSize(in, 64<<10)); err != nil {
		return Source{}, err
	}
	for _, l := range p.Listeners {
		for _, port := range ports(l) {
			if same := listenersAt(p, l.Protocol.Network(), port); len(same) > 1 {
				return Source{}, c.wrong("one listener for a port and protocol", "port %d is that of the listeners %s", port, names(same))
			}
			c.entries[entrance{l.Protocol.Network(), port}] = l
		}
	}
	return Source{Next: c.next}, nil
}

// An entrance is what a packet shows of its listener.
type entrance struct {
	protocol policy.Protocol
	port     uint16
}

// A capture reads a file of packets.
type capture struct {
	policy  *policy.Policy
	file    string
	packets packets
	link    layers.LinkType // of all packets; in pcapng, each packet has its own
	records int             // packets that were begun
	last    time.Time
	entries map[entrance]policy.Listener
}

// packets reads the packets of a file of either format. The bytes are valid until the next
// call.
type packets interface {
	ZeroCopyReadPacketData() ([]byte, gopacket.CaptureInfo, error)
}

// A captured is a packet as the file has it.
type captured struct {
	at      time.Time
	from    func([]byte) []byte // finds the IP packet in data
	data    []byte
	missing int // bytes that were sent and are not in the file
}

// Bounds of what a file may say of a packet.
const (
	maxRecord  = 256 << 10 // bytes in the file; the most that libpcap writes
	maxSent    = 1 << 30
	lastSecond = 1 << 33 // in the year 2242, as in a trace
)

const (
	captureForm = "a pcap or pcapng file"
	wholeFile   = "a file that is whole"
)

func (c *capture) wrong(allowed, problem string, args ...any) error {
	key := "capture"
	if c.records > 0 {
		key = fmt.Sprintf("packet %d", c.records)
	}
	return policy.Errors{{File: c.file, Key: key, Problem: fmt.Sprintf(problem, args...), Allowed: allowed}}
}

// open reads what precedes the first packet.
func (c *capture) open(in *bufio.Reader) error {
	magic, err := in.Peek(4)
	if err != nil {
		return c.wrong(captureForm, "the file has no header: %v", err)
	}
	switch first := binary.BigEndian.Uint32(magic); first {
	case 0x0a0d0d0a:
		c.packets, err = pcapgo.NewNgReader(in, pcapgo.NgReaderOptions{WantMixedLinkType: true})
	case 0xa1b2c3d4, 0xd4c3b2a1, 0xa1b23c4d, 0x4d3cb2a1:
		var file *pcapgo.Reader
		if file, err = pcapgo.NewReader(in); err == nil {
			c.packets, c.link = file, file.LinkType()
			_, err = c.linkOf(gopacket.CaptureInfo{})
			return err
		}
	default:
		return c.wrong(captureForm, "it begins with %08x", first)
	}
	if err != nil {
		return c.wrong(captureForm, "the file has no header: %v", err)
	}
	return nil
}

// links are the supported link types. Each has the function that finds the IP packet.
var links = map[layers.LinkType]func([]byte) []byte{
	layers.LinkTypeEthernet: ethernet, 12: raw, 14: raw, layers.LinkTypeRaw: raw, layers.LinkTypeLinuxSLL: cooked,
	layers.LinkTypeIPv4: raw, layers.LinkTypeIPv6: raw, layers.LinkTypeLinuxSLL2: cooked2,
}

const linkForm = "Ethernet (1), raw IP (101) or Linux cooked (113, 276)"

// linkOf returns the function that finds the IP packet in a packet.
func (c *capture) linkOf(info gopacket.CaptureInfo) (func([]byte) []byte, error) {
	link := c.link
	if len(info.AncillaryData) > 0 {
		link, _ = info.AncillaryData[0].(layers.LinkType)
	}
	if find := links[link]; find != nil {
		return find, nil
	}
	return nil, c.wrong(linkForm, "its link type is %d", int(link))
}

// read reads the next packet.
func (c *capture) read() (f captured, err error) {
	c.records++
	data, info, err := c.packets.ZeroCopyReadPacketData()
	switch {
	case err == io.EOF && info.Length == 0:
		return f, err
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return f, c.wrong(wholeFile, "it is cut short")
	case err != nil:
		return f, c.wrong(wholeFile, "it cannot be read: %v", err)
	case len(data) > maxRecord || info.Length < len(data) || info.Length > maxSent:
		return f, c.wrong(fmt.Sprintf("at most %d bytes, and no more than were sent", maxRecord), "it has %d of %d bytes", len(data), info.Length)
	}
	if err := c.checkTime(info); err != nil {
		return f, err
	}
	find, err := c.linkOf(info)
	return captured{info.Timestamp, find, data, info.Length - len(data)}, err
}

// checkTime refuses a packet without a time, with a time that the library does not convert
// exactly, or with a time that no capture has.
func (c *capture) checkTime(info gopacket.CaptureInfo) error {
	if info.Timestamp.IsZero() {
		return c.wrong("enhanced packet blocks", "it has no time: it is a simple packet block")
	}
	if file, ok := c.packets.(*pcapgo.NgReader); ok {
		from, _ := file.Interface(info.InterfaceIndex)
		if ticks := from.TimestampResolution; ticks.Binary() || ticks.Exponent() > 19 {
			return c.wrong("decimal fractions, down to 10^-19 s", "if_tsresol of its interface is %02x", uint8(ticks))
		}
	}
	if at := info.Timestamp.Unix(); at < 0 || at >= lastSecond {
		return c.wrong("a time from 1970 to 2242", "its time is out of range")
	}
	return nil
}

// next sets the next arrival. Packets that several processors have seen may be slightly out of
// order: then they get the time of the one before.
func (c *capture) next(a *Arrival) error {
	for {
		f, err := c.read()
		if err != nil {
			return err
		}
		if f.at.Before(c.last) {
			f.at = c.last
		}
		c.last = f.at
		s, ok := dissect(f.from(f.data), f.missing)
		if ok && c.arrival(a, &s) {
			a.At = f.at
			return nil
		}
	}
}

// arrival sets the arrival of a segment; false if it stands for none.
func (c *capture) arrival(a *Arrival, s *segment) bool {
	empty := s.protocol == policy.TCP && s.payload == 0
	if l, ours := c.entries[entrance{s.protocol, s.to.Port()}]; ours {
		*a = Arrival{Conn: connTo(l, s.from, s.to.Port()), Bytes: int64(s.payload), Opens: s.opens, Bare: empty}
		return !empty || s.opens
	}
	l, ours := c.entries[entrance{s.protocol, s.from.Port()}]
	if ours && !empty {
		*a = Arrival{Conn: connTo(l, s.to, s.from.Port()), Bytes: int64(s.payload), Returns: true}
	}
	return ours && !empty
}
