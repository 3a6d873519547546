package shaper

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"shaper/calendar"
	"shaper/limit"
	"shaper/policy"
	"shaper/unit"
)

// clientOf returns the n-th client.
func clientOf(n int) policy.Conn {
	addr := netip.AddrFrom4([4]byte{10, 0, byte(n >> 8), byte(n)})
	return policy.Conn{Source: netip.AddrPortFrom(addr, 1000), Session: uint64(n)}
}

// keyedClass returns a policy with a bucket for each client, whose budget a ledger keeps.
func keyedClass(a policy.Algorithm) policy.Class {
	conf := classBy(a, "20 messages/min")
	conf.Per, conf.Queue = policy.Per{{By: policy.BySource, IPv4: 32, IPv6: 64}}, policy.Queue{}
	if a == policy.Leaky {
		conf.Rate = rateOf("4 messages/min")
	}
	if a.HasBurst() {
		conf.Burst = policy.Burst{N: 5, Kind: unit.Messages}
	}
	return conf
}

// spend lets the client send until it has to wait, and returns how much left within a while.
func (k *keptClass) spend(client policy.Conn, offered int) (departed int) {
	return k.spendIn(k.class.Join(at(k.now), client), offered)
}

// spendIn is spend in a bucket, which it quits.
func (k *keptClass) spendIn(bucket *Class, offered int) (departed int) {
	var items []*Item
	for range offered {
		it := &Item{Cost: Cost{Messages: 1}, Patient: true}
		if bucket.Enter(at(k.now), it) == Leaves {
			departed++
			lastLeft(bucket, at(k.now))
			continue
		}
		items = append(items, it)
	}
	before := len(k.left)
	k.run(k.now + 100*ms)
	departed += len(k.left) - before
	for _, it := range items {
		bucket.Cancel(at(k.now), it)
	}
	bucket.Quit(at(k.now))
	return departed
}

// The keys of a class keep their budgets over crashes, each its own.
func TestCrashesGiveKeysNoBudget(t *testing.T) {
	disk := func() time.Duration { return ms }
	for _, a := range algorithms {
		conf := keyedClass(a)
		most := int(paceOf(bucketPolicy(conf, false)).atOnce)
		k := &keptClass{conf: conf, now: time.Hour}
		k.start(disk, nil)
		for n := range 3 {
			if got := k.spend(clientOf(n), most+5); got != most {
				t.Fatalf("%s: %d of client %d left, want %d", a, got, n, most)
			}
		}
		found := k.disk.crash(false)
		k.start(disk, found)
		for n := range 3 {
			if got := k.spend(clientOf(n), most+5); got != 0 {
				t.Errorf("%s: after a crash, %d of client %d left", a, got, n)
			}
		}
		if got := k.spend(clientOf(7), most+5); got != most {
			t.Errorf("%s: after a crash, %d of a new client left, want %d", a, got, most)
		}
		found = k.disk.crash(false)
		k.start(disk, found)
		if got := k.spend(clientOf(0), 1) + k.spend(clientOf(7), 1); got != 0 {
			t.Errorf("%s: after a second crash, %d left", a, got)
		}
	}
}

// So do the keys of messages, whose buckets go from one to the next, and each limit of them.
func TestCrashesGiveKeysOfMessagesNoBudget(t *testing.T) {
	disk := func() time.Duration { return ms }
	for _, a := range algorithms {
		conf := keyedClass(a)
		most := int(paceOf(bucketPolicy(conf, false)).atOnce)
		conf.Per = policy.Per{{By: policy.ByRecipient}}
		conf.Also = []policy.Limit{{Rate: rateOf("10000 messages/day"), Algorithm: policy.FixedWindow, Window: policy.Window{Period: calendar.Day}}}
		k := &keptClass{conf: conf, now: time.Hour}
		spend := func(n int) int { return k.spendIn(k.class.JoinKey(at(k.now), to(t, k.class, n)), most+5) }
		k.start(disk, nil)
		for n := range 3 {
			if got := spend(n); got != most {
				t.Fatalf("%s: %d of recipient %d left, want %d", a, got, n, most)
			}
		}
		k.start(disk, k.disk.crash(false))
		for n, want := range []int{0, 0, 0, most} {
			if got := spend(n); got != want {
				t.Errorf("%s: after a crash, %d of recipient %d left, want %d", a, got, n, want)
			}
		}
	}
}

