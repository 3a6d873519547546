package shaper

import (
	"testing"
	"time"

	"shaper/leaky"
	"shaper/limit"
	"shaper/policy"
	"shaper/unit"
)

// TestClassEvenlySpaced offers 50 datagrams at once to a class of ten a second with room
// for twenty.
func TestClassEvenlySpaced(t *testing.T) {
	c := NewClass(start, withQueue(leakyClass("10 packets/s"), 20, 0))
	var items []*Item
	for range 50 {
		items = append(items, packet(100))
	}
	enter(t, c, 0, Leaves, items[0])
	enter(t, c, 0, Waits, items[1:21]...)
	enter(t, c, 0, Full, items[21:]...)
	wantBacklog(t, c, 20, 2000)
	for i := 1; i <= 20; i++ {
		due := time.Duration(i) * 100 * ms
		if next := c.Next(at(due - 1)); !next.Equal(at(due)) {
			t.Errorf("item %d may leave at %v, want %v", i, next.Sub(start), due)
		}
		released(t, c, due-1)
		released(t, c, due, items[i])
	}
	wantBacklog(t, c, 0, 0)
	if next := c.Next(at(time.Hour)); next != limit.Never {
		t.Errorf("nothing waits, but the next item leaves at %v", next)
	}
}

func TestClassHalfAPacketPerSecond(t *testing.T) {
	c := NewClass(start, leakyClass("0.5 packets/s"))
	a, b, d := packet(1), packet(1), packet(1)
	enter(t, c, 0, Leaves, a)
	enter(t, c, 0, Waits, b, d)
	released(t, c, 2*second-1)
	released(t, c, 2*second, b)
	released(t, c, 4*second, d)
}

func TestClassHeadroom(t *testing.T) {
	conf := leakyClass("10 packets/s")
	conf.Headroom = 200_000 // 20 %
	c := NewClass(start, conf)
	enter(t, c, 0, Leaves, packet(1))
	it := packet(1)
	enter(t, c, 0, Waits, it)
	released(t, c, 125*ms-1)
	released(t, c, 125*ms, it)
	if got := c.Rate(); got != conf.Rate {
		t.Errorf("Rate is %v, want the rate without headroom, %v", got, conf.Rate)
	}
	conf = leakyClass("10MB/s")
	conf.Headroom = 500_000
	if got, want := NewClass(start, conf).Piece(), leaky.Piece(rateOf("5MB/s")); got != want {
		t.Errorf("with headroom a piece is %d, want %d", got, want)
	}
}

func TestClassToken(t *testing.T) {
	c := NewClass(start, tokenClass("1KB/s", 500))
	enter(t, c, 0, Leaves, packet(200), packet(300))
	a, big := packet(100), packet(1500) // larger than the bucket: goes into debt
	enter(t, c, 0, Waits, a, big)
	released(t, c, 100*ms, a)
	released(t, c, 600*ms-1)
	released(t, c, 600*ms, big)
	b := packet(100)
	enter(t, c, 1600*ms, Waits, b) // the debt is paid
	released(t, c, 1700*ms-1)
	released(t, c, 1700*ms, b)
}

func TestClassDefaultBurst(t *testing.T) {
	c := NewClass(start, tokenClass("1 connections/s", 0))
	conn := func() *Item { return &Item{Cost: Cost{Connections: 1}} }
	enter(t, c, 0, Leaves, conn())
	enter(t, c, 0, Waits, conn())
	c = NewClass(start, tokenClass("1KB/s", 0))
	enter(t, c, 0, Leaves, packet(2920))
	enter(t, c, 0, Waits, packet(1))
}

// TestClassPieceOfAToken holds that a piece is half the bucket, if that is less than a piece of a leaky
// class: while one piece waits, the other half fills.
func TestClassPieceOfAToken(t *testing.T) {
	for burst, want := range map[int64]int64{1: 1, 1500: 750, 1 << 30: leaky.Piece(rateOf("10MB/s"))} {
		if got := NewClass(start, tokenClass("10MB/s", burst)).Piece(); got != want {
			t.Errorf("with a burst of %d a piece is %d, want %d", burst, got, want)
		}
	}
}

func TestClassRoom(t *testing.T) {
	for _, c := range []struct {
		name         string
		items, bytes int64
		held         []int64
		fit          int
	}{
		{"items", 2, 0, []int64{1000, 1000, 1000}, 2},
		{"bytes", 0, 250, []int64{100, 100, 100}, 2},
		{"both", 1, 250, []int64{100, 100}, 1},
		{"no bound of items", 0, 1 << 20, []int64{1, 1, 1, 1, 1}, 5},
		{"one that is larger than the queue", 10, 250, []int64{9000, 1}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			class := NewClass(start, withQueue(leakyClass("1 packets/s"), c.items, c.bytes))
			enter(t, class, 0, Leaves, packet(1))
			for i, held := range c.held {
				want := Waits
				if i >= c.fit {
					want = Full
				}
				it := packet(1) // the queue counts memory, not payload
				it.Held = held
				enter(t, class, 0, want, it)
			}
		})
	}
}

