package shaper

import (
	"encoding/binary"
	"iter"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"shaper/limit"
	"shaper/policy"
	"shaper/stats"
)

// waitsNaively and drainsNaively look at every bucket.
func waitsNaively(c *Class, now time.Time) *stats.Hold {
	first := hold{until: limit.Never}
	withQueues(c, func(c *Class) {
		if c.queue.Len() > 0 {
			if h := nextHold(now, c); !h.until.After(first.until) {
				first = h
			}
		}
	})
	return first.reading()
}

func drainsNaively(c *Class, now time.Time) (cost int64, drain time.Duration) {
	withQueues(c, func(c *Class) {
		if c.queue.Len() > 0 {
			cost += c.queueCost
			drain = max(drain, forecastAt(now, c).drained().Sub(now))
		}
	})
	return cost, drain
}

// waitingBuckets yields the buckets of a class in which something waits.
func waitingBuckets(c *Class) iter.Seq[*Class] {
	return func(yield func(*Class) bool) {
		for e := c.keys.waiting.Front(); e != nil && yield(e.Value); e = e.Next() {
		}
	}
}

// oldestNaively looks at every item.
func oldestNaively(c *Class) (came time.Time) {
	withQueues(c, func(c *Class) {
		for e := c.queue.Front(); e != nil; e = e.Next() {
			if at := e.Value.arrived; came.IsZero() || at.Before(came) {
				came = at
			}
		}
	})
	return came
}

// While items come, leave and are given up at random, keys.waiting has the buckets in which something
// waits, and what a class says of its buckets is what each of them says.
func TestWaitingBucketsAreKnown(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 18))
		c := NewClass(start, perSource(100, leakyClass("10 packets/s")))
		now, buckets, waiting := start, map[int]*Class{}, map[*Item]*Class{}
		for range 500 {
			now = now.Add(time.Duration(r.IntN(50)) * ms)
			switch n := r.IntN(30); r.IntN(4) {
			case 0:
				if buckets[n] == nil {
					buckets[n] = c.Join(now, client(n))
				}
			case 1:
				if bucket := buckets[n]; bucket != nil {
					it := packet(1)
					if bucket.Enter(now, it) == Waits {
						waiting[it] = bucket
					}
				}
			case 2:
				for it := c.Release(now); it != nil; it = c.Release(now) {
					it.Left(now)
					delete(waiting, it)
				}
			case 3:
				for it, bucket := range waiting {
					if bucket == buckets[n] {
						bucket.Cancel(now, it)
						delete(waiting, it)
					}
				}
				if bucket := buckets[n]; bucket != nil {
					bucket.Quit(now)
					delete(buckets, n)
				}
			}
			checkWaiting(t, c, now)
		}
	}
}

// A bucket that was given up has a lock of its own. What still comes to it is nothing to the class.
func TestGivenUpBucketIsAlone(t *testing.T) {
	c := NewClass(start, perSource(100, leakyClass("10 packets/s")))
	gone, busy := c.Join(start, client(1)), c.Join(start, client(2))
	gone.Quit(start)
	var both sync.WaitGroup
	for _, bucket := range []*Class{gone, busy} {
		both.Go(func() { // the race detector sees whether they share something
			for range 10 {
				it := packet(1)
				if bucket.Enter(start, it) == Waits {
					bucket.Cancel(start, it)
				}
			}
		})
	}
	both.Wait()
	checkWaiting(t, c, start)
}

