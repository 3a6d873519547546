package shaper

import (
	"sync"
	"testing"
	"time"

	"shaper/policy"
	"shaper/unit"
)

// The common bucket is limited as any other: nobody gets a new one by leaving it.
func TestKeysShareWhatIsLeft(t *testing.T) {
	c := NewClass(start, perSource(1, leakyClass("1 packets/s")))
	c.Join(start, client(1))
	passed := 0
	for n := range 100 {
		now := at(time.Duration(n) * 10 * ms)
		bucket := c.Join(now, client(2+n%2))
		if bucket.Pass(now, Cost{Packets: 1}) {
			passed++
			lastLeft(bucket, now)
		}
		bucket.Quit(now)
	}
	if passed != 1 {
		t.Errorf("%d packets left in a second, want 1", passed)
	}
}

// A key that gets a bucket of its own goes on from the common one while that owes anything: it gets
// nothing for leaving it. Once the common one owes nothing, keys begin anew.
func TestKeysLeaveTheCommonBucket(t *testing.T) {
	for _, algorithm := range []policy.Algorithm{policy.Leaky, policy.Token, policy.GCRA, policy.FixedWindow, policy.SlidingLog, policy.SlidingWindow} {
		conf := classBy(algorithm, "20 packets/min")
		also := conf
		also.Also = []policy.Limit{classBy(policy.SlidingLog, "15 packets/min").Own()}
		for name, keyed := range map[string]policy.Class{
			"by client":  perSource(1, conf),
			"by message": perRecipient(1, conf),
			"also":       perRecipient(1, also),
		} {
			same := keyed
			same.Per = policy.Per{}
			c, stays := NewClass(start, keyed), NewClass(start, same)
			join := func(d time.Duration, n int) *Class {
				if c.Messages().HaveKeys() {
					return c.JoinKey(at(d), to(t, c, n))
				}
				return c.Join(at(d), client(n))
			}
			quit := func(d time.Duration, bucket *Class, n int) {
				if c.Messages().HaveKeys() {
					bucket.QuitKey(at(d), to(t, c, n))
				} else {
					bucket.Quit(at(d))
				}
			}
			spend := func(d time.Duration, c *Class) (n int) {
				for c.Pass(at(d), Cost{Packets: 1}) {
					lastLeft(c, at(d))
					n++
				}
				return n
			}
			first, shared := join(0, 1), join(0, 2)
			if n, want := spend(0, shared), spend(0, stays); n != want {
				t.Fatalf("%s, %s: %d leave the common bucket, want %d", algorithm, name, n, want)
			}
			quit(0, shared, 2)
			quit(0, first, 1)
			for _, d := range []time.Duration{second, 11 * second, 70 * second} {
				own := join(d, 2)
				if own == shared {
					t.Fatalf("%s, %s: the key has no bucket of its own", algorithm, name)
				}
				if n, want := spend(d, own), spend(d, stays); n != want {
					t.Errorf("%s, %s: after %v, %d leave the bucket of its own, want %d", algorithm, name, d, n, want)
				}
				quit(d, own, 2)
			}
			if n := spend(300*second, join(300*second, 3)); n == 0 {
				t.Errorf("%s, %s: a key is limited long after all have left", algorithm, name)
			}
		}
	}
}

// What the common bucket owes holds for those who have been there alone. When it owes nothing and
// nobody is there, it forgets who has been.
func TestKeysThatNeverShared(t *testing.T) {
	c := NewClass(start, perSource(1, classBy(policy.FixedWindow, "20 packets/min")))
	first, shared := c.Join(start, client(1)), c.Join(start, client(2))
	pass := func(d time.Duration, c *Class, want bool) {
		t.Helper()
		if got := c.Pass(at(d), Cost{Packets: 1}); got != want {
			t.Errorf("after %v, an item leaves: %v, want %v", d, got, want)
		}
	}
	for range 20 {
		pass(0, shared, true)
	}
	first.Quit(start)
	other := c.Join(at(ms), client(3))
	pass(ms, other, true)
	other.Quit(at(ms))
	shared.Quit(at(ms))
	pass(2*ms, shared, false)
	if !c.keys.common.visited.has(keyOf(c, 2)) {
		t.Error("it is forgotten that a key has been in the common bucket, which owes all")
	}
	again := c.Join(at(70*second), client(2))
	pass(70*second, again, true)
	if c.keys.common.visited.has(keyOf(c, 2)) {
		t.Error("it is remembered that a key has been in the common bucket, which owes nothing")
	}
}