// Each process counts its connections from one. So what a message of one has used is no matter of a connection that has the same
// number in the next process, whether the process has crashed or stopped.
func TestKeysOfConnectionsEndWithTheProcess(t *testing.T) {
	conf := keyedClass(policy.GCRA)
	conf.Per = policy.Per{{By: policy.ByConnection}, {By: policy.ByRecipient}}
	most := int(paceOf(bucketPolicy(conf, false)).atOnce)
	k := &keptClass{conf: conf, now: time.Hour}
	spend := func() int {
		key := k.class.Messages().Key(&policy.Conn{Session: 7}, &policy.Message{Recipient: []byte("4477")})
		return k.spendIn(k.class.JoinKey(at(k.now), key), most+5)
	}
	disk := func() time.Duration { return ms }
	for name, found := range map[string]func() []limit.Lease{
		"a crash": func() []limit.Lease { return k.disk.crash(false) },
		"a stop":  func() []limit.Lease { return k.class.backing.leases(at(k.now)) },
	} {
		k.start(disk, nil)
		if got := spend(); got != most {
			t.Fatalf("%d left, want %d", got, most)
		}
		k.start(disk, found())
		if got := spend(); got != most {
			t.Errorf("after %s, %d of another connection left, want %d", name, got, most)
		}
	}
}

// A class that was shared has nothing of its own to go on from. If it is not shared in the next process, nothing more leaves in its
// window. If it still is, nothing is different. A class that was a shadow begins anew.
func TestBudgetOfItsOwnBeginsUsed(t *testing.T) {
	own := classBy(policy.FixedWindow, "1000 messages/h")
	own.Name = "acme"
	shared, shadow := own, own
	shared.Shared, shadow.Shadow = "prod", true
	for i, was := range []policy.Class{shared, shadow} {
		for _, per := range []policy.Per{{}, {{By: policy.BySource, IPv4: 32}}} {
			was.Per, own.Per = per, per
			for next, want := range map[*policy.Class]int{&was: 2000, &own: i * 1000} {
				synctest.Test(t, func(t *testing.T) {
					_, found := offerTo(was, nil)
					if left, _ := offerTo(*next, found); left != want {
						t.Errorf("shared %q, then %q, per %v: %d leave, want %d", was.Shared, next.Shared, per, left, want)
					}
				})
			}
		}
	}
}

// offerTo resumes from leases, offers 2000 messages of a client to a class, and returns how many leave, and the leases of a clean stop. If
// the class is shared, the fleet grants all.
func offerTo(conf policy.Class, found []limit.Lease) (left int, leases []limit.Lease) {
	s, member := NewOnRuntimeTimer(), &fakeMember{budgets: map[string]*fakeBudget{}}
	defer s.Close()
	if conf.Shared != "" {
		s.SetMembers(map[string]Member{conf.Name: member})
	}
	s.Apply([]policy.Class{conf})
	s.Resume(time.Now(), found)
	bucket := s.Class(conf.Name).Join(time.Now(), client(1))
	for _, b := range member.budgets {
		b.have = 2000
	}
	for range 2000 {
		if bucket.Enter(time.Now(), &Item{Cost: Cost{Messages: 1}}) == Leaves {
			left++
		}
	}
	return left, s.Leases(time.Now())
}

// A limit that is new to a class of keys gives no key what has left under the limits before: neither
// at once nor after a crash, and neither keys that are remembered nor those that are forgotten.
func TestNewLimitGivesKeysNoBudget(t *testing.T) {
	disk := func() time.Duration { return ms }
	for _, away := range []time.Duration{0, time.Second} {
		for _, crash := range []bool{false, true} {
			k := &keptClass{conf: keyedClass(policy.GCRA), now: time.Hour}
			k.conf.Rate = rateOf("20 messages/s")
			k.start(disk, nil)
			if got := k.spend(clientOf(1), 100); got < 5 {
				t.Fatalf("%d left, want 5 at least", got)
			}
			if k.run(k.now + away); away > 0 && k.class.Buckets().Keys(at(k.now)) != 0 {
				t.Fatal("the client is not forgotten")
			}
			k.conf = keyedClass(policy.SlidingLog)
			k.class.Set(at(k.now), k.conf)
			if k.run(k.now + 10*ms); crash {
				k.start(disk, k.disk.crash(false))
			}
			if got := k.spend(clientOf(1), 100); got != 0 {
				t.Errorf("away for %v, crash %v: after the reload %d left", away, crash, got)
			}
			k.run(k.now + time.Minute)
			if got := k.spend(clientOf(1), 100); got != 20 {
				t.Errorf("away for %v, crash %v: a window later %d left, want 20", away, crash, got)
			}
		}
	}
}

