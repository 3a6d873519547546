package shaper

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"shaper/limit"
	"shaper/policy"
	"shaper/tests/trial"
)

// perSource gives a class a bucket for each source address.
func perSource(most int, conf policy.Class) policy.Class {
	conf.Per, conf.MaxKeys = policy.Per{{By: policy.BySource, IPv4: 32, IPv6: 64}}, most
	return conf
}

// client returns a connection of the nth source.
func client(n int) policy.Conn {
	var a [4]byte
	binary.BigEndian.PutUint32(a[:], 10<<24+uint32(n))
	return policy.Conn{Source: netip.AddrPortFrom(netip.AddrFrom4(a), 5000)}
}

// TestKeysHaveBuckets holds that each source leaves at its own rate, whatever others do,
// and that all connections of a source share its bucket.
func TestKeysHaveBuckets(t *testing.T) {
	c := NewClass(start, perSource(10, leakyClass("10 packets/s")))
	a, again, b := c.Join(start, client(1)), c.Join(start, client(1)), c.Join(start, client(2))
	if a != again || a == b || a.Named() != c || c.Named() != c || a.Name() != c.Name() || a.Stats != c.Stats {
		t.Fatalf("two sources have the buckets %p, %p again, and %p, of the class %p", a, again, b, c)
	}
	second, third := packet(1), packet(1)
	enter(t, a, 0, Leaves, packet(1))
	enter(t, again, 0, Waits, second)
	enter(t, b, 30*ms, Leaves, packet(1))
	enter(t, b, 30*ms, Waits, third)
	wantBacklog(t, c, 2, 2)
	if cost, drain := c.Estimate().Drain(at(30 * ms)); cost != 2 || drain != 100*ms {
		t.Errorf("the class drains %d in %v", cost, drain)
	}
	released(t, c, 100*ms-1)
	released(t, c, 100*ms, second)
	released(t, c, 130*ms-1)
	released(t, c, 130*ms, third)
	if n := c.Buckets().Keys(at(130 * ms)); n != 2 {
		t.Errorf("%d keys, want 2", n)
	}
}

// An item that enters the class itself has no bucket. The class refuses it.
func TestKeysLimitWhatHasNone(t *testing.T) {
	c := NewClass(start, perSource(10, leakyClass("10 packets/s")))
	enter(t, c, 0, Full, packet(1))
	if c.Pass(start, Cost{Packets: 1}) {
		t.Error("an item passes without a bucket")
	}
}

// A source that comes back finds its bucket as it was. No algorithm gives it anything for
// having been away.
func TestKeysAreRemembered(t *testing.T) {
	for _, algorithm := range []policy.Algorithm{policy.Leaky, policy.Token, policy.GCRA, policy.FixedWindow, policy.SlidingLog, policy.SlidingWindow} {
		t.Run(string(algorithm), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				conf := classBy(algorithm, rapid.SampledFrom([]string{"10 packets/s", "3 packets/s", "20KB/s"}).Draw(t, "rate"))
				stays, keyed := NewClass(start, conf), NewClass(start, perSource(4, conf))
				now := start
				for range rapid.IntRange(1, 40).Draw(t, "items") {
					now = now.Add(time.Duration(rapid.IntRange(0, 400).Draw(t, "pause")) * ms)
					c, it, same := keyed.Join(now, client(1)), packet(1000), packet(1000)
					got, want := c.Enter(now, it), stays.Enter(now, same)
					if got != want && !within(c, stays, now) {
						t.Fatalf("at %v an item leaves at %v, want %v as from a bucket that stayed", now.Sub(start), got, want)
					}
					now = leaves(c, now, it, got)
					leaves(stays, now, same, want)
					c.Quit(now)
				}
				if n := keyed.Buckets().Keys(now); n > 1 || len(keyed.keys.table.active) != 0 {
					t.Fatalf("%d keys remain", n)
				}
			})
		})
	}
}

