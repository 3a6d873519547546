package fleet

import (
	"fmt"
	"testing"
	"time"
)

// TestLineOfTheGone has members wait in the line for a bucket, and then ask no more: their clients have gone, or they were
// killed. Whoever still asks gets the slots that nobody uses. At most, each of those before it lets its turn pass.
func TestLineOfTheGone(t *testing.T) {
	for _, class := range []*Class{
		{Name: "slow", Rate: mustRate(t, "20 messages/s"), Late: time.Millisecond},
		{Name: "fast", Rate: mustRate(t, "30000 messages/s"), Late: time.Millisecond},
		{Name: "bursts", Rate: mustRate(t, "1000 messages/s"), Burst: 100, Late: time.Millisecond},
	} {
		for name, do := range both(t) {
			t.Run(class.Name+"/"+name, func(t *testing.T) {
				const gone = 7
				now, number := Stamp(1_760_000_000_123_456), int64(0)
				take := func(member int) Reply {
					number++
					r, err := do(now, &Call{Op: Take, Class: class, Member: fmt.Sprint("m", member), Seq: number, Grace: time.Hour, Number: number,
						Wanted: class.Lease(), Need: 1, Lead: time.Millisecond})
					if err != nil {
						t.Fatal(err)
					}
					return r
				}
				now = now.Add(time.Second) // after the fence of a new store
				take(0)
				for now = now.Add(time.Second); take(0).Units > 0; {
				}
				for i := range gone {
					if r := take(1 + i); r.Line != int64(2+i) {
						t.Fatalf("%d members are in the line, want %d", r.Line, 2+i)
					}
				}
				last := now
				for range 3 { // the bulk of a member goes on
					for now = now.Add(time.Millisecond); take(0).Units == 0; now = now.Add(time.Millisecond) {
						if bound := last.Add((gone + 1) * class.timing().turn).Add(class.timing().horizon); now > bound {
							t.Fatalf("nothing for %v, although nobody else asks", now.Sub(last))
						}
					}
					last = now
				}
			})
		}
	}
}

// TestLineAfterAClockSetBack sets the store's clock back while four members wait in turn. They go on in turn: none has waited less
// because its last slot has a later time.
func TestLineAfterAClockSetBack(t *testing.T) {
	class := &Class{Name: "a", Rate: mustRate(t, "20 messages/s"), Late: time.Millisecond}
	for name, do := range both(t) {
		now, number := Stamp(1_760_000_000_123_456), int64(0)
		turns := func(slots int) map[string]int {
			got := map[string]int{}
			for ; slots > 0; now = now.Add(5 * time.Millisecond) {
				for i := range 4 {
					number++
					m := fmt.Sprint("m", i)
					r, err := do(now, &Call{Op: Take, Class: class, Member: m, Seq: number, Grace: time.Hour, Number: number, Wanted: 1, Need: 1})
					if err != nil {
						t.Fatal(err)
					}
					got[m], slots = got[m]+int(r.Units), slots-int(r.Units)
				}
			}
			return got
		}
		turns(10)
		now = now.Add(-20 * time.Second)
		turns(4) // what stands in the line
		got := turns(20)
		for m, n := range got {
			if n != 5 {
				t.Errorf("%s: %s gets %d of 20 slots", name, m, n)
			}
		}
		if len(got) < 4 {
			t.Errorf("%s: the slots go to %v", name, got)
		}
	}
}

// TestLeftLate has an item leave 5 ms after its class has let it go, since the process had lost its processor. The next one of
// the same member leaves a gap later, although its slot came before.
func TestLeftLate(t *testing.T) {
	a := &alone{t: t, now: time.Unix(1_760_000_100, 0), store: Model{ID: "0"}}
	class := Class{Name: "a", Rate: mustRate(t, "1000 messages/s"), Late: 600 * time.Microsecond}
	a.join(class, "m", 1)
	if a.run(time.Second, true) < 100 {
		t.Fatal("the member has no slots")
	}
	l := a.m.Lease("")
	at := l.Next(a.now, 0, 1)
	l.Take(at, at, 1)
	left := at.Add(5 * time.Millisecond)
	l.Left(left)
	if next, want := l.Next(left, 0, 1), left.Add(400*time.Microsecond); next.Before(want) {
		t.Errorf("the next item leaves %v after one that left late, want %v at least", next.Sub(left), want.Sub(left))
	}
}

