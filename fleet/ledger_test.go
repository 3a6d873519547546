package fleet

import (
	"time"

	"shaper/fleet/fleettest"
)

// A ledger holds all departures of a fleet, and how much of the limit they use.
type ledger struct {
	sim   *sim
	all   []fleettest.Departure
	since int // the first that used counts
	from  time.Duration
	late  []int // which have left some time after their turn
}

func (l *ledger) record(m *simMember, units int64) {
	s := m.machine.Status(m.local())
	stamp := l.sim.stamp()
	if s.Mode == OnShare || m.heard < l.sim.setAt { // nobody has told it that the clock was set
		stamp = m.machine.link.clock.stamp(m.local())
	}
	l.all = append(l.all, fleettest.Departure{
		Member: m.name, At: l.sim.now, Stamp: time.UnixMicro(int64(stamp)), Units: units, Error: s.ClockError, Own: s.Mode == OnShare,
	})
}

// mark begins a phase of which used is asked.
func (l *ledger) mark() { l.since, l.from = len(l.all), l.sim.now }

// used returns how much of the limit was used since mark.
func (l *ledger) used() float64 {
	units := int64(0)
	for _, d := range l.all[l.since:] {
		units += d.Units
	}
	return float64(units) / (l.sim.class.Rate.PerSecond() * (l.sim.now - l.from).Seconds())
}

// gaps judges departures of a leaky bucket.
func (l *ledger) gaps() error {
	return fleettest.Gaps(l.all, l.sim.class.Rate.Time(1), l.sim.class.Late)
}

// sum judges departures that may be bursts, with slack units.
func (l *ledger) sum(slack float64) error {
	c := &l.sim.class
	return fleettest.Sum(l.all, c.Rate.PerSecond(), float64(c.burst()+l.sim.sizes-1)+c.Rate.PerSecond()*c.Late.Seconds()+slack)
}

// windows judges departures of a fixed window.
func (l *ledger) windows() error {
	c := &l.sim.class
	bounds := c.Bounds
	if bounds == nil {
		bounds = func(t time.Time) (from, to time.Time) {
			from = t.Truncate(c.Window)
			return from, from.Add(c.Window)
		}
	}
	return fleettest.Windows(l.all, c.Limit(), bounds)
}

func (l *ledger) weighed() error {
	return fleettest.Weighed(l.all, l.sim.class.Limit(), l.sim.class.Window)
}

func (l *ledger) within() error {
	return fleettest.Within(l.all, l.sim.class.Limit(), l.sim.class.Window)
}

// of returns how many units of a member have left since a departure.
func (l *ledger) of(member string, first int) (units int64) {
	for _, d := range l.all[first:] {
		if d.Member == member {
			units += d.Units
		}
	}
	return units
}
