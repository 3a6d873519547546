package shaper

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"shaper/policy"
	"shaper/stats"
	"shaper/unit"
)

func inShadow(conf policy.Class) policy.Class {
	conf.Shadow = true
	return conf
}

// wouldBe is what the counters of a class say.
type wouldBe struct {
	delayed, full, tooLong uint64
	waits                  stats.HistogramReading
}

func of(c *stats.Class) wouldBe {
	return wouldBe{c.Overlimits.Load(), c.Dropped[stats.QueueFull].Items.Load(), c.Dropped[stats.MaxWait].Items.Load(), c.Wait.Read()}
}

func (w wouldBe) is(o wouldBe) bool {
	return w.delayed == o.delayed && w.full == o.full && w.tooLong == o.tooLong &&
		w.waits.Count == o.waits.Count && (w.waits.Sum-o.waits.Sum) < 1e-6 && (o.waits.Sum-w.waits.Sum) < 1e-6
}

// inForce is a class in force, which a test drives by hand.
type inForce struct {
	*Class
	latest time.Time
}

// catchUp lets everything leave that may have left by now, each item at its time.
func (c *inForce) catchUp(now time.Time) {
	for at := c.Next(c.latest); !at.After(now); at = c.Next(c.latest) {
		c.latest = later(c.latest, at)
		if it := c.Release(c.latest); it != nil && it.Owner != nil {
			it.Owner.Leave(c.latest)
		}
	}
	c.latest = later(c.latest, now)
}

// offer offers an item. If there is no room, it counts the item as the proxy does.
func (c *inForce) offer(now time.Time, it *Item) Verdict {
	v := c.Enter(now, it)
	switch v {
	case Full:
		c.tally.lose(stats.QueueFull, &it.Cost)
	case TooLong:
		c.tally.lose(stats.MaxWait, &it.Cost)
	}
	return v
}

// tried returns a class of a trial.
func tried(conf policy.Class) *Class { return NewTrial(start, []policy.Class{conf}).Classes()[0] }

// A shadow counts what the same class does in force, for datagrams, whatever the
// algorithm, the queue and max_wait.
func TestShadowCountsWhatWouldBe(t *testing.T) {
	for _, algorithm := range []policy.Algorithm{policy.Leaky, policy.Token, policy.GCRA, policy.FixedWindow, policy.SlidingLog, policy.SlidingWindow} {
		t.Run(string(algorithm), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				conf := withQueue(classBy(algorithm, rapid.SampledFrom([]string{"10 packets/s", "20KB/s"}).Draw(t, "rate")),
					rapid.Int64Range(1, 20).Draw(t, "queue"), 0)
				conf.MaxWait = unit.Duration(rapid.SampledFrom([]time.Duration{0, 300 * ms}).Draw(t, "max_wait"))
				conf.Also = anyAlso(t, conf.Rate.Kind())
				does, would := inForce{Class: NewClass(start, conf)}, NewClass(start, inShadow(conf))
				now := start
				for range rapid.IntRange(1, 60).Draw(t, "items") {
					now = now.Add(time.Duration(rapid.SampledFrom([]int{0, 0, 0, 30, 100, 700}).Draw(t, "pause")) * ms)
					n := rapid.SampledFrom([]int64{100, 1000, 3000}).Draw(t, "size")
					does.catchUp(now)
					one := packet(n)
					does.offer(now, one)
					if rapid.Bool().Draw(t, "pass") {
						if !would.Pass(now, one.Cost) {
							t.Fatal("a class with shadow holds a datagram up")
						}
					} else if v := would.Enter(now, packet(n)); v != Leaves {
						t.Fatalf("the class in force gives a datagram the verdict %v", v)
					}
				}
				now = now.Add(time.Hour)
				does.catchUp(now)
				if got, want := of(would.Status().Shadow(now)), of(does.Stats); !got.is(want) {
					t.Fatalf("the shadow counts %+v, and the class in force %+v", got, want)
				}
				if w := of(would.Stats); w.delayed != 0 || w.waits.Sum != 0 {
					t.Fatalf("the class with shadow itself counts %+v", w)
				}
			})
		})
	}
}

