package shaper

import (
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"shaper/policy"
	"shaper/tests/trial"
	"shaper/unit"
)

// greedyTree returns a tree of three levels in which nearly all have more than they are assured, and its classes beneath the root. Some
// of them have children and a queue of their own.
func greedyTree(r *rand.Rand) (s *sim, all []*Class) {
	var confs []policy.Class
	add := func(name, parent string, rate, above int64) (ceil int64) {
		conf := named(name, classBy(algorithms[r.IntN(3)], "1 messages/s"))
		conf.Rate = unit.NewRate(unit.Messages, rate*60, time.Minute)
		if conf.Algorithm.HasBurst() {
			conf.Burst = policy.Burst{N: 1 + r.Int64N(5), Kind: unit.Messages}
		}
		ceil = rate
		if conf.Parent = parent; parent != "" {
			conf.Priority, conf.Weight = 3+r.IntN(3), 1+r.IntN(3)
			if r.IntN(4) > 0 && rate < above {
				ceil = []int64{above, rate + 1 + r.Int64N(above-rate)}[r.IntN(2)]
				conf.Ceil = unit.NewRate(unit.Messages, ceil*60, time.Minute)
			}
		}
		confs = append(confs, withQueue(conf, 10000, 0))
		return ceil
	}
	rate := 20 + r.Int64N(100)
	add("root", "", rate, rate)
	for i, mids := 0, 2+r.IntN(4); i < mids; i++ {
		mid, own := "mid"+strconv.Itoa(i), 1+r.Int64N(rate/int64(mids))
		ceil := add(mid, "root", own, rate)
		for j, n := 0, r.IntN(4); j < n; j++ {
			add(mid+"-"+strconv.Itoa(j), mid, 1+r.Int64N(max(own/int64(n), 1)), ceil)
		}
	}
	all = NewTree(start, confs)
	s, all = &sim{root: all[0], now: start}, all[1:]
	for _, c := range all {
		if c.feed == nil || r.IntN(4) == 0 {
			for range []int{0, 1, 5, 30, 300, 2000}[r.IntN(6)] {
				c.Enter(s.now, message(1))
			}
		}
	}
	s.run(time.Duration(r.Int64N(int64(5 * second))))
	return s, all
}

// anyOf returns one of the classes that may borrow or have children, after some messages have entered it.
func anyOf(r *rand.Rand, s *sim, all []*Class) *Class {
	for {
		if c := all[r.IntN(len(all))]; c.pace.borrows || c.feed != nil {
			for range r.IntN(50) {
				c.Enter(s.now, message(1))
			}
			return c
		}
	}
}

// Of those that borrow, and of queues beside children, nearly all estimates are what happens, whatever others have and may.
func TestForecastOfAGreedyTree(t *testing.T) {
	trees := trial.Size[uint64](100, 600)
	var early, late uint64
	for seed := range trees {
		r := rand.New(rand.NewPCG(seed, 21))
		s, all := greedyTree(r)
		c := anyOf(r, s, all)
		began := s.now
		_, said := c.Estimate().Place(s.now, message(1).Cost)
		left := s.wait(c, message(1))
		if drained := s.drain().Sub(began); said > max(drained, left)+ms {
			t.Errorf("seed %d: the estimate is %v, and all has left after %v", seed, said, drained)
		}
		switch {
		case said < left*2/3-second/2:
			early++
		case said > left*4/3+second/2:
			late++
		}
	}
	t.Logf("of %d estimates, %d are too early by a third, and %d too late", trees, early, late)
	if early > trees*2/100 || late > trees*4/100 {
		t.Errorf("of %d estimates, %d are too early by a third, and %d too late", trees, early, late)
	}
}

