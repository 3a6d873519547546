package fleet

import (
	"testing"
	"time"
)

// daily returns a class of each algorithm with a window: 1,000 a day.
func daily(t *testing.T) (all []Class) {
	for _, algorithm := range []Algorithm{FixedWindow, SlidingWindow, SlidingLog} {
		all = append(all, Class{Name: "a", Algorithm: algorithm, Rate: mustRate(t, "1000 messages/day"), Window: 24 * time.Hour})
	}
	return all
}

// use returns a member that has let so many units leave, all of which the store has granted.
func use(t *testing.T, class Class, units int) *alone {
	a := &alone{t: t, now: time.Unix(1_760_000_040, 0), store: Model{ID: "0"}}
	a.join(class, "m", 1)
	a.idle(2*time.Second, true)
	for left := 0; left < units; {
		l := a.m.Lease("")
		l.Want(a.now, int64(units-left), 1)
		a.exchange(true)
		for ; left < units && !l.Next(a.now, 0, 1).After(a.now); left++ {
			l.Take(a.now, a.now, 1)
		}
		a.now = a.now.Add(time.Millisecond)
	}
	return a
}

// remains returns what another member gets of a store as soon as that knows what others have seen used.
func (a *alone) remains() int64 {
	r := a.store.Do(Stamp(a.now.UnixMicro()), &Call{Op: Take, Class: a.m.current, Member: "n", Seq: 1, Number: 1, Wanted: 1000, Need: 1, Grace: time.Hour})
	return r.Units
}

// TestUsedOfARepeatedGrant loses the answer to a Take. The member gets the same grant again, and with it how much of the window
// is used: when the store restarts empty, it can tell.
func TestUsedOfARepeatedGrant(t *testing.T) {
	for _, class := range daily(t) {
		a := use(t, class, 800)
		l := a.m.Lease("")
		for lost := false; !lost; a.now = a.now.Add(time.Millisecond) {
			l.Want(a.now, 30, 30)
			for c, ok := a.m.Poll(a.now); ok; c, ok = a.m.Poll(a.now) {
				r := a.store.Do(Stamp(a.now.UnixMicro()), &c)
				if c.Op == Take && c.Wanted > 0 {
					lost = true
					a.m.Fail(a.now, &c)
					continue
				}
				a.m.Answer(a.now.Add(time.Microsecond), &c, &r)
			}
		}
		a.idle(time.Second, true)
		a.store = Model{ID: "1"}
		a.idle(3*time.Second, true)
		if n := a.remains(); n > 200 {
			t.Errorf("%v: 800 have left of 1000, and %d more may", class.Algorithm, n)
		}
	}
}

// TestKnowsNoLessThanItWasGranted has a store say of a window that less of it is used than it grants just now.
func TestKnowsNoLessThanItWasGranted(t *testing.T) {
	for _, class := range daily(t) {
		a := use(t, class, 800)
		l := a.m.Lease("")
		used := l.usage.units
		l.usage.learn(a.now, &class, &a.m.link.clock, &Reply{Now: Stamp(a.now.UnixMicro()), Units: 10, Used: 0})
		if used < 800 || l.usage.units != used {
			t.Errorf("%v: the member knows of %d units, and then of %d", class.Algorithm, used, l.usage.units)
		}
	}
}

// TestScriptKnowsWhatIsUsedAtARepetition has two members take units, and the first one repeat its call.
func TestScriptKnowsWhatIsUsedAtARepetition(t *testing.T) {
	for _, class := range daily(t) {
		for name, do := range both(t) {
			now := Stamp(1_760_000_000_123_456)
			take := func(member string, number, units, used int64) {
				t.Helper()
				now = now.Add(2 * time.Second) // the first call begins the recovery
				r, err := do(now, &Call{Op: Take, Class: &class, Member: member, Seq: int64(now), Number: number, Wanted: 10, Need: 1, Grace: time.Hour})
				if err != nil || r.Units != units || r.Used != used {
					t.Errorf("%s, %v: %v: take %d of %s gets %d units of a window that has %d used, want %d and %d", name, class.Algorithm, err, number, member, r.Units, r.Used, units, used)
				}
			}
			take("n", 1, 0, 0)
			take("m", 1, 10, 10)
			take("n", 2, 10, 20)
			take("m", 1, 10, 20)
			take("m", 2, 10, 30)
		}
	}
}

