package simulate

import (
	"encoding/binary"
	"io"
	"math/bits"
	"time"
)

// pcapng reads a pcapng file (draft-ietf-opsawg-pcapng), as dumpcap and tshark
// write them: sections of blocks, which describe the interfaces and have their
// packets.
type pcapng struct {
	*capture
	order      binary.ByteOrder // of the section
	interfaces []iface          // of the section
	head       [20]byte
}

// An iface is an interface, as far as its packets need it.
type iface struct {
	link   uint32
	ticks  uint64 // of its times, in a second
	offset int64  // seconds that are added to them
}

// Types of blocks. Others are passed over.
const (
	sectionHeader        = 0x0a0d0d0a // in either byte order
	interfaceDescription = 1
	oldPacket            = 2
	simplePacket         = 3
	enhancedPacket       = 6
)

// Bounds of what is held.
const (
	maxInterfaces  = 1 << 12
	maxDescription = 64 << 10 // bytes of the description of one
)

// lastSecond bounds times, as in other traces: to the year 2242.
const lastSecond = 1 << 33

// record reads up to the next packet, and it.
func (n *pcapng) record() (r frame, err error) {
	n.records++
	for {
		head := n.head[:8]
		if _, err := io.ReadFull(n.in, head); err == io.EOF {
			return r, err
		} else if err != nil {
			return r, n.wrong(wholeFile, "it is cut short")
		}
		if binary.BigEndian.Uint32(head) == sectionHeader {
			err = n.sectionBody()
		} else {
			var found bool
			if found, err = n.block(&r, n.order.Uint32(head), n.order.Uint32(head[4:])); found {
				return r, err
			}
		}
		if err != nil {
			return r, err
		}
	}
}

// section reads the header of a section.
func (n *pcapng) section() error {
	if err := n.full(n.head[:8]); err != nil {
		return err
	}
	return n.sectionBody()
}

// sectionBody reads what follows the first 8 bytes of it.
func (n *pcapng) sectionBody() error {
	length, magic := [4]byte(n.head[4:]), n.head[8:12]
	if err := n.full(n.head[8:16]); err != nil {
		return err
	}
	switch found := binary.BigEndian.Uint32(magic); found {
	case 0x1a2b3c4d:
		n.order = binary.BigEndian
	case 0x4d3c2b1a:
		n.order = binary.LittleEndian
	default:
		return n.wrong("1a2b3c4d, in either order", "the byte order of a section is %08x", found)
	}
	if major := n.order.Uint16(n.head[12:]); major != 1 {
		return n.wrong("pcapng 1", "a section is of version %d", major)
	}
	n.interfaces = n.interfaces[:0]
	return n.rest(n.order.Uint32(length[:]), 16)
}

// block reads a block behind its first 8 bytes, and reports whether it was a packet.
func (n *pcapng) block(r *frame, kind, length uint32) (packet bool, err error) {
	switch kind {
	case interfaceDescription:
		return false, n.describe(length)
	case enhancedPacket, oldPacket:
		return true, n.packetBlock(r, kind, length)
	case simplePacket:
		return true, n.wrong("enhanced packet blocks", "it has no time: it is a simple packet block")
	}
	return false, n.rest(length, 8)
}

// rest passes over what is left of a block of which so much has been read, and holds
// that it ends as it began.
func (n *pcapng) rest(length uint32, read int) error {
	left := int64(length) - int64(read) - 4
	if left < 0 || length%4 > 0 {
		return n.wrong("a multiple of 4 that holds it", "a block has a length of %d", length)
	}
	if _, err := n.in.Discard(int(left)); err != nil {
		return n.wrong(wholeFile, "it is cut short")
	}
	end := n.head[:4]
	if err := n.full(end); err != nil {
		return err
	}
	if again := n.order.Uint32(end); again != length {
		return n.wrong(wholeFile, "a block of %d bytes ends as one of %d", length, again)
	}
	return nil
}

// describe reads a description of an interface.
func (n *pcapng) describe(length uint32) error {
	if length < 20 || length > maxDescription || len(n.interfaces) == maxInterfaces {
		return n.wrong(wholeFile, "the description of interface %d has %d bytes", len(n.interfaces), length)
	}
	body := make([]byte, length-12)
	if err := n.full(body); err != nil {
		return err
	}
	one := iface{link: uint32(n.order.Uint16(body)), ticks: 1e6}
	if err := n.options(&one, body[8:]); err != nil {
		return err
	}
	n.interfaces = append(n.interfaces, one)
	return n.rest(length, int(length)-4)
}

// options reads the options of an interface that say how it counts time.
func (n *pcapng) options(one *iface, b []byte) error {
	const end, resolution, offset = 0, 9, 14
	for len(b) >= 4 {
		code, length := n.order.Uint16(b), int(n.order.Uint16(b[2:]))
		padded := (length + 3) &^ 3
		if b = b[4:]; code == end {
			return nil
		}
		if padded > len(b) {
			return n.wrong(wholeFile, "an option of an interface has %d bytes of %d", length, len(b))
		}
		switch {
		case code == resolution && length == 1:
			if one.ticks = ticksOf(b[0]); one.ticks == 0 {
				return n.wrong("2^-63 or 10^-19 at most", "if_tsresol is %02x", b[0])
			}
		case code == offset && length == 8:
			one.offset = int64(n.order.Uint64(b))
		}
		b = b[padded:]
	}
	return nil
}

// ticksOf returns how many ticks a second has, by if_tsresol; 0 where that is more
// than a time has.
func ticksOf(resolution byte) (ticks uint64) {
	exponent := resolution & 0x7f
	if resolution != exponent {
		return 1 << exponent // 0 where that is 64 and more
	}
	if exponent > 19 {
		return 0
	}
	for ticks = 1; exponent > 0; exponent-- {
		ticks *= 10
	}
	return ticks
}

// packetBlock reads a packet. The old block has a count of lost packets where the
// other has the rest of the interface's number.
func (n *pcapng) packetBlock(r *frame, kind, length uint32) error {
	if err := n.full(n.head[:]); err != nil {
		return err
	}
	number := n.order.Uint32(n.head[:])
	if kind == oldPacket {
		number = uint32(n.order.Uint16(n.head[:]))
	}
	if number >= uint32(len(n.interfaces)) {
		return n.wrong(wholeFile, "it is of interface %d of %d", number, len(n.interfaces))
	}
	from := &n.interfaces[number]
	if r.link = from.link; links[r.link] == nil {
		return n.wrong(linkForm, "the link type of its interface is %d", r.link)
	}
	var ok bool
	if r.at, ok = from.time(uint64(n.order.Uint32(n.head[4:]))<<32 | uint64(n.order.Uint32(n.head[8:]))); !ok {
		return n.wrong("from 1970 on, to 2242", "it has no such time")
	}
	stored, sent := n.order.Uint32(n.head[12:]), n.order.Uint32(n.head[16:])
	if err := n.load(stored, sent); err != nil {
		return err
	}
	r.sent = int(sent)
	return n.rest(length, 28+int(stored))
}

// time returns when so many ticks are; false for a time that no capture has.
func (f *iface) time(ticks uint64) (time.Time, bool) {
	seconds, rest := ticks/f.ticks, ticks%f.ticks
	high, low := bits.Mul64(rest, 1e9)
	ns, _ := bits.Div64(high, low, f.ticks)
	if seconds > lastSecond || f.offset > lastSecond || f.offset < -lastSecond {
		return time.Time{}, false
	}
	at := int64(seconds) + f.offset
	return time.Unix(at, int64(ns)).UTC(), 0 <= at && at < lastSecond
}
