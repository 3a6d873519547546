package shaper

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"shaper/policy"
	"shaper/unit"
)

// A bucket takes turns with the other buckets of its class at the classes above: the estimate is what
// happens, within a fifth. What waits there for other classes comes after what the class is assured.
func TestForecastOfABucket(t *testing.T) {
	root := func(rate string) policy.Class { return named("root", leakyClass(rate)) }
	keys := func(conf policy.Class) policy.Class { return perSource(1000, under("root", named("keys", conf))) }
	bulk := withPriority(7, ceiling("10 messages/s", under("root", named("bulk", leakyClass("1 messages/s")))))
	each, urgent := leakyClass("5 messages/s"), withPriority(0, leakyClass("5 messages/s"))
	seldom := classBy(policy.GCRA, "1 messages/min")
	for _, c := range []struct {
		name        string
		root, keys  policy.Class
		others, had int           // other keys, and what each of them had
		own, bulk   int           // what waits before in the bucket, and in another class
		later       time.Duration // after the others
	}{
		{"the first of its key, behind 20", root("10 messages/s"), keys(each), 20, 10, 0, 0, 3 * second},
		{"the sixth of its key, behind 20", root("10 messages/s"), keys(each), 20, 10, 5, 0, 3 * second},
		{"the sixth, with bulk", root("10 messages/s"), keys(each), 20, 10, 5, 1000, 3 * second},
		{"the sixth, and the others have less", root("10 messages/s"), keys(each), 20, 3, 5, 0, second},
		{"the sixth of borrowers", root("10 messages/s"), keys(ceiling("5 messages/s", leakyClass("1 messages/s"))), 20, 10, 5, 0, 3 * second},
		{"urgent, with bulk", root("10 messages/s"), keys(urgent), 0, 0, 0, 1000, 3050 * ms},
		{"behind a greedy key", root("10 messages/s"), keys(leakyClass("1 messages/s")), 1, 5000, 0, 0, 3 * second},
		{"all of 600 may send", root("100 messages/s"), keys(seldom), 600, 5, 0, 0, 3 * second},
		{"none of 600 may send", root("100 messages/s"), keys(seldom), 600, 5, 0, 0, 50 * second},
		{"the first of its key, behind borrowers", root("100 messages/s"), keys(ceiling("50 messages/s", leakyClass("1 messages/min"))), 50, 50, 0, 0, 3 * second},
	} {
		classes := tree(c.root, c.keys, bulk)
		for range c.bulk {
			classes["bulk"].Enter(start, message(1))
		}
		for i := range c.others {
			bucket := classes["keys"].Join(start, client(i+1))
			for range c.had {
				bucket.Enter(start, message(1))
			}
		}
		s := &sim{root: classes["root"], now: start}
		s.run(c.later)
		bucket, it := classes["keys"].Join(s.now, client(0)), message(1)
		for range c.own {
			bucket.Enter(s.now, message(1))
		}
		_, got := bucket.Estimate().Place(s.now, it.Cost)
		want := s.wait(bucket, it)
		if slack := want/5 + 100*ms; got < want-slack || got > want+slack {
			t.Errorf("%s: the estimate is %v, and it leaves after %v", c.name, got, want)
		}
	}
}

// wait returns after how long an item leaves that enters a class now.
func (s *sim) wait(c *Class, it *Item) time.Duration {
	began := s.now
	if c.Enter(s.now, it) == Waits {
		for out := (*Item)(nil); out != it; out = s.root.Release(s.now) {
			s.now = later(s.now, s.root.Next(s.now))
		}
	}
	return s.now.Sub(began)
}

// load is what waits in some buckets: in each so many items of a cost.
type load struct {
	buckets, items int
	cost           int64
}

// put lets items enter buckets, those of the clients from a number on.
func (l load) put(now time.Time, keys *Class, from int) {
	for i := range l.buckets {
		bucket := keys.Join(now, client(from+i))
		for range l.items {
			bucket.Enter(now, &Item{Cost: Cost{Messages: l.cost}})
		}
	}
}

