package shaper

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"shaper/limit"
	"shaper/policy"
	"shaper/unit"
)

// anyTree returns the policy of a random tree of classes that count messages or bytes.
func anyTree(t *rapid.T) (confs []policy.Class) {
	n := rapid.IntRange(1, 7).Draw(t, "classes")
	for i := range n {
		rates := rapid.SampledFrom([][2]string{{"7 messages/s", "9 messages/s"}, {"90 messages/min", "5 messages/s"}, {"1KB/s", "2KB/s"}, {"30 messages/s", "31 messages/s"}}).Draw(t, "rate")
		conf := named(fmt.Sprint("c", i), leakyClass(rates[0]))
		conf.Algorithm = rapid.SampledFrom(algorithms).Draw(t, "algorithm")
		if i > 0 && rapid.IntRange(0, 4).Draw(t, "alone") > 0 {
			conf.Parent = fmt.Sprint("c", rapid.IntRange(0, i-1).Draw(t, "parent"))
			conf.Priority, conf.Weight = rapid.IntRange(3, 4).Draw(t, "priority"), rapid.IntRange(1, 3).Draw(t, "weight")
			if rapid.Bool().Draw(t, "borrows") {
				conf.Ceil = rateOf(rates[1])
			}
		}
		if conf.Rate.Kind() == unit.Messages {
			conf.InFlight = rapid.SampledFrom([]int{0, 0, 0, 3}).Draw(t, "in flight")
			conf.Adapt = rapid.Bool().Draw(t, "adapt")
			if algorithm := rapid.SampledFrom(append(algorithms, "")).Draw(t, "also"); algorithm != "" {
				conf.Also = []policy.Limit{{Rate: rateOf("40 messages/min"), Algorithm: algorithm}}
			}
		}
		confs = append(confs, conf)
	}
	return confs
}

// disturb lets random things happen in a tree, and returns the time after them.
func disturb(t *rapid.T, classes []*Class, now time.Time) time.Time {
	for range rapid.IntRange(10, 60).Draw(t, "events") {
		c := classes[rapid.IntRange(0, len(classes)-1).Draw(t, "class")]
		switch rapid.IntRange(0, 8).Draw(t, "event") {
		default:
			c.Enter(now, &Item{Cost: Cost{Bytes: rapid.Int64Range(0, 900).Draw(t, "bytes"), Packets: 1, Messages: rapid.Int64Range(0, 2).Draw(t, "messages")},
				Asks: rapid.Bool().Draw(t, "asks"), Settles: rapid.Bool().Draw(t, "settles"), Patient: true})
		case 0, 1:
			now = now.Add(time.Duration(rapid.Int64Range(0, 3e9).Draw(t, "pass")))
		case 2:
			c.Provider().Throttled(now, time.Duration(rapid.Int64Range(0, 3e9).Draw(t, "wait")), "429")
		case 3, 4:
			if it := c.Release(now); it != nil && rapid.Bool().Draw(t, "left") {
				it.Left(now)
			}
		}
	}
	return now
}

// Why tells the moment at which the next item of a class leaves, if nothing else comes.
func TestWhyTellsWhen(t *testing.T) {
	seen, compared := map[Cause]int{}, 0
	rapid.Check(t, func(t *rapid.T) {
		classes := NewTree(start, anyTree(t))
		now := disturb(t, classes, start)
		c := classes[rapid.IntRange(0, len(classes)-1).Draw(t, "of")]
		w := c.Status().Why(now)
		if again := c.Status().Why(now); again.At != w.At || !slices.Equal(again.Path, w.Path) {
			t.Fatalf("%+v, and again %+v", w, again)
		}
		if b := c.Backlog(); w.Backlog != b {
			t.Fatalf("waiting: %v, want %v", w.Backlog, b)
		}
		for _, h := range w.Path {
			seen[h.Cause]++
		}
		if !w.Exact {
			return
		}
		if compared++; w.Items == 0 && c.Enter(now, &Item{Cost: unitCost(c.kind), Patient: true}) == Leaves {
			if w.From != c.Name() || !w.At.Equal(now) {
				t.Fatalf("an item that comes now leaves, and Why says %+v", w)
			}
			return
		}
		at, it := nextOf(c, now)
		if d := at.Sub(w.At); d < -whyMargin || d > whyMargin {
			t.Fatalf("the next item of %s leaves at %v, and Why says %v: %+v", c.Name(), at.Sub(start), w.At.Sub(start), w)
		}
		if it != nil && it.class.Name() != w.From {
			t.Fatalf("the item leaves %s, and Why says %s", it.class.Name(), w.From)
		}
	})
	if compared < 10 || seen[ByLimit] == 0 {
		t.Errorf("%d cases were compared; the causes were %v", compared, seen)
	}
}