// A key that leaves the common bucket while that pauses goes on to pause, also if that owes nothing else.
func TestKeysLeaveTheCommonBucketPausing(t *testing.T) {
	c := NewClass(start, perSource(1, classBy(policy.GCRA, "1000 packets/s")))
	first, shared := c.Join(start, client(1)), c.Join(start, client(2))
	shared.Provider().ThrottledHere(start, 10*second, "429")
	first.Quit(start)
	shared.Quit(start)
	own := c.Join(at(5*second), client(2))
	if own == shared || own.Pass(at(9*second), Cost{Packets: 1}) || !own.Pass(at(10*second), Cost{Packets: 1}) {
		t.Error("the key leaves the pause behind, or does not end it")
	}
}

// A key that leaves the common bucket while that has less than its rate goes on at the same rate, and gets it back at the same
// times.
func TestKeysLeaveTheCommonBucketAdapting(t *testing.T) {
	for _, algorithm := range algorithms {
		for name, keyed := range map[string]policy.Class{
			"by client":  perSource(1, adapting(classBy(algorithm, "16 packets/s"))),
			"by message": perRecipient(1, adapting(classBy(algorithm, "16 packets/s"))),
		} {
			same := keyed
			same.Per = policy.Per{}
			c, stays := NewClass(start, keyed), NewClass(start, same)
			join := func(d time.Duration, n int) (bucket *Class, quit func(time.Duration)) {
				if c.Messages().HaveKeys() {
					bucket = c.JoinKey(at(d), to(t, c, n))
					return bucket, func(d time.Duration) { bucket.QuitKey(at(d), to(t, c, n)) }
				}
				bucket = c.Join(at(d), client(n))
				return bucket, func(d time.Duration) { bucket.Quit(at(d)) }
			}
			first, quitFirst := join(0, 1)
			pass(first, 0)
			shared, quitShared := join(0, 2)
			for _, b := range []*Class{shared, stays} {
				b.Provider().ThrottledHere(start, second, "429")
				b.Provider().ThrottledHere(at(1500*ms), second, "429") // 4 of 16 sixteenths remain
			}
			quitShared(2 * second)
			quitFirst(2 * second)
			own, _ := join(10*second, 2)
			if own == shared {
				t.Fatalf("%s, %s: the key has no bucket of its own", algorithm, name)
			}
			for d, n, want := 10*second, 0, 0; d < 180*second; d += 10 * ms {
				n, want = n+pass(own, d), want+pass(stays, d)
				if n-want > 1 || want-n > 1 {
					t.Fatalf("%s, %s: by %v, %d have left the bucket of its own, want %d", algorithm, name, d, n, want)
				}
			}
		}
	}
}

// pass lets a packet leave a class at d, if it may, and returns how many have left.
func pass(c *Class, d time.Duration) int {
	if !c.Pass(at(d), Cost{Packets: 1}) {
		return 0
	}
	lastLeft(c, at(d))
	return 1
}

// What the provider has told in the common bucket holds for a key that leaves it.
func TestKeysLeaveTheCommonBucketHinted(t *testing.T) {
	for _, limits := range []int{1, 2} {
		c := NewClass(start, perSource(1, hintedClass()))
		first, shared := c.Join(start, client(1)), c.Join(start, client(2))
		enter(t, shared, 0, Leaves, message(1))
		for id := range limits {
			shared.Provider().Heard(start, start, Cost{}, []Hint{{unit.Messages, uint64(id), 0, at(30 * second)}})
		}
		first.Quit(start)
		shared.Quit(start)
		holds(t, waitsWithKey(t, c, at(second), client(2), nil), "test", HoldHint, 30*second)
		own := c.Join(at(second), client(2))
		if next := own.limiter.Next(at(second), 0, 1); own == shared || !next.Equal(at(30*second)) {
			t.Errorf("with %d limits the key may send at %v", limits, next.Sub(start))
		}
	}
}

// A key that leaves a common bucket which owes more than a record holds has nothing for leaving it.
func TestKeysLeaveACommonBucketThatOwesLong(t *testing.T) {
	conf := classBy(policy.GCRA, "1 packets/month")
	conf.Burst = policy.Burst{N: 2000, Kind: unit.Packets}
	c := NewClass(start, perSource(1, conf))
	first, shared := c.Join(start, client(1)), c.Join(start, client(2))
	for range 1999 {
		shared.Pass(start, Cost{Packets: 1})
	}
	first.Quit(start)
	shared.Quit(start)
	own := c.Join(at(second), client(2))
	if own == shared {
		t.Fatal("the key has no bucket of its own")
	}
	n := 0
	for own.Pass(at(second), Cost{Packets: 1}) {
		n++
	}
	if n > 1 {
		t.Errorf("%d more leave the bucket of its own, want one at most", n)
	}
}

// keyOf returns the key of a client in a class.
func keyOf(c *Class, n int) policy.Key {
	conn := client(n)
	return c.keys.per.Key(&conn, nil)
}

