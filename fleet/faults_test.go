package fleet

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"shaper/tests/trial"
)

// A fault happens to a fleet, lasts for a time, and ends.
type fault struct {
	name  string
	begin func(*sim)
	end   func(*sim)
}

var faults = []fault{
	{"none", func(*sim) {}, nil},
	{"store restarts empty", func(s *sim) { s.down = true; s.backup = nil }, func(s *sim) { s.down = false; s.restart() }},
	{"replica without the last writes", func(s *sim) { s.backup = s.model.clone(); s.after(30*time.Millisecond, func() { s.down = true }) }, func(s *sim) { s.down = false; s.restart() }},
	{"fail-over at once", func(s *sim) { s.backup = s.model.clone(); s.after(30*time.Millisecond, s.restart) }, nil},
	{"FLUSHALL", func(s *sim) { s.model = &Model{ID: s.model.ID} }, nil},
	{"clock set forward", func(s *sim) { s.setClock(time.Hour) }, nil},
	{"clock set back", func(s *sim) { s.setClock(-time.Hour) }, nil},
	{"clock set forward a little", func(s *sim) { s.setClock(30 * time.Millisecond) }, nil},
	{"clock set back a little", func(s *sim) { s.setClock(-30 * time.Millisecond) }, nil},
	{"partition of half", func(s *sim) { s.cut(true) }, func(s *sim) { s.cut(false) }},
	{"partition of half, clock set forward", func(s *sim) { s.cut(true); s.step(1, 9) }, func(s *sim) { s.cut(false) }},
	{"partition of half, clock set forward in steps", func(s *sim) { s.cut(true); s.step(4, 6) }, func(s *sim) { s.cut(false) }},
	{"partition of half, clock set far forward, a newcomer first", func(s *sim) { s.cut(true); s.step(1, 12); s.after(stepEvery, s.visit) }, func(s *sim) { s.cut(false) }},
	{"store stalls", func(s *sim) { s.down = true }, func(s *sim) { s.down = false }},
	{"answers pings only", func(s *sim) { s.refuses = true }, func(s *sim) { s.refuses = false }},
	{"slower network", func(s *sim) { s.delay = 8 * time.Millisecond }, func(s *sim) { s.delay = 200 * time.Microsecond }},
	{"slow network", func(s *sim) { s.delay = 250 * time.Millisecond }, func(s *sim) { s.delay = 200 * time.Microsecond }},
	{"SIGSTOP", func(s *sim) { s.members[0].asleep = true }, func(s *sim) { s.members[0].asleep = false; s.members[0].wakeAt = 0; s.members[0].pump() }},
	{"losses", func(s *sim) { s.lose, s.double = 0.05, 0.2 }, func(s *sim) { s.lose, s.double = 0, 0 }},
	{"late departures", func(s *sim) { s.pauses = 0.05 }, func(s *sim) { s.pauses = 0 }},
	{"items are lost", func(s *sim) { s.losing = 1.0 / 3 }, func(s *sim) { s.losing = 0 }},
	{"items are lost, late departures", func(s *sim) { s.losing, s.pauses = 1.0/3, 0.05 }, func(s *sim) { s.losing, s.pauses = 0, 0 }},
	{"kill -9 of a member", func(s *sim) { s.members[0].asleep = true; s.reborn() }, nil},
	{"kill -9, and again", func(s *sim) { s.members[0].again() }, nil},
	{"kill -9 on its share", func(s *sim) { s.members[0].cut = true }, func(s *sim) { s.members[0].again() }},
}

// cut separates half of the members from the store.
func (s *sim) cut(cut bool) {
	for i, m := range s.members {
		m.cut = cut && i%2 == 0
	}
}

// stepEvery is the time between two steps of the clock.
const stepEvery = 150 * time.Millisecond

// step sets the clock forward n times, each time by so many tenths of the hold.
func (s *sim) step(n int, tenths time.Duration) {
	for i := range time.Duration(n) {
		s.after((i+1)*stepEvery, func() { s.setClock(s.class.timing().hold * tenths / 10) })
	}
}

// visit lets a newcomer be the first to call after the clock was set, and go soon.
func (s *sim) visit() {
	m := s.join(fmt.Sprint("visitor", s.count))
	m.greedy = true
	s.after(time.Second, func() {
		m.asleep = true
		s.members = slices.DeleteFunc(s.members, func(o *simMember) bool { return o == m })
	})
}

// reborn lets a new member take the place of the first.
func (s *sim) reborn() {
	dead := s.members[0]
	m := s.join(fmt.Sprint(dead.name, "'"))
	m.greedy = dead.greedy
	s.members = append([]*simMember{m}, s.members[1:len(s.members)-1]...)
}

// again ends a member, and starts it again under its name. It has what its ledger has kept.
func (m *simMember) again() {
	s := m.sim
	next := s.member(m.name, m.machine.seq+lastWords, m.disk)
	next.greedy = m.greedy
	m.asleep = true
	s.members[slices.Index(s.members, m)] = next
}

