package fleet

import (
	"fmt"
	"testing"
	"time"
)

// TestShareOfALongWindow holds that a member tells the store what it has used of its share in a window of the calendar until
// that window ends: a day of 25 hours is longer than its length says.
func TestShareOfALongWindow(t *testing.T) {
	m, err := NewMachine(classNamed(t, "calendar"), "m", Fallback{}, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	l, now := m.Lease(""), time.Unix(1_760_000_000, 0)
	ends := now.Add(25 * m.class.Window / 24)
	m.link.clock.sample(now, now, Stamp(now.UnixMicro()))
	l.spent.spend(now, &m.class, 3, m.absence.ends(Stamp(ends.UnixMicro())))
	if !l.spent.owes(ends.Add(-1)) {
		t.Error("the store does not hear of it at the end of the window")
	}
	if l.spent.owes(ends.Add(m.class.Window)) {
		t.Error("the store hears of it in a later window")
	}
}

// TestShareOfTheWindowBefore has all members use their shares of a sliding window as soon as it begins, and nothing more
// until they have the store again, in the next window. What they have used goes on to count there, less and less.
func TestShareOfTheWindowBefore(t *testing.T) {
	c := classNamed(t, "sliding")
	for back := 10 * time.Millisecond; back < c.Window; back += 290 * time.Millisecond {
		s := newSim(t, c, 4, 1)
		want := func(greedy bool, units int64) {
			for _, m := range s.members {
				m.greedy, m.queue = greedy, units
				m.pump()
			}
		}
		s.run(c.Window)
		s.down = true
		s.run(3*c.Window - time.Duration(s.stamp())*time.Microsecond%c.Window + 10*time.Millisecond)
		want(false, 225)
		s.run(c.Window + back)
		if n := len(s.ledger.all); n != 4*225 {
			t.Fatalf("%d have left on the shares", n)
		}
		s.down = false
		want(true, 0)
		s.run(2*c.Window - back)
		if err := s.ledger.weighed(); err != nil {
			t.Errorf("%v after a window: %v", back, err)
		}
		if n := len(s.ledger.all); n < 2*4*225 {
			t.Errorf("%v after a window: %d have left two windows later", back, n)
		}
	}
}

// TestOwingEnds has windows end before the store has heard what left in them at the member's share: a Member has no more than
// maxPending calls at once. It goes on to tell the store that it is there.
func TestOwingEnds(t *testing.T) {
	m, err := NewMachine(classNamed(t, "fixed"), "m", Fallback{}, 1, nil) // windows of 1 s
	if err != nil {
		t.Fatal(err)
	}
	now := time.Unix(1_760_000_000, 0)
	model := Model{ID: "0"}
	run := func(d time.Duration, calls int) {
		for end := now.Add(d); now.Before(end); now = now.Add(time.Millisecond) {
			for range calls {
				c, ok := m.Poll(now)
				if !ok {
					break
				}
				if !m.link.down {
					r := model.Do(Stamp(now.UnixMicro()), &c)
					m.Answer(now.Add(time.Microsecond), &c, &r)
				}
			}
		}
	}
	run(5*time.Second, 1000)
	m.Fail(now, &Call{Op: Beat})
	run(4*time.Second, 1000)
	for i := range 2 * maxPending {
		m.Lease(fmt.Sprint(i)).Want(now, 1, 1)
	}
	for left := false; !left; {
		run(time.Millisecond, 1000)
		for _, l := range m.leases {
			if l.wanted > 0 && !l.Next(now, 0, 1).After(now) {
				l.Take(now, now, 1)
				left = true
			}
		}
	}
	m.Answer(now, &Call{Op: Ping}, &Reply{})
	if m.owing <= maxPending {
		t.Fatalf("%d keys owe something", m.owing)
	}
	run(time.Millisecond, maxPending)
	now = now.Add(1500 * time.Millisecond)
	run(2*time.Second, 1000)
	if m.owing > 0 || now.Sub(m.link.lastSent) > 2*time.Second {
		t.Errorf("%d keys owe something, and the store has heard of the member %v ago", m.owing, now.Sub(m.link.lastSent))
	}
}

// TestShareOfTwoCallsAtOnce has two calls of a member on their way at once, and another member comes between them. The answer
// to the second is lost. The shares are not more than the whole.
func TestShareOfTwoCallsAtOnce(t *testing.T) {
	class := classNamed(t, "leaky")
	model := Model{ID: "0"}
	now := time.Unix(1_760_000_000, 0)
	do := func(c *Call) Reply { return model.Do(Stamp(now.UnixMicro()), c) }
	do(&Call{Op: Leave, Class: &class, Member: "nobody"})
	now = now.Add(3 * time.Second)
	var members [2]*Machine
	for i := range members {
		var err error
		if members[i], err = NewMachine(class, fmt.Sprint(i), Fallback{}, 1, nil); err != nil {
			t.Fatal(err)
		}
	}
	a, b := members[0], members[1]
	join, _ := a.Poll(now)
	joined := do(&join)
	a.Answer(now, &join, &joined)
	now = now.Add(2 * time.Second)
	a.Lease("").Want(now, 5, 1)
	first, _ := a.Poll(now)
	second, ok := a.Poll(now)
	if !ok {
		t.Fatal("a member has one call at a time")
	}
	r := do(&first)
	beat, _ := b.Poll(now)
	came := do(&beat)
	do(&second)
	now = now.Add(time.Millisecond)
	a.Answer(now, &first, &r)
	b.Answer(now, &beat, &came)
	for range 2 {
		now = now.Add(2 * time.Second)
		if beat, ok = b.Poll(now); ok {
			came = do(&beat)
			b.Answer(now, &beat, &came)
		}
	}
	a.Fail(now, &second)
	if sum := a.link.share + b.link.share; sum > whole || a.link.share == 0 {
		t.Errorf("the shares are %d and %d", a.link.share, b.link.share)
	}
}

// TestShareForgetsKeys lets keys come and go while the store is away. With a rate in the policy, that may be for ever.
func TestShareForgetsKeys(t *testing.T) {
	for _, name := range []string{"leaky", "fixed"} {
		m, err := NewMachine(classNamed(t, name), "m", Fallback{Rate: mustRate(t, "1 message/s")}, 1, nil)
		if err != nil {
			t.Fatal(err)
		}
		now := time.Unix(1_760_000_000, 0)
		m.Fail(now, &Call{Op: Beat})
		for i := range 5000 {
			l := m.Lease(fmt.Sprint(i))
			l.Want(now, 1, 1)
			for range 30 {
				m.Poll(now)
				if !l.Next(now, 0, 1).After(now) {
					l.Take(now, now, 1)
					break
				}
				now = now.Add(10 * time.Millisecond)
			}
			m.Forget(l)
			now = now.Add(time.Second)
		}
		m.Poll(now)
		if n := len(m.absence.heir.classes[name].buckets); n > 200 || len(m.leases) > 200 {
			t.Errorf("%s: of 5000 keys, %d are in the share, and %d in the machine", name, n, len(m.leases))
		}
	}
}

// TestFallbackFromTheStart has a store that was never there, and a rate in the policy for that.
func TestFallbackFromTheStart(t *testing.T) {
	for _, name := range []string{"leaky", "gcra", "fixed", "log"} {
		m, err := NewMachine(classNamed(t, name), "m", Fallback{Rate: mustRate(t, "10 messages/s")}, 1, nil)
		if err != nil {
			t.Fatal(err)
		}
		now := time.Unix(1_760_000_000, 0)
		m.Fail(now, &Call{Op: Beat})
		l := m.Lease("")
		l.Want(now, 1000, 1)
		left := 0
		for i := range 30_000 {
			if i == 20_000 {
				left = 0 // of a window that began before nothing leaves
			}
			m.Poll(now)
			if !l.Next(now, 0, 1).After(now) {
				l.Take(now, now, 1)
				left++
			}
			now = now.Add(time.Millisecond)
		}
		if left < 90 || left > 102 {
			t.Errorf("%s: %d leave in 10 s", name, left)
		}
	}
}

// sharers returns a call of a member that says what its share is. Each comes a millisecond after the one before.
func sharers(t *testing.T, do func(Stamp, *Call) (Reply, error), class *Class, now *Stamp) func(op Op, member string, seq, share int64) Reply {
	return func(op Op, member string, seq, share int64) Reply {
		t.Helper()
		*now = now.Add(time.Millisecond)
		r, err := do(*now, &Call{Op: op, Class: class, Member: member, Seq: seq, Share: share, Grace: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
}

// TestShareIsClaimedOnce has three members, and a store that loses them while only some reach it. What a member says without
// a number claims nothing: nobody can tell how often it arrives. A newcomer gets none of the shares that are held back.
func TestShareIsClaimedOnce(t *testing.T) {
	const third = whole / 3
	for _, c := range []struct {
		first string // the only one that reaches the store during the recovery
		seq   int64
	}{{"a", 1}, {"a", 0}, {"b", 0}} {
		for name, do := range both(t) {
			class := &Class{Name: fmt.Sprint("acme", c), Rate: mustRate(t, "20 messages/s"), Late: time.Millisecond}
			now := Stamp(1_760_000_000_123_456)
			call := sharers(t, do, class, &now)
			call(Beat, c.first, c.seq, third)
			now = now.Add(10 * time.Second) // the recovery is over
			call(Take, "new", 0, 0)
			for range 3 {
				call(Take, "b", 0, third)
			}
			if got := call(Beat, "b", 1, third).Share; got > third {
				t.Errorf("%s: %v: b gets %d millionths", name, c, got)
			}
			if got := call(Beat, "new", 1, 0).Share; got > 0 {
				t.Errorf("%s: %v: a newcomer gets %d millionths", name, c, got)
			}
		}
	}
}

// TestShareAfterAClockSetForward has a store whose clock is set by an hour, so that it loses all, and a member that says
// so only after the recovery, with a time of the clock before. What it claims stays its own until its next call.
func TestShareAfterAClockSetForward(t *testing.T) {
	const half = whole / 2
	for name, do := range both(t) {
		class := &Class{Name: "acme", Rate: mustRate(t, "20 messages/s"), Late: time.Millisecond}
		now := Stamp(1_760_000_000_123_456)
		call := sharers(t, do, class, &now)
		call(Beat, "a", 1, half)
		now = now.Add(10 * time.Second) // the recovery is over: the share of b is held back
		late := &Call{Op: Beat, Class: class, Member: "b", Seq: 1, Share: half, Sent: now.Add(-time.Hour), Grace: time.Second}
		if r, err := do(now, late); err != nil || r.Share != half {
			t.Errorf("%s: b gets %d millionths: %v", name, r.Share, err)
		}
		for seq := range int64(2) {
			if got := call(Beat, "a", 2+seq, half).Share; got != half {
				t.Errorf("%s: beside b, a gets %d millionths", name, got)
			}
		}
		if got := call(Beat, "b", 2, half).Share; got != half {
			t.Errorf("%s: b gets %d millionths at its next call", name, got)
		}
	}
}

// TestSharesAfterAClockSetForward has a store whose clock is set forward by more than the hold, but by less than it keeps
// what it knows. All members stay: also those that cannot reach it, and go on at their shares.
func TestSharesAfterAClockSetForward(t *testing.T) {
	const half = whole / 2
	for name, do := range both(t) {
		class := &Class{Name: "acme", Rate: mustRate(t, "20 messages/s"), Late: time.Millisecond}
		now := Stamp(1_760_000_000_123_456)
		call := sharers(t, do, class, &now)
		call(Beat, "a", 1, half)
		call(Beat, "b", 1, half)
		now = now.Add(10 * time.Second)
		call(Beat, "a", 2, half)
		sent := now
		now = now.Add(15 * time.Minute)
		if r, err := do(now, &Call{Op: Beat, Class: class, Member: "a", Seq: 3, Share: half, Sent: sent, Grace: time.Minute}); err != nil || r.Share != half {
			t.Errorf("%s: a gets %d millionths: %v", name, r.Share, err)
		}
		if got := call(Beat, "a", 4, half).Share; got != half {
			t.Errorf("%s: a gets %d millionths, and b may still use its half", name, got)
		}
	}
}

// TestNobodyIsSilentBesideTooMuch has members that claim more than the whole after a loss: one of them did not reach the store until
// the others had its share. Then less than nothing would be silent.
func TestNobodyIsSilentBesideTooMuch(t *testing.T) {
	for name, do := range both(t) {
		class := &Class{Name: "acme", Rate: mustRate(t, "20 messages/s"), Late: time.Millisecond}
		now := Stamp(1_760_000_000_123_456)
		call := sharers(t, do, class, &now)
		call(Beat, "a", 1, whole)
		if got := call(Beat, "b", 1, whole/2).Silent; got != 0 {
			t.Errorf("%s: the shares of silent members are %d millionths", name, got)
		}
	}
}

// TestShareIsHeldBackTwice has members that do not come back after a loss, and then a store that forgets again which members
// there are while another one leaves. What is held back stays so.
func TestShareIsHeldBackTwice(t *testing.T) {
	const third = whole / 3
	replies := map[string]Reply{}
	stores, become := bothThatChange(t)
	for name, do := range stores {
		class := &Class{Name: "acme", Rate: mustRate(t, "20 messages/s"), Late: time.Millisecond}
		now := Stamp(1_760_000_000_123_456)
		call := sharers(t, do, class, &now)
		call(Beat, "a", 1, third)
		call(Beat, "b", 1, third)
		now = now.Add(10 * time.Second) // the recovery is over: a third is held back
		call(Beat, "a", 2, third)
		become("b")
		call(Beat, "a", 3, third)
		call(Leave, "b", 2, 0)
		now = now.Add(10 * time.Second)
		replies[name] = call(Beat, "a", 4, third)
		if r := call(Beat, "new", 1, 0); r.Share > 0 {
			t.Errorf("%s: a newcomer gets %d millionths, of what is held back", name, r.Share)
		}
		become("a")
	}
	if replies["script"] != replies["model"] {
		t.Errorf("the script answers %+v\nthe model          %+v", replies["script"], replies["model"])
	}
}

// TestLeaveAfterALoss has a member leave just after the store has lost all it knew. Its share is free when the recovery is over, and
// that of a member that does not come back is held back.
func TestLeaveAfterALoss(t *testing.T) {
	const third = whole / 3
	for name, do := range both(t) {
		class := &Class{Name: "acme", Rate: mustRate(t, "20 messages/s"), Late: time.Millisecond}
		now := Stamp(1_760_000_000_123_456)
		call := sharers(t, do, class, &now)
		call(Beat, "a", 1, third)
		call(Beat, "b", 1, third)
		call(Leave, "b", 2, third)
		now = now.Add(10 * time.Second)
		r := call(Beat, "new", 1, 0)
		if r.Silent/10 != third/10 {
			t.Errorf("%s: %d millionths are held back, want those of one member, %d", name, r.Silent, third)
		}
		if r.Share/10 != third/10 {
			t.Errorf("%s: a newcomer gets %d millionths, want those of the member that has left, %d", name, r.Share, third)
		}
	}
}

// TestNewcomerAfterALoss has a newcomer call while a member that was alone tells an empty store what it has. What the member then gives up
// goes to the newcomer, and nothing is held back.
func TestNewcomerAfterALoss(t *testing.T) {
	for name, do := range both(t) {
		class := &Class{Name: "acme", Rate: mustRate(t, "20 messages/s"), Late: time.Millisecond}
		now := Stamp(1_760_000_000_123_456)
		call := sharers(t, do, class, &now)
		var old, newcomer Reply
		old.Share = whole
		for seq := int64(1); seq < 10; seq++ {
			old = call(Beat, "old", seq, old.Share)
			newcomer = call(Beat, "new", seq, newcomer.Share)
			if sum := old.Share + newcomer.Share; sum > whole {
				t.Errorf("%s: the shares are %d millionths together", name, sum)
			}
			now = now.Add(300 * time.Millisecond) // the recovery ends between the calls
		}
		if old.Share != whole/2 || newcomer.Share != whole/2 || newcomer.Silent > 0 {
			t.Errorf("%s: the shares are %d and %d millionths, and %d are held back", name, old.Share, newcomer.Share, newcomer.Silent)
		}
	}
}

// TestAgainAfterALoss kills a member just after the store has lost all it knew, and starts it again under its name: it has its share at
// once, and nothing is held back. If the store still knows the member from before the loss, it may know of more than the member had, and
// gives nothing.
func TestAgainAfterALoss(t *testing.T) {
	stores, become := bothThatChange(t)
	for name, do := range stores {
		class := &Class{Name: "acme", Rate: mustRate(t, "20 messages/s"), Late: time.Millisecond}
		now := Stamp(1_760_000_000_123_456)
		call := sharers(t, do, class, &now)
		call(Beat, "a", 1, whole/2)
		call(Beat, "b", 1, whole/2)
		if got := call(Beat, "a", 1000, 0).Share; got != whole/2 {
			t.Errorf("%s: a comes again, and gets %d millionths", name, got)
		}
		now = now.Add(10 * time.Second) // the recovery is over
		if r := call(Beat, "a", 1001, whole/2); r.Share != whole/2 || r.Members != 2 {
			t.Errorf("%s: after the recovery a gets %d millionths, beside %d others", name, r.Share, r.Members-1)
		}
		become("b")
		if got := call(Beat, "a", 2000, 0).Share; got != 0 {
			t.Errorf("%s: a comes again to a store that knows it from before, and gets %d millionths", name, got)
		}
		become("a")
	}
}

// TestRateThatComesBackOnAShare lowers the rate of a window that is used up. The store goes away, and then the rate is what it was: nothing
// more of the window leaves.
func TestRateThatComesBackOnAShare(t *testing.T) {
	for _, algorithm := range []Algorithm{FixedWindow, SlidingWindow, SlidingLog} {
		class := Class{Name: "a", Algorithm: algorithm, Rate: mustRate(t, "1000 messages/min"), Window: time.Minute}
		lower := class
		lower.Rate = mustRate(t, "250 messages/min")
		a := &alone{t: t, now: time.Unix(1_760_000_100, 0).Truncate(time.Minute), store: Model{ID: "0"}, disk: map[string]Debt{}}
		a.join(class, "m", 1)
		left := a.run(10*time.Second, true)
		a.m.Set(a.now, lower, Fallback{})
		left += a.run(time.Second, true)
		left += a.run(5*time.Second, false)
		if a.m.mode != OnShare {
			t.Fatalf("the member is on %v", a.m.mode)
		}
		a.m.Set(a.now, class, Fallback{})
		if left += a.run(30*time.Second, false); left > 1000 {
			t.Errorf("algorithm %d: %d units leave in a minute, of 1000", algorithm, left)
		}
	}
}

// TestOwe has a process join a fleet that has used a part of the window by itself. The store hears of that before anything
// leaves, and the fleet uses what remains of the window. When the window has ended, it hears of nothing.
func TestOwe(t *testing.T) {
	for _, name := range []string{"fixed", "sliding", "log"} {
		for _, others := range []int{0, 2} {
			c := classNamed(t, name)
			s := newSim(t, c, others, 1)
			for _, m := range s.members {
				m.greedy = true
			}
			s.run(2*c.Window - time.Duration(s.stamp())*time.Microsecond%c.Window + 10*time.Millisecond)
			used, until := c.Limit()*3/4, c.Window
			if c.Algorithm == SlidingWindow {
				until *= 2 // the next window counts them too, less and less
			}
			m := s.join("new")
			m.lease.Owe(m.local(), used, m.local().Add(until))
			m.greedy = true
			first := len(s.ledger.all)
			s.run(c.Window - 20*time.Millisecond)
			if n := s.ledger.of("new", first); n > c.Limit()-used {
				t.Errorf("%s, with %d others: %d of %d leave of a member that has used %d before", name, others, n, c.Limit(), used)
			}
			s.run(2 * c.Window)
			if m.machine.owing != 0 || s.ledger.of("new", first) == 0 {
				t.Errorf("%s, with %d others: %d leases owe something, and %d have left", name, others, m.machine.owing, s.ledger.of("new", first))
			}
		}
	}
}

// What a process has used in the sliding window before the present one counts less and less. Owe gets what still counts
// of it, and the store hears of that.
func TestOweOfTheWindowBefore(t *testing.T) {
	c, now := classNamed(t, "sliding"), time.Unix(1e9, 0)
	for _, left := range []time.Duration{c.Window, c.Window * 3 / 4, c.Window / 2, c.Window / 100, time.Millisecond} {
		m, err := NewMachine(c, "m", Fallback{}, 1, nil)
		if err != nil {
			t.Fatal(err)
		}
		l, used := m.Lease(""), c.Limit()/100
		l.Owe(now, used, now.Add(left))
		var c Call
		if l.testify(now.Add(left/2), &c); len(c.Spent) != 1 || c.Spent[0].Units != used {
			t.Errorf("%v before the window ends, the store hears of %v, want %d units", left, c.Spent, used)
		}
	}
}

// onShares returns four members whose store is away. All of them know that, and the window that began before is over. Items come
// one by one, so that a part of the limit is used.
func onShares(t *testing.T, c Class, part float64) *sim {
	s := newSim(t, c, 4, 1)
	s.run(3 * time.Second)
	s.down = true
	s.run(standardTerms.idle + 5*time.Second + c.Window)
	for _, m := range s.members {
		m.arrive(time.Duration(4 / (part * c.Rate.PerSecond()) * float64(time.Second)))
	}
	return s
}

// TestFlowsAfterAnAbsence has items come at seven tenths of the limit while the store is away for some windows. They leave on the
// shares, and go on to leave when it is back: the members tell it what has left, and when.
func TestFlowsAfterAnAbsence(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"fixed", "sliding", "log"} {
		for _, away := range []float64{0.5, 1, 1.25, 2.5, 5} {
			c := classNamed(t, name)
			s := onShares(t, c, 0.7)
			s.run(time.Duration(away * float64(c.Window)))
			s.down = false
			s.run(time.Second + c.Window/2)
			waits := int64(0)
			for _, m := range s.members {
				waits += m.queue
			}
			if waits > c.Limit()/10 {
				t.Errorf("%s, away for %v windows: %d items of a limit of %d wait", name, away, waits, c.Limit())
			}
			s.run(2 * c.Window)
			judge := map[Algorithm]func() error{FixedWindow: s.ledger.windows, SlidingWindow: s.ledger.weighed, SlidingLog: s.ledger.within}[c.Algorithm]
			if err := judge(); err != nil {
				t.Errorf("%s, away for %v windows: %v", name, away, err)
			}
		}
	}
}

// TestSlowFlowOnAShare has items come one by one while the store is away, at a third of the limit. None has to wait: what the
// share grants ahead, and nobody uses in time, does not count.
func TestSlowFlowOnAShare(t *testing.T) {
	for _, name := range []string{"fixed", "sliding", "log"} {
		c := classNamed(t, name)
		s := onShares(t, c, 0.33)
		s.run(2 * c.Window)
		for _, m := range s.members {
			if m.queue > c.Limit()/100 {
				t.Errorf("%s: %d items of %s wait, and %d have left of the limit of %d", name, m.queue, m.name, m.lease.counts.Used, c.Limit())
			}
		}
	}
}

// TestDebtIsPaidByTheShare has answers charge a member for more than it was granted, while the store is away: units of the
// share pay for that. The store hears of these, too, and of no others twice.
func TestDebtIsPaidByTheShare(t *testing.T) {
	for _, algorithm := range []Algorithm{FixedWindow, SlidingWindow, SlidingLog} {
		for _, lost := range []bool{false, true} {
			c := Class{Name: "a", Algorithm: algorithm, Rate: mustRate(t, "10000 tokens/min"), Window: time.Minute}
			s := newSim(t, c, 2, 1)
			s.run(5 * time.Second)
			s.down = true
			s.run(3*time.Minute - time.Duration(s.stamp())*time.Microsecond%time.Minute)
			first, other := s.members[0], s.members[1]
			for range 40 {
				first.queue = 1
				for first.pump(); first.queue > 0; {
					s.run(10 * time.Millisecond)
				}
				s.run(20 * time.Millisecond)
			}
			for range 40 {
				first.lease.Take(first.local(), first.local(), 99)
				s.ledger.record(first, 99)
			}
			first.pump()
			s.run(time.Second)
			if kept := first.disk[""].Units; kept < 4000 {
				t.Errorf("%v: the ledger has %d units of 4,000", algorithm, kept)
			}
			if s.down = false; lost {
				s.restart()
			}
			s.run(time.Second)
			other.greedy = true
			other.pump()
			s.run(20 * time.Second)
			units := s.ledger.of(first.name, 0) + s.ledger.of(other.name, 0)
			if limit := c.Limit(); units > limit || !lost && units < limit*98/100 {
				t.Errorf("%v, the store was empty: %v: %d units have left of %d", algorithm, lost, units, limit)
			}
		}
	}
}

// TestShareOneByOne has an item come each second while the store is away. At each moment the share gives units back that nobody
// has used, or asks for others: not for the same again, and also when the clock has become less certain than a part of the log is long.
func TestShareOneByOne(t *testing.T) {
	for _, algorithm := range []Algorithm{FixedWindow, SlidingWindow, SlidingLog} {
		for _, window := range []time.Duration{time.Second, 10 * time.Second} {
			a := &alone{t: t, now: time.Unix(1_760_000_000, 0), store: Model{ID: "0"}, disk: map[string]Debt{}}
			a.join(Class{Name: "a", Algorithm: algorithm, Rate: mustRate(t, "200 messages/s"), Window: window}, "m", 1)
			a.run(5*time.Second, true)
			a.idle(window, false)
			a.run(time.Millisecond, false)
			a.idle(window+time.Second, false)
			for i := range 40 {
				if n := a.play(time.Millisecond, false, 1); n < 1 {
					t.Errorf("%v, %v: nothing left after %d seconds", algorithm, window, i)
				}
				a.idle(time.Second, false)
			}
		}
	}
}

// TestShareIsToldUntilItsWindowEnds has the store come back shortly before a window ends whose shares have all left, after the
// clocks had eight minutes to go apart.
func TestShareIsToldUntilItsWindowEnds(t *testing.T) {
	for _, algorithm := range []Algorithm{FixedWindow, SlidingWindow} {
		c := Class{Name: "a", Algorithm: algorithm, Rate: mustRate(t, "400 messages/min"), Window: time.Minute}
		s := newSim(t, c, 2, 1)
		s.run(3 * time.Second)
		s.down = true
		s.run(8 * time.Minute)
		now := time.UnixMicro(int64(s.stamp()))
		s.run(now.Truncate(c.Window).Add(c.Window * 3 / 2).Sub(now))
		for _, m := range s.members {
			m.queue = c.Limit() / 2
			m.pump()
		}
		s.run(c.Window/2 - 120*time.Millisecond)
		for _, m := range s.members {
			m.greedy = true
			m.pump()
		}
		s.down = false
		s.run(c.Window)
		judge := s.ledger.windows
		if algorithm == SlidingWindow {
			judge = s.ledger.weighed
		}
		if err := judge(); err != nil {
			t.Errorf("%v: %v", algorithm, err)
		}
	}
}

// TestShareAgain has the lease of a key forgotten and made anew while the store is away. The member's own store does not take
// its calls for late ones of the lease before.
func TestShareAgain(t *testing.T) {
	a := &alone{t: t, now: time.Unix(1_760_000_000, 0), store: Model{ID: "0"}, disk: map[string]Debt{}}
	a.join(Class{Name: "a", Algorithm: SlidingLog, Rate: mustRate(t, "200 messages/s"), Window: time.Second}, "m", 1)
	a.run(5*time.Second, true)
	a.idle(3*time.Second, false)
	a.run(3*time.Second, false)
	a.m.Forget(a.m.Lease(""))
	for len(a.m.leases) > 0 {
		a.m.Poll(a.now)
		a.now = a.now.Add(time.Second)
	}
	before := a.m.absence.calls
	a.m.Lease("").Want(a.now, 1, 1)
	a.m.Poll(a.now)
	if n := a.m.absence.calls - before; n == 0 || n > 3 {
		t.Errorf("%d calls for one item, want one or some", n)
	}
}

// TestShareInTheLastMomentOfAWindow has an item come in the last moments of a window, after the clocks had minutes to go apart. What
// the share grants then is over when it comes. So the member waits for the next window, and asks for nothing before that.
func TestShareInTheLastMomentOfAWindow(t *testing.T) {
	for _, bounds := range []func(time.Time) (from, to time.Time){nil, eachMinute} {
		for _, algorithm := range []Algorithm{FixedWindow, SlidingWindow} {
			if bounds != nil && algorithm == SlidingWindow {
				continue
			}
			a := &alone{t: t, now: time.Unix(1_760_000_000, 0).Truncate(time.Minute), store: Model{ID: "0"}, disk: map[string]Debt{}}
			a.join(Class{Name: "a", Algorithm: algorithm, Rate: mustRate(t, "100000 messages/min"), Window: time.Minute, Bounds: bounds}, "m", 1)
			a.idle(time.Minute, true)
			a.idle(9*time.Minute-10*time.Millisecond, false)
			before := a.m.absence.calls
			a.play(5*time.Millisecond, false, 1)
			if n := a.m.absence.calls - before; n > 0 {
				t.Errorf("%v: %d calls in the last moment of a window", algorithm, n)
			}
			if n := a.play(10*time.Millisecond, false, 1); n < 1 {
				t.Errorf("%v: nothing has left when the next window has begun", algorithm)
			}
		}
	}
}

// eachMinute returns the minute of a time.
func eachMinute(t time.Time) (from, to time.Time) {
	from = t.Truncate(time.Minute)
	return from, from.Add(time.Minute)
}

// TestShortWindowAfterDays has the store come back after days, when the clocks may have gone apart by much more than a window. An
// item that waits asks at once, and does not wait until the member knows when its window ends.
func TestShortWindowAfterDays(t *testing.T) {
	for _, algorithm := range []Algorithm{FixedWindow, SlidingWindow, SlidingLog} {
		a := &alone{t: t, now: time.Unix(1_760_000_000, 0).Truncate(time.Minute), store: Model{ID: "0"}, disk: map[string]Debt{}}
		a.join(Class{Name: "a", Algorithm: algorithm, Rate: mustRate(t, "6000 messages/min"), Window: time.Minute}, "m", 1)
		a.idle(5*time.Second, true)
		a.idle(time.Second, false)
		a.now = a.now.Add(10 * 24 * time.Hour)
		a.m.Lease("").Want(a.now, 1, 1)
		asked := false
		for c, ok := a.m.Poll(a.now); ok; c, ok = a.m.Poll(a.now) {
			if c.Op == Ping {
				a.m.Answer(a.now, &c, &Reply{})
			}
			asked = asked || c.Op == Take
		}
		if !asked {
			t.Errorf("%v: the item asks for nothing", algorithm)
		}
	}
}