// whyMargin is by how much a limiter that goes on from its memory may be late, over a few items.
const whyMargin = 100 * time.Nanosecond

// nextOf drives the tree of a class until an item leaves that waits in the class or beneath it.
func nextOf(c *Class, now time.Time) (time.Time, *Item) {
	for range mostRehearsed {
		at := c.Next(now)
		if at == limit.Never {
			return at, nil
		}
		now = later(now, at)
		if it := c.Release(now); it != nil {
			it.Left(now)
			if it.class.isBeneath(&c.node) {
				return now, it
			}
		}
	}
	panic("it never ends")
}

// What Why says about each cause.
func TestWhySays(t *testing.T) {
	leaf := func(conf policy.Class) func() *Class {
		return func() *Class {
			c := NewClass(start, conf)
			c.Enter(start, message(1))
			c.Enter(start, message(1))
			return c
		}
	}
	paired := func(confs ...policy.Class) func() *Class {
		return func() *Class {
			byName := tree(confs...)
			for _, name := range []string{"a", "b", "b", "a"} {
				it := message(1)
				it.Asks = true
				byName[name].Enter(start, it)
			}
			return byName["root"]
		}
	}
	for _, c := range []struct {
		name   string
		class  func() *Class
		of     string // a class beneath; "": the class itself
		cause  Cause
		text   string
		in     time.Duration // how long until the next item leaves; -1: never
		onPath int           // how many causes there are
	}{
		{"a rate", leaf(leakyClass("2 messages/s")), "", ByLimit, "the limit of 2 messages/s", 500 * time.Millisecond, 1},
		{"a rate of 0", leaf(leakyClass("0 messages/s")), "", ByLimit, "the rate is 0", -1, 1},
		{"a bucket", leaf(tokenClass("1 messages/s", 1)), "", ByLimit, "the bucket is empty: it fills with 1 messages/s", second, 1},
		{"a window", leaf(classBy(policy.FixedWindow, "1 messages/min")), "", ByLimit, "the window is full: it allows 1 messages/min", time.Minute, 1},
		{"a log", leaf(classBy(policy.SlidingLog, "1 messages/min")), "", ByLimit, "the window is full: it allows 1 messages/min", time.Minute, 1},
		{"a pause", func() *Class {
			c := leaf(leakyClass("2 messages/s"))()
			c.Provider().Throttled(start, 9*second, "429")
			return c
		}, "", ByPause, `a pause, because the provider has said "too fast"`, 9 * second, 2},
		{"adapt", func() *Class {
			conf := leakyClass("2 messages/s")
			conf.Adapt = true
			c := leaf(conf)()
			c.Provider().Throttled(start, second, "429")
			return c
		}, "", ByLimit, `the limit of 2 messages/s, of which the class has 8/16 after "too fast"`, second, 2},
		{"writing", func() *Class {
			c := NewClass(start, leakyClass("2 messages/s"))
			it := message(1)
			it.Settles = true
			c.Enter(start, it)
			c.Enter(start, message(1))
			return c
		}, "", ByWriting, "an item that is being written, and may take this long at most", second, 2},
		{"in flight", func() *Class {
			conf := leakyClass("2 messages/s")
			conf.InFlight = 1
			c := NewClass(start, conf)
			for range 2 {
				it := message(1)
				it.Asks = true
				c.Enter(start, it)
			}
			return c
		}, "", ByInFlight, "requests without an answer: 1; in_flight allows 1", -1, 2},
		{"siblings", paired(root30(), child("a", "1"), child("b", "9")), "a", BySiblings, "items that come first among those that compete for it: 1", 66666668 * time.Nanosecond, 3},
		{"children", paired(root30(), func() policy.Class { c := child("a", "1"); c.InFlight = 1; return c }(), func() policy.Class { c := child("b", "1"); c.InFlight = 1; return c }()),
			"", ByLimit, "the limit of 30 messages/s", 33333334 * time.Nanosecond, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			class := c.class()
			if c.of != "" {
				class = beneath(class, c.of)
			}
			w := class.Status().Why(start)
			i := slices.IndexFunc(w.Path, func(h Hold) bool { return h.Cause == c.cause })
			if i < 0 || w.Path[i].Text != c.text || len(w.Path) != c.onPath {
				t.Fatalf("%+v; want %s: %s", w, c.cause, c.text)
			}
			if want := start.Add(c.in); c.in >= 0 && (!w.Exact || w.At.Sub(want).Abs() > whyMargin) || c.in < 0 && w.At != limit.Never {
				t.Errorf("it leaves in %v, want %v: %+v", w.At.Sub(start), c.in, w)
			}
		})
	}
}

