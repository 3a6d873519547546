package shaper

import (
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"shaper/leaky"
	"shaper/limit"
	"shaper/policy"
	"shaper/unit"
)

// tree returns the classes of a tree, by name.
func tree(confs ...policy.Class) map[string]*Class {
	byName := map[string]*Class{}
	for _, c := range NewTree(start, confs) {
		byName[c.Name()] = c
	}
	return byName
}

// ceiling returns a policy with a ceil.
func ceiling(text string, conf policy.Class) policy.Class {
	conf.Ceil = rateOf(text)
	return conf
}

func withPriority(n int, conf policy.Class) policy.Class {
	conf.Priority = n
	return conf
}

func withWeight(n int, conf policy.Class) policy.Class {
	conf.Weight = n
	return conf
}

// child returns a class of messages under "root". It is assured a rate and may borrow up
// to 30/s.
func child(name, rate string) policy.Class {
	return ceiling("30 messages/s", under("root", named(name, leakyClass(rate+" messages/s"))))
}

// root30 is the parent of the children.
func root30() policy.Class { return named("root", leakyClass("30 messages/s")) }

func message(n int64) *Item { return &Item{Cost: Cost{Bytes: n, Packets: 1, Messages: 1}, Held: n} }

// TestTreeChargesThePath puts messages under bytes under packets. Each class charges its
// own unit, and the slowest decides.
func TestTreeChargesThePath(t *testing.T) {
	c := tree(named("root", leakyClass("4 packets/s")),
		under("root", named("line", leakyClass("1KB/s"))),
		under("line", named("leaf", leakyClass("2 messages/s"))))
	leaf := c["leaf"]
	small, large, next, last := message(100), message(1000), message(1), &Item{Cost: Cost{Packets: 1}}
	enter(t, leaf, 0, Leaves, message(1))
	enter(t, leaf, 0, Waits, small, large, next, last)
	released(t, leaf, 500*ms-1)
	released(t, leaf, 500*ms, small) // two messages/s
	released(t, leaf, 1000*ms, large)
	released(t, leaf, 2000*ms-1)
	released(t, leaf, 2000*ms, next) // the large item took the class above one second
	released(t, leaf, 2250*ms-1)
	released(t, leaf, 2250*ms, last) // it costs no bytes and no messages
	enter(t, c["line"], 2250*ms, Leaves, &Item{Cost: Cost{Messages: 1}})
	enter(t, c["line"], 2250*ms, Waits, message(1))
	if !leaf.Counts(unit.Packets) || leaf.Counts(unit.Connections) || c["root"].Counts(unit.Bytes) {
		t.Error("Counts is wrong about the path")
	}
}

// TestTreeShares gives two children a parent of 30 messages/s. They are assured 10 and 5.
// It tries every pattern of load.
func TestTreeShares(t *testing.T) {
	const greedy = -1
	for _, c := range []struct {
		name           string
		a, b           policy.Class
		loadA, loadB   int // messages/s
		wantA, wantB   int // in ten seconds
		slackA, slackB int
	}{
		{"both greedy: assured, and half of the rest", child("a", "10"), child("b", "5"), greedy, greedy, 175, 125, 1, 1},
		{"by weight", withWeight(2, child("a", "10")), child("b", "5"), greedy, greedy, 200, 100, 1, 1},
		{"by a large weight", child("a", "10"), withWeight(9, child("b", "5")), greedy, greedy, 115, 185, 1, 1},
		{"by priority", withPriority(0, child("a", "10")), child("b", "5"), greedy, greedy, 250, 50, 1, 1},
		{"by priority, the other", child("a", "10"), withPriority(0, child("b", "5")), greedy, greedy, 100, 200, 1, 1},
		{"one idle", child("a", "10"), child("b", "5"), greedy, 0, 300, 0, 1, 0},
		{"the other idle", child("a", "10"), child("b", "5"), 0, greedy, 0, 300, 0, 1},
		{"one below its assured rate", child("a", "10"), child("b", "5"), greedy, 3, 270, 30, 1, 1},
		{"one a little above it", child("a", "10"), child("b", "5"), greedy, 7, 230, 70, 1, 1},
		{"one above all", child("a", "10"), withPriority(0, child("b", "5")), greedy, 28, 100, 200, 1, 1},
		{"not aligned to the slots", child("a", "7"), withPriority(0, child("b", "11")), greedy, greedy, 70, 230, 1, 1},
		// A gap of 1/12 s ends between two departures of the parent, which are 1/30 s
		// apart.
		{"below a ceil of its own", ceiling("12 messages/s", child("a", "10")), child("b", "5"), greedy, greedy, 100, 200, 1, 1},
		{"without a ceil", ceilless(child("a", "10")), withPriority(0, child("b", "5")), greedy, greedy, 100, 200, 1, 1},
		{"assured of nothing", child("a", "0"), withPriority(7, child("b", "5")), greedy, greedy, 250, 50, 1, 1},
		{"more than there is", child("a", "30"), child("b", "30"), greedy, greedy, 150, 150, 1, 1},
		{"more than there is, by weight", withWeight(2, child("a", "30")), child("b", "30"), greedy, greedy, 200, 100, 1, 1},
	} {
		for _, tickets := range []int{1, 50} { // with one ticket, a class is empty after each departure
			classes := tree(root30(), c.a, c.b)
			s := &sim{root: classes["root"], now: start}
			s.load(classes["a"], c.loadA, tickets)
			s.load(classes["b"], c.loadB, tickets)
			s.run(10 * second)
			a, b := s.left[classes["a"]], s.left[classes["b"]]
			if a < c.wantA-c.slackA || a > c.wantA+c.slackA || b < c.wantB-c.slackB || b > c.wantB+c.slackB {
				t.Errorf("%s, %d tickets: a sent %d and b %d messages, want %d and %d", c.name, tickets, a, b, c.wantA, c.wantB)
			}
		}
	}
}

