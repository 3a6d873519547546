package shaper

import (
	"testing"
	"time"

	"shaper/policy"
	"shaper/unit"
)

// request returns an item of one message, which gets an answer.
func request() *Item {
	return &Item{Cost: Cost{Messages: 1, Bytes: 100}, Held: 100, Asks: true}
}

// messageClass returns a policy that pauses for a second at first, and for ten seconds at
// most.
func messageClass(rate string, change func(*policy.Class)) *Class {
	conf := leakyClass(rate)
	conf.OnThrottle = policy.OnThrottle{Pause: unit.Duration(time.Second), Max: unit.Duration(10 * time.Second)}
	if change != nil {
		change(&conf)
	}
	return NewClass(start, conf)
}

// resumes fails unless the item that waits leaves at d, and nothing leaves before.
func resumes(t *testing.T, c *Class, d time.Duration) {
	t.Helper()
	it := request()
	if verdict := c.Enter(at(d-1), it); verdict != Waits {
		t.Fatalf("just before %v a message gets the verdict %v", d, verdict)
	}
	released(t, c, d-1)
	released(t, c, d, it)
}

func TestThrottledPauses(t *testing.T) {
	c := messageClass("1000 messages/s", nil)
	enter(t, c, 0, Leaves, request())
	c.Provider().Throttled(at(0), 0, "smpp")
	c.Provider().Throttled(at(500*ms), 0, "smpp") // about what left before
	if until, _ := c.Provider().Signals(at(500 * ms)); !until.Equal(at(second)) {
		t.Errorf("the class pauses until %v", until)
	}
	resumes(t, c, second)
	if until, part := c.Provider().Signals(at(second)); !until.IsZero() || part != 1 {
		t.Errorf("the class pauses until %v, and has %v of its rate", until, part)
	}
	if n := c.Stats.Throttled.Read()["smpp"]; n != 2 {
		t.Errorf("the counters have %d signals", n)
	}
}

// Without a success in between, each pause is twice as long as the last, up to the
// longest.
func TestPausesDouble(t *testing.T) {
	c, now := messageClass("1000 messages/s", nil), time.Duration(0)
	enter(t, c, now, Leaves, request())
	for _, pause := range []time.Duration{1, 2, 4, 8, 10, 10} {
		c.Provider().Throttled(at(now), 0, "smpp")
		c.Provider().Answered(at(now), false)
		now += pause * second
		resumes(t, c, now)
	}
	c.Provider().Answered(at(now), true)
	now += second
	enter(t, c, now, Leaves, request())
	c.Provider().Throttled(at(now), 0, "smpp")
	resumes(t, c, now+second)
}

// If the provider says for how long, the class pauses so long, up to the longest pause.
func TestPauseThatIsAskedFor(t *testing.T) {
	c := messageClass("1000 messages/s", nil)
	c.Provider().Throttled(at(0), 3*second, "http")
	c.Provider().Throttled(at(second), second, "http") // does not shorten what it said before
	resumes(t, c, 3*second)
	c.Provider().Throttled(at(4*second), time.Hour, "http")
	resumes(t, c, 14*second)
}

// The class of the account pauses with all beneath it, not only the class of the message.
func TestWhoPauses(t *testing.T) {
	for _, named := range []string{"account", "a", ""} {
		account, a, b := leakyClass("1000 messages/s"), leakyClass("1000 messages/s"), leakyClass("1000 messages/s")
		account.Name, a.Name, b.Name = "account", "a", "b"
		a, b = under("account", a), under("account", b)
		for _, conf := range []*policy.Class{&account, &a} {
			if conf.Name == named {
				conf.OnThrottle = policy.DefaultOnThrottle
			}
		}
		tree := NewTree(start, []policy.Class{account, a, b})
		tree[1].Provider().Throttled(at(0), second, "smpp")
		it := request()
		if pauses := tree[2].Enter(at(500*ms), it) == Waits; pauses != (named != "a") {
			t.Errorf("on_throttle in %q: the sibling pauses: %t", named, pauses)
		}
	}
}

// A class of bytes does not pause, since it passes what others send, too. The signal counts.
func TestBytesDoNotPause(t *testing.T) {
	account, a := leakyClass("1MB/s"), leakyClass("1MB/s")
	account.Name = "account"
	tree := NewTree(start, []policy.Class{account, under("account", a)})
	for i, c := range tree {
		c.Provider().Throttled(at(0), 10*second, "503")
		if until, _ := c.Provider().Signals(at(1)); !until.IsZero() {
			t.Errorf("class %d pauses until %v", i, until)
		}
	}
	if n := tree[0].Stats.Throttled.Read()["503"]; n != 2 {
		t.Errorf("%d signals were counted", n)
	}
	if it := request(); tree[1].Enter(at(1), it) != Leaves {
		t.Error("what comes next waits")
	}
}

// adapted returns a class of 16 messages/s which has been throttled once. From the end of
// its pause, second 1, it goes on at half of that.
func adapted() *Class {
	c := messageClass("16 messages/s", func(conf *policy.Class) { conf.Adapt = true })
	c.Provider().Throttled(at(0), 0, "smpp")
	return c
}

// paces fails unless a class that is idle at d sends one message in each interval.
func paces(t *testing.T, c *Class, d, gap time.Duration) {
	t.Helper()
	a, b := request(), request()
	enter(t, c, d, Leaves, a)
	enter(t, c, d, Waits, b)
	released(t, c, d+gap-1)
	released(t, c, d+gap, b)
}