// max_wait refuses nearly nothing that would leave in time, and accepts nearly nothing that leaves late.
func TestMaxWaitInAGreedyTree(t *testing.T) {
	trees := trial.Size[uint64](100, 600)
	var early, late uint64
	for seed := range trees {
		r := rand.New(rand.NewPCG(seed, 22))
		s, all := greedyTree(r)
		c := anyOf(r, s, all)
		most := second + time.Duration(r.Int64N(int64(30*second)))
		c.conf.MaxWait = unit.Duration(most)
		it := message(1)
		verdict := refusal(s.now, c, it)
		c.conf.MaxWait = 0
		switch left := s.wait(c, it); {
		case verdict == Waits && left > most*4/3+second/2:
			early++
		case verdict == TooLong && left < most*2/3:
			late++
		}
	}
	t.Logf("of %d items, %d were accepted that left too late by a third, and %d refused", trees, early, late)
	if early > trees/100 || late > trees/100 {
		t.Errorf("of %d items, %d were accepted that left too late by a third, and %d refused", trees, early, late)
	}
}

// What an item of a class that borrows waits for depends on who else borrows.
func TestForecastOfABorrower(t *testing.T) {
	sibling := func(name string, priority int) policy.Class {
		return withPriority(priority, ceiling("10 messages/s", under("root", named(name, withQueue(classBy(policy.GCRA, "1 messages/s"), 5000, 0)))))
	}
	quiet := asAt(12*time.Hour, promotions(t, "queue = \"1000 messages\""))[0]
	quiet.Parent = "root"
	for name, c := range map[string]struct {
		confs []policy.Class
		waits map[string]int // by class
		into  string         // the class that the item enters; "44" and "91" are recipients in "promotions"
		want  time.Duration
	}{
		"alone":                   {[]policy.Class{sibling("it", 4), sibling("other", 4)}, map[string]int{"it": 20}, "it", 2 * second},
		"beside its equal":        {[]policy.Class{sibling("it", 4), sibling("other", 4)}, map[string]int{"it": 20, "other": 1000}, "it", 4 * second},
		"beside a little":         {[]policy.Class{sibling("it", 4), sibling("other", 4)}, map[string]int{"it": 20, "other": 10}, "it", 3 * second},
		"of less weight":          {[]policy.Class{sibling("it", 4), withWeight(3, sibling("other", 4))}, map[string]int{"it": 20, "other": 1000}, "it", 20 * second / 3},
		"before its sibling":      {[]policy.Class{sibling("it", 3), sibling("other", 4)}, map[string]int{"it": 20, "other": 1000}, "it", 2222 * ms},
		"behind its sibling":      {[]policy.Class{sibling("it", 5), sibling("other", 4)}, map[string]int{"it": 20, "other": 100}, "it", 12 * second},
		"a queue beside children": {[]policy.Class{sibling("other", 4)}, map[string]int{"root": 20, "other": 1000}, "root", 2 * 20 * second / 9},
		"a group beside children": {[]policy.Class{quiet, under("promotions", sibling("other", 4))}, map[string]int{"91": 20, "other": 1000}, "91", 2 * 20 * second / 9},
		"beside a group":          {[]policy.Class{quiet, under("promotions", sibling("other", 4))}, map[string]int{"91": 20, "44": 20, "other": 1000}, "44", 3 * 20 * second / 9},
		"a bucket":                {[]policy.Class{perSource(10, sibling("keys", 4)), sibling("other", 4)}, map[string]int{"keys": 20, "other": 1000}, "keys", 4 * second},
	} {
		classes := tree(append([]policy.Class{named("root", withQueue(classBy(policy.GCRA, "10 messages/s"), 1000, 0))}, c.confs...)...)
		now := 12 * time.Hour
		if classes["promotions"] != nil {
			classes["44"], classes["91"] = joins(now, classes["promotions"], "44"), joins(now, classes["promotions"], "91")
		}
		if keys := classes["keys"]; keys != nil {
			classes["keys"] = keys.Join(at(now), client(1))
		}
		for name, n := range c.waits {
			for range n {
				classes[name].Enter(at(now), sms())
			}
		}
		s := &sim{root: classes["root"], now: at(now)}
		cost := sms().Cost
		_, said := classes[c.into].Estimate().Place(s.now, cost)
		wantNoAllocs(t, name, func() { classes[c.into].Estimate().Place(s.now, cost) })
		if left := s.wait(classes[c.into], sms()); (said-c.want).Abs() > c.want/8 || (left-c.want).Abs() > c.want/8 {
			t.Errorf("%s: the estimate is %v, and it leaves after %v, want %v", name, said, left, c.want)
		}
	}
}

