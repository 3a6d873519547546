package simulate

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"shaper/policy"
)

// Types of blocks (draft-ietf-opsawg-pcapng).
const (
	sectionHeader        = 0x0a0d0d0a // the same in either byte order
	interfaceDescription = 1
	oldPacket            = 2
	simplePacket         = 3
	enhancedPacket       = 6
)

// A section is a section of a pcapng file that a test writes.
type section struct {
	binary.AppendByteOrder
	bytes []byte
}

func newSection(order binary.AppendByteOrder) *section {
	s := &section{AppendByteOrder: order}
	body := order.AppendUint32(nil, 0x1a2b3c4d)
	body = order.AppendUint16(body, 1)
	s.block(sectionHeader, append(body, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255))
	return s
}

func (s *section) block(kind uint32, body []byte) {
	body = append(body, make([]byte, -len(body)&3)...)
	s.bytes = s.AppendUint32(s.bytes, kind)
	s.bytes = s.AppendUint32(s.bytes, uint32(len(body)+12))
	s.bytes = append(s.bytes, body...)
	s.bytes = s.AppendUint32(s.bytes, uint32(len(body)+12))
}

func (s *section) option(body []byte, code uint16, value []byte) []byte {
	body = s.AppendUint16(body, code)
	body = s.AppendUint16(body, uint16(len(value)))
	return append(append(body, value...), make([]byte, -len(value)&3)...)
}

// describe adds an interface. With a resolution of 0, it has no options.
func (s *section) describe(link uint16, resolution byte, offset int64) {
	body := s.AppendUint16(nil, link)
	body = append(body, make([]byte, 6)...)
	if resolution != 0 {
		body = s.option(body, 2, []byte("lo"))
		body = s.option(body, 9, []byte{resolution})
		body = s.option(body, 14, s.AppendUint64(nil, uint64(offset)))
		body = s.option(body, 0, nil)
	}
	s.block(interfaceDescription, body)
}

// packet adds a packet of an interface, with its time in ticks.
func (s *section) packet(kind uint32, number int, ticks uint64, link uint32, p packet) {
	body := s.AppendUint32(nil, uint32(number))
	if kind == oldPacket {
		body = s.AppendUint16(s.AppendUint16(nil, uint16(number)), 7)
	}
	b := p.on(link)
	body = s.AppendUint32(body, uint32(ticks>>32))
	body = s.AppendUint32(body, uint32(ticks))
	body = s.AppendUint32(body, uint32(len(b)-p.cut))
	body = s.AppendUint32(body, uint32(len(b)))
	body = append(body, b[:len(b)-p.cut]...)
	if number == 0 {
		body = append(body, make([]byte, -len(body)&3)...)
		body = s.option(body, 2, []byte{1, 0, 0, 0}) // epb_flags
		body = s.option(body, 0, nil)
	}
	s.block(kind, body)
}

// many returns a file with the sample on three interfaces in turn, which have different links
// and resolutions, among blocks that have no meaning here.
func many(order binary.AppendByteOrder) []byte {
	s := newSection(order)
	s.describe(1, 0, 0)       // microseconds
	s.describe(276, 9, -1000) // nanoseconds
	s.describe(101, 12, 1)
	s.block(5, make([]byte, 12)) // statistics
	for i, p := range sample {
		if i == 4 { // a section in the other byte order
			other := binary.AppendByteOrder(binary.BigEndian)
			if order == other {
				other = binary.LittleEndian
			}
			next := newSection(other)
			next.describe(1, 6, 0)
			next.describe(276, 9, -1000)
			next.describe(101, 12, 1)
			s = &section{other, append(s.bytes, next.bytes...)}
		}
		switch i % 3 {
		case 0:
			s.packet(enhancedPacket, 0, uint64(p.at/time.Microsecond), 1, p)
		case 1:
			s.packet(enhancedPacket, 1, uint64(p.at+1000*time.Second), 276, p)
		case 2:
			s.packet(oldPacket, 2, uint64(p.at-time.Second)*1000, 101, p) // picoseconds
		}
		s.block(0xbad, []byte("of somebody's own"))
	}
	return s.bytes
}

