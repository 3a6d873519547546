package fleet

import (
	"fmt"
	"testing"
	"time"

	"shaper/limit"
	"shaper/unit"
)

// TestEstimateIsWhatHappens estimates when the last of some items leaves, and then lets them leave: from the store, also while it
// holds the shares of silent members back; at the share of the member; and at the rate of the fallback.
func TestEstimateIsWhatHappens(t *testing.T) {
	slots := Class{Name: "a", Rate: mustRate(t, "20 messages/s"), Late: time.Millisecond}
	window := func(algorithm Algorithm) Class {
		return Class{Name: "a", Algorithm: algorithm, Rate: mustRate(t, "100 messages/10s"), Window: 10 * time.Second}
	}
	slow := Fallback{Rate: mustRate(t, "2 messages/s")}
	for _, c := range []struct {
		class    Class
		fallback Fallback
		silent   int           // members that have said nothing for some time
		there    bool          // the store
		want     time.Duration // some 100 items take about so long
	}{
		{slots, Fallback{}, 0, true, 5 * time.Second},
		{slots, Fallback{}, 1, true, 10 * time.Second},
		{slots, Fallback{}, 3, true, 20 * time.Second},
		{slots, Fallback{}, 0, false, 5 * time.Second},
		{slots, Fallback{}, 3, false, 20 * time.Second},
		{slots, slow, 3, false, 50 * time.Second},
		{window(FixedWindow), Fallback{}, 0, true, 10 * time.Second},
		{window(SlidingWindow), Fallback{}, 0, true, 10 * time.Second},
		{window(SlidingLog), Fallback{}, 0, true, 10 * time.Second},
		{window(FixedWindow), Fallback{}, 3, true, 40 * time.Second},
		{window(SlidingWindow), Fallback{}, 3, true, 40 * time.Second},
		{window(SlidingLog), Fallback{}, 3, true, 40 * time.Second},
		{window(FixedWindow), Fallback{}, 3, false, 40 * time.Second},
		{window(SlidingWindow), Fallback{}, 3, false, 40 * time.Second},
		{window(SlidingLog), Fallback{}, 3, false, 40 * time.Second},
		{window(FixedWindow), slow, 0, false, 50 * time.Second},
	} {
		t.Run(fmt.Sprint(c.class.Algorithm, c.fallback.Rate, c.silent, c.there), func(t *testing.T) {
			a := &alone{t: t, now: time.Unix(1_760_000_100, 0), store: Model{ID: "0"}, disk: map[string]Debt{}}
			a.join(c.class, "m", 1)
			a.m.absence.fallback = c.fallback
			shares := make([]int64, c.silent)
			for round := range int64(3) { // until each has its share
				a.run(time.Second, true)
				for i := range shares {
					r := a.store.Do(Stamp(a.now.UnixMicro()), &Call{Op: Beat, Class: &c.class, Member: fmt.Sprint("silent", i), Seq: round + 1, Grace: time.Second, Share: shares[i]})
					shares[i] = r.Share
				}
			}
			a.run(15*time.Second, true)
			a.run(15*time.Second, c.there)
			l, begin := a.m.Lease(""), a.now
			const n = 100
			estimated := l.Estimate(a.now, n-1, 1).Sub(a.now)
			for left := 0; left < n; {
				left += a.run(time.Millisecond, c.there)
			}
			took := a.now.Sub(begin)
			t.Logf("%v expected, %v taken", estimated, took)
			if off := (estimated - took).Abs(); off > c.want/5 {
				t.Errorf("the last of %d items is expected after %v, and leaves after %v", n, estimated, took)
			}
			if off := (c.want - took).Abs(); off > c.want/3 {
				t.Errorf("the items take %v, some %v were to be expected", took, c.want)
			}
		})
	}
}

// TestEstimateUntilTheHoldIsOver has one of two members die in a window that lasts longer than its share is held back. The other one, which
// has used its own part, is told when the rest of the window becomes free, but not if the silence is that of a moment.
func TestEstimateUntilTheHoldIsOver(t *testing.T) {
	class := Class{Name: "a", Algorithm: FixedWindow, Rate: mustRate(t, "1000 messages/hour"), Window: time.Hour}
	s := newSim(t, class, 2, 1)
	s.run(2*time.Hour - time.Duration(s.stamp())*time.Microsecond%time.Hour + 10*time.Millisecond)
	m := s.members[0]
	s.members[1].asleep = true
	s.run(3 * time.Second) // the share of the other one is held back from now on
	m.queue = 700
	m.pump()
	s.run(3 * time.Second)
	n := len(s.ledger.all)
	if n != 500 {
		t.Fatalf("%d items have left, want half of the window", n)
	}
	if wait := m.until(m.lease.Estimate(m.local(), 0, 1)); wait > 2*time.Second {
		t.Errorf("after some seconds of silence, the next item is expected in %v", wait)
	}
	s.run(20 * time.Second)
	wait, begin := m.until(m.lease.Estimate(m.local(), 0, 1)), s.now
	s.run(15 * time.Minute)
	if len(s.ledger.all) == n {
		t.Fatal("no more of the window leaves")
	}
	if took := s.ledger.all[n].At - begin; took < 9*time.Minute || (took-wait).Abs() > 2*time.Second {
		t.Errorf("the next item is expected in %v, and leaves after %v", wait, took)
	}
}