// If more classes have something to send than a race looks at, all of it counts.
func TestForecastOfABorrowerInACrowd(t *testing.T) {
	confs := []policy.Class{root30()}
	for i := range mostRunners + 2 {
		confs = append(confs, child(strconv.Itoa(i), "0"))
	}
	all := NewTree(start, confs)
	for _, c := range all[1:] {
		for range 5 {
			c.Enter(start, message(1))
		}
	}
	s := &sim{root: all[0], now: start}
	_, said := all[1].Estimate().Place(s.now, message(1).Cost)
	if left := s.wait(all[1], message(1)); said < left {
		t.Errorf("the estimate is %v, and it leaves after %v", said, left)
	}
}

// fill makes four messages wait in each of so many buckets.
func fill(c *Class, buckets int) {
	for i := range buckets {
		b := c.Join(start, client(i+1))
		for range 4 {
			b.Enter(start, message(1))
		}
	}
}

// An estimate beside a sibling that lets much leave before what borrows is not too early: beside what many buckets or a limit let leave at
// once, in the unit of the class for which they compete, and beside a class in the shadow, whose limits hold nothing up.
func TestForecastBesideMuchAtOnce(t *testing.T) {
	buckets := perSource(1000, named("other", withQueue(classBy(policy.GCRA, "1 messages/h"), 5000, 0)))
	buckets.Burst = policy.Burst{N: 4, Kind: unit.Messages}
	for name, c := range map[string]struct {
		root     string
		size     int64 // of what waits in the sibling
		sibling  policy.Class
		priority int // of the sibling; that of the other is 4
	}{
		"better buckets":            {"10 messages/s", 1, buckets, 3},
		"buckets":                   {"10 messages/s", 1, buckets, 4},
		"a window of messages":      {"10 KB/s", 10_000, classBy(policy.FixedWindow, "100 messages/h"), 3},
		"a token bucket of 100":     {"10 KB/s", 10_000, tokenClass("1 messages/min", 100), 3},
		"a class in the shadow":     {"10 messages/s", 1, inShadow(classBy(policy.GCRA, "1 messages/min")), 3},
		"the burst of a bucket":     {"10 messages/s", 1, tokenClass("1 messages/min", 500), 4},
		"a window that is not used": {"10 messages/s", 1, classBy(policy.FixedWindow, "500 messages/h"), 4},
	} {
		root := classBy(policy.GCRA, c.root)
		it := classBy(policy.GCRA, "1 messages/h")
		if root.Rate.Kind() == unit.Bytes {
			it = classBy(policy.GCRA, "10 B/s")
		}
		it.Ceil = root.Rate
		classes := tree(named("root", root), withPriority(c.priority, under("root", named("other", withQueue(c.sibling, 5000, 0)))),
			withPriority(4, under("root", named("it", withQueue(it, 5000, 0)))))
		if other := classes["other"]; other.keys != nil {
			fill(other, 500)
		} else {
			for range 1000 {
				other.Enter(start, message(c.size))
			}
		}
		size := min(c.size, 1000)
		for range 20 {
			classes["it"].Enter(start, message(size))
		}
		s := &sim{root: classes["root"], now: start}
		_, said := classes["it"].Estimate().Place(s.now, message(size).Cost)
		if left := s.wait(classes["it"], message(size)); said < left*2/3 {
			t.Errorf("beside %s: the estimate is %v, and it leaves after %v", name, said, left)
		}
	}
}