// A class in which nothing waits tells of those who come first at the classes above.
func TestWhyOfAnEmptyClass(t *testing.T) {
	urgent, bulk := named("urgent", under("account", leakyClass("10 messages/s"))), named("bulk", under("account", leakyClass("0 messages/s")))
	urgent.Priority, bulk.Priority, bulk.Ceil = 0, 7, rateOf("10 messages/s")
	classes := NewTree(start, []policy.Class{named("account", leakyClass("10 messages/s")), urgent, bulk})
	for range 501 {
		classes[1].Enter(start, message(1))
	}
	w := classes[2].Status().Why(start)
	if wait := w.At.Sub(start); w.Items != 0 || w.From != "bulk" || wait < 50*second || wait > 51*second {
		t.Errorf("an item that comes now leaves in %v: %+v", wait, w)
	}
	i := slices.IndexFunc(w.Path, func(h Hold) bool { return h.Class == "account" && h.Cause == BySiblings })
	if i < 0 || w.Path[i].Text != "items that come first among those that compete for it: 500" {
		t.Errorf("%+v", w.Path)
	}
	if urgent := classes[1].Status().Why(start); urgent.Items != 500 || !urgent.At.Equal(at(100*ms)) {
		t.Errorf("%+v", urgent)
	}
}

// A time after the next change of a rate is an estimate. That a class opens again is known.
func TestWhyOfAScheduledClass(t *testing.T) {
	for _, c := range []struct {
		rate, at string
		begin    time.Duration
		in       time.Duration // how long until the next leaves
		exact    bool
	}{
		{"1 messages/h", "60 messages/h", 19 * time.Hour, time.Hour, true},
		{"1 messages/h", "60 messages/h", 20 * time.Hour, time.Hour, true},
		{"1 messages/h", "60 messages/h", 20*time.Hour + 30*time.Minute, time.Hour, false},
		{"60 messages/h", "1 messages/h", 20*time.Hour + 59*time.Minute + 30*second, time.Minute, false},
		{"60 messages/h", "1 messages/h", 32*time.Hour + 30*time.Minute, time.Hour, false},
		{"60 messages/h", "0 messages/h", 20*time.Hour + 59*time.Minute + 30*second, 12*time.Hour + 30*second, true},
		{"60 messages/h", "0 messages/h", 21 * time.Hour, 12 * time.Hour, true},
	} {
		p, _, err := policy.Parse("p.toml", []byte(fmt.Sprintf("[class.c]\nrate = %q\n[[class.c.at]]\nfrom = \"21:00\"\nto = \"09:00\"\nrate = %q\n"+
			"[listener.x]\nlisten = \"127.0.0.1:0\"\nprotocol = \"smpp\"\nupstream = \"discard:\"\nclass = \"c\"\n", c.rate, c.at)))
		if err != nil {
			t.Fatal(err)
		}
		class := NewTree(at(c.begin-time.Hour), asAt(c.begin, p.Classes))[0]
		class.Enter(at(c.begin), message(1))
		class.Enter(at(c.begin), message(1))
		if w := class.Status().Why(at(c.begin)); w.Exact != c.exact || !w.At.Equal(at(c.begin+c.in)) {
			t.Errorf("%s, then %s, at %v: it leaves in %v, exactly: %v; want %v, %v", c.rate, c.at, c.begin, w.At.Sub(at(c.begin)), w.Exact, c.in, c.exact)
		}
	}
}

// beneath returns a class that competes for another one.
func beneath(c *Class, name string) *Class {
	for _, h := range c.feed.heaps() {
		for _, a := range *h {
			if a.node.class.Name() == name {
				return a.node.class
			}
		}
	}
	return nil
}