func TestClassMaxWait(t *testing.T) {
	conf := leakyClass("10 packets/s")
	conf.MaxWait = unit.Duration(250 * ms)
	c := NewClass(start, conf)
	enter(t, c, 0, Leaves, packet(1))
	enter(t, c, 0, Waits, packet(1), packet(1))
	enter(t, c, 0, TooLong, packet(1))
	patient := packet(1)
	patient.Patient = true
	enter(t, c, 0, Waits, patient)

	conf.Rate = rateOf("0 packets/s")
	c = NewClass(start, conf)
	enter(t, c, 0, TooLong, packet(1))
}

// TestOverflowForMessages holds that the class says of messages what its policy does, for all units, and after a reload.
func TestOverflowForMessages(t *testing.T) {
	for _, rate := range []string{"5 messages/s", "5 packets/s", "5 connections/s", "5kB/s"} {
		conf := leakyClass(rate)
		c := NewClass(start, conf)
		for _, conf.Overflow = range overflows {
			c.Set(start, conf)
			for _, p := range []policy.Protocol{policy.TCP, policy.UDP, policy.HTTP, policy.SMPP, policy.ISO8583, policy.Lines} {
				if got, want := c.Messages().OverflowFor(p), conf.OverflowFor(p); got != want {
					t.Errorf("%s, %q, %s: %q, want %q", rate, conf.Overflow, p, got, want)
				}
			}
		}
	}
}

func TestClassOverflow(t *testing.T) {
	for _, c := range []struct {
		overflow policy.Overflow
		rate     string
		patient  bool
		want     Verdict
	}{
		{"", "1KB/s", true, Waits},
		{"", "1KB/s", false, Full},
		{"", "1 connections/s", true, Full}, // refused
		{policy.Wait, "1 connections/s", true, Waits},
		{policy.Wait, "1KB/s", true, Waits},
		{policy.Wait, "1KB/s", false, Full}, // a datagram cannot be made to wait
		{policy.Drop, "1KB/s", true, Full},
		{policy.Refuse, "1KB/s", true, Full},
	} {
		conf := withQueue(leakyClass(c.rate), 1, 0)
		conf.Overflow = c.overflow
		class := NewClass(start, conf)
		item := func() *Item { return &Item{Cost: Cost{Bytes: 1000, Connections: 1}, Patient: c.patient} }
		enter(t, class, 0, Leaves, item())
		enter(t, class, 0, Waits, item())
		if got := class.Enter(start, item()); got != c.want {
			t.Errorf("overflow %q, %s, patient %v: verdict %v, want %v", c.overflow, c.rate, c.patient, got, c.want)
		}
	}
}

func TestClassZeroCostLeavesAtOnce(t *testing.T) {
	c := NewClass(start, leakyClass("0 packets/s"))
	enter(t, c, 0, Waits, packet(100))
	enter(t, c, 0, Leaves, &Item{Cost: Cost{Bytes: 100}})
	wantBacklog(t, c, 1, 100)
	if got := c.Piece(); got != leaky.MaxPiece {
		t.Errorf("a piece of a class that does not count bytes is %d, want %d", got, leaky.MaxPiece)
	}
}

func TestClassCancel(t *testing.T) {
	c := NewClass(start, leakyClass("10 packets/s"))
	a, b, d, e := packet(1), packet(2), packet(4), packet(8)
	enter(t, c, 0, Leaves, a)
	enter(t, c, 0, Waits, b, d, e)
	if c.Cancel(start, a) {
		t.Error("Cancel took out an item that had left")
	}
	if !c.Cancel(start, d) || c.Cancel(start, d) {
		t.Error("Cancel did not take out a waiting item exactly once")
	}
	wantBacklog(t, c, 2, 10)
	released(t, c, 100*ms, b)
	released(t, c, 200*ms, e) // what was cancelled is not charged
}

func TestClassReleasesNothingAtNever(t *testing.T) {
	c := NewClass(start, leakyClass("0 packets/s"))
	if it := c.Release(c.Next(start)); it != nil {
		t.Errorf("%v leaves a class in which nothing waits", it)
	}
	enter(t, c, 0, Waits, packet(1))
	if it := c.Release(c.Next(start)); it != nil {
		t.Errorf("%v leaves under a rate of 0", it)
	}
}

func TestClassEvict(t *testing.T) {
	c := NewClass(start, leakyClass("10 packets/s"))
	a, b, d, e := packet(1), packet(2), packet(4), packet(8)
	enter(t, c, 0, Leaves, a)
	enter(t, c, 0, Waits, b, d, e)
	got := c.Evict(start, func(it *Item) bool { return it != d })
	if len(got) != 2 || got[0] != b || got[1] != e {
		t.Errorf("Evict took out %v, want the first and the third", got)
	}
	wantBacklog(t, c, 1, 4)
	released(t, c, 100*ms, d)
}

