package shaper

import (
	"testing"
	"time"

	"shaper/limit"
	"shaper/policy"
)

// settle says that an answer charges an item that left at the time then.
func (k *keptClass) settle(c *Class, then time.Duration, more int64) {
	c.Provider().Settle(at(k.now), at(then), costOf(k.conf.Rate.Kind(), more))
}

// crashAndSpend starts another process from what the disk has, and returns how many of n items leave of
// the class, or of the bucket that join returns.
func (k *keptClass) crashAndSpend(n int, join func() *Class) int64 {
	found := k.disk.crash(false)
	k.now += ms
	back := k.now
	k.start(func() time.Duration { return ms }, found)
	if join != nil {
		return int64(k.spendIn(join(), n))
	}
	for range n {
		k.offer(1)
	}
	k.run(k.now + second)
	return k.total(back, k.now+1)
}

// hourly returns classes that keep 1,000 an hour.
func hourly() map[policy.Algorithm]policy.Class {
	confs := map[policy.Algorithm]policy.Class{}
	for _, a := range []policy.Algorithm{policy.FixedWindow, policy.SlidingLog, policy.SlidingWindow, policy.Token, policy.GCRA} {
		conf := classBy(a, "1000 messages/h")
		conf.Queue = policy.Queue{}
		if a.HasBurst() {
			conf.Burst = policy.Burst{N: 1000, Kind: conf.Rate.Kind()}
		}
		confs[a] = conf
	}
	return confs
}

// What answers charge is kept as soon as the disk has written it, although nothing leaves afterwards.
func TestCrashKeepsWhatAnswersCharge(t *testing.T) {
	for a, conf := range hourly() {
		for name, takes := range map[string]time.Duration{"fast": 0, "slow": 50 * ms, "late": 1500 * ms} {
			k := &keptClass{conf: conf, now: time.Hour}
			k.start(func() time.Duration { return takes }, nil)
			for range 8 {
				k.offer(1)
			}
			k.run(k.now + 4*second)
			if got := k.total(0, k.now+1); got != 8 {
				t.Fatalf("%s: %d left, want 8", a, got)
			}
			for range 8 {
				k.settle(k.class, k.now-second, 99)
			}
			k.run(k.now + 4*second)
			if got := k.crashAndSpend(1000, nil); got > 203 || got < 189 { // a token comes back every 3.6 s
				t.Errorf("%s, %s: after 800 of 1000, %d left, want 190 to 200", a, name, got)
			}
		}
	}
}

// A crash does not shorten a gap that an answer has made longer: what the lease may have let out meanwhile comes on top.
func TestCrashKeepsALongGap(t *testing.T) {
	k := &keptClass{conf: classBy(policy.Leaky, "5 messages/min"), now: time.Hour}
	k.conf.Queue = policy.Queue{}
	k.start(func() time.Duration { return 0 }, nil)
	k.offer(1)
	k.run(k.now + second)
	left := k.left[0].at
	k.settle(k.class, left, 99)
	k.run(k.now + second)
	k.start(func() time.Duration { return 0 }, k.disk.crash(false))
	k.offer(1)
	k.run(left + 25*time.Minute)
	if len(k.left) != 2 || k.left[1].at-left < 20*time.Minute {
		t.Errorf("they left at %v; want 20 minutes between the two, for 100 units at 5 a minute", k.left)
	}
}

// What an answer charges when the lease is over counts from then on, also after a crash.
func TestAnswerAfterTheLease(t *testing.T) {
	k := &keptClass{conf: hourly()[policy.FixedWindow], now: time.Hour - 2*time.Minute}
	k.start(func() time.Duration { return ms }, nil)
	k.offer(1)
	k.run(time.Hour + second)
	k.settle(k.class, k.now-2*time.Minute, 8) // less than the rest of the lease
	k.run(k.now + second)
	if got := k.crashAndSpend(1100, nil); got > 992 || got < 980 {
		t.Errorf("%d left in the window in which the answer charged 8, want 982 to 992", got)
	}
}

// What an answer gives back to no limit makes no lease larger: else a crash would forget what left.
func TestLeaseGetsNothingBack(t *testing.T) {
	k := &keptClass{conf: hourly()[policy.FixedWindow], now: time.Hour - 2*time.Minute}
	k.start(func() time.Duration { return ms }, nil)
	for range 900 {
		k.offer(1)
	}
	k.run(time.Hour + second)
	k.offer(1)
	k.run(k.now + second)
	for range 900 {
		k.settle(k.class, k.now-2*time.Minute, -1) // of the window before
	}
	for range 700 {
		k.offer(1)
	}
	k.run(k.now + second)
	if got := k.total(time.Hour, k.now+1); got != 701 {
		t.Fatalf("%d left in the window, want 701", got)
	}
	if got := k.crashAndSpend(1000, nil); got > 299 || got < 289 {
		t.Errorf("after 701 of 1000, %d left, want 289 to 299", got)
	}
}