// An item that has no bucket yet waits for all buckets.
func TestForecastOfANewBucket(t *testing.T) {
	classes := tree(named("root", withQueue(classBy(policy.GCRA, "10 messages/s"), 1000, 0)),
		perSource(1000, under("root", named("keys", ceiling("10 messages/s", withQueue(classBy(policy.GCRA, "1 messages/h"), 5000, 0))))))
	fill(classes["keys"], 100)
	_, said := classes["keys"].Estimate().Place(start, message(1).Cost)
	_, fresh := classes["keys"].Join(start, client(1000)).Estimate().Place(start, message(1).Cost)
	if said < fresh*2/3 {
		t.Errorf("the estimate of the class is %v, of a new bucket %v", said, fresh)
	}
}

// Buckets that borrow drain at what the rule leaves to their class, and not before its pause has ended.
func TestDrainOfBucketsThatBorrow(t *testing.T) {
	for _, pause := range []time.Duration{0, 30 * second} {
		conf := ceiling("10 messages/s", under("root", named("keys", withQueue(classBy(policy.GCRA, "1 messages/min"), 5000, 0))))
		other := under("root", named("other", withQueue(conf, 5000, 0)))
		classes := tree(named("root", withQueue(classBy(policy.GCRA, "10 messages/s"), 1000, 0)), perSource(1000, conf), other)
		fill(classes["keys"], 20)
		for range 1000 {
			classes["other"].Enter(start, message(1))
		}
		if pause > 0 {
			classes["root"].Provider().Throttled(start, pause, "429")
		}
		cost, drain := classes["keys"].Estimate().Drain(start)
		s := &sim{root: classes["root"], now: start}
		for classes["keys"].Backlog().Items > 0 {
			s.now = later(s.now, s.root.Next(s.now))
			s.root.Release(s.now)
		}
		if left := s.now.Sub(start); cost != 79 || (drain-left).Abs() > (left-pause)/4 {
			t.Errorf("a pause of %v: it drains %d in %v, want 79 in %v", pause, cost, drain, left)
		}
	}
}

// A race says when the item leaves, to an eighth.
func TestRaceBetween(t *testing.T) {
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 23))
		s, all := greedyTree(r)
		f, cost := forecastAt(s.now, anyOf(r, s, all)), message(1).Cost
		race := race{begins: s.now, first: f.competitor(), units: f.ahead()}
		race.look(f.allWaiting)
		first := s.now
		for by := s.now; race.leaves(by, &cost).After(by); by = by.Add(max(by.Sub(s.now)/100, ms)) {
			first = by
		}
		latest := s.now.Add(time.Duration(1+r.IntN(1000)) * time.Hour)
		if got, want := race.between(s.now, latest, &cost).Sub(s.now), first.Sub(s.now); got < want*7/8-ms || got > want*9/8+2*ms {
			t.Errorf("seed %d: a race says %v, want %v to an eighth", seed, got, want)
		}
	}
}

// What waits before an item in its queue may be larger than what else waits in the classes on its path. The estimate knows its size in the
// unit of each class, or counts all that waits in the class if children compete with the queue.
func TestForecastOfLargeItemsBesideSmall(t *testing.T) {
	borrows := func(name, parent, rate string) policy.Class {
		return ceiling(rate, under(parent, named(name, withQueue(classBy(policy.GCRA, "1 "+strings.SplitN(rate, " ", 2)[1]), 5000, 0))))
	}
	for _, into := range []string{"it", "mid"} {
		c := tree(named("root", withQueue(classBy(policy.GCRA, "100 KB/s"), 1000, 0)), borrows("mid", "root", "10000 messages/s"),
			borrows("it", "mid", "10000 messages/s"), borrows("small", "mid", "10000 messages/s"), borrows("other", "root", "100 KB/s"))
		for range 2000 {
			c["small"].Enter(start, message(10))
			c["other"].Enter(start, message(1000))
		}
		for range 50 {
			c[into].Enter(start, message(10_000))
		}
		s := &sim{root: c["root"], now: start}
		_, said := c[into].Estimate().Place(s.now, message(10_000).Cost)
		if left := s.wait(c[into], message(10_000)); said < left*3/4 || said > left*4/3 {
			t.Errorf("%s: the estimate is %v, and it leaves after %v", into, said, left)
		}
	}
}