// What one sender has before an item is neither the size nor the number of the items of all others.
func TestForecastOfUnequalBuckets(t *testing.T) {
	for name, c := range map[string]struct {
		others []load
		own    int64 // what waits before in the bucket
	}{
		"large items of one sender":        {[]load{{1, 1000, 10}, {60, 1, 1}}, 0},
		"many small items beside large":    {[]load{{1, 1000, 10}, {60, 100, 1}}, 0},
		"one greedy sender":                {[]load{{1, 5000, 1}, {20, 1, 1}}, 50},
		"one greedy sender of large items": {[]load{{1, 500, 20}, {20, 2, 1}}, 30},
	} {
		classes := tree(named("root", leakyClass("100 messages/s")), under("root", perSource(1000, named("keys", leakyClass("10000 messages/s")))))
		s, keys := &sim{root: classes["root"], now: start}, classes["keys"]
		from := 1
		for _, l := range c.others {
			l.put(start, keys, from)
			from += l.buckets
		}
		s.run(150 * ms) // the large item that left is paid for
		bucket := keys.Join(s.now, client(0))
		for range c.own {
			bucket.Enter(s.now, message(1))
		}
		_, got := bucket.Estimate().Place(s.now, Cost{Messages: 1})
		want := s.wait(bucket, message(1))
		if slack := want/4 + 200*ms; got < want-slack || got > want+slack {
			t.Errorf("%s: the estimate is %v, and it leaves after %v", name, got, want)
		}
	}
}

// The estimate for a bucket whose limits hold nothing up is what happens, within a quarter, and within three of the
// largest items of each bucket that has as much. Mostly it is closer: of nine in ten within a quarter and half a second.
func TestForecastOfRandomBuckets(t *testing.T) {
	const trees = 150
	far := 0
	for seed := range uint64(trees) {
		r := rand.New(rand.NewPCG(seed, 1))
		s, keys := randomBuckets(r)
		s.run(time.Duration(r.Int64N(int64(3 * second))))
		bucket := keys.Join(s.now, client(r.IntN(5)))
		for range r.IntN(20) * r.IntN(2) {
			bucket.Enter(s.now, &Item{Cost: Cost{Messages: 1 + r.Int64N(largestItem)}})
		}
		it := &Item{Cost: Cost{Messages: 1 + r.Int64N(largestItem)}}
		slack := it.Cost.Messages + largestItem
		for other := range waitingBuckets(keys) {
			if other != bucket {
				slack += min(other.waitingCost.messages, 3*largestItem)
			}
		}
		_, got := bucket.Estimate().Place(s.now, it.Cost)
		want := s.wait(bucket, it)
		if most := time.Duration(slack) * 10 * ms; got < want-most || got > want*5/4+most {
			t.Errorf("seed %d: the estimate is %v, and it leaves after %v; it may be off by %v", seed, got, want, most)
		}
		if most := want/4 + 500*ms; got < want-most || got > want+most {
			far++
		}
		checkDepths(t, keys)
	}
	if far > trees/10 {
		t.Errorf("%d of %d estimates are off by more than a quarter and half a second", far, trees)
	}
}

// largestItem is the most that an item of randomBuckets costs.
const largestItem = 20

// randomBuckets returns a tree of which a class of 100 messages/s has up to 40 buckets, in which items of random costs wait.
func randomBuckets(r *rand.Rand) (s *sim, keys *Class) {
	above := classBy([]policy.Algorithm{policy.Leaky, policy.Token, policy.GCRA}[r.IntN(3)], "100 messages/s")
	confs := []policy.Class{named("root", above)}
	if r.IntN(2) == 0 {
		confs = append(confs, named("root", leakyClass("1000 messages/s")), under("root", named("account", above)))[1:]
	}
	parent := confs[len(confs)-1].Name
	classes := tree(append(confs, perSource(100, under(parent, named("keys", leakyClass("10000 messages/s")))),
		withPriority(7, ceiling("100 messages/s", under(parent, named("bulk", leakyClass("1 messages/s"))))))...)
	for range r.IntN(2) * 1000 {
		classes["bulk"].Enter(start, message(1))
	}
	for i := range r.IntN(40) {
		bucket, most := classes["keys"].Join(start, client(i+1)), 1+r.Int64N(largestItem)
		for range 1 + r.IntN(1+r.IntN(100)) {
			bucket.Enter(start, &Item{Cost: Cost{Messages: 1 + r.Int64N(most)}})
		}
	}
	return &sim{root: classes["root"], now: start}, classes["keys"]
}

// checkDepths compares what a class knows of all its buckets with what waits in each.
func checkDepths(t *testing.T, c *Class) {
	t.Helper()
	var want depths
	for bucket := range waitingBuckets(c) {
		want.count(max(bucket.waitingCost.in(c.kind), bucket.waiting), 1)
	}
	if got := *c.feed.depths; !slices.Equal(got[1:], want[1:]) {
		t.Fatalf("the depths are %v, want %v", got, want)
	}
}

