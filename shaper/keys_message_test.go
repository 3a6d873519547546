package shaper

import (
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"shaper/policy"
)

// perRecipient gives a class a bucket for each recipient.
func perRecipient(most int, conf policy.Class) policy.Class {
	conf.Per, conf.MaxKeys = policy.Per{{By: policy.ByRecipient}}, most
	return conf
}

// to returns the key of a message to the nth recipient.
func to(t testing.TB, c *Class, n int) Key {
	if !c.Messages().HaveKeys() {
		t.Fatal("messages do not tell the buckets apart")
	}
	return c.Messages().Key(&policy.Conn{}, &policy.Message{Recipient: strconv.AppendInt(nil, int64(n), 10)})
}

// A session joins no bucket that messages tell apart, and a connection has no key there.
func TestMessageKeys(t *testing.T) {
	c := NewClass(start, perRecipient(10, leakyClass("10 packets/s")))
	if c.Join(start, client(1)) != c {
		t.Error("a session has a bucket, although only messages have")
	}
	a, again, b := c.JoinKey(start, to(t, c, 1)), c.JoinKey(start, to(t, c, 1)), c.JoinKey(start, to(t, c, 2))
	if a != again || a == b || a.Named() != c {
		t.Errorf("two recipients have the buckets %p, %p again, and %p", a, again, b)
	}
	if NewClass(start, perSource(10, leakyClass("10 packets/s"))).Messages().HaveKeys() || NewClass(start, leakyClass("10 packets/s")).Messages().HaveKeys() || (*Class)(nil).Messages().HaveKeys() {
		t.Error("a message has a key, although only connections have")
	}
}

// A recipient whose messages join and quit one by one has the limits of a class that is
// always there, for every algorithm, while buckets go from one recipient to another.
func TestMessageKeysAreRemembered(t *testing.T) {
	for _, algorithm := range []policy.Algorithm{policy.Leaky, policy.Token, policy.GCRA, policy.FixedWindow, policy.SlidingLog, policy.SlidingWindow} {
		t.Run(string(algorithm), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				conf := classBy(algorithm, rapid.SampledFrom([]string{"10 packets/s", "3 packets/s"}).Draw(t, "rate"))
				keyed := NewClass(start, perRecipient(100, conf))
				now := start
				models := map[int]*Class{}
				for range rapid.IntRange(1, 40).Draw(t, "messages") {
					now = now.Add(time.Duration(rapid.IntRange(0, 400).Draw(t, "pause")) * ms)
					n := rapid.IntRange(0, 5).Draw(t, "recipient")
					if models[n] == nil {
						models[n] = NewClass(now, conf)
					}
					key := keyed.Messages().Key(&policy.Conn{}, &policy.Message{Recipient: []byte{byte(n)}})
					bucket := keyed.JoinKey(now, key)
					it, same := packet(1), packet(1)
					got, want := bucket.Enter(now, it), models[n].Enter(now, same)
					if got != want && !within(bucket, models[n], now) {
						t.Fatalf("at %v, recipient %d: %v, and without keys %v", now.Sub(start), n, got, want)
					}
					now = leaves(bucket, now, it, got)
					leaves(models[n], now, same, want)
					bucket.QuitKey(now, key)
				}
				if algorithm != policy.SlidingLog && len(keyed.keys.spare) != 1 { // a log stays with its key
					t.Fatalf("%d buckets are spare, want the one that served all", len(keyed.keys.spare))
				}
			})
		})
	}
}

// A message of a recipient costs no memory while buckets are spare, whether the recipient is
// new, known or has just been there.
func TestMessageKeysAllocateNothing(t *testing.T) {
	for _, algorithm := range []policy.Algorithm{policy.Leaky, policy.GCRA, policy.FixedWindow, policy.SlidingWindow} {
		c := NewClass(start, perRecipient(10000, classBy(algorithm, "10 packets/s")))
		now, it := start, packet(1)
		keys := make([]Key, 3000)
		for i := range keys {
			keys[i] = to(t, c, i)
		}
		i := 0
		send := func() {
			now = now.Add(ms)
			key := keys[i%len(keys)]
			bucket := c.JoinKey(now, key)
			if bucket.Enter(now, it) != Leaves {
				t.Fatal("it waits")
			}
			it.Left(now)
			bucket.QuitKey(now, key)
			i++
		}
		for range 2 * len(keys) {
			send()
		}
		wantNoAllocs(t, string(algorithm), send)
	}
}

// A reload gives spare buckets nothing: the next recipient has the new limits.
func TestMessageKeysFollowSet(t *testing.T) {
	conf := perRecipient(10, leakyClass("10 packets/s"))
	c := NewClass(start, conf)
	one := c.JoinKey(start, to(t, c, 1))
	enter(t, one, 0, Leaves, packet(1))
	one.QuitKey(start, to(t, c, 1))
	conf.Rate = rateOf("1 packets/s")
	c.Set(start, conf)
	for n, want := range []Verdict{Leaves, Waits} {
		bucket, it := c.JoinKey(start, to(t, c, n)), packet(1) // the second one is that of before
		enter(t, bucket, 0, want, it)
		if want == Waits {
			released(t, c, time.Second-1)
			released(t, c, time.Second, it)
		} else {
			bucket.QuitKey(start, to(t, c, n))
		}
	}
}

// When nobody knows any more what has left of the recipients before, a spare bucket begins without a burst, too, whatever it has
// served.
func TestMessageKeysFollowSpend(t *testing.T) {
	c := NewClass(start, perRecipient(10, tokenClass("1 packets/s", 60)))
	for n := range 2 { // the second one has the bucket of the first
		c.JoinKey(start, to(t, c, n)).QuitKey(start, to(t, c, n))
	}
	c.backing.exhaust(start)
	bucket := c.JoinKey(start, to(t, c, 2))
	it := packet(1)
	enter(t, bucket, 0, Waits, it)
	released(t, c, time.Second, it)
}

// A recipient in a pause, or above its limit, keeps its state whatever number of others come.
func TestMessageKeysFlood(t *testing.T) {
	c := NewClass(start, perRecipient(50, leakyClass("0.01 packets/s")))
	for n := range 50 {
		bucket := c.JoinKey(start, to(t, c, n))
		enter(t, bucket, 0, Leaves, packet(1))
		bucket.QuitKey(start, to(t, c, n))
	}
	for n := range 2000 {
		c.JoinKey(start, to(t, c, 100+n)).QuitKey(start, to(t, c, 100+n))
	}
	for n := range 50 {
		if bucket := c.JoinKey(start, to(t, c, n)); bucket == c.keys.common.bucket || bucket.Enter(start, packet(1)) != Waits {
			t.Fatalf("recipient %d has been forgotten", n)
		}
	}
	if got := c.Buckets().Keys(start); got != 50 {
		t.Errorf("%d keys, want 50", got)
	}
}

func BenchmarkMessageKeys(b *testing.B) {
	benchmarkMessages(b, NewClass(start, perRecipient(1<<20, classBy(policy.GCRA, "1000 packets/s"))), packet(1))
}

// benchmarkMessages lets an item leave a class once for each of many recipients, one after the other.
func benchmarkMessages(b *testing.B, c *Class, it *Item) {
	keys := make([]Key, 1<<16)
	for i := range keys {
		keys[i] = to(b, c, i)
	}
	now := start
	b.ReportAllocs()
	for i := range b.N {
		now = now.Add(time.Microsecond)
		key := keys[i%len(keys)]
		bucket := c.JoinKey(now, key)
		bucket.Enter(now, it)
		it.Left(now)
		bucket.QuitKey(now, key)
	}
}