// What answers charge to a key is kept, also if nobody uses its bucket when the disk answers.
func TestCrashKeepsWhatAnswersChargeKeys(t *testing.T) {
	for a, conf := range hourly() {
		k := &keptClass{conf: perRecipient(100, conf), now: time.Hour}
		k.start(func() time.Duration { return 50 * ms }, nil)
		one := func() *Class { return k.class.JoinKey(at(k.now), to(t, k.class, 1)) }
		bucket := one()
		for range 8 { // the last ones ask for another lease, which has no answer yet
			if it := (&Item{Cost: Cost{Messages: 1}, Patient: true}); bucket.Enter(at(k.now), it) != Leaves {
				k.run(k.now + second)
			}
		}
		for range 8 {
			k.settle(bucket, k.now, 99)
		}
		bucket.Quit(at(k.now))
		k.run(k.now + second)
		if got := k.crashAndSpend(300, one); got > 203 || got < 189 {
			t.Errorf("%s: after 800 of 1000, %d left of the key, want 190 to 200", a, got)
		}
	}
}

// While the disk does not answer for one key, answers charge others. Their charges are kept as soon as it answers, although
// nothing leaves afterwards.
func TestChargesWhileTheDiskIsSilent(t *testing.T) {
	for a, conf := range hourly() {
		takes := ms
		k := &keptClass{conf: perRecipient(100, conf), now: time.Hour}
		k.start(func() time.Duration { return takes }, nil)
		join := func(n int) func() *Class {
			return func() *Class { return k.class.JoinKey(at(k.now), to(t, k.class, n)) }
		}
		var buckets []*Class
		for n := range 3 {
			buckets = append(buckets, join(n)())
			for range 8 {
				if v := buckets[n].Enter(at(k.now), &Item{Cost: Cost{Messages: 1}, Patient: true}); v != Leaves {
					k.run(k.now + second)
				}
			}
		}
		takes = 5 * second
		for range 8 { // one of these asks
			buckets[0].Enter(at(k.now), &Item{Cost: Cost{Messages: 1}, Patient: true})
			k.run(k.now + 200*ms)
		}
		k.run(k.now + 2*second)
		takes = ms
		for _, b := range buckets[1:] {
			for range 8 {
				k.settle(b, k.now, 99)
			}
		}
		buckets[2].Quit(at(k.now))
		k.run(k.now + 10*second)
		for n := 1; n < 3; n++ {
			if got := k.crashAndSpend(300, join(n)); got > 206 || got < 189 {
				t.Errorf("%s: after 800 of 1000, %d left of key %d, want 190 to 200", a, got, n)
			}
		}
	}
}

// While the disk hangs, keys come that answers charge, and go. Nothing remembers them, except what the disk
// is to keep. Those that stay are asked for when the disk is back.
func TestKeysThatLeaveASilentLedger(t *testing.T) {
	for name, conf := range map[string]policy.Class{
		"by message": perRecipient(5000, hourly()[policy.GCRA]),
		"by client":  perSource(5000, hourly()[policy.GCRA]),
	} {
		k := &keptClass{conf: conf, now: time.Hour}
		k.start(func() time.Duration { return ms }, nil)
		join := func(n int) *Class {
			if k.class.Messages().HaveKeys() {
				return k.class.JoinKey(at(k.now), to(t, k.class, n))
			}
			return k.class.Join(at(k.now), client(n))
		}
		k.disk.hangs = true
		join(0).Enter(at(k.now), &Item{Cost: Cost{Messages: 1}, Patient: true}) // it asks, in vain
		k.run(k.now + 2*second)
		most, stays := 0, join(1)
		k.settle(stays, k.now, 800)
		for n := range 1000 {
			bucket := join(2 + n)
			k.settle(bucket, k.now, 99)
			bucket.Quit(at(k.now))
			most = max(most, len(k.class.keys.silence.owing))
		}
		if most > 8 {
			t.Errorf("%s: %d keys have to ask, of which one remains", name, most)
		}
		k.disk.hangs = false
		k.run(k.now + 5*second)
		if got := k.crashAndSpend(300, func() *Class { return join(1) }); got > 203 || got < 189 {
			t.Errorf("%s: after 800 of 1000, %d left of the key that stayed, want 190 to 200", name, got)
		}
	}
}

// A lockedLedger keeps the answers until somebody calls them, and reports who asks without the lock of
// the tree.
type lockedLedger struct {
	t       *testing.T
	class   *Class // the root
	answers []func(now time.Time, granted int64)
}

func (l *lockedLedger) Ask(_ limit.Lease, answer func(time.Time, int64)) {
	if l.class.mu.TryLock() {
		l.class.mu.Unlock()
		l.t.Error("the ledger is asked by somebody who does not hold the lock of the tree")
	}
	l.answers = append(l.answers, answer)
}

// The answer for a key whose bucket was given up meanwhile lets another bucket ask. That one is still in
// the tree of the class.
func TestAnswerForABucketThatIsGone(t *testing.T) {
	c := NewClass(start, perSource(10, hourly()[policy.SlidingLog]))
	ledger := &lockedLedger{t: t, class: c}
	c.backing.keepIn(start, ledger)
	gone, stays := c.Join(start, client(1)), c.Join(start, client(2))
	item := packet(1)
	item.Cost, item.Patient = Cost{Messages: 1}, true
	enter(t, gone, 0, Waits, item)
	released(t, c, ledgerPatience, item)
	now := at(2 * second)
	stays.Provider().Settle(now, now, Cost{Messages: 1})
	gone.Quit(now)
	if len(ledger.answers) != 1 || gone.Parent() != nil {
		t.Fatalf("%d asks, and the bucket of the first is beneath %v; want one, and nothing", len(ledger.answers), gone.Parent())
	}
	ledger.answers[0](now, 10)
	if len(ledger.answers) != 2 {
		t.Errorf("%d asks after the answer, want 2", len(ledger.answers))
	}
}
