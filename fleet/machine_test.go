package fleet

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"shaper/limit"
	"shaper/tests/trial"
)

// A scenario is a class and what its departures have to obey.
type scenario struct {
	class   Class
	members int
	least   float64 // of the limit is used under demand
	check   func(*ledger) error
	sizes   int64   // items have 1 to sizes units; 0: 1
	tolls   float64 // how much less of it soon after a fault
}

// uneven are windows of a calendar whose days have 23, 24 and 25 hours, and take a second.
func uneven(t time.Time) (from, to time.Time) {
	const hour = time.Second / 24
	from = t.Truncate(3 * time.Second)
	for _, hours := range []time.Duration{23, 24, 25} {
		if to = from.Add(hours * hour); t.Before(to) {
			return from, to
		}
		from = to
	}
	return from, from.Truncate(3 * time.Second).Add(3 * time.Second)
}

// sim returns a fleet of the scenario.
func (c *scenario) sim(t testing.TB, members int, seed uint64) *sim {
	s := newSim(t, c.class, members, seed)
	s.sizes = max(c.sizes, 1)
	return s
}

func scenarios(t testing.TB) []scenario {
	ms := time.Millisecond
	gaps, windows := (*ledger).gaps, (*ledger).windows
	sum := func(l *ledger) error { return l.sum(0.5) }
	// Members on their shares each have an item of their own at once.
	loose := func(l *ledger) error { return l.sum(float64(int64(len(l.sim.members)) * l.sim.sizes)) }
	// After a loss a sliding window counts what members know to be used as if it had been used just then.
	return []scenario{
		{Class{Name: "leaky", Rate: mustRate(t, "20 messages/s"), Late: ms}, 8, 0.98, gaps, 1, 0.03},
		{Class{Name: "fast", Rate: mustRate(t, "1000 packets/s"), Late: 50 * time.Microsecond}, 8, 0.98, gaps, 1, 0.03},
		{Class{Name: "slow", Rate: mustRate(t, "60 messages/min"), Late: 20 * ms}, 3, 0.98, gaps, 1, 0.03},
		{Class{Name: "segments", Rate: mustRate(t, "400 messages/s"), Late: 200 * time.Microsecond}, 4, 0.98, gaps, 5, 0.03},
		{Class{Name: "bytes", Rate: mustRate(t, "300kB/s"), Late: 4 * ms}, 4, 0.98, loose, 1500, 0.03},
		{Class{Name: "gcra", Rate: mustRate(t, "200 messages/s"), Burst: 40, Late: ms}, 4, 0.98, sum, 1, 0.03},
		{Class{Name: "fixed", Algorithm: FixedWindow, Rate: mustRate(t, "400 messages/s"), Window: time.Second}, 4, 0.98, windows, 1, 0.03},
		{Class{Name: "calendar", Algorithm: FixedWindow, Rate: mustRate(t, "400 messages/s"), Window: time.Second, Bounds: uneven}, 4, 0.98, windows, 1, 0.03},
		{Class{Name: "sliding", Algorithm: SlidingWindow, Rate: mustRate(t, "900 messages/3s"), Window: 3 * time.Second}, 4, 0.97, (*ledger).weighed, 1, 0.12},
		{Class{Name: "log", Algorithm: SlidingLog, Rate: mustRate(t, "2000 messages/10s"), Window: 10 * time.Second}, 4, 0.98, (*ledger).within, 1, 0.03},
	}
}

// TestFleetUsesTheLimit has only greedy members, and no faults.
func TestFleetUsesTheLimit(t *testing.T) {
	t.Parallel()
	for _, c := range scenarios(t) {
		t.Run(c.class.Name, func(t *testing.T) {
			s := c.sim(t, c.members, 1)
			for _, m := range s.members {
				m.greedy = true
			}
			s.run(3 * time.Second)
			s.ledger.mark()
			s.run(60 * time.Second)
			calls := 0
			for _, m := range s.members {
				calls += m.calls
			}
			t.Logf("%d departures, %.1f %% of the limit, %.1f calls/s of each member, %d events, %v", len(s.ledger.all), 100*s.ledger.used(), float64(calls)/63/float64(c.members), s.count, s.shares())
			if used := s.ledger.used(); used < c.least || used > 1.02 {
				t.Errorf("%.1f %% of the limit was used", 100*used)
			}
			if err := c.check(&s.ledger); err != nil {
				t.Error(err)
			}
			if err := s.ledger.sum(0.5); c.class.Algorithm == Slots && err != nil {
				t.Error(err)
			}
		})
	}
}

