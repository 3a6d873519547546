package shaper

import (
	"testing"
	"time"

	"shaper/limit"
	"shaper/policy"
	"shaper/unit"
)

// hintedClass returns a policy that lets 50 messages leave at once, and takes hints.
func hintedClass() policy.Class {
	conf := tokenClass("1000 messages/s", 50)
	conf.Hints = true
	return conf
}

// say makes an item leave and be answered, with a hint: so much remains until so long after start.
func say(t *testing.T, c *Class, now time.Duration, remaining int64, until time.Duration) {
	t.Helper()
	enter(t, c, now, Leaves, message(1))
	c.Provider().Heard(at(now), at(now), Cost{Messages: 1}, []Hint{{unit.Messages, 7, remaining, at(until)}})
}

// Why, Waits and WaitsWithKey say that a hint holds a class, and until when.
func TestWaitsForAHint(t *testing.T) {
	c := NewClass(start, hintedClass())
	say(t, c, 0, 1, 30*second)
	holds(t, waitsWithKey(t, c, start, policy.Conn{}, nil), "", "", 0)
	a, b := message(1), message(1)
	enter(t, c, 0, Leaves, a)
	enter(t, c, 0, Waits, b)
	holds(t, c.Status().Waits(start), "test", HoldHint, 30*second)
	holds(t, waitsWithKey(t, c, start, policy.Conn{}, nil), "test", HoldHint, 30*second)
	w := c.Status().Why(start)
	if len(w.Path) != 1 || w.Path[0].Cause != ByHint || w.Path[0].Text != "what the provider says remains of its limit: 0" || !w.At.Equal(at(30*second)) || !w.Exact {
		t.Errorf("%+v", w)
	}
	released(t, c, 30*second-1)
	released(t, c, 30*second, b)
}

// What a hint would hold for too long is refused, and told when to come again.
func TestRefusalByAHint(t *testing.T) {
	conf := hintedClass()
	conf.MaxWait = unit.Duration(10 * second)
	c := NewClass(start, conf)
	say(t, c, 0, 0, 30*second)
	enter(t, c, 0, TooLong, message(1))
	if wait := c.Estimate().Retry(start, Cost{Messages: 1}); wait != 20*second {
		t.Errorf("who is refused is told to come again in %v", wait)
	}
}

// A reload keeps the hints. Without the key they are gone.
func TestHintsOverAReload(t *testing.T) {
	conf := hintedClass()
	conf.Also = []policy.Limit{limitBy(policy.FixedWindow, "1000 messages/day")}
	c := NewClass(start, conf)
	say(t, c, 0, 0, 30*second)
	it := message(1)
	enter(t, c, 0, Waits, it)
	for _, change := range []func(){
		func() { conf.Rate = rateOf("500 messages/s") },
		func() { conf.Algorithm = policy.GCRA },
		func() { conf.Also[0].Rate = rateOf("900 messages/day") },
		func() { conf.Closed = policy.Span{From: at(40 * second), Until: at(50 * second)} },
		func() { conf.Also = nil },
	} {
		change()
		c.Set(at(second), conf)
		if next := c.Next(at(second)); !next.Equal(at(30 * second)) {
			t.Errorf("after a reload the next item leaves at %v", next.Sub(start))
		}
	}
	conf.Hints = false
	c.Set(at(2*second), conf)
	released(t, c, 2*second, it)
}

// A class that closes says which of both holds it.
func TestHintOrSchedule(t *testing.T) {
	conf := hintedClass()
	conf.Also = []policy.Limit{limitBy(policy.FixedWindow, "1000 messages/day")}
	conf.Closed = policy.Span{From: at(10 * second), Until: at(20 * second)}
	c := NewClass(start, conf)
	say(t, c, 0, 0, 5*second)
	holds(t, waitsWithKey(t, c, start, policy.Conn{}, nil), "test", HoldHint, 5*second)
	say(t, c, 6*second, 0, 15*second)
	holds(t, waitsWithKey(t, c, at(6*second), policy.Conn{}, nil), "test", HoldClosed, 20*second)
	if w := c.Status().Why(at(6 * second)); len(w.Path) != 1 || w.Path[0].Cause != ByLimit || w.Path[0].Text != "a time in which nothing may leave" {
		t.Errorf("%+v", w)
	}
}

// A key that has been away still keeps to what was said of it, and no other key does.
func TestHintsOfAKeyThatWasAway(t *testing.T) {
	for _, limits := range []int{1, 2} {
		c := NewClass(start, perSource(10, hintedClass()))
		bucket := c.Join(start, client(1))
		enter(t, bucket, 0, Leaves, message(1))
		for id := range limits {
			bucket.Provider().Heard(start, start, Cost{}, []Hint{{unit.Messages, uint64(id), 0, at(30 * second)}})
		}
		bucket.Quit(start)
		other := c.Join(start, client(2))
		enter(t, other, 0, Leaves, message(1))
		holds(t, waitsWithKey(t, c, at(second), client(1), nil), "test", HoldHint, 30*second)
		bucket = c.Join(at(second), client(1))
		if next := bucket.limiter.Next(at(second), 0, 1); !next.Equal(at(30 * second)) {
			t.Errorf("with %d limits the key may send at %v", limits, next.Sub(start))
		}
		bucket.Quit(at(second))
		c.Set(at(2*second), perSource(10, func() policy.Class { conf := hintedClass(); conf.Rate = rateOf("10 messages/s"); return conf }()))
		holds(t, waitsWithKey(t, c, at(2*second), client(1), nil), "test", HoldHint, 30*second)
	}
}

// A ledger keeps the budget of a class with hints, which the provider says again.
func TestHintsAndALedger(t *testing.T) {
	conf := classBy(policy.FixedWindow, "20 messages/h")
	conf.Hints = true
	disk := func() time.Duration { return ms }
	k := &keptClass{conf: conf, now: time.Hour}
	k.start(disk, nil)
	if got := k.spendIn(k.class, 25); got != 20 {
		t.Fatalf("%d left, want 20", got)
	}
	k.class.Provider().Heard(at(k.now), at(k.now), Cost{Messages: 20}, []Hint{{unit.Messages, 1, 0, at(k.now + time.Minute)}})
	k.start(disk, k.disk.crash(false))
	if got := k.spendIn(k.class, 25); got != 0 {
		t.Errorf("after a crash, %d left", got)
	}
}

// A class in the shadow enforces nothing, also of what the provider says.
func TestHintsInTheShadow(t *testing.T) {
	conf := hintedClass()
	conf.Shadow = true
	c := NewClass(start, conf)
	say(t, c, 0, 0, 30*second)
	enter(t, c, 0, Leaves, message(1))
}

// A departure and an answer of a class with hints allocate nothing, once it is warm.
func TestHintsAllocateNothing(t *testing.T) {
	c := NewClass(start, hintedClass())
	now, hints := start, make([]Hint, 1)
	step := func() {
		now = now.Add(10 * ms)
		if !c.Pass(now, Cost{Messages: 1}) {
			t.Fatal("it does not leave")
		}
		lastLeft(c, now)
		hints[0] = Hint{unit.Messages, 1, 30, now.Add(second)}
		c.Provider().Heard(now, now, Cost{Messages: 1}, hints)
	}
	step()
	if n := testing.AllocsPerRun(1000, step); n > 0.01 {
		t.Errorf("it allocates %v times", n)
	}
	if h := limit.HintsOf(NewClass(start, leakyClass("1 messages/s")).limiter); h != nil {
		t.Error("a class without hints has room for them")
	}
}