// within reports whether two classes let the next item leave at the same time, apart from
// how fractions of tokens are rounded.
func within(a, b *Class, now time.Time) bool {
	x, y := a.Next(now), b.Next(now)
	if x == limit.Never {
		x = now
	}
	if y == limit.Never {
		y = now
	}
	return x.Sub(y).Abs() < time.Microsecond
}

// leaves lets the next item of a class leave, and returns when.
func leaves(c *Class, now time.Time, it *Item, verdict Verdict) time.Time {
	for waits := verdict == Waits; waits; waits = c.Release(now) == nil {
		now = later(now, c.Next(now))
	}
	it.Left(now)
	return now
}

// TestKeysBounded brings more sources than there is room for. Those that owe something
// keep their buckets. The others share one until there is room.
func TestKeysBounded(t *testing.T) {
	c := NewClass(start, perSource(2, leakyClass("1 packets/s")))
	for n := range 2 {
		bucket := c.Join(start, client(n))
		enter(t, bucket, 0, Leaves, packet(1))
		bucket.Quit(start)
	}
	now := at(500 * ms)
	third, fourth := c.Join(now, client(3)), c.Join(now, client(4))
	if third != fourth || c.Stats.KeysShared.Load() != 2 {
		t.Fatalf("there is room for 2 keys, and the others have the buckets %p and %p; %d share one", third, fourth, c.Stats.KeysShared.Load())
	}
	enter(t, third, 500*ms, Leaves, packet(1))
	last := packet(1)
	enter(t, fourth, 500*ms, Waits, last)
	first := c.Join(now, client(0))
	waiting := packet(1)
	enter(t, first, 500*ms, Waits, waiting)
	released(t, c, second-1)
	released(t, c, second, waiting)
	released(t, c, 1500*ms, last)
	// The second bucket has been full for a second. So the class forgets it, and its place
	// is free.
	fifth := c.Join(at(1500*ms), client(5))
	if fifth == third || c.Buckets().Keys(at(1500*ms)) != 2 {
		t.Errorf("a new key shares a bucket although another key may be forgotten; %d keys", c.Buckets().Keys(at(1500*ms)))
	}
	for _, bucket := range []*Class{third, fourth, fifth, first} {
		bucket.Quit(at(1500 * ms))
	}
	if c.keys.common.bucket.joined.Load() != 0 || len(c.keys.table.active) != 0 {
		t.Errorf("nobody uses a bucket, but %d share one and %d others are in use", c.keys.common.bucket.joined.Load(), len(c.keys.table.active))
	}
}

// TestKeysFlood brings very many sources. A source that is over its limit stays limited,
// and one that is open goes on.
func TestKeysFlood(t *testing.T) {
	c := NewClass(start, perSource(1000, classBy(policy.GCRA, "1 packets/s")))
	over, open := c.Join(start, client(0)), c.Join(start, client(1))
	for range 60 {
		over.Enter(start, packet(1))
		over.Release(start)
	}
	over.limiter.Take(start, start, 600)
	over.Evict(start, func(*Item) bool { return true })
	over.Quit(start)
	sources := trial.Size(100_000, 10_000_000)
	for n := range sources {
		now := at(time.Duration(n) * 10 * time.Microsecond)
		bucket := c.Join(now, client(2+n))
		bucket.Pass(now, Cost{Packets: 1})
		bucket.Quit(now)
		if c.Buckets().Keys(now) > 1000 {
			t.Fatalf("%d keys", c.Buckets().Keys(now))
		}
	}
	now := at(time.Duration(sources) * 10 * time.Microsecond)
	if c.Join(now, client(0)).Pass(now, Cost{Packets: 1}) {
		t.Error("the source that was over its limit is free")
	}
	if c.Join(now, client(1)) != open || !open.Pass(now, Cost{Packets: 1}) {
		t.Error("the source that was open has another bucket")
	}
	shared := c.Stats.KeysShared.Load()
	trial.Figure(t, "sources; of them had no room", "%d; %d", sources, shared)
	if shared < uint64(sources)*9/10 {
		t.Errorf("only %d sources shared a bucket", shared)
	}
}