// Groups that sleep take no turns before what may leave.
func TestForecastBesideSleepingGroups(t *testing.T) {
	const night = 30 * time.Hour
	c := tree(asAt(night, promotions(t, "queue = \"1000 messages\""))...)["promotions"]
	india, home := joins(night, c, "91"), joins(night, c, "44")
	for range 100 {
		enter(t, india, night, Waits, sms())
	}
	enter(t, home, night, Leaves, sms())
	for range 9 {
		enter(t, home, night, Waits, sms())
	}
	if _, wait := home.Estimate().Place(at(night), sms().Cost); wait != second {
		t.Errorf("the tenth waits for %v at night, want 1s", wait)
	}
}

// What waits in a bucket for quiet hours to end takes no turns before what may leave.
func TestForecastOfABucketWithQuietHours(t *testing.T) {
	confs := asAt(30*time.Hour, promotions(t, "per = \"source_addr\"\nparent = \"root\"\n[class.root]\nrate = \"10 messages/s\""))
	c := tree(confs...)["promotions"]
	other := c.JoinKey(at(30*time.Hour), c.Messages().Key(&policy.Conn{}, &policy.Message{SourceAddr: []byte("other"), Recipient: []byte("44")}))
	for range 200 {
		other.Enter(at(30*time.Hour), sms())
	}
	india, home := joins(30*time.Hour, c, "91"), joins(30*time.Hour, c, "44")
	for range 100 {
		enter(t, india, 30*time.Hour, Waits, sms())
	}
	if _, wait := home.Estimate().Place(at(30*time.Hour), sms().Cost); wait > second {
		t.Errorf("one of a bucket whose others wait for the morning waits for %v", wait)
	}
}

// Others leave before an item at what they cost, whatever the item itself costs.
func TestForecastOfABucketWithOtherCosts(t *testing.T) {
	for _, c := range []struct{ own, others int64 }{{1, 20}, {20, 1}, {20, 20}} {
		classes := tree(named("root", leakyClass("100 messages/s")), perSource(100, under("root", classBy(policy.GCRA, "1 messages/min"))))
		for i := range 10 {
			bucket := classes["test"].Join(start, client(i+1))
			for range 3 {
				bucket.Enter(start, &Item{Cost: Cost{Messages: c.others}})
			}
		}
		s := &sim{root: classes["root"], now: start}
		s.run(0)
		want := time.Duration(10*c.others-1) * 10 * ms // the first of each
		_, got := classes["test"].Join(start, client(0)).Estimate().Place(start, Cost{Messages: c.own})
		if slack := 10 * ms * time.Duration(c.others); got < want-slack || got > want+slack {
			t.Errorf("an item of %d behind items of %d waits for %v, want %v", c.own, c.others, got, want)
		}
	}
}

// Buckets in which all waits for the quiet hours of its recipients to end take no turns before.
func TestForecastBesideSleepingBuckets(t *testing.T) {
	const night = 30 * time.Hour
	confs := asAt(night, promotions(t, "per = \"source_addr\"\nparent = \"root\"\nqueue = \"1000 messages\"\n[class.root]\nrate = \"10 messages/s\""))
	c := tree(confs...)["promotions"]
	for i := range 50 {
		m := &policy.Message{SourceAddr: []byte{byte(i)}, Recipient: []byte("91")}
		sleeps := c.JoinKey(at(night), c.Messages().Key(&policy.Conn{}, m))
		for range 10 {
			enter(t, sleeps, night, Waits, sms())
		}
	}
	home := joins(night, c, "44")
	enter(t, home, night, Leaves, sms())
	for range 3 {
		enter(t, home, night, Waits, sms())
	}
	if _, wait := home.Estimate().Place(at(night), sms().Cost); wait != 400*ms {
		t.Errorf("the fourth waits for %v at night, want 400ms", wait)
	}
}

// A queue has drained when its last item leaves, whatever the class allows after that.
func TestDrainEndsWithTheLastItem(t *testing.T) {
	gap := leakyClass("1 messages/min")
	gap.Closed = policy.Span{From: at(5*time.Minute + 30*second), Until: at(time.Hour)}
	bytes := leakyClass("1000 B/s")
	keyed := tree(named("root", leakyClass("1 messages/s")), perSource(10, under("root", leakyClass("10 messages/s"))))
	for name, c := range map[string]struct {
		class *Class
		items []*Item
		want  time.Duration
	}{
		"before a closed time":  {NewClass(start, gap), []*Item{message(1), message(1), message(1), message(1), message(1)}, 5 * time.Minute},
		"behind a closed time":  {NewClass(start, gap), []*Item{message(1), message(1), message(1), message(1), message(1), message(1)}, time.Hour},
		"after a large item":    {NewClass(start, bytes), []*Item{message(1000), message(5000), message(10)}, 7 * second},
		"before a large item":   {NewClass(start, bytes), []*Item{message(1000), message(10), message(5000)}, 2010 * ms},
		"a bucket in its turns": {keyed["test"].Join(start, client(1)), []*Item{message(1), message(1), message(1)}, 3 * second},
	} {
		root := c.class.root().class
		enter(t, c.class, 0, Leaves, message(1000))
		enter(t, c.class, 0, Waits, c.items...)
		if _, drain := c.class.Estimate().Drain(start); drain != c.want {
			t.Errorf("%s: the class drains in %v, want %v", name, drain, c.want)
		}
		s := &sim{root: root, now: start}
		s.run(c.want)
		if waits := c.class.Backlog().Items; waits != 1 {
			t.Errorf("%s: %d wait before %v", name, waits, c.want)
		}
		if root.Release(at(c.want)) != c.items[len(c.items)-1] {
			t.Errorf("%s: the last does not leave at %v", name, c.want)
		}
	}
}