// TestLateDepartures wakes members late, as timers do. A departure may be late by 5 % of a gap; the mean wake-up is
// late by 3 % of it.
func TestLateDepartures(t *testing.T) {
	t.Parallel()
	pace, limit := mustRate(t, "950 packets/s"), mustRate(t, "1000 packets/s")
	for greedy := 1; greedy <= 8; greedy += 7 {
		s := newSim(t, Class{Name: "late", Rate: pace, Late: pace.Time(1) - limit.Time(1)}, 8, 1)
		s.lateness = 30 * time.Microsecond
		for _, m := range s.members[:greedy] {
			m.greedy = true
		}
		s.run(3 * time.Second)
		s.ledger.mark()
		s.run(60 * time.Second)
		of := s.ledger.used() * 0.95
		t.Logf("%d greedy members use %.1f %% of the limit", greedy, 100*of)
		if of < 0.93 {
			t.Errorf("%d greedy members use %.1f %% of the limit, want 93 %%", greedy, 100*of)
		}
		if err := s.ledger.gaps(); err != nil {
			t.Error(err)
		}
	}
}

// TestPingsOnly has a store that answers pings, and fails all else. Members do not ask it all the time, and use
// some of their shares meanwhile.
func TestPingsOnly(t *testing.T) {
	s := newSim(t, classNamed(t, "fast"), 4, 1)
	calls := func() (n int) {
		for _, m := range s.members {
			n += m.calls
		}
		return n
	}
	for _, m := range s.members {
		m.greedy = true
	}
	s.run(3 * time.Second)
	s.refuses = true
	s.run(3 * time.Second)
	s.ledger.mark()
	before := calls()
	s.run(60 * time.Second)
	if n := float64(calls()-before) / 60 / 4; n > 10 {
		t.Errorf("a member sends %.1f calls/s to a store that only answers pings", n)
	}
	if used := s.ledger.used(); used < 0.6 {
		t.Errorf("the members use %.1f %% of the limit by their shares", 100*used)
	}
}

// TestShareEndsWithTheHold has a store that only answers pings, or nothing. A member's share ends no later after the last call
// that the store has answered than the store holds it back.
func TestShareEndsWithTheHold(t *testing.T) {
	for _, pings := range []bool{true, false} {
		class := classNamed(t, "fast")
		brief := standardTerms
		brief.hold = 4 * time.Second
		class.terms = &brief
		s := newSim(t, class, 4, 1)
		for _, m := range s.members {
			m.greedy = true
		}
		s.run(3 * time.Second)
		s.refuses, s.down = pings, !pings
		s.run(20 * time.Second)
		own := 0
		for _, d := range s.ledger.all {
			i := slices.IndexFunc(s.members, func(m *simMember) bool { return m.name == d.Member })
			if after := d.At - s.members[i].heard; d.Own && after > brief.hold {
				t.Fatalf("pings answered: %v: %s uses its share %v after the last answer, and the store holds it back for %v", pings, d.Member, after, brief.hold)
			} else if after > 3*time.Second {
				own++
			}
		}
		if own < 100 {
			t.Errorf("pings answered: %v: %d have left by the shares more than 3s after the last answer", pings, own)
		}
	}
}

// TestOnShareWithin holds how soon a busy member goes on without the store: what is in hand, and then, when nothing
// that others may have got is left, its share.
func TestOnShareWithin(t *testing.T) {
	s := newSim(t, classNamed(t, "fast"), 4, 1)
	for _, m := range s.members {
		m.greedy = true
	}
	s.run(3 * time.Second)
	s.down = true
	begun, first := s.now, len(s.ledger.all)
	s.run(simDeadline + standardTerms.busy + time.Millisecond)
	for _, m := range s.members {
		if mode := m.machine.Status(m.local()).Mode; mode != OnShare {
			t.Errorf("%s is %v %v after the store has gone", m.name, mode, s.now-begun)
		}
	}
	s.run(2 * time.Second)
	last, longest := begun, time.Duration(0)
	for _, d := range s.ledger.all[first:] {
		longest, last = max(longest, d.At-last), d.At
	}
	t.Logf("nothing left for %v", longest)
	if longest > 100*time.Millisecond {
		t.Errorf("nothing left for %v after the store has gone", longest)
	}
}

// TestSlowStore has a store whose answers take 20 ms, for a minute, and then one whose answers take longer than
// members can do with. They use the limit, and then their shares.
func TestSlowStore(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"leaky", "fast"} {
		s := newSim(t, classNamed(t, name), 4, 1)
		for _, m := range s.members {
			m.greedy = true
		}
		s.run(3 * time.Second)
		s.steady = true
		for _, c := range []struct {
			way  time.Duration
			used float64
		}{{10 * time.Millisecond, 0.85}, {22 * time.Millisecond, 0.45}} {
			s.delay = c.way
			s.ledger.mark()
			s.run(60 * time.Second)
			if used := s.ledger.used(); used < c.used {
				t.Errorf("%s: with a round trip of %v %.1f %% of the limit is used", name, 2*c.way, 100*used)
			}
		}
		if err := s.ledger.gaps(); err != nil {
			t.Error(err)
		}
	}
}