// TestIdleMemberTellsANewStore has a member use most of a window, and then want nothing. The store restarts empty at each
// moment between two of its calls, which all have to connect again. Another member, which has seen less, wants all at once.
func TestIdleMemberTellsANewStore(t *testing.T) {
	for _, class := range daily(t) {
		for phase := time.Duration(0); phase < time.Second; phase += 50 * time.Millisecond {
			s := newSim(t, class, 2, 1)
			s.run(3 * time.Second)
			idle, other := s.members[0], s.members[1]
			wants := func(m *simMember, units int64, d time.Duration) {
				m.queue = units
				m.pump()
				s.run(d)
			}
			wants(other, 100, time.Second)
			wants(idle, 700, 5*time.Second)
			s.run(phase)
			s.restart()
			wants(other, 1000, 5*time.Second)
			if n := len(s.ledger.all); n > 1000 {
				t.Errorf("%v, %v: %d have left of 1000", class.Algorithm, phase, n)
			}
		}
	}
}

// TestTestimonyIsRepeated loses the call by which an idle member tells a new store what it has seen used.
func TestTestimonyIsRepeated(t *testing.T) {
	for _, class := range daily(t) {
		a := use(t, class, 800)
		a.idle(time.Second, true)
		a.store = Model{ID: "1"}
		a.m.Lease("").Want(a.now, 0)
		for lost := false; !lost; a.now = a.now.Add(time.Millisecond) {
			for c, ok := a.m.Poll(a.now); ok; c, ok = a.m.Poll(a.now) {
				if c.Known > 0 {
					a.m.Fail(a.now, &c)
					lost = true
					continue
				}
				r := a.store.Do(Stamp(a.now.UnixMicro()), &c)
				a.m.Answer(a.now.Add(time.Microsecond), &c, &r)
			}
		}
		a.idle(3*time.Second, true)
		if n := a.remains(); n > 200 {
			t.Errorf("%v: 800 have left of 1000, and %d more may", class.Algorithm, n)
		}
	}
}

// TestSpentCountsOnce loses the answer to the call by which a member tells the store what it has used without it. The call goes again, and the
// store counts that once; what the member has used since comes in addition.
func TestSpentCountsOnce(t *testing.T) {
	for _, class := range daily(t) {
		for _, since := range []int64{0, 50} {
			a := use(t, class, 100)
			a.disk = map[string]Debt{}
			l := a.m.Lease("")
			l.Owe(a.now, 600, a.now.Add(24*time.Hour))
			for lost := 0; lost < 3; a.now = a.now.Add(time.Millisecond) {
				for c, ok := a.m.Poll(a.now); ok; c, ok = a.m.Poll(a.now) {
					var r Reply
					if c.Op != Keep && c.Op != Ping {
						r = a.store.Do(Stamp(a.now.UnixMicro()), &c)
					}
					if len(c.Spent) > 0 {
						lost++
						a.m.Fail(a.now, &c)
						continue
					}
					a.m.Answer(a.now.Add(time.Microsecond), &c, &r)
				}
			}
			l.Owe(a.now, since, a.now.Add(24*time.Hour))
			a.idle(3*time.Second, true)
			if n := a.remains(); since == 0 && n != 300 || since > 0 && n > 250 {
				t.Errorf("%v: of 1000 are used 100, 600 and %d, and %d remain", class.Algorithm, since, n)
			}
		}
	}
}