// If the ledger has no room for all keys, a crash makes those that it does not know start as
// if they had just been used, and no others.
func TestKeysWithoutRoomStartSpent(t *testing.T) {
	disk := func() time.Duration { return ms }
	conf := keyedClass(policy.FixedWindow)
	k := &keptClass{conf: conf, now: time.Hour}
	k.start(disk, nil)
	k.disk.room = 2
	for n := range 5 {
		if got := k.spend(clientOf(n), 10); got != 10 {
			t.Fatalf("%d of client %d left, want 10", got, n)
		}
	}
	if n := k.disk.keys(); n != 2 {
		t.Fatalf("the ledger has %d keys, want 2", n)
	}
	k.start(disk, k.disk.crash(false))
	for n, want := range []int{10, 10, 0, 0, 0, 0} {
		if got := k.spend(clientOf(n), 20); got != want {
			t.Errorf("after a crash, %d of client %d left, want %d", got, n, want)
		}
	}
	k.now += 2 * time.Minute
	if got := k.spend(clientOf(5), 20); got != 20 {
		t.Errorf("in a new window, %d left, want 20", got)
	}
}

// So it is if the ledger has no room for what a process remembers at its start.
func TestKeysWithoutRoomAtTheStart(t *testing.T) {
	disk := func() time.Duration { return ms }
	k := &keptClass{conf: keyedClass(policy.FixedWindow), now: time.Hour}
	k.start(disk, nil)
	for n := range 5 {
		if got := k.spend(clientOf(n), 20); got != 20 {
			t.Fatalf("%d of client %d left, want 20", got, n)
		}
	}
	stopped := k.class.backing.leases(at(k.now))
	k.start(disk, stopped)
	k.disk.room = 2
	clear(k.disk.safe)
	clear(k.disk.asked)
	k.class.backing.keepIn(at(k.now), k.disk)
	k.run(k.now + 100*ms)
	k.disk.Ask(limit.Lease{Name: "other"}, func(time.Time, int64) {}) // the next write
	k.run(k.now + 100*ms)
	if n := k.disk.keys(); n != 2 {
		t.Fatalf("the ledger has %d keys, want 2", n)
	}
	k.start(disk, k.disk.crash(false))
	for n := range 6 {
		if got := k.spend(clientOf(n), 20); got != 0 {
			t.Errorf("after a crash, %d of client %d left", got, n)
		}
	}
}

// A class whose keys get a longer horizon by a reload keeps them from then on.
func TestKeysGetALongHorizon(t *testing.T) {
	disk := func() time.Duration { return ms }
	k := &keptClass{conf: keyedClass(policy.GCRA), now: time.Hour}
	k.conf.Rate = rateOf("2 messages/s")
	k.start(disk, nil)
	if got := k.spend(clientOf(1), 5); got != 5 {
		t.Fatalf("%d left, want 5", got)
	}
	k.conf.Rate = rateOf("20 messages/h")
	k.class.Set(at(k.now), k.conf)
	k.run(k.now + 10*ms)
	k.start(disk, k.disk.crash(false))
	for n, want := range []int{5, 0} {
		if got := k.spend(clientOf(n), 10); got != want {
			t.Errorf("after a crash, %d of client %d left, want %d", got, n, want)
		}
	}
}