func ceilless(conf policy.Class) policy.Class {
	conf.Ceil = unit.Rate{}
	return conf
}

// TestTreeBytesReachTheirLimit lets the gap of a class of bytes end between two departures
// of the parent. The class catches up the time for which its sibling holds it up.
func TestTreeBytesReachTheirLimit(t *testing.T) {
	for _, a := range []policy.Class{leakyClass("12B/s"), ceiling("12B/s", leakyClass("10B/s")), ceiling("12B/s", leakyClass("1B/s"))} {
		for _, tickets := range []int{1, 50} {
			classes := tree(named("root", leakyClass("30B/s")), under("root", named("a", a)),
				ceiling("30B/s", under("root", named("b", leakyClass("5B/s")))))
			s := &sim{root: classes["root"], now: start}
			s.load(classes["a"], -1, tickets)
			s.load(classes["b"], -1, tickets)
			s.run(10 * second)
			if a, b := s.left[classes["a"]], s.left[classes["b"]]; a < 119 || a > 121 || b < 179 || b > 181 {
				t.Errorf("%v up to %v, %d tickets: a sent %d and b %d bytes, want 120 and 180", classes["a"].Policy().Rate, classes["a"].Rate(), tickets, a, b)
			}
		}
	}
}

// TestTreeIdleBytesEarnNothing holds that an idle class catches up nothing, however long
// its siblings kept the parent busy.
func TestTreeIdleBytesEarnNothing(t *testing.T) {
	c := tree(named("root", leakyClass("30KB/s")), under("root", named("a", leakyClass("12KB/s"))),
		under("root", named("b", leakyClass("30KB/s"))))
	enter(t, c["b"], 0, Leaves, message(600))
	first, last := message(600), message(600)
	enter(t, c["a"], 20*ms-1, Waits, first, last)
	released(t, c["a"], 20*ms, first)
	released(t, c["a"], 70*ms-2)
	released(t, c["a"], 70*ms, last)
}

// TestTreeSharesOfAll gives a parent of 20 to two greedy children that are assured various
// rates. Each gets that, and of the rest what priority or weight gives it.
func TestTreeSharesOfAll(t *testing.T) {
	const span = 20
	share := func(unit string, a, b, priority, weight, tickets int) (got, want float64) {
		child := func(name string, rate int) policy.Class {
			return ceiling("20"+unit, under("root", named(name, leakyClass(strconv.Itoa(rate)+unit))))
		}
		classes := tree(named("root", leakyClass("20"+unit)), withWeight(weight, withPriority(priority, child("a", a))), child("b", b))
		s := &sim{root: classes["root"], now: start}
		s.load(classes["a"], -1, tickets)
		s.load(classes["b"], -1, tickets)
		s.run(span * second)
		if want = float64(20 - b); priority == policy.DefaultClass("").Priority {
			want = float64(a) + float64(20-a-b)*float64(weight)/float64(weight+1)
		}
		return float64(s.left[classes["a"]]) / span, want
	}
	rapid.Check(t, func(t *rapid.T) {
		unit := rapid.SampledFrom([]string{"B/s", " messages/s"}).Draw(t, "unit")
		a := rapid.IntRange(0, 19).Draw(t, "a")
		b := rapid.IntRange(0, 19-a).Draw(t, "b")
		got, want := share(unit, a, b, rapid.SampledFrom([]int{0, 4}).Draw(t, "priority"),
			rapid.IntRange(1, 4).Draw(t, "weight"), rapid.SampledFrom([]int{1, 20}).Draw(t, "tickets"))
		if got < want-0.15 || got > want+0.15 {
			t.Errorf("of 20%s, a gets %.2f, want %.2f", unit, got, want)
		}
	})
}