// A key that somebody uses counts once, and is not forgotten when what was remembered of it before
// is over.
func TestKeyInUseIsNotForgotten(t *testing.T) {
	c := NewClass(start, perSource(2, classBy(policy.GCRA, "10 packets/s")))
	wantKeys := func(after time.Duration, want int) {
		t.Helper()
		if got := c.Buckets().Keys(at(after)); got != want {
			t.Errorf("after %v there are %d keys, want %d", after, got, want)
		}
	}
	one := c.Join(start, client(1))
	enter(t, one, 0, Leaves, packet(1))
	one.Quit(start)
	wantKeys(0, 1)
	one = c.Join(at(50*ms), client(1))
	wantKeys(50*ms, 1)
	two := c.Join(at(500*ms), client(2))
	wantKeys(500*ms, 2)
	if third := c.Join(at(500*ms), client(3)); third != c.keys.common.bucket {
		t.Error("a third key has a bucket of its own")
	}
	enter(t, one, 500*ms, Leaves, packet(1))
	one.Quit(at(500 * ms))
	two.Quit(at(500 * ms))
	wantKeys(599*ms, 1)
	one = c.Join(at(599*ms), client(1))
	waits := packet(1)
	enter(t, one, 599*ms, Waits, waits)
	one.Cancel(at(599*ms), waits)
	one.Quit(at(599 * ms))
	wantKeys(600*ms, 0)
}

// Sessions of a key have the same bucket, and no other key has it, whichever of them come and go.
func TestKeysInUseHaveTheirBuckets(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := NewClass(start, perSource(10, classBy(policy.GCRA, "1 packets/s")))
		in := map[int][]*Class{} // the sessions of each key, by their buckets
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			n := rapid.IntRange(0, 9).Draw(t, "key")
			if all := in[n]; len(all) > 0 && rapid.Bool().Draw(t, "quits") {
				all[0].Quit(start)
				in[n] = all[1:]
			} else {
				in[n] = append(all, c.Join(start, client(n)))
				in[n][0].Pass(start, Cost{Packets: 1}) // so that it is remembered
			}
			of := map[*Class]int{}
			for n, all := range in {
				for _, bucket := range all {
					if other, has := of[bucket]; has && other != n || bucket != all[0] {
						t.Fatalf("key %d has the bucket of key %d, or two", n, other)
					}
					of[bucket] = n
				}
			}
			if len(c.keys.table.active) != len(of) {
				t.Fatalf("%d buckets are in use, want %d", len(c.keys.table.active), len(of))
			}
		}
	})
}

// TestKeysMemory remembers a million keys if sizes are full.
func TestKeysMemory(t *testing.T) {
	keys := trial.Size(200_000, 1_000_000)
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	for _, conf := range []policy.Class{leakyClass("1KB/s"), classBy(policy.SlidingWindow, "1 packets/s"), threeWindows()} { // these remember most
		before := heap()
		p := paceOf(conf)
		table := newKeyTable(start, 1+p.further())
		bucket := bucketState{p.idle(start), nil}
		bucket.limiter.Take(start, start, 1)
		per := policy.Per{{By: policy.BySource, IPv4: 32}}
		for n := range keys {
			who := client(n)
			table.remember(start, per.Key(&who, nil), bucket)
		}
		each := float64(heap()-before) / float64(keys)
		if most := 128 + 24*float64(len(p.also)); table.len() != keys || each > most {
			t.Errorf("%s: %d keys take %.0f bytes each", conf.Algorithm, table.len(), each)
		}
		t.Logf("%s: %.0f bytes for each key", conf.Algorithm, each)
		runtime.KeepAlive(&table)
	}
}

