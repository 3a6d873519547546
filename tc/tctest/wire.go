package tctest

import (
	"bytes"
	"encoding/binary"
	"maps"
	"slices"

	"github.com/vishvananda/netlink/nl"
)

var native = binary.NativeEndian

// attrs are the values of attributes, by number.
type attrs map[int][]byte

// parse reads attributes, and copies their values. Malformed ones give none.
func parse(b []byte) attrs {
	m := attrs{}
	all, err := nl.ParseRouteAttr(b)
	if err != nil {
		return m
	}
	for _, a := range all {
		m[int(a.Attr.Type&nl.NLA_TYPE_MASK)] = bytes.Clone(a.Value)
	}
	return m
}

// text returns a string without the zero bytes at its end.
func (m attrs) text(number int) string { return string(bytes.TrimRight(m[number], "\x00")) }

// u32 returns a number; 0 if it is missing.
func (m attrs) u32(number int) uint32 {
	if len(m[number]) < 4 {
		return 0
	}
	return native.Uint32(m[number])
}

// bytes returns the attributes as they are sent.
func (m attrs) bytes() (b []byte) {
	for _, number := range slices.Sorted(maps.Keys(m)) {
		b = append(b, nl.NewRtAttr(number, m[number]).Serialize()...)
	}
	return b
}

// message returns a message about a qdisc, a class or a filter. options and counted are nil
// if it has none.
func message(msg nl.TcMsg, kind string, options []byte, counted *Counters) []byte {
	b := bytes.Clone(msg.Serialize())
	b = append(b, nl.NewRtAttr(nl.TCA_KIND, nl.ZeroTerminated(kind)).Serialize()...)
	if options != nil {
		b = append(b, nl.NewRtAttr(nl.TCA_OPTIONS, options).Serialize()...)
	}
	if counted != nil {
		b = append(b, nl.NewRtAttr(nl.TCA_STATS2, counted.bytes()).Serialize()...)
	}
	return b
}

// Counters are the counters of a qdisc or a class.
type Counters struct {
	Bytes, Packets                                uint64
	Queue, Backlog, Dropped, Requeues, Overlimits uint32
}

// bytes returns the value of TCA_STATS2 (include/uapi/linux/gen_stats.h). It has a 64-bit
// count of packets only if there are so many.
func (c Counters) bytes() []byte {
	basic := native.AppendUint64(nil, c.Bytes)
	basic = native.AppendUint32(basic, uint32(c.Packets))
	m := attrs{nl.TCA_STATS_BASIC: append(basic, 0, 0, 0, 0)}
	for _, n := range []uint32{c.Queue, c.Backlog, c.Dropped, c.Requeues, c.Overlimits} {
		m[nl.TCA_STATS_QUEUE] = native.AppendUint32(m[nl.TCA_STATS_QUEUE], n)
	}
	if c.Packets >= 1<<32 {
		const packets64 = 8 // TCA_STATS_PKT64
		m[packets64] = native.AppendUint64(nil, c.Packets)
	}
	return m.bytes()
}