// TestWindowsAfterAnEmptyRestart has three members that use all they get. The store dies and comes back empty. No window is
// overfull, and those after the one in which it came back are used as before.
func TestWindowsAfterAnEmptyRestart(t *testing.T) {
	t.Parallel()
	const window, limit = 20 * time.Second, 2000
	for algorithm, judge := range map[Algorithm]func(*ledger) error{
		FixedWindow: (*ledger).windows, SlidingWindow: (*ledger).weighed, SlidingLog: (*ledger).within,
	} {
		for _, dies := range []time.Duration{500 * time.Millisecond, 12 * time.Second, 19500 * time.Millisecond} {
			s := newSim(t, Class{Name: "a", Algorithm: algorithm, Rate: mustRate(t, "2000 messages/20s"), Window: window}, 3, 1)
			for _, m := range s.members {
				m.greedy = true
			}
			begin := window - time.Duration(int64(s.stamp())%window.Microseconds())*time.Microsecond // the windows are those of the store
			s.run(begin + 2*window + dies)
			s.down = true
			s.run(time.Second)
			s.down = false
			s.restart()
			s.run(begin + 6*window - s.now)
			var used [6]int64
			for _, d := range s.ledger.all {
				if d.At >= begin {
					used[(d.At-begin)/window] += d.Units
				}
			}
			for _, n := range used[(2*window+dies+time.Second)/window+1:] {
				if n < limit*99/100 {
					t.Errorf("%v, dies at %v: the windows have %v", algorithm, dies, used)
					break
				}
			}
			if err := judge(&s.ledger); err != nil {
				t.Errorf("%v, dies at %v: %v", algorithm, dies, err)
			}
		}
	}
}

// TestUnitsOfAWindowEndWithIt has a member whose clock runs slower than that of the store: what it has been granted of a window does not
// leave in the next one, however long ago that was.
func TestUnitsOfAWindowEndWithIt(t *testing.T) {
	for _, algorithm := range []Algorithm{FixedWindow, SlidingWindow} {
		begins := time.Unix(1_760_000_100, 0)
		a := &alone{t: t, now: begins.Add(-3 * time.Second), store: Model{ID: "0"}}
		a.join(Class{Name: "a", Rate: mustRate(t, "30 messages/s"), Algorithm: algorithm, Window: 20 * time.Second}, "m", 1)
		a.idle(3*time.Second, true)
		l := a.m.Lease("")
		for ; a.now.Before(begins.Add(19 * time.Second)); a.now = a.now.Add(time.Millisecond) {
			a.ahead = a.now.Sub(begins) / 10_000
			l.Want(a.now, 10, 1)
			a.exchange(true)
		}
		ends := begins.Add(20*time.Second - a.ahead) // by the member's clock
		if at := l.Next(ends.Add(-2*time.Millisecond), 0, 10); at.After(ends) {
			t.Errorf("%v: just before the end, 10 units leave at %v, want at once", algorithm, at)
		}
		if at := l.Next(ends, 0, 1); !at.After(ends) {
			t.Errorf("%v: after the end, a unit leaves", algorithm)
		}
	}
}

