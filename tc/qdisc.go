package tc

import (
	"fmt"

	"github.com/vishvananda/netlink/nl"

	"shaper/policy"
)

// htbQdisc holds the parameters of HTB, the root of a tree.
type htbQdisc struct {
	Default uint32 // minor number of the class of packets that match no filter
}

const htbVersion, htbR2Q = 3, 10 // what tc(8) sends

// This file and others use the structures of package nl, except the few that are wrong
// there. They do not use the values of package netlink (Htb, HtbClass, Tbf, U32): only
// its own Handle sends and reads those, and it leaves out TCA_TBF_BURST, overheads and
// 64-bit counts of packets.

func (q htbQdisc) options() []byte {
	return attr(nil, nl.TCA_HTB_INIT, (&nl.TcHtbGlob{Version: htbVersion, Rate2Quantum: htbR2Q, Defcls: q.Default}).Serialize())
}

func (q htbQdisc) words() string { return fmt.Sprintf("default 0x%x", q.Default) }

// tbf holds the parameters of TBF, a token bucket over one queue: the root of a class
// without children.
type tbf struct {
	Rate  uint64 // bytes per second
	Ticks uint32 // depth of the bucket
	Limit uint32 // the same as of the queue below
	sizing
	Peak peak
}

// peak is the second bucket of TBF. Plans do not use it.
type peak struct {
	Rate  uint64
	Ticks uint32 // depth of the bucket
	sizing
}

func (q tbf) options() []byte {
	parms := nl.TcTbfQopt{Rate: rateSpec(q.Rate, q.sizing), Limit: q.Limit, Buffer: q.Ticks}
	if q.Peak.Rate > 0 {
		parms.Peakrate, parms.Mtu = rateSpec(q.Peak.Rate, q.Peak.sizing), q.Peak.Ticks
	}
	b := attr(nil, nl.TCA_TBF_PARMS, parms.Serialize())
	b = attr32(b, nl.TCA_TBF_BURST, uint32(tbfBytes(q.Rate, q.Ticks)))
	if q.Rate >= 1<<32 {
		b = attr64(b, nl.TCA_TBF_RATE64, q.Rate)
	}
	if q.Peak.Rate >= 1<<32 {
		b = attr64(b, nl.TCA_TBF_PRATE64, q.Peak.Rate)
	}
	return b
}

func (q tbf) words() string {
	return fmt.Sprintf("rate %dbit burst %d limit %d", 8*q.Rate, tbfBytes(q.Rate, q.Ticks), q.Limit)
}

// sizing is how a rate counts the size of a packet. Plans do not use it. If others have set
// it and a change fails, Apply restores it.
type sizing struct {
	Layer           uint8  // 0: Ethernet
	Overhead, Least uint16 // bytes: added to each packet; counted at least
}

// rateSpec returns a rate for the kernel, in bytes per second. With a link layer it needs no
// table of times.
func rateSpec(rate uint64, s sizing) nl.TcRateSpec {
	return nl.TcRateSpec{Linklayer: max(s.Layer, nl.LINKLAYER_ETHERNET), Overhead: s.Overhead, Mpu: s.Least, Rate: uint32(min(rate, 1<<32-1))}
}

// sizingOf returns the sizing of a rate from a dump.
func sizingOf(spec nl.TcRateSpec) sizing {
	const layers = 0x0f
	s := sizing{spec.Linklayer & layers, spec.Overhead, spec.Mpu}
	if s.Layer == nl.LINKLAYER_ETHERNET {
		s.Layer = 0
	}
	return s
}

// fifo is a queue. Its limit is in packets (pfifo) or bytes (bfifo). Package nl has no
// structure for it.
type fifo struct{ Limit uint32 }

func (q fifo) options() []byte { return native.AppendUint32(nil, q.Limit) }
func (q fifo) words() string   { return fmt.Sprintf("limit %d", q.Limit) }

// fqCodel is a queue that serves flows in turn and keeps their delay short.
type fqCodel struct{ Limit uint32 } // packets

func (q fqCodel) options() []byte { return attr32(nil, nl.TCA_FQ_CODEL_LIMIT, q.Limit) }
func (q fqCodel) words() string   { return fmt.Sprintf("limit %d", q.Limit) }

// sfq is a queue that serves flows in turn.
type sfq struct{ Limit uint32 } // packets

// sfqMost is how many packets sfq can hold: 127 flows of 127.
const sfqMost = 127 * 127

// options writes the structure by hand: package nl has one of 11 bytes, the kernel's has 20.
func (q sfq) options() []byte {
	qopt := make([]byte, 20)
	native.PutUint32(qopt[8:], q.Limit)
	return qopt
}
func (q sfq) words() string { return fmt.Sprintf("limit %d", q.Limit) }

// noParams is for what has no parameters, such as the qdisc of ingress.
type noParams struct{}

func (noParams) options() []byte { return nil }
func (noParams) words() string   { return "" }

// parseQdisc reads the parameters of a qdisc from a dump.
func parseQdisc(kind string, options []byte) Params {
	m := parseAttrsOf(kind, options)
	switch kind {
	case "htb":
		return htbQdisc{Default: nl.DeserializeTcHtbGlob(m.sized(nl.TCA_HTB_INIT, nl.SizeofTcHtbGlob)).Defcls}
	case "tbf":
		q := nl.DeserializeTcTbfQopt(m.sized(nl.TCA_TBF_PARMS, nl.SizeofTcTbfQopt))
		return tbf{Rate: max(uint64(q.Rate.Rate), m.u64(nl.TCA_TBF_RATE64)), Limit: q.Limit, Ticks: q.Buffer, sizing: sizingOf(q.Rate),
			Peak: peakOf(q, m)}
	case "pfifo", "bfifo":
		return fifo{at32(options, 0)}
	case "fq_codel":
		return fqCodel{m.u32(nl.TCA_FQ_CODEL_LIMIT)}
	case "sfq":
		return sfq{at32(options, 8)}
	case "ingress":
		return noParams{}
	}
	return opaque{string(options)}
}

func peakOf(q *nl.TcTbfQopt, m attrs) (p peak) {
	if q.Peakrate.Rate > 0 {
		p = peak{max(uint64(q.Peakrate.Rate), m.u64(nl.TCA_TBF_PRATE64)), q.Mtu, sizingOf(q.Peakrate)}
	}
	return p
}

// parseAttrsOf reads the attributes of a qdisc. It returns nil for kinds whose options are
// a structure.
func parseAttrsOf(kind string, options []byte) attrs {
	switch kind {
	case "htb", "tbf", "fq_codel":
		return parseAttrs(options)
	}
	return nil
}

// ourRoot holds the parameters of the root of each of our trees.
var ourRoot = htbQdisc{Default: policy.UnmatchedMinor}