// Siblings of a class with buckets that have a better priority, or turns with it, leave it what they are not assured.
func TestForecastOfABucketBesideSiblings(t *testing.T) {
	sibling := func(priority int, rate string) policy.Class {
		return withPriority(priority, ceiling("10 messages/s", under("root", named("sibling", withQueue(leakyClass(rate), 2000, 0)))))
	}
	keys := named("keys", leakyClass("5 messages/s"))
	bursty := withPriority(0, under("root", named("sibling", withQueue(classBy(policy.GCRA, "9 messages/s"), 2000, 0))))
	bursty.Burst = policy.Burst{N: 5, Kind: unit.Messages}
	pausing := sibling(0, "9 messages/s")
	pausing.OnThrottle.Max = unit.Duration(time.Hour)
	for name, c := range map[string]struct {
		sibling policy.Class
		waits   int // in each of its buckets, if it has some
		buckets int
		pauses  bool
	}{
		"that has little":            {sibling(0, "1 messages/s"), 900, 1, false},
		"that has most":              {sibling(0, "9 messages/s"), 900, 1, false},
		"that has more than all":     {sibling(0, "20 messages/s"), 900, 1, false},
		"that has most, for a while": {sibling(0, "9 messages/s"), 50, 1, false},
		"that pauses":                {pausing, 900, 1, true},
		"of the same priority":       {sibling(keys.Priority, "9 messages/s"), 900, 1, false},
		"of the same and little":     {sibling(keys.Priority, "1 messages/s"), 900, 1, false},
		"of more weight":             {withWeight(3, sibling(keys.Priority, "9 messages/s")), 900, 1, false},
		"of a worse priority":        {sibling(keys.Priority+1, "9 messages/s"), 900, 1, false},
		"that borrows":               {sibling(0, "1 messages/h"), 900, 1, false},
		"with a gap":                 {withPriority(0, under("root", named("sibling", withQueue(leakyClass("9 messages/s"), 2000, 0)))), 900, 1, false},
		"with a burst":               {bursty, 900, 1, false},
		"with a bucket":              {withPriority(0, perSource(10, under("root", named("sibling", leakyClass("8 messages/s"))))), 900, 1, false},
		"with three buckets":         {withPriority(0, perSource(10, under("root", named("sibling", ceiling("10 messages/s", leakyClass("3 messages/s")))))), 300, 3, false},
	} {
		classes := tree(named("root", leakyClass("100 tokens/s")), perSource(1000, under("root", keys)), c.sibling)
		if c.pauses {
			classes["sibling"].Provider().Throttled(start, time.Hour, "429")
		}
		ten := func() *Item { return &Item{Cost: Cost{Messages: 1, Tokens: 10}} }
		put := func(now time.Time, c *Class, buckets, items int) {
			for i := range buckets {
				bucket := c.Join(now, client(i))
				for range items {
					bucket.Enter(now, ten())
				}
			}
		}
		put(start, classes["sibling"], c.buckets, c.waits)
		put(start, classes["keys"], 11, 10)
		s := &sim{root: classes["root"], now: start}
		s.run(second)
		bucket := classes["keys"].Join(s.now, client(0))
		_, said := bucket.Estimate().Place(s.now, ten().Cost)
		if left := s.wait(bucket, ten()); (said - left).Abs() > left/8+second/2 {
			t.Errorf("beside one %s: the estimate is %v, and it leaves after %v", name, said, left)
		}
	}
}

// What may leave at once does not wait, also if its limit has let it leave long ago.
func TestPlaceOfWhatLeavesAtOnce(t *testing.T) {
	c := NewClass(start, leakyClass("1 messages/s"))
	enter(t, c, 0, Leaves, message(1))
	if position, wait := c.Estimate().Place(at(10*second), message(1).Cost); position != 1 || wait != 0 {
		t.Errorf("the place is %d, and the wait %v, want 1 and none", position, wait)
	}
}