// The next item of a class with buckets waits in a bucket. Nothing changes in the tree while Why
// looks at a copy, and nothing waits in a class in which nothing waits.
func TestWhyOfBuckets(t *testing.T) {
	conf := leakyClass("1 messages/s")
	conf.Per = policy.Per{{By: policy.BySource}}
	c := NewClass(start, conf)
	if w := c.Status().Why(start); w.Items != 0 || len(w.Path) != 0 || w.At.After(start) {
		t.Errorf("nothing waits: %+v", w)
	}
	bucket := c.Join(start, client(1))
	bucket.Enter(start, message(1))
	bucket.Enter(start, message(1))
	w := c.Status().Why(start)
	if w.Items != 1 || w.At != start.Add(second) || len(w.Path) != 1 || w.Path[0].Text != "the limit of 1 messages/s" {
		t.Errorf("one waits: %+v", w)
	}
	if it := c.Release(start.Add(second)); it == nil {
		t.Error("the item does not leave")
	}
}

// A class without a free permit says so, and how many sessions wait there, also above the class that is
// asked for.
func TestWhyOfPermits(t *testing.T) {
	parent, a, b := threePermits()
	take(t, b, 2, 2)
	if w := a.Status().Why(start); w.Sessions != 0 || len(w.Path) != 0 {
		t.Errorf("permits are free: %+v", w)
	}
	take(t, a, 4, 2)
	want := []Hold{
		{"a", ByPermits, time.Time{}, "max_connections allows 2, and all are taken; sessions that wait for one to end: 2"},
		{"parent", ByPermits, time.Time{}, "max_connections allows 4, and all are taken; sessions that wait for one to end: 0"},
	}
	if w := a.Status().Why(start); w.Sessions != 2 || !slices.Equal(w.Path, want) || w.Items != 0 || w.At.After(start) {
		t.Errorf("two wait: %+v, want %+v", w, want)
	}
	if w := parent.Status().Why(start); w.Sessions != 0 || !slices.Equal(w.Path, want[1:]) {
		t.Errorf("nobody waits in the parent: %+v", w)
	}
}

// However much waits, the tree is locked only while a bounded part of it is copied. What that part
// tells is exact, and what it does not tell is called no more than an estimate.
func TestWhyCopiesABoundedPart(t *testing.T) {
	for _, c := range []struct {
		before int // items of a sibling that goes first
		exact  bool
	}{{100, true}, {50_000, false}} {
		root, first, later := leakyClass("100 messages/s"), leakyClass("100 messages/s"), leakyClass("1 messages/s")
		root, first, later = named("root", root), named("first", first), named("later", later)
		first.Parent, first.Priority, first.Ceil = "root", 0, root.Rate
		later.Parent, later.Priority, later.Ceil = "root", 7, root.Rate
		later.Rate, first.Queue = rateOf("1 messages/h"), policy.Queue{}
		byName := tree(root, first, later)
		for range c.before {
			byName["first"].Enter(start, message(1))
		}
		byName["later"].Enter(start, message(1))
		byName["later"].Enter(start, message(1))
		r, now := byName["root"].lockAt(start)
		r.next(now)
		copied := rehearse(now, r, &byName["later"].node)
		r.mu.Unlock()
		if n := len(copied.items); n > mostCopied {
			t.Errorf("%d items wait: %d are copied", c.before, n)
		}
		if w := byName["later"].Status().Why(start); w.Exact != c.exact || w.Items == 0 || w.From != "later" {
			t.Errorf("%d items come first: %+v", c.before, w)
		}
		if w := byName["first"].Status().Why(start); !w.Exact || w.Items < int64(c.before)-1 {
			t.Errorf("%d items: %+v", c.before, w)
		}
	}
}