// Buckets that nobody uses are given up while Evict goes over them.
func TestEvictGivesUpBuckets(t *testing.T) {
	c := NewClass(start, perSource(10, leakyClass("1 packets/h")))
	var stays *Item
	for n := range 8 {
		bucket, waits := c.Join(start, client(n)), packet(2)
		enter(t, bucket, 0, Leaves, packet(1))
		enter(t, bucket, 0, Waits, waits)
		if n == 3 {
			stays = waits // and so does its bucket
		}
		bucket.Quit(start)
	}
	if got := c.Evict(start, func(it *Item) bool { return it != stays }); len(got) != 7 {
		t.Errorf("Evict took out %d items, want 7", len(got))
	}
	if n := len(c.keys.table.active); n != 1 {
		t.Errorf("%d buckets remain in use, want that of the item that stays", n)
	}
	wantBacklog(t, c, 1, 2)
}

func TestClassLeft(t *testing.T) {
	c := NewClass(start, leakyClass("10 packets/s"))
	enter(t, c, 0, Leaves, packet(1))
	a, b := packet(1), packet(1)
	enter(t, c, 0, Waits, a, b)
	lastLeft(c, at(30*ms)) // that long after it was released
	released(t, c, 130*ms-1)
	released(t, c, 130*ms, a)
	released(t, c, 230*ms, b)
}

// TestClassHoldsUntilLeft holds that nothing follows an item out of its class until its
// owner calls Left, or a second has passed.
func TestClassHoldsUntilLeft(t *testing.T) {
	c := NewClass(start, leakyClass("10 packets/s"))
	first, a, b := packet(1), packet(1), packet(1)
	first.Settles, a.Settles = true, true
	enter(t, c, 0, Leaves, first)
	enter(t, c, 0, Waits, a, b)
	released(t, c, 900*ms) // without Left of a, b would have left at 100 ms
	lastLeft(c, at(950*ms))
	released(t, c, 1050*ms-1)
	released(t, c, 1050*ms, a)
	released(t, c, 2050*ms-1)
	released(t, c, 2050*ms, b) // a has been on its way for too long
}

func TestClassBacklog(t *testing.T) {
	c := NewClass(start, leakyClass("1KB/s"))
	if cost, drain := c.Estimate().Drain(start); cost != 0 || drain != 0 {
		t.Errorf("an idle class drains %d in %v", cost, drain)
	}
	enter(t, c, 0, Leaves, packet(500))
	enter(t, c, 0, Waits, packet(1000), packet(2000))
	if cost, drain := c.Estimate().Drain(start); cost != 3000 || drain != 1500*ms {
		t.Errorf("the class drains %d in %v, want 3000 in 1.5s", cost, drain)
	}
	conf := c.Policy()
	conf.Rate = rateOf("0B/s")
	c.Set(start, conf)
	if _, drain := c.Estimate().Drain(start); drain < 100*365*24*time.Hour {
		t.Errorf("under a rate of 0 the class drains in %v", drain)
	}
}

func TestClassStats(t *testing.T) {
	c := NewClass(start, withQueue(leakyClass("10 packets/s"), 2, 0))
	enter(t, c, 0, Leaves, packet(1))
	a, b := packet(1), packet(1)
	enter(t, c, 0, Waits, a, b)
	enter(t, c, 0, Full, packet(1))
	released(t, c, 100*ms, a)
	c.Cancel(at(150*ms), b)
	if got := c.Stats.Overlimits.Load(); got != 3 {
		t.Errorf("%d items had to wait, want 3", got)
	}
	wait := c.Stats.Wait.Read()
	if wait.Zero != 1 || wait.Count != 2 || wait.Sum != 0.1 {
		t.Errorf("of %d items %d did not wait, and all together waited for %v s; want 2, 1, 0.1", wait.Count, wait.Zero, wait.Sum)
	}
}

// TestClassCatchesUpWhatWaited wakes a class up late.
func TestClassCatchesUpWhatWaited(t *testing.T) {
	c := NewClass(start, leakyClass("1MB/s"))
	a, b := packet(1000), packet(1000)
	enter(t, c, 0, Leaves, packet(1000))
	enter(t, c, 0, Waits, a, b)
	released(t, c, 1900*time.Microsecond, a) // 0.9 ms late
	released(t, c, 2000*time.Microsecond, b) // on time all the same
}

// TestClassSmallBusyItems lets a source send 100 bytes at a time, each 60 us late. The
// class catches up.
func TestClassSmallBusyItems(t *testing.T) {
	c := NewClass(start, leakyClass("10MB/s"))
	it, now, sum := packet(100), start, 0
	for now.Before(at(second)) {
		if c.Enter(now, it) == Leaves {
			sum += 100
		} else {
			now = c.Next(now).Add(60 * time.Microsecond)
			c.Release(now)
			sum += 100
		}
		it.Busy = true
	}
	if sum < 9_990_000 || sum > 10_000_000+10_000 {
		t.Errorf("%d bytes left in a second of 10 MB/s", sum)
	}
}
