package simulate

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket/layers"

	"shaper/policy"
)

// A packet is a packet of a capture that a test writes.
type packet struct {
	at       time.Duration
	from, to string
	protocol policy.Protocol
	flags    byte // of TCP
	payload  int
	cut      int // bytes at the end that the capture leaves out
	options  int // words of IPv4 options, or extension headers of IPv6
	fragment uint16
}

// bytes returns the packet, from its IP header on.
func (p packet) bytes() []byte {
	from, to := netip.MustParseAddrPort(p.from), netip.MustParseAddrPort(p.to)
	number, header := byte(17), make([]byte, 8)
	if p.protocol == policy.TCP {
		number, header = 6, make([]byte, 24)
		header[12], header[13] = 6<<4, p.flags
	}
	binary.BigEndian.PutUint16(header, from.Port())
	binary.BigEndian.PutUint16(header[2:], to.Port())
	rest := append(header, make([]byte, p.payload)...)
	if from.Addr().Is4() {
		ip := make([]byte, 20+4*p.options)
		ip[0], ip[9] = 0x40|byte(len(ip)/4), number
		binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)+len(rest)))
		binary.BigEndian.PutUint16(ip[6:], p.fragment)
		copy(ip[12:], from.Addr().AsSlice())
		copy(ip[16:], to.Addr().AsSlice())
		return append(ip, rest...)
	}
	ip := make([]byte, 40)
	ip[0], ip[6] = 0x60, number
	copy(ip[8:], from.Addr().AsSlice())
	copy(ip[24:], to.Addr().AsSlice())
	for i := range p.options {
		extension := make([]byte, 8)
		if extension[0] = 60; i == p.options-1 {
			extension[0] = number
		}
		ip[6] = 60
		ip = append(ip, extension...)
	}
	binary.BigEndian.PutUint16(ip[4:], uint16(len(ip)-40+len(rest)))
	return append(ip, rest...)
}

// on returns the packet with the link header of type 1, 101, 113 or 276.
func (p packet) on(link uint32) []byte {
	b := p.bytes()
	ether := binary.BigEndian.AppendUint16(nil, etherIPv4)
	if b[0]>>4 == 6 {
		ether = binary.BigEndian.AppendUint16(nil, etherIPv6)
	}
	switch link {
	case 1:
		b = slices.Concat(make([]byte, 12), []byte{0x81, 0, 0, 7}, ether, b)
	case 113:
		b = slices.Concat(make([]byte, 14), ether, b)
	case 276:
		b = slices.Concat(ether, make([]byte, 18), b)
	}
	return b
}

// pcapFile returns a pcap file. The link is 1, 101, 113 or 276.
func pcapFile(order binary.AppendByteOrder, magic, link uint32, packets ...packet) []byte {
	tick := time.Microsecond
	if magic == 0xa1b23c4d {
		tick = 1
	}
	file := order.AppendUint32(nil, magic)
	file = order.AppendUint16(order.AppendUint16(file, 2), 4) // the version
	file = append(file, make([]byte, 12)...)
	file = order.AppendUint32(file, link)
	for _, p := range packets {
		b := p.on(link)
		file = order.AppendUint32(file, uint32(p.at/time.Second))
		file = order.AppendUint32(file, uint32(p.at%time.Second/tick))
		file = order.AppendUint32(file, uint32(len(b)-p.cut))
		file = order.AppendUint32(file, uint32(len(b)))
		file = append(file, b[:len(b)-p.cut]...)
	}
	return file
}

// sample has packets of each kind that count, and of each that do not.
var sample = []packet{
	{at: time.Second, from: "10.0.0.1:4000", to: "10.9.9.9:53", protocol: policy.UDP, payload: 40},
	{at: 1500 * time.Millisecond, from: "10.9.9.9:53", to: "10.0.0.1:4000", protocol: policy.UDP, payload: 50}, // comes back
	{at: 2 * time.Second, from: "[fd00::1]:4000", to: "[fd00::9]:443", protocol: policy.TCP, flags: 0x02},
	{at: 2 * time.Second, from: "[fd00::1]:4000", to: "[fd00::9]:443", protocol: policy.TCP, flags: 0x10}, // an ACK
	{at: 2 * time.Second, from: "[fd00::1]:4000", to: "[fd00::9]:443", protocol: policy.TCP, flags: 0x18, payload: 1000, cut: 900, options: 2},
	{at: 1900 * time.Millisecond, from: "10.0.0.2:4000", to: "10.9.9.9:80", protocol: policy.TCP, flags: 0x10, payload: 10, options: 3}, // out of order
	{at: 3 * time.Second, from: "10.0.0.2:4000", to: "10.9.9.9:80", protocol: policy.TCP, flags: 0x10, payload: 10, fragment: 7},
	{at: 3 * time.Second, from: "10.0.0.2:4000", to: "10.9.9.9:80", protocol: policy.UDP, payload: 10}, // no such listener
}

// sampled are the arrivals of the sample.
var sampled = []string{
	"1s dns 10.0.0.1:4000 53 40", "1.5s dns 10.0.0.1:4000 53 50 back", "2s web [fd00::1]:4000 443 0 opens",
	"2s web [fd00::1]:4000 443 1000", "2s web 10.0.0.2:4000 80 10",
}