// A new rate holds for keys that are away as for those that are there.
func TestKeysFollowSet(t *testing.T) {
	for _, algorithm := range []policy.Algorithm{policy.Leaky, policy.Token, policy.GCRA, policy.FixedWindow, policy.SlidingLog, policy.SlidingWindow} {
		t.Run(string(algorithm), func(t *testing.T) {
			conf := classBy(algorithm, "10 packets/s")
			c := NewClass(start, perSource(10, conf))
			stays, goes := c.Join(start, client(1)), c.Join(start, client(2))
			for _, bucket := range []*Class{stays, goes} {
				for range 10 {
					bucket.Pass(start, Cost{Packets: 1})
				}
			}
			goes.Quit(start)
			now := at(50 * ms)
			for _, text := range []string{"2 packets/s", "0 packets/s", "5 packets/s"} {
				next := perSource(10, conf)
				next.Rate = rateOf(text)
				c.Set(now, next)
				now = now.Add(10 * ms)
			}
			back := c.Join(now, client(2))
			got, want := back.limiter.Next(now, 0, 1), stays.limiter.Next(now, 0, 1)
			if got.Sub(want).Abs() > time.Microsecond && (got.After(now) || want.After(now)) {
				t.Errorf("the key that was away may send at %v, the other at %v", got.Sub(start), want.Sub(start))
			}
		})
	}
}

// A change of `per` gives no new burst, not even to keys that come soon afterwards.
func TestKeysChangedByReload(t *testing.T) {
	inBubble(t, func(t *testing.T, s *Shaper) {
		old := s.Class("a")
		conf := named("a", perSource(10, tokenClass("10 packets/s", 5)))
		if removed := s.Apply([]policy.Class{conf}); len(removed) != 1 || removed[0] != old {
			t.Fatalf("Apply removed %v", removed)
		}
		bucket := s.Class("a").Join(time.Now(), client(1))
		if bucket.Pass(time.Now(), Cost{Packets: 1}) {
			t.Error("the reload gives a burst")
		}
		time.Sleep(time.Second)
		late := s.Class("a").Join(time.Now(), client(2))
		for n := range 6 {
			if late.Pass(time.Now(), Cost{Packets: 1}) != (n < 5) {
				t.Errorf("packet %d of a key that comes a second later: want a burst of 5", n)
			}
		}
		bucket.Quit(time.Now())
		late.Quit(time.Now())
		conf.Per[0].IPv4 = 24
		if removed := s.Apply([]policy.Class{conf}); len(removed) != 1 {
			t.Errorf("another prefix does not replace the class")
		}
		conf.Rate = rateOf("20 packets/s")
		if removed := s.Apply([]policy.Class{conf}); len(removed) != 0 {
			t.Errorf("another rate replaces the class")
		}
	}, named("a", tokenClass("10 packets/s", 5)))
}

// TestKeysShareTheirParent lets two sources compete with a sibling. The class as a whole
// has its weight and its place. Its keys are equal.
func TestKeysShareTheirParent(t *testing.T) {
	c := tree(root30(), perSource(10, child("clients", "5")), child("other", "10"))
	a, b := c["clients"].Join(start, client(1)), c["clients"].Join(start, client(2))
	sent := map[*Class]int{}
	for _, x := range []*Class{a, b, c["other"]} {
		for range 100 {
			x.Enter(start, message(1))
		}
	}
	for now := start; now.Before(at(6 * second)); {
		next := c["root"].Next(now)
		if next == limit.Never {
			break
		}
		now = later(now, next)
		if it := c["root"].Release(now); it != nil {
			sent[it.class]++
			it.Left(now)
		}
	}
	// The classes are assured 5 + 5 + 10 of 30. The rest goes half to each of the two
	// classes.
	for x, want := range map[*Class]int{a: 45, b: 45, c["other"]: 90} {
		if got := sent[x]; got < want-3 || got > want+3 {
			t.Errorf("%d items leave in 6 s, want %d", got, want)
		}
	}
}