// What a process leaves behind when it ends in peace is exact, for all algorithms, classes and
// keys, and for short horizons too.
func TestCleanStopKeepsEverything(t *testing.T) {
	for _, a := range algorithms {
		for _, text := range []string{"20 messages/min", "20 messages/s"} {
			t.Run(string(a)+" "+text, func(t *testing.T) {
				rapid.Check(t, func(t *rapid.T) {
					conf := classBy(a, text)
					conf.Queue = policy.Queue{}
					if a.HasBurst() {
						conf.Burst = policy.Burst{N: 5, Kind: unit.Messages}
					}
					k := &keptClass{conf: conf, now: time.Duration(rapid.Int64Range(0, 1e11).Draw(t, "start"))}
					k.class, k.disk = NewClass(at(k.now), conf), newDisk(nil)
					for range rapid.IntRange(0, 30).Draw(t, "items") {
						k.offer(1)
						k.run(k.now + time.Duration(rapid.Int64Range(0, 3e9).Draw(t, "pause")))
					}
					k.run(k.now + time.Hour)
					for range rapid.IntRange(0, 30).Draw(t, "more") {
						k.offer(1)
					}
					k.class.Evict(at(k.now), func(*Item) bool { return true })
					next := NewClass(at(k.now), conf)
					for _, lease := range k.class.backing.leases(at(k.now)) {
						next.backing.resume(at(k.now), &lease)
					}
					it := Item{Cost: Cost{Messages: 1}}
					want, got := forecastOf(k.class, at(k.now), &it), forecastOf(next, at(k.now), &it)
					if slop := time.Minute / recordSlop; got.Before(want.Add(-2)) || got.After(want.Add(slop)) {
						t.Fatalf("the next leaves at %v, want %v", got, want)
					}
				})
			})
		}
	}
}

// recordSlop bounds what the record of a log rounds up, as a part of its window.
const recordSlop = 100

// forecastOf returns when an item would leave a class that is empty.
func forecastOf(c *Class, now time.Time, it *Item) time.Time {
	return later(now, c.limiter.Next(now, 0, it.Cost.Messages))
}

func TestCleanStopKeepsKeys(t *testing.T) {
	conf := keyedClass(policy.GCRA)
	k := &keptClass{conf: conf, now: time.Hour}
	k.start(func() time.Duration { return ms }, nil)
	open := k.class.Join(at(k.now), clientOf(100))
	for n := range 50 {
		k.spend(clientOf(n), 3)
	}
	open.Enter(at(k.now), &Item{Cost: Cost{Messages: 1}})
	k.run(k.now + 100*ms)
	found := k.class.backing.leases(at(k.now))
	if len(found) != 51 {
		t.Fatalf("%d leases, want 51", len(found))
	}
	k.start(func() time.Duration { return ms }, found)
	for n := range 50 {
		if got := k.spend(clientOf(n), 5); got != 2 && got != 3 { // one may have come back
			t.Errorf("%d of client %d left, want 2", got, n)
		}
	}
}

// A class whose policy has changed since goes on as after a reload.
func TestResumeUnderAnotherPolicy(t *testing.T) {
	conf := keptConfs()["large"] // 1000 in an hour
	k := &keptClass{conf: conf}
	k.start(func() time.Duration { return ms }, nil)
	for range 600 {
		k.offer(1)
	}
	k.run(second)
	found := k.class.backing.leases(at(k.now))
	for what, c := range map[string]struct {
		change   func(*policy.Class)
		min, max int64
	}{
		"the same":          {func(*policy.Class) {}, 400, 400},
		"a higher rate":     {func(c *policy.Class) { c.Rate = rateOf("1500 messages/h") }, 900, 900},
		"a lower rate":      {func(c *policy.Class) { c.Rate = rateOf("700 messages/h") }, 100, 100},
		"another algorithm": {func(c *policy.Class) { c.Algorithm = policy.SlidingLog }, 0, 0},
		"another window":    {func(c *policy.Class) { c.Window = policy.Window{Length: unit.Duration(2 * time.Hour)} }, 0, 0},
		"a further limit": {func(c *policy.Class) {
			c.Also = []policy.Limit{{Rate: rateOf("700 messages/h"), Algorithm: policy.FixedWindow}}
		}, 0, 0},
		"of the calendar": {func(c *policy.Class) {
			c.Rate, c.Window = rateOf("1000 messages/day"), policy.Window{Period: calendar.Day}
		}, 0, 0},
		"another unit": {func(c *policy.Class) { c.Rate = rateOf("1000 packets/h") }, 0, 0},
		"a shadow":     {func(c *policy.Class) { c.Shadow = true }, 2000, 2000},
	} {
		next := &keptClass{conf: conf, now: k.now}
		c.change(&next.conf)
		next.start(func() time.Duration { return ms }, found)
		for range 2000 {
			next.offer(1)
		}
		next.run(next.now + time.Minute)
		if got := int64(len(next.left)); got < c.min || got > c.max {
			t.Errorf("%s: %d left, want %d to %d", what, got, c.min, c.max)
		}
	}
}

