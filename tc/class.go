package tc

import (
	"fmt"

	"github.com/vishvananda/netlink/nl"
)

// htbClass holds the parameters of a class of HTB. Rates are in bytes per second, bursts in
// ticks. Prio and Quantum are 0 if the class has children: HTB uses them for leaves only,
// and keeps whatever values they had.
type htbClass struct {
	Rate, Ceil    uint64
	Burst, CBurst uint32
	Prio, Quantum uint32
	RateSizing    sizing
	CeilSizing    sizing
}

// anyQuantum is the quantum that we send for a class that needs none. Without it the kernel
// computes one, and logs a warning if that looks wrong.
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

// parseClass reads the parameters of a class from a dump. A class of another kind than HTB
// has none.
func parseClass(kind string, options []byte) Params {
	if kind != "htb" {
		return noParams{}
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
