package shaper

import (
	"testing"
	"time"

	"shaper/policy"
	"shaper/stats"
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
	shareOf(t, classBy(policy.FixedWindow, "20 packets/h"), func(_ *Shaper, _ *fakeShare, c *Class) {
		if got := c.Status().Quotas(time.Now()); got != nil {
			t.Errorf("a class that others use too has the quotas %v", got)
		}
	})
}
