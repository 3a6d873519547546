package fleet

import (
	"maps"
	"slices"
	"testing"
	"time"
)

// alone plays the only member of a class against a store, in steps of 1 ms.
type alone struct {
	t     *testing.T
	now   time.Time
	store Model
	ahead time.Duration // how far the store's clock is ahead of the member's
	m     *Machine
	disk  map[string]Debt // what its ledger has
}

// join makes a member, in the place of the last one.
func (a *alone) join(class Class, name string, first int64) {
	var err error
	if a.m, err = NewMachine(class, name, Fallback{}, first, nil); err != nil {
		a.t.Fatal(err)
	}
	a.m.absence.keep(a.now, slices.Collect(maps.Values(a.disk)))
}

// run lets everything leave that may, and returns how many units did. The store answers if there is one.
func (a *alone) run(d time.Duration, there bool) (left int) { return a.play(d, there, 1000) }

// idle is run while nothing waits.
func (a *alone) idle(d time.Duration, there bool) { a.play(d, there, 0) }

func (a *alone) play(d time.Duration, there bool, wanted int64) (left int) {
	l := a.m.Lease("")
	for end := a.now.Add(d); a.now.Before(end); a.now = a.now.Add(time.Millisecond) {
		l.Want(a.now, wanted, min(wanted, 1))
		a.exchange(there)
		for wanted > 0 && !l.Next(a.now, 0, 1).After(a.now) {
			l.Take(a.now, a.now, 1)
			left++
		}
	}
	return left
}

// exchange has the store answer all calls that are due, if it is there.
func (a *alone) exchange(there bool) {
	for c, ok := a.m.Poll(a.now); ok; c, ok = a.m.Poll(a.now) {
		if c.Op == Keep {
			a.disk[c.Key] = Debt{c.Key, c.Wanted, a.now.Add(c.Lasts)}
			a.m.Answer(a.now, &c, &Reply{})
			continue
		}
		if !there {
			a.m.Fail(a.now, &c)
			continue
		}
		r := a.store.Do(Stamp(a.now.Add(a.ahead).UnixMicro()), &c)
		a.m.Answer(a.now.Add(time.Microsecond), &c, &r)
	}
}

// TestStoreThatRefusesOneCommand has a store that answers pings and beats, and refuses all else, because it is full or an ACL
// lacks a command. The member leaves it alone for longer and longer, instead of coming back as fast as the store answers.
func TestStoreThatRefusesOneCommand(t *testing.T) {
	a := &alone{t: t, now: time.Unix(1_760_000_100, 0), store: Model{ID: "0"}}
	a.join(Class{Name: "a", Rate: mustRate(t, "20 messages/s"), Late: time.Millisecond}, "m", 1)
	a.run(3*time.Second, true)
	l, pings := a.m.Lease(""), 0
	for end := a.now.Add(10 * time.Second); a.now.Before(end); a.now = a.now.Add(time.Millisecond) {
		l.Want(a.now, 1000, 1)
		for c, ok := a.m.Poll(a.now); ok; c, ok = a.m.Poll(a.now) {
			switch c.Op {
			case Take:
				if a.m.Fail(a.now, &c); a.m.link.informed() {
					t.Fatal("the member takes the store for the one that it knows, although it may have lost what it knew")
				}
				continue
			case Ping:
				pings++
			}
			r := a.store.Do(Stamp(a.now.UnixMicro()), &c)
			a.m.Answer(a.now.Add(time.Microsecond), &c, &r)
		}
	}
	if pings == 0 || pings > 40 {
		t.Errorf("%d pings in 10 s, want at most four in a second", pings)
	}
	if a.run(2*time.Second, true); a.m.mode != FromStore {
		t.Errorf("the store is well for 2 s, and the mode is %v", a.m.mode)
	}
}

