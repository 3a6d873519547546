package fleet

import (
	"testing"
	"time"

	"shaper/limit"
)

// leftIn returns how many items leave in a time.
func (l *leased) leftIn(d time.Duration) int {
	n := 0
	for until := l.now.Add(d); l.now.Before(until); n++ {
		l.item()
	}
	return n
}

// A live member takes another rate, of the policy or of one bucket, and gets no burst from it.
func TestRateChanges(t *testing.T) {
	t.Parallel()
	l := newLeased(t)
	l.leftIn(time.Second)
	class := l.machine.class
	class.Rate = mustRate(t, "50000 packets/s")
	steps := []struct {
		what string
		do   func()
		want float64
	}{
		{"as it was", func() {}, 100_000},
		{"half of it, by SetRate", func() { l.lease.SetRate(l.now, mustRate(t, "50000 packets/s"), 1) }, 50_000},
		{"the whole again", func() { l.lease.SetRate(l.now, mustRate(t, "100000 packets/s"), 1) }, 100_000},
		{"half of it, by Set", func() {
			if err := l.machine.Set(l.now, class, Fallback{}); err != nil {
				t.Fatal(err)
			}
		}, 50_000},
		{"a tenth, by SetRate", func() { l.lease.SetRate(l.now, mustRate(t, "10000 packets/s"), 1) }, 10_000},
	}
	for _, step := range steps {
		step.do()
		l.leftIn(60 * time.Millisecond) // what is in hand goes on as it was granted
		if got := float64(l.leftIn(time.Second)); got > step.want*1.001 || got < step.want*0.98 {
			t.Errorf("%s: %v units a second, want %v", step.what, got, step.want)
		}
	}
}

// A class cannot become another one.
func TestSetRefusesAnotherClass(t *testing.T) {
	l := newLeased(t)
	for _, change := range []func(*Class){
		func(c *Class) { c.Name = "b" },
		func(c *Class) { c.Rate = mustRate(t, "5 messages/s") },
		func(c *Class) { c.Algorithm, c.Window = FixedWindow, time.Second },
		func(c *Class) { c.Late = 0 },
	} {
		class := l.machine.class
		if change(&class); l.machine.Set(l.now, class, Fallback{}) == nil {
			t.Errorf("it has become %+v", class)
		}
	}
}

// While members have different rates, no gap is shorter than that of the fastest of them, and
// slots do not stand still because the fractions of a microsecond differ.
func TestMembersWithDifferentRates(t *testing.T) {
	model := Model{ID: "a"}
	now := Stamp(1_760_000_000_000_000)
	last := Stamp(0)
	rates := []string{"29.7 messages/s", "30 messages/s", "7.123457 messages/s"}
	for i := range 300 {
		class := Class{Name: "a", Rate: mustRate(t, rates[i%3]), Late: time.Millisecond}
		c := Call{Op: Take, Class: &class, Member: "m", Seq: int64(i + 1), Number: int64(i + 1), Wanted: 1, Need: 1, Grace: time.Second}
		r := model.Do(now, &c)
		for r.Units == 0 {
			now = max(now+1, r.Till)
			r = model.Do(now, &c)
		}
		if gap := r.First.Sub(last); last > 0 && (gap < 33333*time.Microsecond-time.Microsecond || gap > 141*time.Millisecond) {
			t.Fatalf("slot %d comes %v after the one before", i, gap)
		}
		last = r.First
	}
}

// An estimate is a time also where nothing is in hand: a window with room lets items leave at once, and
// slots are a gap apart.
func TestEstimate(t *testing.T) {
	now := time.Unix(1_760_000_000, 0)
	for _, c := range []struct {
		class Class
		ahead int64
		want  time.Duration
	}{
		{Class{Name: "a", Rate: mustRate(t, "20 messages/s"), Late: time.Millisecond}, 0, 0},
		{Class{Name: "a", Rate: mustRate(t, "20 messages/s"), Late: time.Millisecond}, 10, 550 * time.Millisecond},
		{Class{Name: "a", Rate: mustRate(t, "1000 messages/day"), Algorithm: FixedWindow, Window: 24 * time.Hour}, 100, 0},
	} {
		m, err := NewMachine(c.class, "m", Fallback{}, 1, nil)
		if err != nil {
			t.Fatal(err)
		}
		if at := m.Lease("").Estimate(now, c.ahead, 1); at.Sub(now) != c.want {
			t.Errorf("%v with %d ahead leaves after %v, want %v", c.class.Rate, c.ahead, at.Sub(now), c.want)
		}
	}
}