// TestTreeSharesBetweenDepartures lets assured rates become due between two departures of the
// parent, at two levels.
func TestTreeSharesBetweenDepartures(t *testing.T) {
	inner := func(parent, name, rate string) policy.Class {
		return ceiling("20 messages/s", under(parent, named(name, leakyClass(rate+" messages/s"))))
	}
	for _, tickets := range []int{1, 50} {
		classes := tree(named("root", leakyClass("20 messages/s")), inner("root", "front", "12"), inner("root", "back", "4"),
			inner("front", "vip", "6"), inner("front", "walk", "6"), inner("back", "guest", "4"))
		s := &sim{root: classes["root"], now: start}
		want := map[string]int{"vip": 70, "walk": 70, "guest": 60}
		for name := range want {
			s.load(classes[name], -1, tickets)
		}
		s.run(10 * second)
		for name, want := range want {
			if got := s.left[classes[name]]; got < want-1 || got > want+1 {
				t.Errorf("%d tickets: %s sent %d messages, want %d", tickets, name, got, want)
			}
		}
	}
}

// sim drives a tree in virtual time.
type sim struct {
	root    *Class
	now     time.Time
	left    map[*Class]int
	sent    map[*Class]int64 // in the unit of the root
	greedy  map[*Item]bool
	sources []*source
}

// source sends a message at regular intervals, the first one at next.
type source struct {
	class *Class
	next  time.Time
	every time.Duration
}

// load makes a class send so many messages/s, or as many as it can.
func (s *sim) load(c *Class, rate, tickets int) {
	switch {
	case rate > 0:
		s.sources = append(s.sources, &source{c, s.now, time.Second / time.Duration(rate)})
	case rate < 0:
		for range tickets {
			s.send(c, message(1))
		}
	}
}

// send makes a class send an item as often as it can.
func (s *sim) send(c *Class, it *Item) {
	if s.greedy == nil {
		s.greedy = map[*Item]bool{}
	}
	s.greedy[it] = true
	s.enter(c, it)
}

// count counts an item that has left a class.
func (s *sim) count(c *Class, it *Item) {
	if s.left == nil {
		s.left, s.sent = map[*Class]int{}, map[*Class]int64{}
	}
	s.left[c]++
	s.sent[c] += it.Cost.In(s.root.kind)
}

func (s *sim) enter(c *Class, it *Item) {
	for c.Enter(s.now, it) == Leaves {
		if s.count(c, it); !s.greedy[it] {
			return
		}
		it.Busy = true
	}
}

func (s *sim) run(d time.Duration) {
	end := s.now.Add(d)
	for {
		s.now = later(s.now, s.root.Next(s.now))
		for _, src := range s.sources {
			s.now = earlier(s.now, src.next)
		}
		if !s.now.Before(end) {
			s.now = end
			return
		}
		for _, src := range s.sources {
			if !src.next.After(s.now) {
				src.next = src.next.Add(src.every)
				s.enter(src.class, message(1))
			}
		}
		if it := s.root.Release(s.now); it != nil {
			c := it.class
			if s.count(c, it); s.greedy[it] {
				it.Busy = true
				s.enter(c, it)
			}
		}
	}
}

