package shaper

import (
	"testing"
	"time"

	"shaper/policy"
)

// What comes now leaves behind all that waits, in the class, in its bucket, or in its group.
func TestWaitsBehindTheQueue(t *testing.T) {
	for name, make := range map[string]func() (c, in *Class){
		"a class": func() (*Class, *Class) {
			c := NewClass(start, classBy(policy.GCRA, "1 packets/s"))
			return c, c
		},
		"a bucket": func() (*Class, *Class) {
			c := NewClass(start, perSource(10, classBy(policy.GCRA, "1 packets/s")))
			return c, c.Join(start, client(1))
		},
	} {
		c, in := make()
		enter(t, in, 0, Leaves, packet(1))
		for range 600 {
			enter(t, in, 0, Waits, packet(1))
		}
		if name == "a bucket" {
			holds(t, waitsWithKey(t, c, start, client(2), nil), "", "", 0)
		}
		holds(t, waitsWithKey(t, c, start, client(1), nil), "test", "1 packets/s", 601*time.Second)
	}

	c := NewTree(start, asAt(12*time.Hour, promotions(t, "queue = \"2000 messages\"")))[0]
	india := joins(0, c, "91")
	for range 600 {
		enter(t, india, 22*time.Hour, Waits, sms())
	}
	h := waitsWithKey(t, c, at(22*time.Hour), policy.Conn{}, &policy.Message{Recipient: []byte("91")})
	if h == nil || h.Limit != HoldQuiet || !h.Until.Equal(at(33*time.Hour+time.Minute)) {
		t.Errorf("what comes behind 600 in the quiet hours waits for %+v", h)
	}
}

// A class in which only those beneath have items waits with the cost of the next of them.
func TestWaitsBeneathAClass(t *testing.T) {
	classes := NewTree(start, []policy.Class{named("account", classBy(policy.GCRA, "1KB/s")), named("child", under("account", classBy(policy.GCRA, "1000 packets/s")))})
	big := &Item{Cost: Cost{Bytes: 3000, Packets: 1}, Held: 3000}
	if classes[0].Pass(start, Cost{Bytes: 1000}); classes[1].Enter(start, big) != Waits {
		t.Fatal("the item does not wait")
	}
	want := classes[1].Status().Waits(start)
	holds(t, classes[0].Status().Waits(start), "account", want.Limit, want.Until.Sub(start))
}

// A key for which there is no room would wait in the bucket that such keys share.
func TestWaitsOfAKeyWithoutRoom(t *testing.T) {
	c := NewClass(start, perSource(1, classBy(policy.GCRA, "1 packets/s")))
	own, shared := c.Join(start, client(1)), c.Join(start, client(2))
	enter(t, own, 0, Leaves, packet(1))
	enter(t, shared, 0, Leaves, packet(1))
	enter(t, shared, 0, Waits, packet(1))
	holds(t, waitsWithKey(t, c, start, client(3), nil), "test", "1 packets/s", 2*time.Second)
	own.Quit(start)
	holds(t, waitsWithKey(t, c, at(10*second), client(4), nil), "", "", 0) // there is room again
}

// A key that has no bucket yet waits for a turn behind those that have one, at the class above.
func TestWaitsOfANewKeyBehindOthers(t *testing.T) {
	classes := tree(named("root", classBy(policy.GCRA, "1 packets/s")), under("root", perSource(100, classBy(policy.GCRA, "1 packets/s"))))
	c := classes["test"]
	for i := range 20 {
		c.Join(start, client(i)).Enter(start, packet(1))
	}
	c.Next(start)
	holds(t, waitsWithKey(t, c, start, client(50), nil), "root", "1 packets/s", 20*second)
	bucket, it := c.Join(start, client(50)), packet(1)
	enter(t, bucket, 0, Waits, it)
	holds(t, waitsWithKey(t, c, start, client(51), nil), "root", "1 packets/s", 21*second)
}

// A key that has no bucket yet goes before others that borrow, if it does not borrow itself.
func TestWaitsOfAKeyBehindBorrowers(t *testing.T) {
	conf := perSource(100, ceiling("100 packets/s", under("root", classBy(policy.GCRA, "1 packets/min"))))
	classes := tree(named("root", classBy(policy.GCRA, "1 packets/s")), conf)
	c := classes["test"]
	known := c.Join(start, client(50))
	enter(t, known, 0, Leaves, packet(1))
	known.Quit(start)
	for i := range 20 {
		bucket := c.Join(start, client(i))
		for range 2 {
			enter(t, bucket, 0, Waits, packet(1))
		}
	}
	s := &sim{root: classes["root"], now: start}
	s.run(20*second + 500*ms)
	now := at(20*second + 500*ms)
	holds(t, waitsWithKey(t, c, now, client(51), nil), "root", "1 packets/s", 21*second)
	holds(t, waitsWithKey(t, c, now, client(50), nil), "root", "1 packets/s", 41*second)
}

// A class with a shadow holds nobody up, and neither does a key that has been away.
func TestNoKeyWaitsInAShadow(t *testing.T) {
	conf := perSource(10, classBy(policy.GCRA, "1 packets/min"))
	conf.Shadow = true
	c := NewClass(start, conf)
	bucket := c.Join(start, client(1))
	enter(t, bucket, 0, Leaves, packet(1))
	holds(t, waitsWithKey(t, c, start, client(1), nil), "", "", 0)
	bucket.Quit(start)
	holds(t, waitsWithKey(t, c, start, client(1), nil), "", "", 0)
	holds(t, waitsWithKey(t, c, start, client(2), nil), "", "", 0)
}

// What comes behind a large item waits for what that waits for.
func TestWaitsBehindALargeItem(t *testing.T) {
	tokens := func(n int32) *Item { return &Item{Cost: Cost{Messages: 1, Tokens: n}} }
	conf := tokenClass("1 tokens/s", 100)
	for name, c := range map[string]struct {
		confs []policy.Class
		in    string // whose limit it is
	}{
		"in a class":    {[]policy.Class{conf}, "test"},
		"in a bucket":   {[]policy.Class{perSource(10, conf)}, "test"},
		"above a class": {[]policy.Class{named("above", conf), under("above", leakyClass("100 messages/s"))}, "above"},
	} {
		class := tree(c.confs...)["test"]
		bucket := class.Join(start, client(1))
		enter(t, bucket, 0, Leaves, tokens(50))
		enter(t, bucket, second, Waits, tokens(100))
		holds(t, waitsWithKey(t, class, at(second), client(1), nil), c.in, "1 tokens/s", 51*second)
		why := class.Status().WhyWithKey(at(second), client(1), nil)
		if why.Items != 1 || len(why.Path) != 1 || !why.Path[0].Until.Equal(at(50*second)) {
			t.Errorf("%s: %+v", name, why)
		}
	}
}