// A stream would be held up: its next piece waits only when the last one has left, however
// fast pieces really come.
func TestShadowOfAStream(t *testing.T) {
	conf := leakyClass("100KB/s")
	c := NewClass(start, inShadow(conf))
	if c.Piece() != MaxPiece {
		t.Errorf("a piece is %d bytes, want that of a class without limit", c.Piece())
	}
	var f Flow
	f.Init(c, nil)
	for n := range 10 {
		if v := f.Ask(at(time.Duration(n)*ms), Cost{Bytes: 10_000}, n > 0); v != Leaves {
			t.Fatalf("piece %d: %v", n, v)
		}
		f.Left(at(time.Duration(n) * ms))
	}
	shadow := c.Status().Shadow(at(500 * ms))
	if shadow.Sent[stats.Upstream].Bytes.Load() != 0 {
		t.Error("the counters of the shadow count bytes as sent")
	}
	drained := shadow.Wait.Read()
	piece := c.shadow.class().Piece()
	if want := 50_000 / piece; int64(drained.Count) < want-2 || int64(drained.Count) > want+2 {
		t.Errorf("after half a second %d pieces of %d bytes have left the shadow, want about %d", drained.Count, piece, want)
	}
	all := c.Status().Shadow(at(990 * ms)).Wait.Read()
	if all = c.Status().Shadow(at(time.Second)).Wait.Read(); int64(all.Count) != (100_000-1)/piece+1 {
		t.Errorf("after a second %d pieces have left the shadow, want all", all.Count)
	}
	if each := all.Sum / float64(all.Count); each > 1.1*float64(piece)/100_000 {
		t.Errorf("a piece waits %.4f s in the shadow, though there is only one source", each)
	}
	if d := shadow.Dropped[stats.QueueFull].Items.Load(); d != 0 {
		t.Errorf("the shadow drops %d pieces", d)
	}
}

// The classes above a class with shadow limit as before, and it keeps its place among its
// siblings.
func TestShadowUnderAParent(t *testing.T) {
	c := tree(root30(), inShadow(under("root", named("a", leakyClass("10 messages/s")))), child("b", "10"))
	sent := map[*Class]int{}
	for _, x := range []*Class{c["a"], c["b"]} {
		for range 200 {
			x.Enter(start, message(1))
		}
	}
	for now := start; now.Before(at(6 * second)); {
		now = later(now, c["root"].Next(now))
		if it := c["root"].Release(now); it != nil {
			sent[it.class]++
			it.Left(now)
		}
	}
	if got := sent[c["a"]] + sent[c["b"]]; got < 179 || got > 181 {
		t.Errorf("%d items leave in 6 s under 30/s", got)
	}
	if a := sent[c["a"]]; a < 85 || a > 95 {
		t.Errorf("%d items of the class with shadow leave, want half of all", a)
	}
	if w := of(c["a"].Status().Shadow(at(6 * second))); w.delayed < 80 {
		t.Errorf("of 90 items at 15/s through 10/s %d wait in the shadow", w.delayed)
	}
}

// A class with shadow limits nothing, so the charge for a cheaper item is enough for one that costs more there.
func TestShadowCoversAll(t *testing.T) {
	cheap, dear := Cost{Messages: 1, Tokens: 1}, Cost{Messages: 1, Tokens: 5}
	limited := named("root", classBy(policy.GCRA, "10 tokens/s"))
	for _, c := range []struct {
		root policy.Class
		want bool
	}{{limited, false}, {inShadow(limited), true}} {
		of := tree(c.root, under("root", named("a", leakyClass("10 messages/s"))))["a"]
		if got := of.Covers(&cheap, &dear); got != c.want || !of.Covers(&dear, &cheap) {
			t.Errorf("under a class with shadow %v: 1 token covers 5: %v", c.root.Shadow, got)
		}
	}
}

// What waits leaves at once when a class gets shadow. When shadow ends, what has passed
// meanwhile counts.
func TestShadowIsSet(t *testing.T) {
	conf := leakyClass("1 packets/s")
	c := NewClass(start, conf)
	enter(t, c, 0, Leaves, packet(1))
	waiting := packet(1)
	enter(t, c, 0, Waits, waiting)
	c.Set(at(100*ms), inShadow(conf))
	released(t, c, 100*ms, waiting)
	enter(t, c, 200*ms, Leaves, packet(1))
	c.Set(at(1200*ms), conf)
	if c.Status().Shadow(at(1200*ms)) != nil {
		t.Error("the class has a shadow, and Enforces says that it does what its policy says")
	}
	it := packet(1)
	enter(t, c, 1200*ms, Waits, it)
	released(t, c, 2*second-1)
	released(t, c, 2*second, it) // a copy left the shadow at 1 s
}

// Each bucket has its own shadow, which outlasts its sessions. The shadows of a class
// share their counters.
func TestShadowOfKeys(t *testing.T) {
	c := NewClass(start, inShadow(perSource(10, leakyClass("1 packets/s"))))
	for n := range 6 {
		now := at(time.Duration(n) * 100 * ms)
		bucket := c.Join(now, client(n%2))
		if !bucket.Pass(now, Cost{Packets: 1}) {
			t.Error("a class with shadow holds a datagram up")
		}
		bucket.Quit(now)
	}
	if w := of(c.Status().Shadow(at(500 * ms))); w.delayed != 4 || w.waits.Count != 2 {
		t.Errorf("two sources sent three each: %d wait in the shadows, and %d have left; want 4 and 2", w.delayed, w.waits.Count)
	}
	if n := len(c.keys.table.active); n != 2 {
		t.Errorf("%d buckets, want 2, since their shadows are not empty", n)
	}
	if w := of(c.Status().Shadow(at(3 * second))); w.waits.Count != 6 {
		t.Errorf("%d copies have left, want 6", w.waits.Count)
	}
	if n := c.Buckets().Keys(at(10 * second)); n != 0 {
		t.Errorf("%d keys, want none", n)
	}
}