// A class that the ledger cannot be trusted for starts as if all that may leave at once had
// just left; one with a short horizon starts as a new one.
func TestExhaust(t *testing.T) {
	for name, conf := range keptConfs() {
		c := NewClass(at(0), conf)
		c.backing.exhaust(at(0))
		if c.Enter(at(1), &Item{Cost: costOf(conf.Rate.Kind(), 1)}) == Leaves {
			t.Errorf("%s: something leaves at once", name)
		}
	}
	c := NewClass(at(0), classBy(policy.FixedWindow, "5 messages/s"))
	c.backing.exhaust(at(0))
	if c.Enter(at(1), &Item{Cost: Cost{Messages: 1}}) != Leaves {
		t.Error("a window of a second is exhausted")
	}
	keyed := NewClass(at(0), keyedClass(policy.FixedWindow))
	keyed.backing.exhaust(at(0))
	disk := newDisk(nil)
	keyed.backing.keepIn(at(0), disk)
	if len(disk.asked) != 1 {
		t.Errorf("the ledger has %d leases, want one for all keys", len(disk.asked))
	}
	if bucket := keyed.Join(at(1), clientOf(1)); bucket.Enter(at(1), &Item{Cost: Cost{Messages: 1}}) == Leaves {
		t.Error("something of a key leaves at once")
	}
}

// A class that gets a shadow, and one that loses it, hand over the limiter itself.
func TestShadowTakesTheLimiterOutOfTheLedger(t *testing.T) {
	conf := keptConfs()["large"]
	k := &keptClass{conf: conf}
	k.start(func() time.Duration { return ms }, nil)
	for range 600 {
		k.offer(1)
	}
	k.run(second)
	shadow := conf
	shadow.Shadow = true
	k.class.Set(at(k.now), shadow)
	for range 300 {
		k.offer(1)
	}
	k.class.Set(at(k.now), conf)
	for range 500 {
		k.offer(1)
	}
	k.run(2 * second)
	if got := k.total(0, time.Hour); got != 1000 {
		t.Errorf("%d left, want 1000", got)
	}
	if _, ok := k.class.limiter.(*leased); !ok {
		t.Errorf("the limiter is a %T, want a leased one", k.class.limiter)
	}
}

// A class with `per` that loses its shadow gives the ledger the keys that it remembers: a crash does not
// free them.
func TestEndOfTheShadowKeepsKeys(t *testing.T) {
	for _, a := range []policy.Algorithm{policy.FixedWindow, policy.SlidingLog, policy.SlidingWindow} {
		conf := keyedClass(a)
		shadow := conf
		shadow.Shadow = true
		k := &keptClass{conf: shadow, now: time.Hour}
		k.start(func() time.Duration { return ms }, nil)
		if got := k.spend(clientOf(1), 20); got != 20 {
			t.Fatalf("%s: %d leave in the shadow, want 20", a, got)
		}
		k.conf = conf
		k.class.Set(at(k.now), conf)
		k.run(k.now + second)
		k.start(func() time.Duration { return ms }, k.disk.crash(false))
		if got := k.spend(clientOf(1), 20); got > 0 {
			t.Errorf("%s: after a crash, %d leave of a key that has sent all it may", a, got)
		}
	}
}

// No record makes a class panic.
func FuzzResume(f *testing.F) {
	for _, conf := range keptConfs() {
		c := NewClass(at(0), conf)
		c.Enter(at(0), &Item{Cost: costOf(conf.Rate.Kind(), 1)})
		f.Add(c.backing.record(at(1)).Record, int64(3), int64(0), int64(1e9))
	}
	f.Fuzz(func(t *testing.T, data []byte, units, begins, ends int64) {
		lease := limit.Lease{Record: data, Units: units, At: at(time.Duration(begins)), Until: at(time.Duration(ends))}
		for name, conf := range keptConfs() {
			if name == "large" || name == "several" {
				continue
			}
			c := NewClass(at(0), conf)
			c.backing.resume(at(0), &lease)
			c.Enter(at(second), &Item{Cost: costOf(conf.Rate.Kind(), 1)})
			c.backing.leases(at(second))
		}
		keyed := NewClass(at(0), keyedClass(policy.GCRA))
		keyed.backing.resume(at(0), &lease)
		lease.Key = keyText(policy.Key{})
		keyed.backing.resume(at(0), &lease)
		keyed.backing.leases(at(second))
	})
}
