package tc

import "github.com/vishvananda/netlink/nl"

// message is a qdisc, a class or a filter in a dump.
type message struct {
	index          int
	handle, parent Handle
	info           uint32 // of a filter: preference and protocol
	kind           string
	options        []byte
	counters       Counters
}

// parseMessage reads a message of a dump, without its header.
func parseMessage(b []byte) message {
	t := nl.DeserializeTcMsg(b)
	m := parseAttrs(b[t.Len():])
	return message{
		index: int(t.Ifindex), handle: Handle(t.Handle), parent: Handle(t.Parent), info: t.Info,
		kind: m.text(nl.TCA_KIND), options: m[nl.TCA_OPTIONS], counters: parseCounters(m[nl.TCA_STATS2]),
	}
}

// pref returns the preference of a filter.
func (m message) pref() Pref { return Pref{uint16(m.info >> 16), nl.Swap16(uint16(m.info))} }

// Counters are the kernel's counters of a qdisc or a class.
type Counters struct {
	Bytes      uint64 `json:"bytes"` // sent, from the Ethernet header on
	Packets    uint64 `json:"packets"`
	Dropped    uint64 `json:"dropped"`
	Overlimits uint64 `json:"overlimits"`
	Requeues   uint64 `json:"requeues"`
	Backlog    uint64 `json:"backlog_bytes"`
	Queue      uint64 `json:"backlog_packets"`
}

// parseCounters reads TCA_STATS2 (include/uapi/linux/gen_stats.h).
func parseCounters(b []byte) Counters {
	m := parseAttrs(b)
	basic, queue := m[statsBasic], m[statsQueue]
	c := Counters{
		Packets: uint64(at32(basic, 8)),
		Queue:   uint64(at32(queue, 0)), Backlog: uint64(at32(queue, 4)),
		Dropped: uint64(at32(queue, 8)), Requeues: uint64(at32(queue, 12)), Overlimits: uint64(at32(queue, 16)),
	}
	if len(basic) >= 8 {
		c.Bytes = native.Uint64(basic)
	}
	if packets := m.u64(statsPackets); packets > 0 {
		c.Packets = packets
	}
	return c
}

const (
	statsBasic   = nl.TCA_STATS_BASIC
	statsQueue   = nl.TCA_STATS_QUEUE
	statsPackets = 8 // TCA_STATS_PKT64
)