// However many buckets wait, the tree is locked only while a bounded number of them is copied, and
// the next item is still the one that leaves.
func TestWhyCopiesABoundedNumberOfBuckets(t *testing.T) {
	for _, c := range []struct {
		buckets int
		exact   bool
	}{{100, true}, {20_000, false}} {
		p, _, err := policy.Parse("p.toml", []byte(`
[class.c]
rate = "1 messages/min"
algorithm = "sliding-log"
per = "source"
max_keys = 50000
[listener.l]
listen = "127.0.0.1:1"
protocol = "lines"
upstream = "echo:"
class = "c"
`))
		if err != nil {
			t.Fatal(err)
		}
		root := NewClass(start, p.Classes[0])
		for i := range c.buckets {
			bucket := root.Join(start, client(i))
			bucket.Enter(start, message(1))
			bucket.Enter(start, message(1))
		}
		r, now := root.lockAt(start.Add(second))
		r.next(now)
		copied := rehearse(now, r, &root.node)
		r.mu.Unlock()
		if n := len(copied.nodes); n > 2*mostNodes {
			t.Errorf("%d buckets wait: %d classes are copied", c.buckets, n)
		}
		w := root.Status().Why(now)
		if w.Items != int64(c.buckets) || w.Exact != c.exact {
			t.Errorf("%d buckets wait: %+v", c.buckets, w)
		}
		if root.Release(w.At.Add(-1)) != nil || root.Release(w.At) == nil {
			t.Errorf("%d buckets wait: the next item does not leave at %v", c.buckets, w.At)
		}
	}
}

// The next item of a shared class, or beneath it, leaves when the fleet is expected to grant something. What this process has sent
// does not matter.
func TestWhyOfAShare(t *testing.T) {
	hour := policy.DefaultClass("hour")
	hour.Rate, hour.Algorithm, hour.Shared = rateOf("1000 messages/h"), policy.FixedWindow, "prod"
	const text = `the window is full: it allows 1000 messages/h, which all members of the fleet "prod" share`
	for _, buckets := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := NewOnRuntimeTimer()
			defer s.Close()
			now := time.Now()
			b := &fakeBudget{opens: now.Add(time.Hour)}
			member := &fakeMember{budgets: map[string]*fakeBudget{"0": b}}
			conf, above, beneath := hour, leakyClass("100 messages/s"), leakyClass("100 messages/s")
			above.Name, beneath.Name, conf.Parent, beneath.Parent = "above", "beneath", "above", "hour"
			all := []policy.Class{above, conf, beneath}
			if buckets {
				conf.Per, conf.Parent = policy.Per{{By: policy.BySource}}, ""
				all = []policy.Class{conf}
			}
			s.SetMembers(map[string]Member{"hour": member})
			s.Apply(all)
			from := s.Class("beneath")
			if buckets {
				from = s.Class("hour").Join(now, client(1))
				member.budgets["0"+keyText(from.key)].opens = b.opens
			}
			for range 2 {
				if v := from.Enter(now, &Item{Owner: &noting{}, Cost: Cost{Messages: 1}}); v != Waits {
					t.Fatalf("an item gets the verdict %v, want that it waits", v)
				}
			}
			for _, conf := range all[len(all)/2:] {
				w := s.Class(conf.Name).Status().Why(now)
				held := slices.ContainsFunc(w.Path, func(h Hold) bool { return h.Class == "hour" && h.Text == text && h.Until.Equal(b.opens) })
				if w.Items != 2 || !w.At.Equal(b.opens) || w.Exact || !held {
					t.Errorf("%s: %+v, want that it waits for the fleet", conf.Name, w)
				}
			}
		})
	}
}

// A shared class waits for the limit of which the fleet is expected to grant something last, whatever this process has used of its
// limits. A limit that includes another one has the words of the slower.
func TestWhyOfASharedLimit(t *testing.T) {
	const shared = `, which all members of the fleet "prod" share`
	conf := leakyClass("20 messages/s")
	conf.Algorithm = policy.GCRA
	conf.Also = []policy.Limit{{Rate: rateOf("60 messages/h"), Algorithm: policy.FixedWindow}, {Rate: rateOf("5 messages/s"), Algorithm: policy.GCRA}}
	for _, c := range []struct {
		name          string
		slots, window time.Duration // how long until the fleet grants something
		closed        bool
		limit, text   string
	}{
		{"the window is used up", time.Second, time.Hour, false, "60 messages/h", "the window is full: it allows 60 messages/h" + shared},
		{"the next slot", time.Second, 0, false, "5 messages/s", "the bucket is empty: it fills with 5 messages/s" + shared},
		{"closed", time.Second, time.Minute, true, HoldClosed, "a time in which nothing may leave"},
	} {
		if c.closed {
			begin := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) // when a bubble of synctest begins
			conf.Closed = policy.Span{From: begin, Until: begin.Add(time.Hour)}
		}
		withMember(t, conf, func(s *Shaper, member *fakeMember, class *Class) {
			now := time.Now()
			for range 2 {
				class.Enter(now, message(1))
			}
			member.budgets["0"].opens, member.budgets["1"].opens = now.Add(c.slots), now.Add(c.window)
			h := class.Status().Waits(now)
			if w := class.Status().Why(now); h == nil || h.Limit != c.limit || len(w.Path) != 1 || w.Path[0].Text != c.text {
				t.Errorf("%s: it waits for %+v, and Why says %+v, want %s: %s", c.name, h, w.Path, c.limit, c.text)
			}
		})
	}
}

