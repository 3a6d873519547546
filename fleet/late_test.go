package fleet

import (
	"slices"
	"testing"
	"time"

	"shaper/fleet/fleettest"
	"shaper/tests/trial"
)

// TestNextMemberHearsOfALateDeparture lets one item in five leave some milliseconds after its turn, as items do if the system has no
// processor for the member. The next slots are of other members, which leave a gap after that item all the same. Nothing but
// the lateness is lost.
func TestNextMemberHearsOfALateDeparture(t *testing.T) {
	t.Parallel()
	class := Class{Name: "slow", Rate: mustRate(t, "19.8 messages/s"), Late: 470 * time.Microsecond}
	s := lateSim(t, class, 8, 1, 0.2, 18*time.Millisecond)
	if err := s.ledger.gaps(); err != nil {
		t.Error(err)
	}
	lost := 0.2 * 0.009 * 19.8 // of each second
	if used := s.ledger.used(); used < 0.99-lost {
		t.Errorf("%.1f %% of the limit is used, want %.1f %%", 100*used, 100*(0.99-lost))
	}
}

// TestMoveKeepsItemsOfSeveralUnits moves slots of items that reach beyond the horizon: none of them is lost.
func TestMoveKeepsItemsOfSeveralUnits(t *testing.T) {
	t.Parallel()
	class := Class{Name: "slow", Rate: mustRate(t, "19.8 messages/s"), Late: 470 * time.Microsecond}
	s := lateSim(t, class, 1, 1, 1, 4*time.Millisecond)
	m := s.join("large")
	m.greedy, m.size = true, 4
	s.run(3 * time.Second)
	s.ledger.mark()
	s.run(trial.Size(50*time.Second, 500*time.Second))
	if used := s.ledger.used(); used < 0.97 {
		t.Errorf("%.1f %% of the limit is used, want 97.0 %%", 100*used)
	}
	if lost := m.machine.Counts().Expired; lost > 0 {
		t.Errorf("%d units are lost", lost)
	}
}

// lateSim lets so much of the items of greedy members leave late, by so much at most.
func lateSim(t *testing.T, class Class, members int, seed uint64, stuck float64, longest time.Duration) *sim {
	s := newSim(t, class, members, seed)
	for _, m := range s.members {
		m.greedy = true
	}
	s.run(3 * time.Second)
	s.stuck, s.longest = stuck, longest
	s.ledger.mark()
	s.run(trial.Size(50*time.Second, 500*time.Second))
	return s
}

// TestMovedSlotsKeepTheirGaps lets items leave late at many rates. If a gap is too short, then one beside such an item: no slot moves
// into the gap of another one.
func TestMovedSlotsKeepTheirGaps(t *testing.T) {
	t.Parallel()
	if trial.Raced {
		t.Skip("the simulation has one goroutine")
	}
	for seed, rate := range []string{"1 messages/s", "7 messages/s", "13 messages/s", "19.8 messages/s", "25 messages/s", "35 messages/s", "60 messages/s", "500 messages/s"} {
		for _, deadline := range []time.Duration{defaultDeadline, maxDeadline} {
			class := Class{Name: "a", Rate: mustRate(t, rate), Late: 400 * time.Microsecond, Deadline: deadline}
			s := lateSim(t, class, 2+seed, uint64(seed), 0.2, 40*time.Millisecond)
			short := 0
			for i := 1; i < len(s.ledger.all); i++ {
				if err := fleettest.Gaps(s.ledger.all[i-1:i+1], class.Rate.Time(1), class.Late); err == nil {
					continue
				} else if short++; !slices.Contains(s.ledger.late, i-1) && !slices.Contains(s.ledger.late, i) {
					t.Errorf("%s, deadline %v: %v", rate, deadline, err)
				}
			}
			t.Logf("%s, deadline %v: %d of %d late, %d gaps short, %.2f %%", rate, deadline, len(s.ledger.late), len(s.ledger.all), short, 100*s.ledger.used())
		}
	}
}