// Keys that borrow do not take what a sibling is assured of, whatever their priority.
func TestKeysDoNotStarveTheAssured(t *testing.T) {
	c := tree(root30(), withPriority(0, perSource(100, child("clients", "0"))), withPriority(7, child("other", "10")))
	for n := range 20 {
		bucket := c["clients"].Join(start, client(n))
		for range 100 {
			bucket.Enter(start, message(1))
		}
	}
	for range 60 {
		c["other"].Enter(start, message(1))
	}
	other := 0
	for now := start; now.Before(at(3 * second)); {
		now = later(now, c["root"].Next(now))
		if it := c["root"].Release(now); it != nil {
			if it.class == c["other"] {
				other++
			}
			it.Left(now)
		}
	}
	if other < 29 || other > 31 {
		t.Errorf("%d items of the assured class leave in 3 s, want 30", other)
	}
}

// A bucket stays while one of its items is on its way out, since the classes above wait
// for that.
func TestKeysQuitWhileAnItemLeaves(t *testing.T) {
	c := tree(root30(), perSource(10, under("root", named("clients", leakyClass("10 messages/s")))))
	bucket := c["clients"].Join(start, client(1))
	it := message(1)
	it.Settles = true
	enter(t, bucket, 0, Leaves, it)
	bucket.Quit(start)
	other := c["clients"].Join(start, client(2))
	enter(t, other, 10*ms, Waits, message(1))
	released(t, c["root"], 40*ms)
	it.Left(at(40 * ms))
	if next := c["root"].Next(at(40 * ms)); next.Sub(at(40*ms)).Round(ms) != 33*ms {
		t.Errorf("the next item leaves after %v, want a gap since the last one left", next.Sub(start))
	}
	if len(c["clients"].keys.table.active) != 1 {
		t.Error("the unused bucket is still there")
	}
}

// Each bucket has its own max_connections.
func TestKeysHavePermits(t *testing.T) {
	c := NewClass(start, perSource(10, withPermits(leakyClass("10 connections/s"), 1)))
	a, b := c.Join(start, client(1)), c.Join(start, client(2))
	held := take(t, a, 2, 1)
	take(t, b, 1, 1)
	if n := c.Sessions(); n != 2 {
		t.Errorf("%d sessions, want 2", n)
	}
	held[0].Release()
	wantOpen(t, held, false, true)
	conf := perSource(10, withPermits(leakyClass("10 connections/s"), 2))
	more := take(t, a, 1, 0)
	c.Set(start, conf)
	wantOpen(t, more, true)
}

// TestKeysLive joins and quits in many goroutines while the rate changes and the class
// moves. Nothing is lost, and nothing remains.
func TestKeysLive(t *testing.T) {
	s := New()
	defer s.Close()
	confs := []policy.Class{named("up", leakyClass("100000 packets/s")), under("up", named("a", perSource(20, leakyClass("2000 packets/s"))))}
	s.Apply(confs)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(1, uint64(g)))
			for range 300 {
				bucket := s.Class("a").Join(time.Now(), client(r.IntN(40)))
				w := NewWaiter(bucket)
				for range r.IntN(4) {
					if err := w.Wait(t.Context(), Cost{Bytes: 100, Packets: 1}, false); err != nil {
						t.Error(err)
					}
				}
				bucket.Quit(time.Now())
			}
		})
	}
	for n := range 50 {
		confs[1].Rate = rateOf([]string{"2000 packets/s", "1000 packets/s"}[n%2])
		confs[1].Parent = []string{"up", ""}[n/2%2]
		s.Apply(confs)
	}
	wg.Wait()
	a := s.Class("a")
	if len(a.keys.table.active) != 0 || a.Buckets().Keys(time.Now()) > 20 || a.waitingCost != (sum{}) {
		t.Errorf("%d buckets are in use, the class remembers %d keys, and %v waits", len(a.keys.table.active), a.Buckets().Keys(time.Now()), a.waitingCost)
	}
}