func TestAdapt(t *testing.T) {
	const full = second / 16
	c := adapted()
	paces(t, c, second, 2*full)
	paces(t, c, 11*second, second/9+1)
	paces(t, c, 21*second, second/10)
	if _, part := c.Provider().Signals(at(21 * second)); part != 10./16 {
		t.Errorf("the class has %v of its rate", part)
	}
	c.Provider().Answered(at(21*second), true)
	c.Provider().Throttled(at(22*second), 0, "smpp") // leaves half of ten sixteenths
	paces(t, c, 23*second, second/5)
	paces(t, c, 300*second, full) // all of the rate has come back
	c = adapted()
	for n := range time.Duration(10) {
		c.Provider().Throttled(at(10*n*second), 0, "smpp")
	}
	if _, part := c.Provider().Signals(at(95 * second)); part != 1./16 {
		t.Errorf("the least part is %v", part)
	}
}

// A reload is no success: the class does not get its rate back, unless adapt goes.
func TestSetKeepsThePace(t *testing.T) {
	c := adapted()
	setRate(c, second, "32 messages/s")
	paces(t, c, 2*second, second/16)
	conf := c.Policy()
	conf.Algorithm = policy.GCRA
	c.Set(at(3*second), conf)
	paces(t, c, 4*second, second/16)
	conf.Adapt = false
	c.Set(at(5*second), conf)
	paces(t, c, 6*second, second/32)
	if _, part := c.Provider().Signals(at(6 * second)); part != 1 {
		t.Errorf("the class has %v of its rate", part)
	}
}

// in_flight bounds what leaves a class and those beneath it.
func TestInFlight(t *testing.T) {
	conf := leakyClass("1000 messages/s")
	conf.InFlight = 2
	account, a := conf, leakyClass("1000 messages/s")
	account.Name, a.Name = "account", "a"
	tree := NewTree(start, []policy.Class{account, under("account", a)})
	third := request()
	enter(t, tree[1], 0, Leaves, request())
	enter(t, tree[0], 10*ms, Leaves, request())
	enter(t, tree[1], 20*ms, Waits, third)
	released(t, tree[1], second)
	tree[0].Provider().Answered(at(second), true)
	if n := tree[0].InFlight(); n != 1 {
		t.Errorf("%d items are in flight", n)
	}
	released(t, tree[1], second, third)
}

// An item that no class on the path charges is in flight all the same until it is
// answered.
func TestInFlightUncharged(t *testing.T) {
	c := NewClass(start, leakyClass("10 connections/s"))
	enter(t, c, 0, Leaves, request())
	if n := c.InFlight(); n != 1 {
		t.Errorf("%d items are in flight, want 1", n)
	}
	c.Provider().Answered(at(0), true)
	if n := c.InFlight(); n != 0 {
		t.Errorf("%d items are in flight, though the only one is answered", n)
	}
}

// An item that would wait longer than max_wait for the end of a pause is refused. Retry
// says when it would not.
func TestMaxWaitInPause(t *testing.T) {
	for _, above := range []bool{false, true} {
		account := messageClass("10 messages/s", func(conf *policy.Class) { conf.Name = "account" })
		c := account
		if conf := leakyClass("1000 messages/s"); above {
			conf.MaxWait, conf.Overflow = unit.Duration(second), policy.Refuse
			tree := NewTree(start, []policy.Class{account.Policy(), under("account", conf)})
			account, c = tree[0], tree[1]
		} else {
			conf = account.Policy()
			conf.MaxWait, conf.Overflow = unit.Duration(second), policy.Refuse
			c.Set(start, conf)
		}
		account.Provider().Throttled(at(0), 5*second, "429")
		enter(t, c, 0, TooLong, request())
		if wait := c.Estimate().Retry(at(0), request().Cost); wait != 4*second {
			t.Errorf("Retry is %v, want 4 s", wait)
		}
		it := request()
		enter(t, c, 4*second, Waits, it)
		enter(t, c, 4*second, TooLong, request())
		released(t, c, 5*second, it)
	}
}

// A bucket that pauses still does when its client comes back. The class forgets it when it
// has its whole rate again.
func TestPauseOfKey(t *testing.T) {
	c := messageClass("1000 messages/s", func(conf *policy.Class) { conf.Per, conf.Adapt = policy.Per{{By: policy.BySource}}, true })
	bucket := c.Join(start, policy.Conn{})
	enter(t, bucket, 0, Leaves, request())
	bucket.Provider().Throttled(at(0), 5*second, "429")
	bucket.Provider().Answered(at(0), false)
	bucket.Quit(at(0))
	bucket = c.Join(at(second), policy.Conn{})
	it := request()
	enter(t, bucket, second, Waits, it)
	released(t, c, 5*second, it)
	bucket.Provider().Answered(at(5*second), true)
	bucket.Quit(at(6 * second))
	if n := c.Buckets().Keys(at(50 * second)); n != 1 {
		t.Errorf("the class knows %d keys while one regains its rate", n)
	}
	c.Buckets().Keys(at(200 * second))
	if n := c.Buckets().Keys(at(200 * second)); n != 0 {
		t.Errorf("the class knows %d keys long afterwards", n)
	}
}

// Nobody knows when an answer will make room. So Retry returns what the rate allows, and
// not the longest Duration.
func TestRetryInFlight(t *testing.T) {
	c := messageClass("10 messages/s", func(conf *policy.Class) { *conf = withQueue(*conf, 1, 0); conf.InFlight = 1 })
	enter(t, c, 0, Leaves, request())
	enter(t, c, 0, Waits, request())
	enter(t, c, 0, Full, request())
	if wait := c.Estimate().Retry(at(0), request().Cost); wait != 100*ms {
		t.Errorf("Retry is %v, want 100 ms", wait)
	}
}