// More streams than a shadow looks at take no more memory.
func TestShadowIsBounded(t *testing.T) {
	c := NewClass(start, inShadow(leakyClass("1KB/s")))
	for range maxCopies + 100 {
		var f Flow
		f.Init(c, nil)
		f.Ask(start, Cost{Bytes: 10_000_000}, false)
	}
	if n := c.shadow.class().queue.Len(); n > maxCopies {
		t.Errorf("%d copies wait", n)
	}
	if w := of(c.Status().Shadow(start)); w.delayed < maxCopies+99 {
		t.Errorf("%d items wait in the shadow", w.delayed)
	}
}

// A shadow counts max_connections too, and does not enforce it.
func TestShadowOfPermits(t *testing.T) {
	for overflow, want := range map[policy.Overflow]wouldBe{policy.Wait: {delayed: 2}, policy.Refuse: {delayed: 2, full: 2}} {
		conf := withPermits(inShadow(leakyClass("1KB/s")), 1)
		conf.Overflow = overflow
		c := NewClass(start, conf)
		take(t, c, 3, 3)
		if got := of(c.Status().Shadow(start)); got.delayed != want.delayed || got.full != want.full {
			t.Errorf("overflow %q: the shadow counts %+v, want %+v", overflow, got, want)
		}
	}
}

// BenchmarkShadow measures what a class with shadow costs each datagram.
func BenchmarkShadow(b *testing.B) {
	c := NewClass(start, inShadow(classBy(policy.GCRA, "1 packets/s")))
	now := start
	for b.Loop() {
		now = now.Add(time.Microsecond)
		c.Pass(now, Cost{Packets: 1, Bytes: 100})
	}
}

// An owner gives up the copy of an item that waits in a class in force. At the same time
// the pacer lets the item leave, and a class with shadow gets a copy of it.
func TestShadowsOfOneFlow(t *testing.T) {
	s := New()
	defer s.Close()
	up := inShadow(leakyClass("1KB/s"))
	s.Apply([]policy.Class{named("up", up), under("up", named("a", leakyClass("20MB/s")))})
	var f Flow
	left := make(chan struct{}, 1)
	f.Init(s.Class("a"), ownerFunc(func(time.Time) { left <- struct{}{} }))
	for range 500 {
		copies := NewTrial(time.Now(), []policy.Class{named("c", leakyClass("1KB/s"))})
		guest := copies.Guest(time.Now(), policy.Conn{}, copies.Classes()[0], nil)
		f.Mirror(&guest.Up)
		waits := f.Ask(time.Now(), Cost{Bytes: 1000}, true) == Waits
		f.Mirror(nil)
		guest.End(time.Now(), false)
		if waits {
			<-left
		}
	}
}

type ownerFunc func(time.Time)

func (f ownerFunc) Leave(now time.Time) { f(now) }

// A stream that lives long does not stay in every shadow that it has passed.
func TestShadowsComeAndGo(t *testing.T) {
	conf := leakyClass("1MB/s")
	c := NewClass(start, conf)
	var f Flow
	f.Init(c, nil)
	for n := range 100 {
		now := at(time.Duration(n) * 100 * ms)
		c.Set(now, inShadow(conf))
		f.Ask(now, Cost{Bytes: 1000}, false)
		c.Set(now, conf)
	}
	n := 0
	for t := f.ticket.source.twins; t != nil; t = t.next {
		n++
	}
	if n > maxTwins {
		t.Errorf("the stream has twins in %d classes", n)
	}
}

func TestMirrorAllocatesNothing(t *testing.T) {
	for _, rate := range []string{"1KB/s", "1GB/s", "10 packets/s"} {
		c, now, from := tried(leakyClass(rate)), start, new(Source)
		wantNoAllocs(t, "Mirror of a piece to "+rate, func() {
			now = now.Add(ms)
			c.trial.mirror(now, c, Cost{Bytes: 1000}, from, false)
		})
		wantNoAllocs(t, "Mirror of datagrams to "+rate, func() {
			now = now.Add(time.Minute)
			c.trial.mirror(now, c, Cost{Bytes: 1000, Packets: 10}, nil, false)
		})
	}
}

// A message is one item in a class of bytes, also in a shadow, although it holds up its
// sender.
func TestShadowOfMessagesInBytes(t *testing.T) {
	conf := leakyClass("1KB/s")
	does, would := inForce{Class: NewClass(start, conf)}, NewClass(start, inShadow(conf))
	for n := range 5 {
		now := at(time.Duration(n) * second)
		does.catchUp(now)
		for _, c := range []*Class{does.Class, would} {
			c.Enter(now, &Item{Cost: Cost{Messages: 1, Bytes: 50_000}, Held: 50_000, Patient: true})
		}
	}
	does.catchUp(at(time.Hour))
	if got, want := of(would.Status().Shadow(at(time.Hour))), of(does.Stats); !got.is(want) {
		t.Errorf("the shadow counts %s, and the class in force %s", got, want)
	}
}
