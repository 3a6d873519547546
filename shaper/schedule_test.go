package shaper

import (
	"math/rand/v2"
	"testing"
	"time"

	"shaper/leaky"
	"shaper/policy"
	"shaper/unit"
)

// A meter holds departures against burst + rate*t over every window at once: its level
// never goes above burst.
type meter struct {
	perSecond, burst int64
	level            int64 // of 1e-9 units
	last             time.Time
}

func (m *meter) add(now time.Time, n int64) bool {
	if drained := now.Sub(m.last); !m.last.IsZero() && int64(drained) < m.level/m.perSecond {
		m.level -= int64(drained) * m.perSecond
	} else {
		m.level = 0
	}
	m.last = now
	m.level += n * 1e9
	return m.level <= m.burst*1e9
}

// TestSimulatedSchedules drives ten thousand classes with random flows and random lateness. It
// holds what leaves against the promise of the algorithm.
func TestSimulatedSchedules(t *testing.T) {
	for seed := range uint64(10_000) {
		r := rand.New(rand.NewPCG(seed, 0))
		perSecond := int64(15) << r.IntN(26)
		var conf policy.Class
		var m meter
		switch r.IntN(3) {
		case 0:
			conf = leakyClass("1B/s")
			conf.Rate = unit.BytesPerSecond(perSecond)
			// A class makes up for lateness at up to 16/15 of its rate.
			m = meter{perSecond: perSecond / 15 * 16, burst: leaky.Quantum(conf.Rate)}
		case 1:
			burst := 1 + r.Int64N(1<<20)
			conf = tokenClass("1B/s", burst)
			conf.Rate = unit.BytesPerSecond(perSecond)
			if r.IntN(2) == 0 {
				conf.Algorithm = policy.GCRA
			}
			m = meter{perSecond: perSecond, burst: burst + perSecond/1e9 + 1}
		default:
			conf = leakyClass("1 packets/s")
			conf.Rate = unit.NewRate(unit.Packets, perSecond, second)
			m = meter{perSecond: perSecond, burst: 1}
		}
		if !simulate(r, conf, &m) {
			t.Fatalf("seed %d: %s of %v sent more than %d + %v*t", seed, conf.Algorithm, conf.Rate, m.burst, conf.Rate)
		}
	}
}

// simulate lets a few flows send pieces, all from one goroutine. Each sends its next piece
// when the last has left, at once or after a pause.
func simulate(r *rand.Rand, conf policy.Class, m *meter) (held bool) {
	conf.Overflow = policy.Wait
	c, now := NewClass(start, conf), start
	late := conf.Rate.Time(c.Piece())
	if m.burst == 1 {
		late = conf.Rate.Time(1)
	}
	late = min(late, time.Hour)
	idle := make([]*Item, 1+r.IntN(4))
	for i := range idle {
		idle[i] = &Item{Patient: true}
	}
	for range 60 {
		if len(idle) > 0 && r.IntN(3) > 0 {
			it := idle[0]
			idle = idle[1:]
			it.Cost = Cost{Bytes: 1 + r.Int64N(c.Piece()), Packets: 1}
			it.Busy = r.IntN(2) == 0
			if c.Enter(now, it) == Leaves {
				if !m.add(now, it.Cost.In(conf.Rate.Kind())) {
					return false
				}
				idle = append(idle, it)
			}
			continue
		}
		if next := c.Next(now); r.IntN(4) > 0 && next.After(now) && next.Before(at(1000*time.Hour)) {
			now = next
		}
		now = now.Add(time.Duration(r.Int64N(int64(late)*2 + 1)))
		for it := c.Release(now); it != nil; it = c.Release(now) {
			if !m.add(now, it.Cost.In(conf.Rate.Kind())) {
				return false
			}
			idle = append(idle, it)
		}
	}
	return true
}