// TestWindowAfterAnAbsence lets one of 100 a day leave, and takes the store away until the member goes on without it. When the
// store is there again, the next one leaves: a window knows no gaps.
func TestWindowAfterAnAbsence(t *testing.T) {
	for _, algorithm := range []Algorithm{FixedWindow, SlidingWindow, SlidingLog} {
		a := &alone{t: t, now: time.Unix(1_760_000_040, 0), store: Model{ID: "0"}}
		a.join(Class{Name: "a", Algorithm: algorithm, Rate: mustRate(t, "100 messages/day"), Window: 24 * time.Hour}, "m", 1)
		l := a.m.Lease("")
		until := func(what string, there bool, reached func() bool) {
			for end := a.now.Add(10 * time.Second); !reached(); a.now = a.now.Add(time.Millisecond) {
				if a.now.After(end) {
					t.Fatalf("%v: nothing after 10 s: %s", algorithm, what)
				}
				l.Want(a.now, 50, 1)
				a.exchange(there)
			}
		}
		leaves := func() bool { return !l.Next(a.now, 0, 1).After(a.now) }
		until("the first one leaves", true, leaves)
		l.Take(a.now, a.now, 1)
		until("the store is away", false, func() bool { return a.m.mode == OnShare })
		until("the store is there", true, func() bool { return a.m.mode == FromStore })
		until("the next one leaves", true, leaves)
	}
}

// TestAgainAfterItsShare ends a member while the store is away, and starts it again under its name. What its share let leave
// has used the burst, and the gap after it is kept.
func TestAgainAfterItsShare(t *testing.T) {
	for _, c := range []struct {
		burst int64
		most  int // in a second
	}{{1, 1}, {100, 101}} {
		a := &alone{t: t, now: time.Unix(1_760_000_040, 0), store: Model{ID: "0"}}
		class := Class{Name: "a", Rate: mustRate(t, "1 message/s"), Burst: c.burst, Late: time.Millisecond}
		a.join(class, "m", 1)
		a.run(4*time.Second, true)
		a.idle(10*time.Second, true)
		a.run(5*time.Second, false)
		a.idle(150*time.Second, false)
		share := a.run(50*time.Millisecond, false)
		a.join(class, "m", 1_000_000)
		again := a.run(950*time.Millisecond, true)
		if share == 0 || share+again > c.most {
			t.Errorf("burst %d: %d left from the share, and %d after it; want %d at most", c.burst, share, again, c.most)
		}
		if again = a.run(5*time.Second, true); again < 3 {
			t.Errorf("burst %d: %d have left in 5s", c.burst, again)
		}
	}
}

// TestAgainInAWindow kills the only member of a class in the middle of a window of 600, and starts it again under its name. It
// goes on at once with what it is owed, and never with more: whether it had the store, or its share, or had the store again.
func TestAgainInAWindow(t *testing.T) {
	for _, c := range []struct {
		name string
		away time.Duration // how long before the window begins the store goes away; 0: it stays
		back time.Duration // how long before the end it is back; 0: it is not
	}{{"with the store", 0, 0}, {"on its share", 30 * time.Second, 0}, {"with the store again", 30 * time.Second, 300 * time.Millisecond}} {
		t.Run(c.name, func(t *testing.T) {
			window := 5 * time.Minute
			a := &alone{t: t, now: time.Unix(1_760_000_100, 0).Truncate(window).Add(window), store: Model{ID: "0"}, disk: map[string]Debt{}}
			class := Class{Name: "a", Algorithm: FixedWindow, Rate: mustRate(t, "120 messages/min"), Window: window}
			a.join(class, "m", 1)
			a.idle(window-c.away, true)
			a.idle(c.away, c.away == 0)
			begun := a.now
			left := 0
			for range 5000 {
				if left < 200 {
					left += a.run(time.Millisecond, c.away == 0)
				} else {
					a.idle(time.Millisecond, c.away == 0)
				}
			}
			left += a.play(c.back, true, 0)
			if left < 200 || left > 210 {
				t.Fatalf("%d have left, want 200", left)
			}
			again := 0
			for i := range 3 {
				a.join(class, "m", int64(i+1)*1_000_000)
				again += a.run(2*time.Second, true)
			}
			t.Logf("%d left, and %d again", left, again)
			if left+again > 600 || left+again < 580 {
				t.Errorf("%d left, and %d again, want 600", left, again)
			}
			if a.idle(begun.Add(window).Sub(a.now), true); len(a.disk) > 0 && a.disk[""].Units > 0 {
				t.Errorf("the ledger still has %v", a.disk)
			}
		})
	}
}