func TestPcapng(t *testing.T) {
	p := parse(t, traced)
	for _, order := range []binary.AppendByteOrder{binary.LittleEndian, binary.BigEndian} {
		found, err := arrivals(t, p, "a.pcapng", string(many(order)))
		if got := shown(found, Epoch); err != nil || !slices.Equal(got, sampled) {
			t.Errorf("%v: %v\n%s", order, err, strings.Join(got, "\n"))
		}
		checkArrivals(t, p, found)
	}
}

// dumpcap 4.0.17 of Debian 12 wrote this file with its defaults, from two interfaces.
func TestPcapngOfDumpcap(t *testing.T) {
	data, err := os.ReadFile("testdata/dumpcap.pcapng")
	if err != nil {
		t.Fatal(err)
	}
	found, err := arrivals(t, parse(t, traced), "dumpcap.pcapng", string(data))
	if err != nil {
		t.Fatal(err)
	}
	year := time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)
	first := found[0].At
	for i := range found {
		if found[i].At.Before(year) || found[i].At.Sub(first) > time.Second {
			t.Errorf("packet %d has the time %v", i, found[i].At)
		}
		found[i].At = year
	}
	want := []string{
		"0s dns 127.0.0.1:4000 53 40", "0s dns 127.0.0.1:4000 53 100 back",
		"0s dns 127.0.0.1:4000 53 60", "0s dns 127.0.0.1:4000 53 100 back",
		"0s web 127.0.0.1:4001 80 0 opens", "0s web 127.0.0.1:4001 80 100", "0s web 127.0.0.1:4001 80 300 back",
		"0s dns 10.9.0.1:4002 53 70",
	}
	if got := shown(found, year); !slices.Equal(got, want) {
		t.Errorf("%s", strings.Join(got, "\n"))
	}
}

func TestTimesOfPcapng(t *testing.T) {
	p := parse(t, traced)
	const none = "its time is out of range"
	for _, tt := range []struct {
		resolution byte
		ticks      uint64
		offset     int64
		want       string // the text, or the problem
	}{
		{6, 1_500_000, 0, "1970-01-01T00:00:01.5Z"},
		{3, 7, 0, "1970-01-01T00:00:00.007Z"},
		{9, 1<<64 - 1, 0, none},
		{9, 1_700_000_000_123_456_789, 0, "2023-11-14T22:13:20.123456789Z"},
		{19, 1<<64 - 1, 0, "1970-01-01T00:00:01.844674407Z"},
		{12, 1<<64 - 1, 1 << 32, "2106-09-08T18:34:00.073709551Z"},
		{6, 0, -1, none},
		{6, 1_000_000, -1, "1970-01-01T00:00:00Z"},
		{1, 10<<33 - 1, 0, "2242-03-16T12:56:31.9Z"},
		{1, 10 << 33, 0, none},
		{1, 1<<64 - 1, 0, none},
		{6, 0, -1 << 63, none},
		{6, 0, 1<<63 - 1, none},
		{0x80 | 20, 0, 0, "if_tsresol of its interface is 94"},
		{20, 0, 0, "if_tsresol of its interface is 14"},
		{127, 0, 0, "it cannot be read: "},
		{0xff, 0, 0, "it cannot be read: "},
	} {
		s := newSection(binary.LittleEndian)
		s.describe(1, tt.resolution, tt.offset)
		s.packet(enhancedPacket, 0, tt.ticks, 1, sample[0])
		found, err := arrivals(t, p, "a.pcapng", string(s.bytes))
		got := fmt.Sprint(err)
		if err == nil {
			got = found[0].At.Format(time.RFC3339Nano)
		}
		if !strings.Contains(got, tt.want) {
			t.Errorf("%d ticks of %02x, %d s later: %q, want %q", tt.ticks, tt.resolution, tt.offset, got, tt.want)
		}
	}
}