// TestLostBeginsNoGap has an item come so late to its sending that its slot is over. The next one leaves at its own slot: it is
// not late because of an item that has not left.
func TestLostBeginsNoGap(t *testing.T) {
	const late = 50 * time.Microsecond
	a := &alone{t: t, now: time.Unix(1_760_000_100, 0), store: Model{ID: "0"}}
	a.join(Class{Name: "a", Rate: mustRate(t, "950 messages/s"), Late: late}, "m", 1)
	a.idle(3*time.Second, true) // so that the fence of a new store is over
	l := a.m.Lease("")
	a.reach(10)
	slot := l.Next(a.now, 0, 1)
	wake := slot.Add(late / 2)
	l.Take(wake, wake, 1)
	written := l.Over().Add(1)
	next := l.held[0].slot(l.held[0].used)
	if !next.After(written) {
		t.Fatalf("the item may leave until %v after its turn", l.Over().Sub(wake))
	}
	l.Left(written)
	l.Lost(wake, 1)
	if at := l.Next(written, 0, 1); at != next {
		t.Errorf("the next item leaves %v after its slot", at.Sub(next))
	}
	l.Take(next, next, 1)
	if at, least := l.Next(next, 0, 1), l.machine.class.Rate.Time(1)-late; at.Sub(next) < least {
		t.Errorf("the one after that leaves %v later, want %v at least", at.Sub(next), least)
	}
}

// TestLostOfTwoHasAGap charges two items at one moment, and loses the first. The gap after the second one stays as long.
func TestLostOfTwoHasAGap(t *testing.T) {
	a := &alone{t: t, now: time.Unix(1_760_000_100, 0), store: Model{ID: "0"}}
	a.join(Class{Name: "a", Rate: mustRate(t, "1MB/s"), Late: 1300 * time.Microsecond}, "m", 1)
	l := a.m.Lease("")
	l.Take(a.now, a.now, 1000)
	l.Take(a.now, a.now, 1460)
	gap := l.gap()
	l.Lost(a.now, 1000)
	if at := l.gap(); at != gap {
		t.Errorf("the gap ends %v sooner, since another item has not left", gap.Sub(at))
	}
}

// TestLeftAtARateOfZero has an item leave after its class has got a rate of 0. When it has its rate again, the next one leaves.
func TestLeftAtARateOfZero(t *testing.T) {
	a, class := leftAt(t, "0 messages/s")
	if n := a.run(time.Second, true); n > 0 {
		t.Errorf("%d leave at a rate of 0", n)
	}
	goesOn(t, a, class)
}

// TestLeftAtASlowRate has an item leave after its class has got a rate of 1 an hour. The gap after it is that of the rate in
// force, so when the class has its rate again, the next one leaves.
func TestLeftAtASlowRate(t *testing.T) {
	a, class := leftAt(t, "1 messages/h")
	if next := a.m.Lease("").Next(a.now.Add(50*time.Millisecond), 0, 1); next.Before(a.now.Add(59 * time.Minute)) {
		t.Errorf("the next item leaves %v after one at a rate of 1 an hour", next.Sub(a.now))
	}
	goesOn(t, a, class)
}

// leftAt returns a member of a class that has slots in hand and then gets another rate, at which an item leaves.
func leftAt(t *testing.T, rate string) (a *alone, class Class) {
	t.Helper()
	a = &alone{t: t, now: time.Unix(1_760_000_100, 0), store: Model{ID: "0"}}
	class = Class{Name: "a", Rate: mustRate(t, "20 messages/s"), Late: 20 * time.Millisecond}
	a.join(class, "m", 1)
	if a.run(3*time.Second, true) < 10 {
		t.Fatal("the member has no slots")
	}
	other := class
	other.Rate = mustRate(t, rate)
	if err := a.m.Set(a.now, other, Fallback{}); err != nil {
		t.Fatal(err)
	}
	a.m.Lease("").Left(a.now)
	return a, class
}

// goesOn gives the member its rate again, and lets what waits leave.
func goesOn(t *testing.T, a *alone, class Class) {
	t.Helper()
	if err := a.m.Set(a.now, class, Fallback{}); err != nil {
		t.Fatal(err)
	}
	if n := a.run(3*time.Second, true); n < 10 {
		t.Errorf("%d leave in 3 s when the class has its rate again", n)
	}
}

// TestGapOfACorrection charges 30 units more, by an answer, while the gap of an item of 100 is under way: the next one waits for
// both, from when the item has left.
func TestGapOfACorrection(t *testing.T) {
	const late = 5 * time.Millisecond
	for _, left := range []time.Duration{0, 2 * time.Second, 3 * time.Second} {
		a := &alone{t: t, now: time.Unix(1_760_000_100, 0), store: Model{ID: "0"}}
		a.join(Class{Name: "a", Rate: mustRate(t, "10 tokens/s"), Late: late}, "m", 1)
		l, begin := a.m.Lease(""), a.now
		l.Take(begin, begin, 100)
		if left <= 2*time.Second {
			l.Left(begin.Add(left))
		}
		l.Take(begin.Add(2*time.Second), begin.Add(2*time.Second), 30)
		if left > 2*time.Second {
			l.Left(begin.Add(left))
		}
		if free, want := l.free().Sub(begin), left+13*time.Second-late; free != want {
			t.Errorf("the item has left after %v: the next one leaves after %v, want %v", left, free, want)
		}
	}
}