// TestGivenBackToAFullWindow has a member be refused until a window ends, and then units of that come back: of its own items, which have
// cost less, or of another member. They leave at once or within a second, and so they are expected to, also if nothing has waited since.
func TestGivenBackToAFullWindow(t *testing.T) {
	for _, class := range daily(t) {
		for _, waits := range []bool{true, false} {
			a := use(t, class, 1000)
			a.run(50*time.Millisecond, true)
			l := a.m.Lease("")
			l.Amend(a.now, l.tookAt, -100)
			a.idle(200*time.Millisecond, true)
			if at := l.Estimate(a.now, 0, 1); class.Algorithm != SlidingLog && at.After(a.now) { // of a log, only the last lease comes back
				t.Errorf("%v: what has come back from the member itself is expected to leave in %v", class.Algorithm, at.Sub(a.now))
			}
			if left := a.run(50*time.Millisecond, true); class.Algorithm != SlidingLog && left < 100 {
				t.Errorf("%v: %d units of 100 leave that have come back from the member itself", class.Algorithm, left)
			}

			a = use(t, class, 10)
			got := a.store.Do(Stamp(a.now.UnixMicro()), &Call{Op: Take, Class: &class, Member: "n", Seq: 1, Number: 1, Wanted: 990, Need: 1, Grace: time.Hour})
			a.run(50*time.Millisecond, true)
			l = a.m.Lease("")
			if until := l.RefusedUntil(a.now, 1); !until.After(a.now.Add(10 * time.Second)) {
				t.Errorf("%v: a full window refuses for %v", class.Algorithm, until.Sub(a.now))
			}
			a.store.Do(Stamp(a.now.UnixMicro()), &Call{Op: Back, Class: &class, Member: "n", Seq: 2, Number: 2, Wanted: got.Units, From: got.First, Grace: time.Hour})
			if !waits {
				a.idle(1100*time.Millisecond, true)
				if at := l.Estimate(a.now, 0, 1); at.After(a.now) || l.RefusedUntil(a.now, 1).After(a.now) {
					t.Errorf("%v: what has come back from another member is expected to leave in %v", class.Algorithm, at.Sub(a.now))
				}
			}
			if left := a.run(1100*time.Millisecond, true); left != int(got.Units) {
				t.Errorf("%v: %d units of %d leave that have come back from another member", class.Algorithm, left, got.Units)
			}
		}
	}
}

// TestWhatWaitsAheadOfAnAnswer has a member ask for nothing, since what waits cannot leave before answers come. The items behind it are
// expected in later windows all the same.
func TestWhatWaitsAheadOfAnAnswer(t *testing.T) {
	for _, class := range daily(t) {
		a := use(t, class, 10)
		a.idle(5*time.Second, true)
		l := a.m.Lease("")
		if wait := l.Estimate(a.now, 900, 1).Sub(a.now); wait > 0 {
			t.Errorf("%v: behind 900 items of 1000 a day, one is expected to leave in %v", class.Algorithm, wait)
		}
		if wait := l.Estimate(a.now, 2500, 1).Sub(a.now); wait < 24*time.Hour {
			t.Errorf("%v: behind 2500 items of 1000 a day, one is expected to leave in %v", class.Algorithm, wait)
		}
	}
}

// TestNewcomerTakesNothingThatItCannotUse has a member come for which an item waits, and that sends all that is due before the store
// answers. It gets no more of a window than leaves, also if the first answer takes so long that the member knows too little of the store's clock.
func TestNewcomerTakesNothingThatItCannotUse(t *testing.T) {
	for _, class := range daily(t) {
		for _, first := range []time.Duration{time.Microsecond, class.deadline() * 9 / 10} {
			a := use(t, class, 100)
			gone := a.m.Leave(a.now)
			a.store.Do(Stamp(a.now.UnixMicro()), &gone)
			a.join(class, "o", 1)
			l := a.m.Lease("")
			l.Want(a.now, 300, 300)
			for begin, takes := a.now, first; l.Next(a.now, 0, 300).After(a.now); a.now = a.now.Add(time.Millisecond) {
				var calls []Call
				for c, ok := a.m.Poll(a.now); ok; c, ok = a.m.Poll(a.now) {
					calls = append(calls, c)
				}
				for _, c := range calls {
					r := a.store.Do(Stamp(a.now.UnixMicro()), &c)
					a.now = a.now.Add(takes)
					a.m.Answer(a.now, &c, &r)
					takes = time.Microsecond
				}
				if a.now.Sub(begin) > 3*time.Second {
					t.Errorf("%v, first answer after %v: nothing leaves", class.Algorithm, first)
					break
				}
			}
			if b := a.store.classes["a"].buckets[""]; b.used+b.total != 400 {
				t.Errorf("%v, first answer after %v: %d units are used after 100 and 300", class.Algorithm, first, b.used+b.total)
			}
		}
	}
}