func shown(found []Arrival, since time.Time) (all []string) {
	for _, a := range found {
		s := fmt.Sprint(a.At.Sub(since), " ", a.Conn.Listener, " ", a.Conn.Source, " ", a.Conn.Port, " ", a.Bytes)
		if a.Opens {
			s += " opens"
		}
		if a.Returns {
			s += " back"
		}
		all = append(all, s)
	}
	return all
}

func TestCaptures(t *testing.T) {
	p := parse(t, traced)
	want := sampled
	for _, magic := range []uint32{0xa1b2c3d4, 0xa1b23c4d} {
		for _, order := range []binary.AppendByteOrder{binary.LittleEndian, binary.BigEndian} {
			for _, link := range []uint32{1, 101, 113, 276} {
				found, err := arrivals(t, p, "a.pcap", string(pcapFile(order, magic, link, sample...)))
				got := shown(found, Epoch)
				if err != nil || !slices.Equal(got, want) {
					t.Errorf("%x, %v, link %d: %v\n%s", magic, order, link, err, strings.Join(got, "\n"))
				}
				checkArrivals(t, p, found)
			}
		}
	}
}

// Packets with VLAN tags count on each link that has room for tags. In the Linux cooked
// header, libpcap writes a tag in place of the type.
func TestTaggedCaptures(t *testing.T) {
	p := parse(t, traced)
	order := binary.BigEndian
	for _, tags := range [][]uint16{nil, {0x8100}, {0x88a8, 0x8100}, {0x9100, 0x8100}, {0x8100, 0x8100, 0x8100}} {
		var types []byte
		for _, tag := range tags {
			types = order.AppendUint16(order.AppendUint16(types, tag), 7)
		}
		types = order.AppendUint16(types, etherIPv4)
		for link, header := range map[uint32][]byte{
			1:   slices.Concat(make([]byte, 12), types),
			113: slices.Concat(make([]byte, 14), types),
			276: slices.Concat(types[:2], make([]byte, 18), types[2:]),
		} {
			data := append(header, sample[0].bytes()...)
			file := pcapFile(order, 0xa1b2c3d4, link)
			for _, n := range []int{1, 0, len(data), len(data)} {
				file = order.AppendUint32(file, uint32(n))
			}
			found, err := arrivals(t, p, "a.pcap", string(append(file, data...)))
			if got := shown(found, Epoch); err != nil || !slices.Equal(got, sampled[:1]) {
				t.Errorf("link %d, tags %x: %v %q", link, tags, err, got)
			}
			for cut := range len(header) { // a tag that is cut short is skipped
				if links[layers.LinkType(link)](data[:cut]) != nil {
					t.Errorf("link %d, tags %x: an IP packet was found in the first %d bytes", link, tags, cut)
				}
			}
		}
	}
}

func TestCaptureErrors(t *testing.T) {
	p := parse(t, traced)
	whole := pcapFile(binary.LittleEndian, 0xa1b2c3d4, 1, sample...)
	large := bytes.Clone(whole)
	large[34] = 0xff
	for want, data := range map[string][]byte{
		"a.pcap: capture: the file has no header: ":                       whole[:23],
		"a.pcap: capture: it begins with 1f8b0800; a pcap or pcapng file": append([]byte("\x1f\x8b\x08\x00"), make([]byte, 20)...),
		"a.pcap: capture: its link type is 147; Ethernet (1), ":           pcapFile(binary.BigEndian, 0xa1b2c3d4, 147),
		"a.pcap: packet 1: it is cut short; a file that is whole":         whole[:50],
		"a.pcap: packet 1: it is cut short; a file that is":               whole[:24+16],
		"a.pcap: packet 2: it is cut short; a file that is whole":         whole[:24+16+len(sample[0].bytes())+18+3],
		"a.pcap: packet 1: it cannot be read: capture length exceeds ":    large,
	} {
		if _, err := arrivals(t, p, "a.pcap", string(data)); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	two := parse(t, strings.Replace(traced, `listen = "127.0.0.1:53"`+"\nupstream", `listen = "127.0.0.2:80"`+"\nupstream", 1))
	if _, err := arrivals(t, two, "a.pcap", string(whole)); err == nil || !strings.Contains(err.Error(), "port 80 is that of the listeners web, dnstcp") {
		t.Error(err)
	}
}

// FuzzCapture checks that each file is refused or can be simulated.
func FuzzCapture(f *testing.F) {
	for _, link := range []uint32{1, 101, 113, 276} {
		f.Add(pcapFile(binary.LittleEndian, 0xa1b2c3d4, link, sample...))
		f.Add(pcapFile(binary.BigEndian, 0xa1b23c4d, link, sample...))
	}
	f.Fuzz(fuzzCapture)
}

func fuzzCapture(t *testing.T, data []byte) {
	p := parse(t, traced)
	found, err := arrivals(t, p, "f.pcap", string(data))
	if err != nil {
		checkErrors(t, err)
	}
	checkArrivals(t, p, found)
}