// TestGapOfACorrectionAtAnotherRate charges more while a slow rate holds, or none, and then raises the rate. The gap is that of
// the item and the correction, at the new rate.
func TestGapOfACorrectionAtAnotherRate(t *testing.T) {
	const late = 5 * time.Millisecond
	for _, slow := range []string{"1 tokens/h", "0 tokens/s"} {
		a := &alone{t: t, now: time.Unix(1_760_000_100, 0), store: Model{ID: "0"}}
		class := Class{Name: "a", Rate: mustRate(t, "10 tokens/s"), Late: late}
		before := class
		before.Rate = mustRate(t, slow)
		a.join(class, "m", 1)
		l := a.m.Lease("")
		l.Take(a.now, a.now, 100)
		for _, step := range []func() error{
			func() error { return a.m.Set(a.now, before, Fallback{}) },
			func() error { l.Take(a.now, a.now.Add(time.Second), 30); return nil },
			func() error { return a.m.Set(a.now.Add(2*time.Second), class, Fallback{}) },
		} {
			if err := step(); err != nil {
				t.Fatal(err)
			}
		}
		if free, want := l.free().Sub(a.now), 13*time.Second-late; free != want {
			t.Errorf("after a correction at %s, the next item leaves after %v, want %v", slow, free, want)
		}
	}
}

// TestGapAfterTheShare lets an item leave at the member's share while its class has a slow rate, and has the store back. The
// next one leaves by the rate in force then.
func TestGapAfterTheShare(t *testing.T) {
	for _, burst := range []int64{1, 100} {
		a := &alone{t: t, now: time.Unix(1_760_000_100, 0), store: Model{ID: "0"}}
		class := Class{Name: "a", Rate: mustRate(t, "20 messages/s"), Burst: burst, Late: 20 * time.Millisecond}
		slow := class
		slow.Rate = mustRate(t, "1 messages/h")
		a.join(slow, "m", 1)
		l := a.m.Lease("")
		l.Take(a.now, a.now, 1)
		a.m.mode = OnShare
		a.m.shift(a.now)
		if burst == 1 && l.free().Before(a.now.Add(50*time.Minute)) {
			t.Errorf("the next item may leave %v after one at 1 an hour", l.free().Sub(a.now))
		}
		if err := a.m.Set(a.now, class, Fallback{}); err != nil {
			t.Fatal(err)
		}
		if free := l.free().Sub(a.now); free > 50*time.Millisecond {
			t.Errorf("burst %d: the next item may leave %v after one at the slow rate", burst, free)
		}
	}
}

// TestSlotsAfterTheShare has an item of 100 units leave at the member's share, and the store come back within its gap. The member
// asks for no slots in that gap, in which none can be used: the next item leaves when it is over.
func TestSlotsAfterTheShare(t *testing.T) {
	const n = 100
	a := &alone{t: t, now: time.Unix(1_760_000_100, 0), store: Model{ID: "0"}}
	a.join(Class{Name: "a", Rate: mustRate(t, "10 tokens/s"), Late: 5 * time.Millisecond}, "m", 1)
	l := a.m.Lease("")
	next := func(most time.Duration, there bool) (took time.Duration) {
		for begin := a.now; a.now.Before(begin.Add(most)); a.now = a.now.Add(time.Millisecond) {
			l.Want(a.now, 1000, n)
			a.exchange(there)
			if !l.Next(a.now, 0, n).After(a.now) {
				l.Take(a.now, a.now, n)
				return a.now.Sub(begin)
			}
		}
		return most
	}
	a.idle(3*time.Second, true)
	for range 3 { // what is in hand leaves first
		next(time.Minute, false)
	}
	if a.m.mode != OnShare || l.last != a.now {
		t.Fatalf("nothing leaves at the share; the mode is %v", a.m.mode)
	}
	left, calls := a.now, a.m.seq
	a.now = a.now.Add(time.Second)
	if next(time.Minute, true); a.now.Sub(left) > 10*time.Second+100*time.Millisecond || a.m.seq-calls > 1000 {
		t.Errorf("the next item leaves %v after one of %d units at the share, want 10s; %d calls", a.now.Sub(left), n, a.m.seq-calls)
	}
	begin := a.now
	calls = a.m.seq
	if next(time.Minute, true); a.now.Sub(begin) > 10*time.Second+100*time.Millisecond || a.m.seq-calls > 1000 {
		t.Errorf("the one after that leaves %v later, after %d calls", a.now.Sub(begin), a.m.seq-calls)
	}
}