// A key that leaves the common bucket is within its assured rate when that is. A connection has not been
// there, so it begins anew.
func TestKeysLeaveTheCommonBucketAsAssured(t *testing.T) {
	conf := leakyClass("10 packets/min")
	conf.Ceil = rateOf("10 packets/s")
	c := NewClass(start, perSource(1, conf))
	first, shared := c.Join(start, client(1)), c.Join(start, client(2))
	enter(t, shared, 0, Leaves, packet(1))
	first.Quit(start)
	holds(t, waitsWithKey(t, c, at(ms), client(2), nil), "test", "10 packets/s", 100*ms)
	if own := c.Join(at(ms), client(2)); own == shared || own.assured.Next() != shared.assured.Next() {
		t.Errorf("the key is within its assured rate at %v, want %v as before", own.assured.Next(), shared.assured.Next())
	}

	conf.Per, conf.MaxKeys = policy.Per{{By: policy.ByConnection}}, 1
	c = NewClass(start, conf)
	first, shared = c.Join(start, clientOf(1)), c.Join(start, clientOf(2))
	enter(t, shared, 0, Leaves, packet(1))
	first.Quit(start)
	own := c.Join(at(ms), clientOf(3))
	enter(t, own, ms, Leaves, packet(1))
	if own.Quit(at(ms)); own == shared || c.keys.table.len() != 0 {
		t.Errorf("%d keys are remembered of connections that are gone", c.keys.table.len())
	}
}

// A session may quit before its last item has left. The bucket goes when that has left.
func TestKeysQuitWhileAnItemWaits(t *testing.T) {
	c := NewClass(start, perSource(10, leakyClass("1KB/s")))
	bucket := c.Join(start, client(1))
	last := packet(1000)
	enter(t, bucket, 0, Leaves, packet(1000))
	enter(t, bucket, 0, Waits, last)
	bucket.Quit(start)
	released(t, c, second, last)
	last.Left(at(second))
	if len(c.keys.table.active) != 0 {
		t.Error("the unused bucket is still there")
	}
}

// A bucket whose last copies wait in the shadow goes with them.
func TestKeysOfCopies(t *testing.T) {
	c := tried(perSource(10, leakyClass("1 packets/s")))
	for n := range 5 {
		bucket := c.Join(start, client(n))
		c.trial.mirror(start, bucket, Cost{Packets: 1}, nil, false)
		c.trial.mirror(start, bucket, Cost{Packets: 1}, nil, false)
		bucket.Quit(start)
	}
	c.trial.CatchUp(at(10 * second))
	if n := c.Buckets().Keys(at(10 * second)); n != 0 {
		t.Errorf("%d keys have a bucket or are remembered, want 0", n)
	}
}

// When another algorithm replaces one that counts gaps, nothing waits for a gap any more
// and no bucket stays for one. The class may be the bucket's own or the one above.
func TestKeysSetWhileAnItemLeaves(t *testing.T) {
	root := named("root", leakyClass("30 packets/s"))
	for set, confs := range map[string][]policy.Class{
		"clients": {named("clients", perSource(10, leakyClass("10 packets/s")))},
		"root":    {under("root", named("clients", perSource(10, leakyClass("10KB/s")))), root},
	} {
		t.Run(set, func(t *testing.T) {
			c := tree(confs...)
			bucket := c["clients"].Join(start, client(1))
			it := packet(1)
			it.Settles = true
			enter(t, bucket, 0, Leaves, it)
			bucket.Quit(start)
			conf := c[set].Policy()
			conf.Algorithm = policy.Token
			c[set].Set(start, conf)
			it.Left(at(second))
			if len(c["clients"].keys.table.active) != 0 {
				t.Error("the unused bucket is still there")
			}
		})
	}
}

// Datagrams may come to a session that is just ending.
func TestKeysPassWhileTheyQuit(t *testing.T) {
	c := NewClass(time.Now(), perSource(10, classBy(policy.SlidingLog, "100000 packets/s")))
	var wg sync.WaitGroup
	for range 2000 {
		bucket := c.Join(time.Now(), client(1))
		wg.Go(func() {
			for range 3 {
				bucket.Pass(time.Now(), Cost{Packets: 1})
				it := packet(1)
				if bucket.Enter(time.Now(), it) == Waits {
					bucket.Cancel(time.Now(), it)
				}
			}
		})
		bucket.Quit(time.Now())
	}
	wg.Wait()
}

// What comes to a bucket that was given up stays there for its owner to move, and never
// leaves from there.
func TestKeysGivenUp(t *testing.T) {
	conf := perSource(10, leakyClass("1 packets/s"))
	conf.MaxWait = unit.Duration(second)
	c := NewClass(start, conf)
	bucket := c.Join(start, client(1))
	bucket.Quit(start)
	late := packet(1)
	enter(t, bucket, 0, Waits, late)
	released(t, bucket, time.Hour)
	if got := bucket.Evict(at(time.Hour), func(*Item) bool { return true }); len(got) != 1 || got[0] != late {
		t.Errorf("Evict took out %v", got)
	}
}