// TestDebtAfterALoss cuts a member off before a window begins, and later its store restarts empty. The member comes back
// before the other, which knows how much of the window both had got from the store. Whether it lives or was killed, its debt
// counts on top of that.
func TestDebtAfterALoss(t *testing.T) {
	for _, killed := range []bool{false, true} {
		class := Class{Name: "a", Algorithm: FixedWindow, Rate: mustRate(t, "3000 messages/min"), Window: time.Minute}
		s := newSim(t, class, 2, 1)
		s.run(50 * time.Second)
		first, other := s.members[0], s.members[1]
		first.cut = true
		s.run(11 * time.Second)
		first.greedy, other.greedy = true, true
		first.pump()
		other.pump()
		s.run(5 * time.Second)
		other.cut = true
		s.run(time.Second)
		s.restart()
		if killed {
			first.again()
			first = s.members[0]
		}
		first.cut = false
		s.run(200 * time.Millisecond)
		other.cut = false
		s.run(40 * time.Second)
		if err := s.ledger.windows(); err != nil {
			t.Errorf("killed %v: %v", killed, err)
		}
		if n := len(s.ledger.all); n < 2900 {
			t.Errorf("killed %v: %d have left", killed, n)
		}
	}
}

// TestDebtIsToldFirst has a member come again with debts of two keys. The store holds its share back until it knows both.
func TestDebtIsToldFirst(t *testing.T) {
	class := Class{Name: "a", Algorithm: FixedWindow, Rate: mustRate(t, "3000 messages/min"), Window: time.Minute}
	a := &alone{t: t, now: time.Unix(1_760_000_100, 0), store: Model{ID: "0"}, disk: map[string]Debt{}}
	for _, key := range []string{"", "k"} {
		a.disk[key] = Debt{Key: key, Units: 7, Until: a.now.Add(time.Hour)}
	}
	a.join(class, "m", 1)
	told := 0
	for range 100 {
		for c, ok := a.m.Poll(a.now); ok; c, ok = a.m.Poll(a.now) {
			if c.Seq > 0 && told < 2 {
				t.Fatalf("%+v counts the member as present, after %d debts", c, told)
			}
			if len(c.Spent) == 1 && c.Spent[0].Units == 7 {
				told++
			}
			r := a.store.Do(Stamp(a.now.UnixMicro()), &c)
			a.m.Answer(a.now, &c, &r)
		}
		a.now = a.now.Add(100 * time.Millisecond)
	}
	if told != 2 {
		t.Errorf("the store has heard of %d debts, want 2", told)
	}
}

// TestOweIsKept has a process end that could not tell the store what it had used before its class was shared. The next one
// tells it, and then the ledger has nothing of it.
func TestOweIsKept(t *testing.T) {
	for _, algorithm := range []Algorithm{FixedWindow, SlidingWindow, SlidingLog} {
		class := Class{Name: "a", Algorithm: algorithm, Rate: mustRate(t, "300 messages/min"), Window: time.Minute}
		a := &alone{t: t, now: time.Unix(1_760_000_100, 0).Truncate(time.Minute), store: Model{ID: "0"}, disk: map[string]Debt{}}
		a.join(class, "m", 1)
		a.m.Lease("").Owe(a.now, 200, a.now.Add(time.Minute))
		a.run(time.Second, false)
		a.join(class, "m", 1000)
		if n := a.run(10*time.Second, true); n == 0 || n > 100+35 { // a sliding window has forgotten a sixth by then
			t.Errorf("%v: %d have left of 300, and 200 had been used before", algorithm, n)
		}
		if d := a.disk[""]; d.Units != 0 {
			t.Errorf("%v: the ledger still has %v", algorithm, d)
		}
	}
}