// TestEstimateWhileNothingLeavesYet has the store go away, and estimates when an item leaves once its class opens, hours
// later: that is known as long as the member will have a share, and not any more when that has ended.
func TestEstimateWhileNothingLeavesYet(t *testing.T) {
	rate := mustRate(t, "5 messages/s")
	for _, c := range []struct {
		name     string
		fallback Fallback
		after    time.Duration // the store has been away for so long
		mode     Mode
		known    bool
	}{
		{"before the share", Fallback{}, 500 * time.Millisecond, Stopped, true},
		{"with the share", Fallback{}, time.Minute, OnShare, true},
		{"after the share", Fallback{}, 20 * time.Minute, Stopped, false},
		{"without a share", Fallback{Stop: true}, 500 * time.Millisecond, Stopped, false},
		{"with a rate", Fallback{Rate: rate}, 500 * time.Millisecond, OnShare, true},
		{"with a rate, for long", Fallback{Rate: rate}, 20 * time.Minute, OnShare, true},
	} {
		m, err := NewMachine(classNamed(t, "leaky"), "m", c.fallback, 1, nil)
		if err != nil {
			t.Fatal(err)
		}
		now := time.Unix(1_760_000_000, 0)
		model := Model{ID: "0"}
		run := func(d time.Duration, answered bool) {
			for end := now.Add(d); now.Before(end); now = now.Add(100 * time.Millisecond) {
				for call, ok := m.Poll(now); ok; call, ok = m.Poll(now) {
					if !answered {
						m.Fail(now, &call)
						continue
					}
					r := model.Do(Stamp(now.UnixMicro()), &call)
					m.Answer(now, &call, &r)
				}
			}
		}
		run(10*time.Second, true)
		for first := true; first || !m.link.down; first = false {
			run(100*time.Millisecond, false)
		}
		run(c.after, false)
		if got := m.Status(now).Mode; got != c.mode {
			t.Fatalf("%s: the mode is %v, want %v", c.name, got, c.mode)
		}
		closed := limit.Span{From: now.Add(-time.Hour), Until: now.Add(7 * time.Hour)}
		if at := closed.Next(now, 0, 1, m.Lease("").Estimate); (at != limit.Never) != c.known {
			t.Errorf("%s: an item leaves a closed class at %v; that is known: %v", c.name, at, c.known)
		}
		if at := m.Lease("").Estimate(now, 0, 1); (at != limit.Never) != c.known {
			t.Errorf("%s: an item leaves at %v; that is known: %v", c.name, at, c.known)
		}
	}
}

// TestSmallerBurstForgetsNothing has a member use up a burst that takes five minutes to come back, and then another member, whose
// policy has no burst, take one unit. The store still knows a minute later what is used.
func TestSmallerBurstForgetsNothing(t *testing.T) {
	for name, do := range both(t) {
		large := Class{Name: "acme", Rate: mustRate(t, "20 messages/min"), Burst: 100, Late: time.Millisecond}
		small := large
		small.Burst = 1
		now := Stamp(1_760_000_000_123_456)
		take := func(class *Class, member string, after time.Duration) int64 {
			now = now.Add(after)
			r, err := do(now, &Call{Op: Take, Class: class, Member: member, Seq: int64(now), Number: int64(now), Wanted: 100, Need: 1, Grace: time.Hour})
			if err != nil {
				t.Fatal(err)
			}
			return r.Units
		}
		take(&large, "m", 0)
		got := take(&large, "m", 9*time.Minute)
		other := take(&small, "n", 4*time.Second)
		if again := take(&large, "m", time.Minute); got < 99 || other != 1 || again > 21 {
			t.Errorf("%s: %d units of a burst of 100, then %d without one, and %d a minute later", name, got, other, again)
		}
	}
}