// TestTreeUrgentWaitsForOneItem holds that an urgent item within its assured rate waits
// for at most one of the bulk items, which use the whole rate.
func TestTreeUrgentWaitsForOneItem(t *testing.T) {
	c := tree(root30(), withPriority(0, child("otp", "10")), withPriority(7, child("bulk", "5")))
	for range 900 {
		c["bulk"].Enter(start, message(1))
	}
	for now, i := start, 0; i < 100; i++ {
		now = now.Add(137 * ms)
		for c["root"].Release(now) != nil {
		}
		urgent := message(1)
		enter(t, c["otp"], now.Sub(start), Waits, urgent)
		due := c["root"].Next(now)
		if wait := due.Sub(now); wait > 34*ms {
			t.Fatalf("item %d waits for %v", i, wait)
		}
		if now = due; c["root"].Release(now) != urgent {
			t.Fatalf("a bulk item leaves before item %d", i)
		}
	}
}

// TestTreeOwnQueue holds that the own queue of an inner class competes with its children,
// and is assured of nothing.
func TestTreeOwnQueue(t *testing.T) {
	c := tree(root30(), child("a", "10"))
	s := &sim{root: c["root"], now: start}
	s.load(c["a"], -1, 1)
	s.load(c["root"], -1, 1)
	s.run(10 * second)
	if a, own := s.left[c["a"]], s.left[c["root"]]; a < 199 || a > 201 || own < 99 || own > 101 {
		t.Errorf("the child sent %d and the class itself %d messages, want 200 and 100", a, own)
	}
}

// TestTreeNested holds that an assured grandchild gets its rate, whatever its cousins do.
func TestTreeNested(t *testing.T) {
	c := tree(root30(), child("a", "10"), child("b", "15"),
		ceiling("30 messages/s", under("a", named("a1", leakyClass("4 messages/s")))),
		ceiling("30 messages/s", under("a", named("a2", withPriority(0, leakyClass("2 messages/s"))))))
	s := &sim{root: c["root"], now: start}
	for _, name := range []string{"a1", "a2", "b"} {
		s.load(c[name], -1, 3)
	}
	s.run(10 * second)
	for name, want := range map[string]int{"a1": 40, "a2": 85, "b": 175} { // a gets 12.5/s: a1 the 4 that it is assured, a2 the rest
		if got := s.left[c[name]]; got < want-2 || got > want+2 {
			t.Errorf("%s sent %d messages, want %d", name, got, want)
		}
	}
}

// TestTreePasses holds that an item leaves at once only if nobody else could.
func TestTreePasses(t *testing.T) {
	c := tree(root30(), child("a", "10"), child("b", "5"))
	enter(t, c["a"], 0, Leaves, message(1))
	b := message(1)
	enter(t, c["b"], 0, Waits, b) // the root allows no other
	if c["a"].Pass(at(40*ms), Cost{Messages: 1}) {
		t.Error("a class overtakes its sibling, which may send")
	}
	enter(t, c["root"], 40*ms, Waits, message(1))
	if !c["a"].Pass(at(40*ms), Cost{Bytes: 1}) {
		t.Error("an item that nobody counts is held up")
	}
	released(t, c["a"], 40*ms, b)
	if c["b"].Pass(at(80*ms), Cost{Messages: 1}) {
		t.Error("a child overtakes what waits in its parent's own queue")
	}
}

// TestTreePassesWhatTheParentDoesNotCount holds that an item which a class does not count
// overtakes nobody who waits for a class below.
func TestTreePassesWhatTheParentDoesNotCount(t *testing.T) {
	c := tree(named("root", leakyClass("1 messages/s")), under("root", named("a", leakyClass("1MB/s"))),
		under("root", named("b", leakyClass("1MB/s"))))
	enter(t, c["a"], 0, Leaves, message(1))
	enter(t, c["a"], 0, Waits, message(1))
	enter(t, c["b"], second, Leaves, &Item{Cost: Cost{Bytes: 1}})
	enter(t, c["b"], second, Waits, message(1))
}

// TestTreeLeft holds that the gap of an inner class begins when the item has left. Until
// then nothing follows it out of that class.
func TestTreeLeft(t *testing.T) {
	c := tree(named("root", leakyClass("10 messages/s")),
		under("root", named("a", leakyClass("1MB/s"))), under("root", named("b", leakyClass("1MB/s"))))
	first, second := message(1), message(1)
	first.Settles, second.Settles = true, true
	enter(t, c["a"], 0, Leaves, first)
	enter(t, c["b"], 0, Waits, second, message(1))
	released(t, c["b"], 900*ms)
	enter(t, c["b"], 900*ms, Waits, &Item{Cost: Cost{Bytes: 1}}) // it waits behind the messages
	lastLeft(c["b"], at(910*ms))                                 // nothing of b is on its way out
	released(t, c["b"], 940*ms)
	first.Left(at(950 * ms))
	released(t, c["b"], 1050*ms-1)
	released(t, c["b"], 1050*ms, second)
}

