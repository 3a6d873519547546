package shaper

import (
	"testing"
	"time"

	"shaper/policy"
	"shaper/stats"
	"shaper/unit"
)

// Each long window tells what may still leave at once, and when all of it may again.
func TestQuotas(t *testing.T) {
	c := NewClass(start, with(classBy(policy.FixedWindow, "20 packets/h"), limitBy(policy.GCRA, "10 packets/s"), byDay("30 packets/day", "Asia/Kolkata"), byDay("25 packets/day", "Asia/Kolkata")))
	want := func(d time.Duration, hour, day int64, hourEnds, dayEnds time.Duration) {
		t.Helper()
		got := c.Status().Quotas(at(d))
		expect := []stats.QuotaReading{
			{Window: "1h", Size: 20, Remaining: hour, Resets: at(hourEnds)},
			{Window: "day from 00:00 in Asia/Kolkata", Size: 25, Remaining: day, Resets: at(dayEnds)},
		}
		if len(got) != len(expect) {
			t.Fatalf("at %v there are %d quotas", d, len(got))
		}
		for i := range got {
			same := got[i].Resets.Equal(expect[i].Resets)
			if got[i].Resets = expect[i].Resets; got[i] != expect[i] || !same {
				t.Errorf("at %v: %+v, want %+v", d, got[i], expect[i])
			}
		}
	}
	const midnight = 18*time.Hour + 30*time.Minute
	want(0, 20, 25, 0, 0)
	for n := range 20 {
		enter(t, c, time.Duration(n)*time.Second, Leaves, packet(1))
	}
	want(time.Minute, 0, 5, time.Hour, midnight)
	want(time.Hour, 20, 5, time.Hour, midnight)
	enter(t, c, time.Hour, Leaves, packet(1))
	want(time.Hour, 19, 4, 2*time.Hour, midnight)
	want(midnight, 20, 25, midnight, midnight)
	if got := NewClass(start, perSource(1, classBy(policy.FixedWindow, "20 packets/h"))).Status().Quotas(start); got != nil {
		t.Errorf("a class with buckets has the quotas %v", got)
	}
}

// A window that slides has no end: what has left comes back bit by bit.
func TestQuotaThatSlidesHasNoEnd(t *testing.T) {
	for _, algorithm := range []policy.Algorithm{policy.SlidingLog, policy.SlidingWindow} {
		c := NewClass(start, classBy(algorithm, "20 packets/h"))
		enter(t, c, time.Second, Leaves, packet(1))
		got := c.Status().Quotas(at(time.Minute))
		if want := (stats.QuotaReading{Window: "1h", Size: 20, Remaining: 19}); len(got) != 1 || got[0] != want {
			t.Errorf("%s: %+v, want %+v", algorithm, got, want)
		}
	}
}

// TestSharedClassHasNoQuotas shares a window. This process does not know what others have sent of it.
func TestSharedClassHasNoQuotas(t *testing.T) {
	withMember(t, classBy(policy.FixedWindow, "20 packets/h"), func(_ *Shaper, _ *fakeMember, c *Class) {
		if got := c.Status().Quotas(time.Now()); got != nil {
			t.Errorf("a class that others use too has the quotas %v", got)
		}
	})
}

// A refusal names the limit that sets how long to wait.
func TestQuotaOfARefusal(t *testing.T) {
	isQuota := func(c *Class, now time.Duration, want Quota) {
		t.Helper()
		want.Kind = unit.Messages
		if got := c.Estimate().Quota(at(now), message(1).Cost); got != want {
			t.Errorf("the limit is %+v, want %+v", got, want)
		}
	}
	hourly := func(conf policy.Class) policy.Class {
		conf.Also = []policy.Limit{limitBy(policy.GCRA, "1 messages/h")}
		conf.Also[0].Burst = policy.Burst{N: 1, Kind: unit.Messages}
		return conf
	}

	// The queue is full, and its first item waits for a further limit; then for one above.
	c := NewClass(start, hourly(withQueue(leakyClass("20 messages/s"), 1, 0)))
	enter(t, c, 0, Leaves, message(1))
	enter(t, c, 0, Waits, message(1))
	isQuota(c, 0, Quota{Class: "test", Units: 1, Window: time.Hour})
	beneath := tree(hourly(root30()), withQueue(child("otp", "10"), 1, 0))["otp"]
	enter(t, beneath, 0, Leaves, message(1))
	enter(t, beneath, 0, Waits, message(1))
	isQuota(beneath, 0, Quota{Class: "root", Units: 1, Window: time.Hour})

	// What waits beside it makes it late; or what waits in its own queue, if it goes before the others.
	otp, bulk := child("otp", "0"), child("bulk", "30")
	otp.Ceil, otp.MaxWait = rateOf("20 messages/s"), unit.Duration(ms)
	all := tree(root30(), otp, bulk)
	enter(t, all["bulk"], 0, Leaves, message(1))
	for range 100 {
		enter(t, all["bulk"], 0, Waits, message(1))
	}
	isQuota(all["otp"], 0, Quota{Class: "root", Units: 30, Window: second})
	otp.Rate, otp.MaxWait = otp.Ceil, unit.Duration(200*ms)
	all = tree(root30(), otp, bulk)
	enter(t, all["bulk"], 0, Leaves, message(1))
	for range 100 {
		enter(t, all["bulk"], 0, Waits, message(1))
	}
	for range 5 { // until 200 ms
		enter(t, all["otp"], 0, Waits, message(1))
	}
	enter(t, all["otp"], 0, TooLong, message(1))
	isQuota(all["otp"], 0, Quota{Class: "otp", Units: 20, Window: second})

	// In a pause, and while a hint holds the class, no limit does.
	hinted := hintedClass()
	hinted.MaxWait = unit.Duration(second)
	c = NewClass(start, hinted)
	say(t, c, 0, 0, 30*second)
	isQuota(c, 0, Quota{Class: "test", Units: 1000, Window: second})
	conf := leakyClass("20 messages/s")
	conf.MaxWait, conf.OnThrottle = unit.Duration(second), policy.OnThrottle{Pause: unit.Duration(5 * second), Max: unit.Duration(9 * second)}
	c = NewClass(start, conf)
	c.Provider().Throttled(at(0), 5*second, "429")
	isQuota(c, 0, Quota{Class: "test", Units: 20, Window: second})
}

func TestQuotaAllocatesNothing(t *testing.T) {
	c := tree(root30(), child("otp", "10"))["otp"]
	enter(t, c, 0, Leaves, message(1))
	cost := message(1).Cost
	if n := testing.AllocsPerRun(100, func() { c.Estimate().Quota(start, cost) }); n > 0 {
		t.Errorf("it allocates %v times", n)
	}
}