// checkWaiting compares what a class knows with what all of its buckets say.
func checkWaiting(t *testing.T, c *Class, now time.Time) {
	t.Helper()
	busy := 0
	for _, bucket := range c.keys.table.active {
		if bucket.waiting > 0 {
			busy++
			if !bucket.waits {
				t.Fatalf("a bucket with %d items is not in keys.waiting", bucket.waiting)
			}
		}
	}
	if n := c.keys.waiting.Len(); busy != n {
		t.Fatalf("%d buckets have items, and %d are in keys.waiting", busy, n)
	}
	wantCost, wantDrain := drainsNaively(c, now)
	if cost, drain := c.Estimate().Drain(now); cost != wantCost || drain != wantDrain {
		t.Fatalf("the class drains %d in %v, want %d in %v", cost, drain, wantCost, wantDrain)
	}
	if got, want := c.Status().Oldest(), oldestNaively(c); !got.Equal(want) {
		t.Fatalf("the oldest item came at %v, want %v", got, want)
	}
	got, want := c.Status().Waits(now), waitsNaively(c, now)
	if (got == nil) != (want == nil) || got != nil && !got.Until.Equal(want.Until) {
		t.Fatalf("the class waits for %v, want %v", got, want)
	}
}

// floodKeys returns a class in which two items of each of so many keys wait.
func floodKeys(keys int) *Class {
	c := NewClass(start, perSource(keys, leakyClass("1 packets/min")))
	for n := range keys {
		bucket := c.Join(start, client(n))
		for range 3 {
			bucket.Enter(at(time.Duration(n)*ms), packet(1))
		}
	}
	return c
}

// With more waiting buckets than are looked at, the next to leave is known exactly, and the oldest item too while no bucket
// becomes empty.
func TestWaitsOfManyBuckets(t *testing.T) {
	const keys = 3 * mostNodes
	c := floodKeys(keys)
	for i := range 50 {
		now := at(time.Minute + time.Duration(i)*37*ms)
		for it := c.Release(now); it != nil; it = c.Release(now) {
			it.Left(now)
		}
		if got, want := c.Status().Waits(now), waitsNaively(c, now); got == nil || !got.Until.Equal(want.Until) {
			t.Fatalf("the class waits for %v, want %v", got, want)
		}
		if got, want := c.Status().Oldest(), oldestNaively(c); got.IsZero() || !got.Equal(want) {
			t.Fatalf("the oldest item came at %v, want %v", got, want)
		}
		cost, drain := c.Estimate().Drain(now)
		if want, most := drainsNaively(c, now); cost != want || drain > most || drain < most/2 {
			t.Fatalf("the class drains %d in %v, want %d in %v", cost, drain, want, most)
		}
	}
}

// sleepers returns a class beneath another one in which two messages of each of so many senders wait for the morning.
func sleepers(t testing.TB, senders int, night time.Duration) *Class {
	c := tree(asAt(night, promotions(t, "per = \"source_addr\"\nparent = \"root\"\n[class.root]\nrate = \"10 messages/s\""))...)["promotions"]
	for i := range senders {
		m := &policy.Message{SourceAddr: binary.BigEndian.AppendUint32(nil, uint32(i)), Recipient: []byte("91")}
		for group := c.JoinKey(at(night), c.Messages().Key(&policy.Conn{}, m)); group.queue.Len() < 2; {
			group.Enter(at(night), sms())
		}
	}
	return c
}

// Of what stands still until the same moment, each sender says the same as by itself.
func TestDrainOfSleepers(t *testing.T) {
	const night = 30 * time.Hour
	c := sleepers(t, 30, night)
	_, want := drainsNaively(c, at(night))
	if cost, drain := c.Estimate().Drain(at(night)); cost != 60 || drain != want || drain < 3*time.Hour {
		t.Errorf("the class drains %d in %v, want 60 in %v", cost, drain, want)
	}
}

// BenchmarkDrainOfSleepers measures what a scrape asks at night of a class in which 3,000 senders wait for the morning.
func BenchmarkDrainOfSleepers(b *testing.B) {
	const night = 30 * time.Hour
	c := sleepers(b, 3000, night)
	for b.Loop() {
		c.Estimate().Drain(at(night))
	}
}

// BenchmarkWaitsOfKeys measures what a scrape asks of a class in which 100,000 keys wait.
func BenchmarkWaitsOfKeys(b *testing.B) {
	c := floodKeys(100_000)
	now := at(100 * time.Second)
	for b.Loop() {
		c.Status().Waits(now)
		c.Estimate().Drain(now)
		c.Status().Oldest()
	}
}