// TestTreeLeftOfAPass lets an item leave that costs nothing in the parent's unit. The
// class still remembers the item that costs something.
func TestTreeLeftOfAPass(t *testing.T) {
	c := tree(named("root", leakyClass("10 packets/s")), under("root", named("a", leakyClass("1GB/s"))))
	if !c["a"].Pass(start, packet(100).Cost) {
		t.Fatal("Pass refuses an item although the tree is idle")
	}
	it := packet(1)
	enter(t, c["a"], second/2, Waits, it)
	c["a"].Cancel(at(second/2), it)
	enter(t, c["a"], second/2, Leaves, &Item{Cost: Cost{Bytes: 100}})
	lastLeft(c["a"], at(second/2))
	enter(t, c["a"], second/2, Waits, it)
	released(t, c["a"], 600*ms, it)
}

func TestTreePiece(t *testing.T) {
	c := tree(named("root", leakyClass("10MB/s")), ceiling("8MB/s", under("root", named("a", leakyClass("100KB/s")))),
		under("a", named("b", leakyClass("5 packets/s"))))
	if got := c["b"].Piece(); got != 5840 {
		t.Errorf("a piece is %d bytes, want 5840, as the slowest class above allows", got)
	}
	if got := c["root"].Piece(); got != leaky.Piece(rateOf("10MB/s")) {
		t.Errorf("a piece of the root is %d bytes", got)
	}
	if got := c["a"].Rate(); got != rateOf("8MB/s") {
		t.Errorf("the limit of a is %v, want its ceil", got)
	}
	setRate(c["root"], 0, "6MB/s")
	if got := c["b"].Piece(); got != 4380 {
		t.Errorf("with a slower root a piece is %d bytes, want 4380", got)
	}
}

// TestTreeMaxWait holds the estimate: what waits before in the class at its assured rate,
// all that waits in the parent, or its share of the parent, whichever is soonest.
func TestTreeMaxWait(t *testing.T) {
	otp, bulk := child("otp", "10"), child("bulk", "5")
	otp.MaxWait, bulk.MaxWait = unit.Duration(250*ms), unit.Duration(3*second)
	c := tree(root30(), otp, bulk)
	enter(t, c["bulk"], 0, Leaves, message(1))
	for i := range 20 {
		enter(t, c["bulk"], 0, Waits, message(1))
		if i < 3 { // 0, 100 and 200 ms
			enter(t, c["otp"], 0, Waits, message(1))
		}
	}
	enter(t, c["otp"], 0, Waits, message(1)) // it borrows, and leaves after 233 ms
	enter(t, c["otp"], 0, TooLong, message(1))
	if _, drain := c["bulk"].Estimate().Drain(start); drain.Round(ms) != 800*ms {
		t.Errorf("bulk drains in %v, want 800ms, when the last of all 24 that wait leaves", drain)
	}
	if _, drain := c["otp"].Estimate().Drain(start); drain.Round(ms) != 200*ms {
		t.Errorf("urgent drains in %v, want 200ms", drain)
	}
	setRate(c["root"], 0, "0 messages/s")
	enter(t, c["bulk"], 0, TooLong, message(1))
	if next := c["otp"].Next(at(time.Hour)); next != limit.Never {
		t.Errorf("under a root of rate 0 the next item leaves at %v", next)
	}
	released(t, c["otp"], time.Hour)
}

// TestTreeSetReachesWhatWaits changes each class of a path.
func TestTreeSetReachesWhatWaits(t *testing.T) {
	for _, name := range []string{"root", "a", "leaf"} {
		fast, slow := "1000 messages/s", "1 messages/min"
		rate := map[string]string{"root": fast, "a": fast, "leaf": fast, name: slow}
		c := tree(named("root", leakyClass(rate["root"])), under("root", named("a", leakyClass(rate["a"]))),
			under("a", named("leaf", leakyClass(rate["leaf"]))))
		it := message(1)
		enter(t, c["leaf"], 0, Leaves, message(1))
		enter(t, c["leaf"], 0, Waits, it, message(1))
		released(t, c["leaf"], second)
		setRate(c[name], second, "10 messages/s")
		released(t, c["leaf"], second, it)
		released(t, c["leaf"], 1100*ms-1)
		c["leaf"].Cancel(at(1100*ms), c["leaf"].front())
		if next := c["root"].Next(at(1100 * ms)); next != limit.Never {
			t.Errorf("nothing waits, but the next item leaves at %v", next)
		}
	}
}