func TestPcapngErrors(t *testing.T) {
	p := parse(t, traced)
	little := binary.LittleEndian
	with := func(change func(s *section)) []byte {
		s := newSection(little)
		change(s)
		return s.bytes
	}
	at := func(data []byte, i int, value uint32) []byte {
		data = bytes.Clone(data)
		little.PutUint32(data[i:], value)
		return data
	}
	one := with(func(s *section) {
		s.describe(1, 0, 0)
		s.packet(enhancedPacket, 0, 0, 1, sample[0])
	})
	const packetAt = 28 + 20
	for i, tt := range []struct {
		want string
		data []byte
	}{
		{"capture: the file has no header: ", at(one, 8, 0)},
		{"capture: the file has no header: ", at(one, 12, 2)},
		{"capture: the file has no header: ", one[:24]},
		{"packet 1: it is cut short; ", one[:30]},
		{"packet 1: it is cut short; ", at(one, 32, 1<<32-1)},
		{"packet 1: it is cut short; ", at(one, packetAt+4, 1<<32-1)},
		{"packet 1: it cannot be read: ", at(one, packetAt+8, 1)}, // of interface 1
		{"packet 1: its time is out of range; ", at(one, packetAt+12, 1<<32-1)},
		{"packet 1: it is cut short; ", at(one, packetAt+20, 1<<32-1)},
		{"packet 1: it has 86 of 85 bytes; ", at(one, packetAt+24, 85)},
		{"packet 1: it is cut short; ", one[:len(one)-1]},
		{"packet 1: its link type is 147; ", at(one, 36, 147)},
		{"packet 1: it is cut short; ", with(func(s *section) {
			s.block(interfaceDescription, []byte{1, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0x0f, 0x27})
		})},
		{"packet 1: it has no time: it is a simple packet block; ", with(func(s *section) {
			s.describe(1, 0, 0)
			s.block(simplePacket, make([]byte, 8))
		})},
		{"packet 2: it cannot be read: ", append(bytes.Clone(one), with(func(s *section) { // each section has its own interfaces
			s.packet(enhancedPacket, 0, 0, 1, sample[0])
		})...)},
	} {
		if _, err := arrivals(t, p, "a.pcapng", string(tt.data)); err == nil || !strings.HasPrefix(err.Error(), "a.pcapng: "+tt.want) {
			t.Errorf("%d: %v, want %s", i, err, tt.want)
		}
	}
}

// What comes back enters the return class, of the rule or else of the listener. If there is
// none, it is ignored.
func TestCaptureComesBack(t *testing.T) {
	p := parse(t, strings.Replace(traced, `class = "a"`, `class = "a"`+"\nreturn_class = \"b\"", 1))
	var all []packet
	for range 3 {
		all = append(all, packet{from: "10.9.9.9:53", to: "10.0.0.1:4000", protocol: policy.UDP, payload: 500})
		all = append(all, packet{from: "10.9.9.9:80", to: "10.0.0.1:4000", protocol: policy.TCP, flags: 0x10, payload: 9000})
		all = append(all, packet{from: "10.0.0.1:4000", to: "10.9.9.9:53", protocol: policy.UDP, payload: 20})
	}
	source, err := ReadTrace(p, "a.pcap", bytes.NewReader(pcapFile(binary.LittleEndian, 0xa1b2c3d4, 1, all...)))
	if err != nil {
		t.Fatal(err)
	}
	var left []string
	report, err := Run(p, []Source{source}, Options{Departures: func(d *Departure) error {
		left = append(left, fmt.Sprint(d.At.Sub(Epoch), " ", d.Class, " ", d.Bytes))
		return nil
	}})
	want := []string{"0s b 500", "0s a 20", "500µs b 500", "1ms b 500", "100ms a 20", "200ms a 20"}
	if err != nil || !slices.Equal(left, want) {
		t.Errorf("%v: %q, %+v", err, left, report)
	}
}

// FuzzPcapng checks that each file is refused or can be simulated.
func FuzzPcapng(f *testing.F) {
	f.Add(many(binary.LittleEndian))
	f.Add(many(binary.BigEndian))
	if data, err := os.ReadFile("testdata/dumpcap.pcapng"); err == nil {
		f.Add(data)
	}
	f.Fuzz(fuzzCapture)
}