// clone returns a copy of all that the store knows.
func (m *Model) clone() *Model {
	c := &Model{ID: m.ID, classes: map[string]*modelClass{}}
	for name, class := range m.classes {
		k := *class
		k.members, k.buckets, k.paused.until = map[string]*modelMember{}, map[string]*modelBucket{}, maps.Clone(class.paused.until)
		for name, member := range class.members {
			copied := *member
			k.members[name] = &copied
		}
		for key, bucket := range class.buckets {
			k.buckets[key] = bucket.clone()
		}
		c.classes[name] = &k
	}
	return c
}

func (b *modelBucket) clone() *modelBucket {
	c := *b
	c.line = append([]waiting(nil), b.line...)
	c.service.had = maps.Clone(b.service.had)
	c.grants, c.grains = map[string]*modelGrant{}, map[int64]int64{}
	for name, g := range b.grants {
		copied := *g
		c.grants[name] = &copied
	}
	for i, n := range b.grains {
		c.grains[i] = n
	}
	return &c
}

// TestRandomSchedulesOfEachFault lets each fault happen, again and again, under load. No rule is broken
// during it, and the limit is used again soon after it.
func TestRandomSchedulesOfEachFault(t *testing.T) {
	t.Parallel()
	if trial.Raced {
		t.Skip("the simulation has one goroutine")
	}
	rounds := trial.Size(1, 20)
	for i, c := range scenarios(t) {
		for j, f := range faults {
			if !trial.Full && (i+j)%2 == 1 {
				continue
			}
			t.Run(c.class.Name+"/"+f.name, func(t *testing.T) {
				brief := standardTerms
				brief.hold = 4 * time.Second // so that the share of the dead comes back
				c.class.terms = &brief
				s := c.sim(t, c.members, 7)
				for _, m := range s.members {
					m.greedy = true
				}
				s.run(3 * time.Second)
				for round := range rounds {
					f.begin(s)
					s.run(time.Duration(1+s.r.IntN(5)) * time.Second / 2)
					if f.end != nil {
						f.end(s)
					}
					s.run(4500 * time.Millisecond)
					s.ledger.mark()
					length := max(5*c.class.Window, 5*time.Second, 40*c.class.Rate.Time(1))
					s.run(length)
					stands := (c.class.Algorithm == FixedWindow || c.class.Algorithm == SlidingWindow) && f.name == "clock set back" // the window goes on until the clock is there again
					if used := s.ledger.used(); used < c.least-c.tolls-c.class.Window.Seconds()/length.Seconds() && !stands {
						t.Errorf("%s: after round %d only %.1f %% of the limit is used: %v", t.Name(), round, 100*used, s.shares())
					}
				}
				if err := c.check(&s.ledger); err != nil {
					t.Error(t.Name(), err)
				}
				if c.class.Algorithm == Slots {
					if err := s.ledger.sum(float64((int64(c.members) + 1) * s.sizes)); err != nil {
						t.Error(t.Name(), err)
					}
				}
			})
		}
	}
}

// TestRandomSchedulesOfFaults lets faults overlap at random, among members that want much and others that want
// little, until a number of events has happened: messages, wake-ups, departures.
func TestRandomSchedulesOfFaults(t *testing.T) {
	t.Parallel()
	if trial.Raced {
		t.Skip("the simulation has one goroutine")
	}
	steps := trial.Size(1_000_000, 20_000_000)
	all := scenarios(t)
	events, departures := 0, 0
	for seed := uint64(1); events < steps; seed++ {
		c := all[seed%uint64(len(all))]
		s := c.sim(t, 2+int(seed)%7, seed)
		for i, m := range s.members {
			if m.greedy = i%2 == 0; !m.greedy {
				m.arrive(time.Second)
			}
		}
		s.run(3 * time.Second)
		for range 20 {
			f := faults[s.r.IntN(len(faults))]
			f.begin(s)
			s.run(time.Duration(s.r.Int64N(int64(2 * time.Second))))
			if f.end != nil {
				s.after(time.Duration(s.r.Int64N(int64(3*time.Second))), func() { f.end(s) })
			}
			s.run(time.Duration(s.r.Int64N(int64(2 * time.Second))))
		}
		events, departures = events+s.count, departures+len(s.ledger.all)
		if err := c.check(&s.ledger); err != nil {
			t.Errorf("%s, seed %d: %v", c.class.Name, seed, err)
		}
		if c.class.Algorithm == Slots {
			if err := s.ledger.sum(float64(2 * int64(len(s.members)) * s.sizes)); err != nil {
				t.Errorf("%s, seed %d: %v", c.class.Name, seed, err)
			}
		}
	}
	trial.Figure(t, "steps of the fleet protocol", "%d, %d of them departures", events, departures)
}