// TestMoveOfSlots moves the slots of a class. The next grant begins later, and a grant that comes again says how far slots had moved
// when it was new. A store that has just lost what it knew moves none.
func TestMoveOfSlots(t *testing.T) {
	class := &Class{Name: "a", Rate: mustRate(t, "20 messages/s"), Late: time.Millisecond}
	for name, do := range both(t) {
		now, seq, member := Stamp(1_760_000_000_123_456), int64(0), "m"
		ask := func(op Op, key string, number, wanted int64) Reply {
			seq++
			r, err := do(now, &Call{Op: op, Class: class, Key: key, Member: member, Seq: seq, Grace: time.Hour, Number: number, Wanted: wanted, Need: 1})
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		if r := ask(Move, "", 0, 1000); r.Moved != 0 {
			t.Errorf("%s: a new store has moved slots by %d µs", name, r.Moved)
		}
		now = now.Add(2 * time.Second)
		first := ask(Take, "", 1, 1)
		if r := ask(Move, "k", 1, 3000); r.Moved != 0 {
			t.Errorf("%s: those of a key have moved the slots of the class by %d µs", name, r.Moved)
		}
		for i := range int64(6) { // each comes twice
			if r := ask(Move, "", 2+i/2, 3000); r.Moved != 3000*Stamp(1+i/2) {
				t.Errorf("%s: slots have moved by %d µs after %d times 3000", name, r.Moved, 1+i/2)
			}
		}
		if r := ask(Take, "", 1, 1); r.First != first.First || r.Till != 0 || r.Moved != 9000 {
			t.Errorf("%s: the same grant is %+v, and was %+v", name, r, first)
		}
		now = now.Add(20 * time.Millisecond)
		if r := ask(Take, "", 2, 1); r.First != first.First+59_000 || r.Till != 9000 {
			t.Errorf("%s: the next grant is %+v after %+v", name, r, first)
		}
		now = now.Add(time.Second)
		ask(Move, "", 5, 3000)
		if r := ask(Take, "", 3, 1); r.First != now+3000 {
			t.Errorf("%s: after a second without slots, the next one begins %v after a late departure", name, r.First.Sub(now))
		}
		for range 2 { // each comes twice, one after the other
			for _, member = range []string{"m", "n"} {
				ask(Move, "", 6, 3000)
			}
		}
		if r := ask(Beat, "", 0, 0); r.Moved != 18_000 {
			t.Errorf("%s: slots have moved by %d µs after six times 3000", name, r.Moved)
		}
	}
}

// TestNobodyTellsOfTheseDepartures has items leave that are punctual, or of which others would hear too late.
func TestNobodyTellsOfTheseDepartures(t *testing.T) {
	for name, c := range map[string]struct {
		rate  string
		burst int64
		key   string
		late  time.Duration
		tells bool
	}{
		"late":     {"20 messages/s", 1, "", 1100 * time.Microsecond, true},
		"punctual": {"20 messages/s", 1, "", time.Millisecond, false},
		"a key":    {"20 messages/s", 1, "k", 2 * time.Millisecond, false},
		"fast":     {"50 messages/s", 1, "", 2 * time.Millisecond, false},
		"a burst":  {"20 messages/s", 9, "", time.Second, false},
	} {
		a := &alone{t: t, now: time.Unix(1_760_000_100, 0), store: Model{ID: "0"}}
		a.join(Class{Name: "a", Rate: mustRate(t, c.rate), Burst: c.burst, Late: time.Millisecond}, "m", 1)
		a.idle(3*time.Second, true) // so that the fence of a new store is over
		l := a.m.Lease(c.key)
		l.Want(a.now, 1, 1)
		a.exchange(true)
		at := l.Next(a.now, 0, 1)
		l.Take(at, at, 1)
		l.Left(at.Add(c.late))
		if tells := a.m.overdue > 0; tells != c.tells {
			t.Errorf("%s: it tells of a lateness of %v, of which %v matters: %v", name, c.late, a.m.overdue, tells)
		}
		if call, ok := a.m.Poll(at.Add(c.late)); c.tells && (!ok || call.Op != Move || call.Wanted < 100 || call.Wanted > 110) {
			t.Errorf("%s: the call is %+v", name, call)
		}
	}
}

// TestLostBlockIsReplaced moves a slot further than slots may be granted ahead, so that it is lost. The member asks for another one
// at once, and not only when that slot would have been over.
func TestLostBlockIsReplaced(t *testing.T) {
	a := &alone{t: t, now: time.Unix(1_760_000_100, 0), store: Model{ID: "0"}}
	a.join(Class{Name: "a", Rate: mustRate(t, "20 messages/s"), Late: time.Millisecond}, "m", 1)
	l := a.m.Lease("")
	for a.run(3*time.Second, true); l.held[0].remaining() == 0 || l.held[0].at.Sub(a.now) < 10*time.Millisecond; {
		if a.run(time.Millisecond, true); a.now.Sub(time.Unix(1_760_000_100, 0)) > 5*time.Second {
			t.Fatal("no slot is granted ahead")
		}
	}
	a.m.hearMoves(a.now, &Reply{Now: a.m.link.clock.stamp(a.now), Moved: Stamp(time.Second.Microseconds())})
	if n := l.held[0].remaining(); n > 0 {
		t.Fatalf("%d slots are in hand, a second later", n)
	}
	if c, ok := a.m.Poll(a.now.Add(time.Millisecond)); !ok || c.Op != Take {
		t.Errorf("the call is %+v", c)
	}
}
