package simulate

import (
	"encoding/binary"
	"io"
	"time"
)

// pcap reads a classic pcap file (draft-ietf-opsawg-pcap).
type pcap struct {
	*capture
	order binary.ByteOrder
	tick  time.Duration // of the second number of a time
	link  uint32
	head  [24]byte
}

func (f *pcap) header() error {
	if _, err := io.ReadFull(f.in, f.head[:]); err != nil {
		return f.wrong(captureForm, "the file has no header: %v", err)
	}
	f.order, f.tick = binary.LittleEndian, time.Microsecond
	switch magic := binary.BigEndian.Uint32(f.head[:]); magic {
	case 0xd4c3b2a1:
	case 0x4d3cb2a1:
		f.tick = 1
	case 0xa1b2c3d4:
		f.order = binary.BigEndian
	case 0xa1b23c4d:
		f.order, f.tick = binary.BigEndian, 1
	default:
		return f.wrong(captureForm, "it begins with %08x", magic)
	}
	f.link = f.order.Uint32(f.head[20:]) & 0xffff // above that is the length of a checksum
	if links[f.link] == nil {
		return f.wrong(linkForm, "its link type is %d", f.link)
	}
	return nil
}

// record reads a packet.
func (f *pcap) record() (r frame, err error) {
	f.records++
	head := f.head[:16]
	if _, err := io.ReadFull(f.in, head); err == io.EOF {
		return r, err
	} else if err != nil {
		return r, f.wrong(wholeFile, "it is cut short")
	}
	seconds, ticks := f.order.Uint32(head), f.order.Uint32(head[4:])
	stored, sent := f.order.Uint32(head[8:]), f.order.Uint32(head[12:])
	if time.Duration(ticks) >= time.Second/f.tick {
		return r, f.wrong("less than a second", "it has %d ticks after a second", ticks)
	}
	r.at = time.Unix(int64(seconds), int64(ticks)*int64(f.tick)).UTC()
	r.link, r.sent = f.link, int(sent)
	return r, f.load(stored, sent)
}
