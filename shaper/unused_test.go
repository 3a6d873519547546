package shaper

import (
	"testing"
	"testing/synctest"
	"time"

	"shaper/limit"
	"shaper/policy"
	"shaper/unit"
)

// leaveAtOnce lets n messages leave a class at now, and returns how many do at once.
func leaveAtOnce(c *Class, now time.Time, n int) (left int) {
	for ; left < n; left++ {
		it := &Item{Cost: Cost{Messages: 1}}
		if c.Enter(now, it) != Leaves {
			c.Cancel(now, it)
			return left
		}
	}
	return left
}

// unused says that n messages have lost the turns that they had at the time then.
func unused(c *Class, now, then time.Time, n int) {
	for range n {
		c.Provider().Unused(now, then, Cost{Messages: 1})
	}
}

// Windows give back what was charged for turns that are lost. Gaps and buckets do not.
func TestUnusedGivesWindowsBack(t *testing.T) {
	for _, a := range algorithms[1:] {
		for _, text := range []string{"10 messages/s", "10 messages/h"} {
			conf, back := classBy(a, text), 4
			if a.HasBurst() {
				conf.Burst, back = policy.Burst{N: 10, Kind: unit.Messages}, 0
			}
			c := NewClass(start, conf)
			leaveAtOnce(c, start, 10)
			if unused(c, start, start, 4); leaveAtOnce(c, start, 10) != back {
				t.Errorf("%s, %s: after 4 of 10 have lost their turns, not %d leave at once", a, text, back)
			}
		}
	}
	c := NewClass(start, classBy(policy.Leaky, "1 messages/min"))
	leaveAtOnce(c, start, 1)
	lastLeft(c, start)
	if unused(c, start, start, 1); leaveAtOnce(c, start, 1) != 0 {
		t.Error("a gap ends when its message has lost its turn")
	}
}

// Each window gets back what it was charged, however many limits the class has, and whatever stands for them
// meanwhile: a class in the shadow has no limiter of its own.
func TestUnusedOfSeveralLimits(t *testing.T) {
	day := with(classBy(policy.FixedWindow, "30 messages/min"), limitBy(policy.GCRA, "20 messages/s"), limitBy(policy.FixedWindow, "10 messages/day"))
	day.Also[0].Burst = policy.Burst{N: 20, Kind: unit.Messages}
	for name, set := range map[string]func(*policy.Class){
		"in force": func(*policy.Class) {},
		"schedule": func(conf *policy.Class) { conf.Closed = policy.Span{From: at(time.Hour), Until: at(2 * time.Hour)} },
		"hints":    func(conf *policy.Class) { conf.Hints = true },
	} {
		conf := day
		set(&conf)
		c := NewClass(start, conf)
		leaveAtOnce(c, start, 10)
		unused(c, start, start, 4)
		if n := leaveAtOnce(c, start, 10); n != 4 {
			t.Errorf("%s: %d leave at once, want 4", name, n)
		}
	}
	day.Shadow = true
	parent := named("p", day)
	for _, c := range []*Class{NewClass(start, day), NewTree(start, []policy.Class{parent, under("p", classBy(policy.FixedWindow, "10 messages/day"))})[1]} {
		leaveAtOnce(c, start, 10)
		unused(c, start, start, 4)
		leaveAtOnce(c, start, 4)
		unused(c, start, start, 4)
	}
}

// A bucket gets its own charge back, and so do the classes above it.
func TestUnusedOfBuckets(t *testing.T) {
	for name, keyed := range map[string]policy.Class{
		"by message": perRecipient(9, classBy(policy.FixedWindow, "10 messages/day")),
		"by client":  perSource(9, classBy(policy.FixedWindow, "10 messages/day")),
	} {
		keyed = named("keyed", keyed)
		tree := NewTree(start, []policy.Class{named("p", classBy(policy.FixedWindow, "12 messages/day")), under("p", keyed)})
		join := func(n int) *Class {
			if tree[1].Messages().HaveKeys() {
				return tree[1].JoinKey(start, to(t, tree[1], n))
			}
			return tree[1].Join(start, client(n))
		}
		one, other := join(1), join(2)
		leaveAtOnce(one, start, 10)
		leaveAtOnce(other, start, 1)
		unused(one, start, start, 4)
		if n := leaveAtOnce(one, start, 10); n != 4 {
			t.Errorf("%s: %d more leave of the bucket, want 4", name, n)
		}
		unused(one, start, start, 4)
		if n := leaveAtOnce(other, start, 10); n != 5 {
			t.Errorf("%s: %d more leave of another bucket, want 5 of the class above", name, n)
		}
	}
}

// A class that a reload has replaced gives its charges back to the class that goes on from it.
func TestUnusedAfterAReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewOnRuntimeTimer()
		defer s.Close()
		conf := named("c", with(classBy(policy.FixedWindow, "20 messages/min"), limitBy(policy.FixedWindow, "10 messages/day")))
		s.Apply([]policy.Class{conf})
		old := s.Class("c")
		then := time.Now()
		leaveAtOnce(old, then, 10)
		conf.Quieted = make([]policy.QuietGroup, 1)
		s.Apply([]policy.Class{conf})
		if s.Class("c") == old {
			t.Fatal("the class is the same one")
		}
		unused(old, then, then, 4)
		if n := leaveAtOnce(s.Class("c"), then, 10); n != 4 {
			t.Errorf("%d leave at once, want 4", n)
		}
		also := with(named("c", classBy(policy.FixedWindow, "20 messages/min")), byDay("10 messages/day", "UTC"), limitBy(policy.FixedWindow, "9 messages/h"))
		s.Apply([]policy.Class{also})
		unused(old, then, then, 2) // of limits that were not there then
		if n := leaveAtOnce(s.Class("c"), then, 10); n != 0 {
			t.Errorf("%d leave at once of limits that are new, want none", n)
		}
	})
}

// What a ledger keeps after a stall is what has left: when the process ends, to the unit, and after a crash to within a
// lease.
func TestLedgerAfterAStall(t *testing.T) {
	for _, a := range []policy.Algorithm{policy.FixedWindow, policy.SlidingLog, policy.SlidingWindow} {
		conf := with(classBy(policy.Token, "100 messages/s"), limitBy(a, "1000 messages/h"))
		conf.Queue, conf.Burst = policy.Queue{}, policy.Burst{N: 1000, Kind: unit.Messages}
		k := &keptClass{conf: conf, now: time.Hour}
		k.start(func() time.Duration { return ms }, nil)
		for range 900 {
			k.offer(1)
		}
		k.run(k.now + second)
		unused(k.class, at(k.now), at(time.Hour), 300)
		for range 100 {
			k.offer(1)
		}
		k.run(k.now + 20*second)
		if got := k.total(0, k.now+1); got != 1000 {
			t.Fatalf("%s: %d have had a turn, want 1000", a, got)
		}
		leases := k.class.backing.leases(at(k.now))
		next := &keptClass{conf: conf, now: k.now}
		next.start(func() time.Duration { return ms }, leases)
		next.class.backing.keepIn(at(k.now), nil)
		if n := remaining(next.class, at(k.now)); n != 300 {
			t.Errorf("%s: another process has %d of the hour, want 300", a, n)
		}
		if got := k.crashAndSpend(400, nil); got > 300 || got < 280 {
			t.Errorf("%s: after a crash %d more leave, want 280 to 300", a, got)
		}
	}
}

// remaining returns what remains of the second limit of a class.
func remaining(c *Class, now time.Time) int64 {
	return c.pace.also[0].quota(now, limit.Parts(bare(c.limiter))[1], "").Remaining
}
