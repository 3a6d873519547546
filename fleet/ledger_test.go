package fleet

import (
	"fmt"
	"time"
)

// A ledger holds all departures of a fleet, in real time, and says what is wrong with them.
type ledger struct {
	sim   *sim
	all   []departed
	since int // the first that used counts
	from  time.Duration
}

type departed struct {
	at     time.Duration
	stamp  Stamp // by the store's clock
	member *simMember
	mode   Mode
	error  time.Duration // of the member's clock, as it states it
}

func (l *ledger) record(m *simMember) {
	s := m.machine.Status(m.local())
	l.all = append(l.all, departed{l.sim.now, l.sim.stamp(), m, s.Mode, s.ClockError})
}

// mark begins a phase of which used is asked.
func (l *ledger) mark() { l.since, l.from = len(l.all), l.sim.now }

// used returns how much of the limit was used since mark.
func (l *ledger) used() float64 {
	return float64(len(l.all)-l.since) / (l.sim.class.Rate.PerSecond() * (l.sim.now - l.from).Seconds())
}

// gaps returns an error if two departures are closer than the gap less the error of the clocks. Those of
// members that are on their own do not count: for these only the sum holds.
func (l *ledger) gaps() error {
	c := &l.sim.class
	gap := c.Rate.Time(1) - c.Late
	for i := 1; i < len(l.all); i++ {
		a, b := l.all[i-1], l.all[i]
		if a.mode == OnShare || b.mode == OnShare {
			continue
		}
		if least := gap - a.error - b.error - 3*time.Microsecond; b.at-a.at < least {
			return fmt.Errorf("%s leaves at %v, %v after %s; want at least %v (departure %d)", b.member.name, b.at, b.at-a.at, a.member.name, least, i)
		}
	}
	return nil
}

// sum returns an error if a window has more departures than burst + rate*t, with slack units.
func (l *ledger) sum(slack float64) error {
	rate := l.sim.class.Rate.PerSecond()
	level, last := 0.0, time.Duration(0)
	for i, d := range l.all {
		level = max(level-(d.at-last).Seconds()*rate, 0) + 1
		last = d.at
		if most := float64(l.sim.class.burst()) + slack; level > most+1e-6 {
			return fmt.Errorf("at %v %.1f units too many have left (departure %d of %s, %v)", d.at, level-most, i, d.member.name, d.mode)
		}
	}
	return nil
}

// windows returns an error if a window of the store's clock has more than the limit.
func (l *ledger) windows() error {
	counts := map[Stamp]int64{}
	for _, d := range l.all {
		at := d.stamp + Stamp(l.sim.class.offset())
		window := Stamp(l.sim.class.Window.Microseconds())
		w := at / window
		if w != at.Add(d.error)/window && counts[w] == l.sim.class.Limit() {
			w++ // within the error of the clock the next window has begun
		}
		if counts[w]++; counts[w] > l.sim.class.Limit() {
			return fmt.Errorf("at %v, in window %d, %s is one too many", d.at, w, d.member.name)
		}
	}
	return nil
}

// within returns an error if any time of the length of a window has more than most.
func (l *ledger) within(most int64) error {
	first := 0
	for i, d := range l.all {
		for l.all[first].at <= d.at-l.sim.class.Window {
			first++
		}
		if n := int64(i - first + 1); n > most {
			return fmt.Errorf("%d have left in the window until %v, want at most %d", n, d.at, most)
		}
	}
	return nil
}