// BenchmarkJoin takes a session of one datagram through a class of a million keys.
func BenchmarkJoin(b *testing.B) {
	c := NewClass(start, perSource(1_000_000, classBy(policy.GCRA, "1 packets/s")))
	for b.Loop() {
		n := rand.IntN(1_000_000)
		now := at(time.Duration(n))
		bucket := c.Join(now, client(n))
		bucket.Pass(now, Cost{Packets: 1})
		bucket.Quit(now)
	}
}

// BenchmarkSetOfKeys measures a reload of a class with buckets in use, and of one that remembers keys. Nothing leaves while the
// tree is locked: locked-ms is the longest time, in the round that others disturbed least.
func BenchmarkSetOfKeys(b *testing.B) {
	for _, of := range []struct {
		name string
		keys int
		quit bool
	}{{"used", 1 << 16, false}, {"remembered", 100_000, true}, {"remembered", 1_000_000, true}} {
		conf := perSource(of.keys, classBy(policy.GCRA, "60 packets/h"))
		c := NewClass(start, conf)
		for n := range of.keys {
			bucket := c.Join(start, client(n))
			if bucket.Pass(start, Cost{Packets: 1}); of.quit {
				bucket.Quit(start)
			}
		}
		slower, further := conf, with(conf, limitBy(policy.FixedWindow, "1000 packets/day"))
		slower.Rate = rateOf("50 packets/h")
		for name, confs := range map[string][]policy.Class{"same": {conf}, "slower": {slower, conf}, "further limit": {further, conf}} {
			b.Run(fmt.Sprint(name, "/", of.name, "/", of.keys), func(b *testing.B) {
				n, least := 0, time.Hour
				for b.Loop() {
					least = min(least, longestLock(c, confs[n%len(confs)]))
					n++
				}
				b.ReportMetric(least.Seconds()*1000, "locked-ms")
			})
		}
	}
}

// longestLock does what Set does, and returns the longest time for which that locks the tree.
func longestLock(c *Class, conf policy.Class) (longest time.Duration) {
	more := true
	for part := func() bool { setNow(start, c, conf); return true }; more; part = c.keys.setMore {
		began := time.Now()
		more = part()
		longest = max(longest, time.Since(began))
	}
	return longest
}

// A key that may be forgotten makes room, also while what is remembered is being changed.
func TestKeysHaveRoomDuringAChange(t *testing.T) {
	conf := perSource(1000, classBy(policy.GCRA, "60 packets/min"))
	c := NewClass(start, conf)
	for n := range 1000 {
		b := c.Join(start, client(n))
		b.Pass(start, Cost{Packets: 1})
		b.Quit(start)
	}
	conf.Rate = rateOf("50 packets/min")
	setNow(start, c, conf)
	if c.Join(start.Add(time.Hour), client(1000)); c.Stats.KeysShared.Load() > 0 {
		t.Error("a new key has no room, although others may be forgotten")
	}
}

// A key that may be forgotten makes room, also behind very many that have been used since it was.
func TestKeysUsedAgainHideNoRoom(t *testing.T) {
	const others = 5000
	c := NewClass(start, perSource(others+1, tokenClass("6 packets/min", 2)))
	use := func(d time.Duration, key int) {
		bucket := c.Join(at(d), client(key))
		enter(t, bucket, d, Leaves, packet(1))
		bucket.Quit(at(d))
	}
	for key := range others { // each is remembered for 10 s
		use(0, key)
	}
	use(second, others)
	for key := range others { // and now until 20 s
		use(5*second, key)
	}
	if c.Join(at(12*second), client(others+1)) == c.keys.common.bucket {
		t.Error("a key shares a bucket, although another one may be forgotten")
	}
	if c.Join(at(12*second), client(others+2)) != c.keys.common.bucket {
		t.Error("a key has a bucket of its own, although none may be forgotten")
	}
}
