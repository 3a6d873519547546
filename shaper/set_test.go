package shaper

import (
	"testing"
	"time"

	"shaper/limit"
	"shaper/policy"
)

// setRate puts another rate in force at d.
func setRate(c *Class, d time.Duration, text string) {
	conf := c.Policy()
	conf.Rate = rateOf(text)
	c.Set(at(d), conf)
}

func TestSetReachesWhatWaits(t *testing.T) {
	c := NewClass(start, leakyClass("1 packets/min"))
	a, b := packet(1), packet(1)
	enter(t, c, 0, Leaves, packet(1))
	enter(t, c, 0, Waits, a, b)
	setRate(c, second, "10 packets/s")
	released(t, c, second, a) // the last item left more than 100 ms ago
	released(t, c, second+100*ms, b)
}

func TestSetOfBytesReachesWhatWaits(t *testing.T) {
	c := NewClass(start, leakyClass("100B/s"))
	a, b := packet(1000), packet(1000)
	enter(t, c, 0, Leaves, packet(1000)) // takes ten seconds
	enter(t, c, 0, Waits, a, b)
	setRate(c, second, "1MB/s") // 900 bytes are still owed
	released(t, c, second+900*time.Microsecond-1)
	released(t, c, second+900*time.Microsecond, a)
	released(t, c, second+1900*time.Microsecond, b)
}

func TestSetGivesNoBurst(t *testing.T) {
	for _, c := range []struct {
		name     string
		from, to policy.Class
		next     time.Duration
	}{
		{"faster", leakyClass("1 packets/s"), leakyClass("10 packets/s"), second / 10},
		{"deeper", tokenClass("1 packets/s", 1), tokenClass("1 packets/s", 100), second},
		{"leaky to token", leakyClass("1 packets/s"), tokenClass("10 packets/s", 100), second / 10},
		{"token to leaky", tokenClass("1 packets/s", 1), leakyClass("10 packets/s"), second / 10},
		{"nothing", leakyClass("1 packets/s"), leakyClass("1 packets/s"), second},
	} {
		t.Run(c.name, func(t *testing.T) {
			class := NewClass(start, c.from)
			it := packet(1)
			enter(t, class, 0, Leaves, packet(1000))
			enter(t, class, 0, Waits, it)
			for range 10 {
				class.Set(start, c.from)
				class.Set(start, c.to)
			}
			released(t, class, c.next-1)
			released(t, class, c.next, it)
		})
	}
}

func TestSetAlgorithmForgivesNoDebt(t *testing.T) {
	for _, c := range []struct{ from, to policy.Class }{
		{leakyClass("1KB/s"), tokenClass("10KB/s", 100)},
		{tokenClass("1KB/s", 100), leakyClass("10KB/s")},
	} {
		class := NewClass(start, c.from)
		it := packet(1)
		enter(t, class, 0, Leaves, packet(60_000))
		enter(t, class, 0, Waits, it)
		class.Set(at(10*second), c.to) // 50,000 bytes are still owed
		released(t, class, 14900*ms)
		released(t, class, 15100*ms, it)
	}
}

func TestSetAnIdleClass(t *testing.T) {
	c := NewClass(start, leakyClass("1 packets/s"))
	setRate(c, time.Hour, "10 packets/s")
	enter(t, c, time.Hour, Leaves, packet(1))
	enter(t, c, time.Hour, Waits, packet(1)) // an idle hour earns nothing
}

func TestSetZeroAndBack(t *testing.T) {
	for _, conf := range []policy.Class{
		leakyClass("10 packets/s"), tokenClass("10 packets/s", 1), leakyClass("10B/s"), tokenClass("10B/s", 1),
	} {
		c := NewClass(start, conf)
		a, b := packet(1), packet(1)
		enter(t, c, 0, Leaves, packet(1))
		enter(t, c, 0, Waits, a, b)
		zero := conf
		zero.Rate = rateOf("0 packets/s")
		if conf.Rate.Kind() != zero.Rate.Kind() {
			zero.Rate = rateOf("0B/s")
		}
		c.Set(at(50*ms), zero)
		if next := c.Next(at(time.Hour)); next != limit.Never {
			t.Errorf("%v: under a rate of 0 the next item leaves at %v", conf.Rate, next)
		}
		released(t, c, time.Hour)
		c.Set(at(time.Hour), conf)
		released(t, c, time.Hour+100*ms, a) // at the latest
		released(t, c, time.Hour+200*ms, b)
	}
}

func TestSetQueue(t *testing.T) {
	c := NewClass(start, withQueue(leakyClass("1 packets/s"), 3, 0))
	enter(t, c, 0, Leaves, packet(1))
	enter(t, c, 0, Waits, packet(1), packet(1), packet(1))
	c.Set(start, withQueue(c.Policy(), 2, 0))
	wantBacklog(t, c, 3, 3) // nothing is lost
	enter(t, c, 0, Full, packet(1))
	c.Set(start, withQueue(c.Policy(), 4, 0))
	enter(t, c, 0, Waits, packet(1))
}

// TestClassClockJump wakes a class up a minute late. At most one quantum, burst or window
// leaves at once.
func TestClassClockJump(t *testing.T) {
	for _, c := range []struct {
		conf policy.Class
		most int64 // bytes
	}{
		{leakyClass("10MB/s"), 10_000},
		{tokenClass("10MB/s", 50_000), 50_000},
		{leakyClass("1000 packets/s"), 1000},
		{classBy(policy.GCRA, "10MB/s"), 10_000},
		{classBy(policy.FixedWindow, "100KB/s"), 100_000},
		{classBy(policy.SlidingLog, "100KB/s"), 100_000},
		{classBy(policy.SlidingWindow, "100KB/s"), 100_000},
	} {
		class := NewClass(start, c.conf)
		for range 1000 {
			class.Enter(start, packet(1000))
		}
		left := int64(0)
		for it := class.Release(at(time.Minute)); it != nil; it = class.Release(at(time.Minute)) {
			left += it.Cost.Bytes
		}
		if left > c.most {
			t.Errorf("%v: after a minute's pause %d bytes left at once, more than %d", c.conf.Rate, left, c.most)
		}
	}
}
