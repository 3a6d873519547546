package tc

import (
	"fmt"

	"github.com/vishvananda/netlink/nl"
)

// htbClass is a class of a tree. Rates are in bytes per second, the depths of the
// buckets in ticks. Of one that has children Prio and Quantum are 0: HTB has them
// for leaves only, and keeps whatever they were.
type htbClass struct {
	Rate, Ceil    uint64
	Burst, CBurst uint32
	Prio, Quantum uint32
	RateSizing    sizing
	CeilSizing    sizing
}

// anyQuantum is what the kernel is told of a class that has no use for one, since
// it would compute one and complain.
const anyQuantum = 1514

func (c htbClass) options() []byte {
	b := attr(nil, nl.TCA_HTB_PARMS, (&nl.TcHtbCopt{Rate: rateSpec(c.Rate, c.RateSizing), Ceil: rateSpec(c.Ceil, c.CeilSizing),
		Buffer: c.Burst, Cbuffer: c.CBurst, Quantum: c.quantum(), Prio: c.Prio}).Serialize())
	if c.Rate >= 1<<32 {
		b = attr64(b, nl.TCA_HTB_RATE64, c.Rate)
	}
	if c.Ceil >= 1<<32 {
		b = attr64(b, nl.TCA_HTB_CEIL64, c.Ceil)
	}
	return b
}

func (c htbClass) quantum() uint32 {
	if c.Quantum == 0 {
		return anyQuantum
	}
	return c.Quantum
}

func (c htbClass) words() string {
	return fmt.Sprintf("rate %dbit ceil %dbit burst %d cburst %d prio %d quantum %d",
		8*c.Rate, 8*c.Ceil, htbBytes(c.Rate, c.Burst), htbBytes(c.Ceil, c.CBurst), c.Prio, c.quantum())
}

// parseClass reads what the kernel says of a class. One of another kind than HTB
// has nothing that could be set.
func parseClass(kind string, options []byte) Params {
	if kind != "htb" {
		return plain{}
	}
	m := parseAttrs(options)
	c := nl.DeserializeTcHtbCopt(m.sized(nl.TCA_HTB_PARMS, nl.SizeofTcHtbCopt))
	return htbClass{
		Rate:  max(uint64(c.Rate.Rate), m.u64(nl.TCA_HTB_RATE64)),
		Ceil:  max(uint64(c.Ceil.Rate), m.u64(nl.TCA_HTB_CEIL64)),
		Burst: c.Buffer, CBurst: c.Cbuffer,
		Quantum: c.Quantum, Prio: c.Prio,
		RateSizing: sizingOf(c.Rate), CeilSizing: sizingOf(c.Ceil),
	}
}