// TestReduced asks which rate is left of a limit: all of it; half of it while another member is silent, unless the window has no room
// for the item; the share or the rate of the fallback while the store is away; and all of a rate of 0.
func TestReduced(t *testing.T) {
	slots := Class{Name: "a", Rate: mustRate(t, "20 messages/s"), Late: time.Millisecond}
	window := Class{Name: "a", Algorithm: FixedWindow, Rate: mustRate(t, "1000 messages/h"), Window: time.Hour}
	blocks := Class{Name: "a", Rate: mustRate(t, "0 messages/s"), Late: time.Millisecond}
	for i, c := range []struct {
		class    Class
		fallback string
		silent   bool // another member
		there    bool // the store
		n        int64
		want     string // "": all is left
	}{
		{slots, "", false, true, 1, ""},
		{slots, "", true, true, 1, "10 messages/s"},
		{slots, "", true, false, 1, "10 messages/s"},
		{slots, "5 messages/s", true, false, 1, "5 messages/s"},
		{window, "", false, true, 1, ""},
		{window, "", true, true, 500, "500 messages/h"},
		{window, "", true, true, 501, ""},
		{window, "", true, false, 501, "500 messages/h"},
		{window, "2 messages/min", false, false, 1, "2 messages/min"},
		{blocks, "5 messages/s", true, false, 1, ""},
	} {
		a := &alone{t: t, now: time.Unix(1_760_000_100, 0), store: Model{ID: "0"}, disk: map[string]Debt{}}
		a.join(c.class, "m", 1)
		if c.fallback != "" {
			a.m.absence.fallback.Rate = mustRate(t, c.fallback)
		}
		var share int64
		for round := int64(1); c.silent && round <= 3; round++ { // until each has its share
			a.idle(time.Second, true)
			r := a.store.Do(Stamp(a.now.UnixMicro()), &Call{Op: Beat, Class: &c.class, Member: "silent", Seq: round, Grace: time.Second, Share: share})
			share = r.Share
		}
		a.idle(15*time.Second, true)
		a.run(15*time.Second, c.there)
		var want unit.Rate
		if c.want != "" {
			want = mustRate(t, c.want)
		}
		away := !c.there && !c.class.blocks()
		if to, is := a.m.Lease("").Reduced(a.now, c.n); to != want || is != away {
			t.Errorf("%d: an item of %d has %v, and the store is away: %v; want %v and %v", i, c.n, to, is, want, away)
		}
	}
}

// TestEstimateAfterARestartOfTheStore has a store that comes back empty, and a member that it hears of first. The others, which
// have not said that they are there, do not make its estimates longer: they say so within a moment.
func TestEstimateAfterARestartOfTheStore(t *testing.T) {
	for name, do := range both(t) {
		class := &Class{Name: "acme", Rate: mustRate(t, "20 messages/s"), Late: time.Millisecond}
		now := Stamp(1_760_000_000_123_456)
		call := sharers(t, do, class, &now)
		if r := call(Beat, "a", 1, whole/20); r.Silent != 0 {
			t.Errorf("%s: %d millionths are said to be silent", name, r.Silent)
		}
	}
}

// TestEstimateOfNoShare has the store go away from a member whose share of a window is less than a unit: nothing leaves until the
// store is back, and nobody knows when that is.
func TestEstimateOfNoShare(t *testing.T) {
	a := &alone{t: t, now: time.Unix(1_760_000_100, 0), store: Model{ID: "0"}, disk: map[string]Debt{}}
	class := Class{Name: "a", Algorithm: FixedWindow, Rate: mustRate(t, "3 messages/10s"), Window: 10 * time.Second}
	a.join(class, "m", 1)
	a.run(time.Second, true)
	a.m.link.share = whole / 4
	if a.run(20*time.Second, false); a.m.mode != OnShare {
		t.Fatalf("the mode is %v", a.m.mode)
	}
	if at := a.m.Lease("").Estimate(a.now, 0, 1); at != limit.Never {
		t.Errorf("an item is expected after %v, although the share has no unit", at.Sub(a.now))
	}
}

// TestEstimateAmongOthers has members that always have more. However many they are, and whether they stand in a line when the store
// answers or hold slots that come, each expects the last of its items when it leaves; also while the store holds the share of another
// one back.
func TestEstimateAmongOthers(t *testing.T) {
	t.Parallel()
	for _, rate := range []string{"20 messages/s", "1000 messages/s"} {
		for _, members := range []int{1, 2, 3, 8} {
			for _, silent := range []int{0, 1} {
				s := newSim(t, Class{Name: "a", Rate: mustRate(t, rate), Late: time.Millisecond}, members+silent, uint64(members))
				s.run(3 * time.Second) // each has its share
				for i, m := range s.members {
					m.greedy, m.asleep = i < members, i >= members
				}
				s.run(5 * time.Second)
				n := s.class.Rate.Units(4*time.Second) / int64(members+silent)
				for range 10 {
					s.run(37 * time.Millisecond)
					for i, m := range s.members[:members] {
						estimated := m.lease.Estimate(m.local(), n-1, 1).Sub(m.local())
						if off := (estimated - 4*time.Second).Abs(); off > time.Second {
							t.Errorf("%s, member %d of %d, and %d silent: the last of %d items is expected after %v, want some 4s", rate, i, members, silent, n, estimated)
						}
					}
				}
			}
		}
	}
}