// TestTreeSetPriority moves what waits into another ring.
func TestTreeSetPriority(t *testing.T) {
	c := tree(root30(), child("a", "0"), child("b", "0"))
	a, b := message(1), message(1)
	enter(t, c["root"], 0, Leaves, message(1))
	enter(t, c["a"], 0, Waits, a)
	enter(t, c["b"], 0, Waits, b)
	c["root"].Next(at(second)) // both items are ready
	c["b"].Set(at(second), withPriority(0, child("b", "0")))
	released(t, c["root"], second, b)
	released(t, c["root"], 2*second, a)
}

// TestTreeSmallerItemFirst holds that a smaller item may get its turn and leave while a
// class has too few tokens for the item whose turn it is.
func TestTreeSmallerItemFirst(t *testing.T) {
	c := tree(named("root", tokenClass("1KB/s", 1000)), under("root", named("b", leakyClass("1GB/s"))),
		withPriority(0, under("root", named("a", leakyClass("200B/s")))))
	small, large := packet(100), packet(1000)
	enter(t, c["a"], 0, Leaves, packet(100))
	enter(t, c["b"], 0, Leaves, packet(900))
	enter(t, c["b"], 0, Waits, large)
	enter(t, c["a"], 0, Waits, small)
	released(t, c["root"], 500*ms-1)
	if next := c["root"].Next(start); !next.Equal(at(500 * ms)) {
		t.Errorf("the next item may leave at %v", next.Sub(start))
	}
	released(t, c["root"], 500*ms, small)
	released(t, c["root"], 1100*ms, large)
}

// TestTreeLateness holds that late wake-ups cost nothing in the long run, whatever the
// algorithms on the path. If a slow child is all there is, its parent earns nothing.
func TestTreeLateness(t *testing.T) {
	for _, leaf := range []policy.Class{leakyClass("1GB/s"), tokenClass("20MB/s", 100_000), ceiling("1GB/s", leakyClass("1MB/s"))} {
		c := tree(named("root", leakyClass("10MB/s")), under("root", named("a", leaf)))
		it, now, sum := packet(5000), start, int64(0)
		it.Patient = true
		for now.Before(at(second)) {
			if c["a"].Enter(now, it) == Waits {
				now = c["a"].Next(now).Add(60 * time.Microsecond)
				c["a"].Release(now)
			}
			it.Busy = true
			sum += it.Cost.Bytes
		}
		if sum < 9_990_000 || sum > 10_010_000 {
			t.Errorf("%d bytes left in a second of 10 MB/s, through %s of %v", sum, leaf.Algorithm, leaf.Rate)
		}
	}
	c := tree(named("root", leakyClass("10MB/s")), under("root", named("a", leakyClass("1MB/s"))))
	a := packet(500)
	for now := start; now.Before(at(second)); now = later(now, c["a"].Next(now)) {
		if c["a"].Release(now); c["a"].queue.Len() == 0 {
			a.Busy = true
			c["a"].Enter(now, a)
		}
	}
	if behind := c["root"].limiter.Next(at(second), 0, 0); behind.After(at(second)) {
		t.Errorf("the root is busy until %v", behind)
	}
}

// TestTreeTimeStandsStill holds that an item which was seen to be ready at a time does not
// leave at an earlier one. limit.Never is not a time.
func TestTreeTimeStandsStill(t *testing.T) {
	c := tree(named("root", leakyClass("1GB/s")), under("root", named("a", leakyClass("1 packets/s"))))
	a, b := packet(1), packet(1)
	enter(t, c["a"], 0, Leaves, packet(1))
	enter(t, c["a"], 0, Waits, a, b)
	c["root"].Release(limit.Never)
	released(t, c["root"], second-1)
	c["root"].Next(at(second))
	released(t, c["root"], second/2, a)
	released(t, c["root"], 2*second-1)
	released(t, c["root"], 2*second, b)
}

// A class without a name is never a parent.
func TestTreeWithoutNames(t *testing.T) {
	classes := NewTree(start, []policy.Class{named("", leakyClass("1 packets/s")), named("", leakyClass("1 packets/s"))})
	for _, c := range classes {
		enter(t, c, 0, Leaves, packet(1))
		enter(t, c, 0, Waits, packet(1))
	}
}