// A shared class waits for the store while that is away, and says which rate it has meanwhile. While the shares of silent members
// are held back, its window is not full.
func TestWhyOfAReducedLimit(t *testing.T) {
	window, leaky := leakyClass("1000 messages/day"), leakyClass("20 messages/s")
	window.Algorithm = policy.FixedWindow
	const away = `the store of the fleet "prod", which is away; this shaper has 5 messages/s`
	const silent, held = `, which all members of the fleet "prod" share; `, " remain, because the shares of silent members are held back"
	for _, c := range []struct {
		conf    policy.Class
		to      string
		away    bool
		what    string
		cause   Cause
		text    string
		buckets bool
	}{
		{leaky, "5 messages/s", true, HoldStore, ByStore, away, false},
		{leaky, "5 messages/s", true, HoldStore, ByStore, away, true},
		{window, "5 messages/s", true, HoldStore, ByStore, away + " in windows that begin meanwhile", false},
		{leaky, "12 messages/s", false, "20 messages/s", ByLimit, "the limit of 20 messages/s" + silent + "12 messages/s" + held, false},
		{window, "600 messages/day", false, "1000 messages/day", ByLimit, "the limit of 1000 messages/day" + silent + "600 messages/day" + held, false},
	} {
		if c.buckets {
			c.conf.Per = policy.Per{{By: policy.BySource}}
		}
		withMember(t, c.conf, func(s *Shaper, member *fakeMember, class *Class) {
			now, from := time.Now(), class
			if c.buckets {
				from = class.Join(now, client(1))
			}
			from.Enter(now, message(1))
			for _, b := range member.budgets {
				b.opens, b.reduced, b.away = now.Add(time.Minute), rateOf(c.to), c.away
			}
			h, w := class.Status().Waits(now), class.Status().Why(now)
			if h == nil || h.Limit != c.what || len(w.Path) != 1 || w.Path[0].Text != c.text || w.Path[0].Cause != c.cause || !w.Path[0].Until.Equal(now.Add(time.Minute)) {
				t.Errorf("%v: it waits for %+v, and Why says %+v, want %s: %s", c.conf.Rate, h, w.Path, c.what, c.text)
			}
		})
	}
}

// What would come to a class waits for the same as what waits there already, and behind it: down the path, in the same words.
func TestWhyWithKeySaysWhatWhySays(t *testing.T) {
	root, api := named("root", classBy(policy.GCRA, "1 messages/min")), named("api", classBy(policy.GCRA, "1 messages/h"))
	api.Parent, api.OnThrottle.Max = "root", unit.Duration(2*time.Hour)
	for name, conf := range map[string]policy.Class{"a class": api, "a class with buckets": under("root", named("api", perSource(9, api)))} {
		byName := tree(root, conf)
		c := byName["api"]
		in := c.Join(start, client(1))
		for range 4 {
			in.Enter(start, message(1))
		}
		if in.Provider().Throttled(start, 90*time.Minute, "429"); len(c.Status().Why(start).Path) != 3 {
			t.Fatalf("%s: three things hold it up, not %+v", name, c.Status().Why(start).Path)
		}
		got, want := c.Status().WhyWithKey(start, client(1), nil), c.Status().Why(start)
		if !slices.Equal(got.Path, want.Path) || got.Items != 3 || !got.At.Equal(at(4*time.Hour+30*time.Minute)) || got.Exact {
			t.Errorf("%s: what comes waits for %+v, and what waits for %+v", name, got, want)
		}
		if conf.Per == (policy.Per{}) {
			continue
		}
		other := c.Status().WhyWithKey(start, client(2), nil)
		if !slices.Equal(other.Path, want.Path[len(want.Path)-1:]) || other.Items != 0 {
			t.Errorf("a key that sends nothing waits for %+v", other)
		}
	}
}