// TestGreedyAndIdle has members that want everything beside others that want nothing.
func TestGreedyAndIdle(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"leaky", "fast"} {
		for greedy := 1; greedy <= 2; greedy++ {
			s := newSim(t, classNamed(t, name), 8, 5)
			for _, m := range s.members[:greedy] {
				m.greedy = true
			}
			s.run(3 * time.Second)
			s.ledger.mark()
			s.run(60 * time.Second)
			t.Logf("%s, %d greedy: %.1f %%, %s", name, greedy, 100*s.ledger.used(), s.shares())
			if s.ledger.used() < 0.98 {
				t.Errorf("%s: %d greedy members use %.1f %% of the limit", name, greedy, 100*s.ledger.used())
			}
			half := 0.0
			for _, d := range s.ledger.all[s.ledger.since:] {
				if d.Member == s.members[0].name {
					half++
				}
			}
			if half /= float64(len(s.ledger.all) - s.ledger.since); half < 0.95/float64(greedy) {
				t.Errorf("%s: of %d greedy members the first has %.1f %%", name, greedy, 100*half)
			}
		}
	}
}

// TestUrgentAmongBulk lets single items come to one member, while seven others want everything. What
// is within the horizon has been granted already, and then it is the turn of that member.
func TestUrgentAmongBulk(t *testing.T) {
	t.Parallel()
	span := trial.Size(300*time.Second, 1000*time.Second)
	for _, name := range []string{"leaky", "gcra"} {
		longest := func(bulk bool) (longest time.Duration) {
			s := newSim(t, classNamed(t, name), 8, 6)
			for _, m := range s.members[1:] {
				m.greedy = bulk
			}
			s.run(3 * time.Second)
			s.members[0].arrive(5 * time.Second)
			s.run(span)
			for _, w := range s.members[0].waits {
				longest = max(longest, w)
			}
			if len(s.members[0].waits) < int(span/(10*time.Second)) {
				t.Errorf("%s: only %d items have left", name, len(s.members[0].waits))
			}
			return longest
		}
		class := classNamed(t, name)
		lease := class.Rate.Time(class.Lease())
		alone, among := longest(false), longest(true)
		t.Logf("%s: an item waits at most %v alone, %v among bulk; a lease is %v", name, alone, among, lease)
		if most := alone + 2*lease + time.Millisecond; among > most {
			t.Errorf("%s: an item waited for %v, want at most %v", name, among, most)
		}
	}
}

// shares returns how much of the departures since the mark each member had.
func (s *sim) shares() (text string) {
	counts := map[string]int{}
	for _, d := range s.ledger.all[s.ledger.since:] {
		counts[d.Member]++
	}
	for _, m := range s.members {
		text += fmt.Sprintf(" %.1f%%", 100*float64(counts[m.name])/float64(len(s.ledger.all)-s.ledger.since))
	}
	return text
}

// TestNewcomerAsksWhenItKnowsTheClock has a member come for which items wait. It does not know whether the store's clock has just jumped, so it
// could use nothing that it asks for before it knows that clock: the first call is a beat, and the first slot comes when all slots that
// were granted before have ended.
func TestNewcomerAsksWhenItKnowsTheClock(t *testing.T) {
	m, err := NewMachine(classNamed(t, "fast"), "m", Fallback{}, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Unix(1_760_000_000, 0)
	model := Model{ID: "0"}
	model.Do(Stamp(now.UnixMicro())-1_000_000, &Call{Op: Beat, Class: m.current, Member: "other", Seq: 1, Grace: time.Hour}) // its fence is over
	l := m.Lease("")
	l.Want(now, 100, 1)
	for begin := now; l.Next(now, 0, 1) == limit.Never; now = now.Add(time.Millisecond) {
		var calls []Call
		for c, ok := m.Poll(now); ok; c, ok = m.Poll(now) {
			calls = append(calls, c)
		}
		if now.Equal(begin) && (len(calls) != 1 || calls[0].Op != Beat) {
			t.Fatalf("the first calls are %+v", calls)
		}
		for i := range calls {
			r := model.Do(Stamp(now.UnixMicro()), &calls[i])
			m.Answer(now.Add(time.Microsecond), &calls[i], &r)
		}
		if now.Sub(begin) > time.Second {
			t.Fatal("it gets nothing")
		}
	}
	if at := l.Next(now, 0, 1); at.Before(m.link.ready(m.class.timing())) {
		t.Errorf("an item leaves %v after the newcomer knows the clock, want %v", at.Sub(m.link.joined), m.link.ready(m.class.timing()).Sub(m.link.joined))
	}
}

// TestSuspendedMachine stops a member together with its clock. It goes on with the slots that it had in hand, whose times have
// passed for the others. What it gets later keeps the gap: the store's clock has jumped for it.
func TestSuspendedMachine(t *testing.T) {
	t.Parallel()
	s := newSim(t, classNamed(t, "fast"), 4, 1)
	for _, m := range s.members {
		m.greedy = true
	}
	s.run(3 * time.Second)
	m := s.members[0]
	for range 10 {
		m.asleep = true
		slept := time.Duration(1+s.r.IntN(9_000)) * time.Millisecond
		s.run(slept)
		m.zero = m.zero.Add(-slept)
		m.asleep, m.wakeAt = false, 0
		m.pump()
		s.run(standardTerms.horizon + 10*time.Millisecond)
		s.ledger.all = nil
		s.run(time.Second)
		if err := s.ledger.gaps(); err != nil {
			t.Error(err)
		}
	}
}
