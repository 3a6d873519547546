package shaper

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"shaper/policy"
	"shaper/unit"
)

// foretell makes an item enter a class, and fails if the estimate of when it leaves is off by more than that.
func (s *sim) foretell(t *testing.T, name string, c *Class, it *Item, off time.Duration) {
	t.Helper()
	_, said := c.Estimate().Place(s.now, it.Cost)
	if left := s.wait(c, it); (said - left).Abs() > off {
		t.Errorf("%s: the estimate is %v, and it leaves after %v", name, said, left)
	}
}

// All that waits before an item in its queue passes each class above, whatever that counts.
func TestForecastBeneathASlowerClass(t *testing.T) {
	by := func(text string) policy.Class { return named("above", classBy(policy.FixedWindow, text)) }
	own := under("above", leakyClass("20 messages/s"))
	half := named("above", adapting(leakyClass("10 messages/s")))
	for name, c := range map[string]struct {
		above, own policy.Class
		waits      int
		off        time.Duration
	}{
		"a quota":            {by("20 messages/d"), own, 30, second},
		"a quota of bytes":   {by("2000 B/d"), own, 30, second},
		"half the rate":      {half, under("above", leakyClass("8 messages/s")), 80, second},
		"a borrower's quota": {by("20 messages/d"), ceiling("20 messages/s", under("above", leakyClass("10 messages/s"))), 30, second},
		"a wide class":       {by("1000 messages/d"), own, 30, ms},
	} {
		classes := tree(c.above, c.own)
		classes["above"].Provider().Throttled(start, ms, "429") // which only adapt remembers
		s := &sim{root: classes["above"], now: at(ms)}
		for range c.waits {
			classes["test"].Enter(s.now, &Item{Cost: Cost{Messages: 1, Bytes: 100}})
		}
		s.foretell(t, name, classes["test"], &Item{Cost: Cost{Messages: 1, Bytes: 100}}, c.off)
	}
}

// While its rate comes back, a class leaves sooner what waits for that rate, and nothing else: not what waits for a
// further limit, a hint, a schedule, or the end of its own window.
func TestForecastWhileSharesComeBack(t *testing.T) {
	adapts := func(conf policy.Class) policy.Class { return named("above", adapting(conf)) }
	calendar := func(text string) policy.Class {
		day := byDay(text, "UTC")
		conf := classBy(day.Algorithm, text)
		conf.Window, conf.Zone = day.Window, day.Zone
		return conf
	}
	hinted := adapts(leakyClass("10 messages/s"))
	hinted.Hints = true
	opening, closing := adapts(leakyClass("1 messages/s")), adapts(leakyClass("1 messages/s"))
	opening.Closed = policy.Span{From: start, Until: at(10 * time.Hour)}
	closing.Closed = policy.Span{From: at(2 * time.Minute), Until: at(10 * time.Hour)}
	later := adapts(leakyClass("1 messages/min"))
	later.Closed = policy.Span{From: at(time.Minute), Until: at(2 * time.Minute)}
	for name, c := range map[string]struct {
		above policy.Class
		hint  time.Duration // until then nothing remains, as the provider says
		had   int           // what has left before
		waits int
		off   time.Duration
	}{
		"its rate":                  {adapts(leakyClass("10 messages/s")), 0, 0, 2000, second},
		"a hint":                    {hinted, time.Hour, 1, 10, second},
		"a further limit":           {with(adapts(leakyClass("10 messages/s")), byDay("100 messages/day", "UTC")), 0, 100, 3, second},
		"its window":                {adapts(classBy(policy.FixedWindow, "100 messages/d")), 0, 100, 3, ms},
		"its log":                   {adapts(classBy(policy.SlidingLog, "100 messages/d")), 0, 100, 3, ms},
		"its sliding window":        {adapts(classBy(policy.SlidingWindow, "100 messages/d")), 0, 100, 0, ms},
		"its calendar":              {adapts(calendar("100 messages/day")), 0, 100, 3, ms},
		"room in its window":        {adapts(classBy(policy.FixedWindow, "1000 messages/d")), 0, 600, 0, ms},
		"room in its log":           {adapts(classBy(policy.SlidingLog, "1000 messages/d")), 0, 600, 50, ms},
		"room in its calendar":      {adapts(calendar("1000 messages/day")), 0, 600, 50, ms},
		"short windows":             {adapts(classBy(policy.FixedWindow, "16 messages/s")), 0, 0, 1200, second},
		"a schedule":                {opening, 0, 0, 3, ms},
		"a schedule that it enters": {closing, 0, 0, 500, 30 * second},
		"a short schedule":          {later, 0, 1, 1, 30 * second},
	} {
		classes := tree(c.above, under("above", withQueue(leakyClass("1000000 messages/s"), 5000, 0)))
		s := &sim{root: classes["above"], now: start}
		for range c.had {
			s.now = s.now.Add(s.wait(classes["test"], message(1)))
			if c.hint > 0 {
				classes["above"].Provider().Heard(s.now, s.now, Cost{Messages: 1}, []Hint{{unit.Messages, 7, 0, at(c.hint)}})
			}
		}
		s.now = s.now.Add(ms)
		classes["above"].Provider().Throttled(s.now, ms, "429")
		s.now = s.now.Add(ms)
		for range c.waits {
			classes["test"].Enter(s.now, message(1))
		}
		s.foretell(t, name, classes["test"], message(1), c.off)
	}
}

// A window holds whole units, and no more flows through it while its rate comes back. The estimate is off by less than two windows.
func TestForecastWhileSharesOfShortWindowsComeBack(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 3))
		window := []time.Duration{second, 2 * second, 3 * second, 7 * second}[r.IntN(4)]
		conf := adapting(classBy(algorithms[3+r.IntN(3)], "1 messages/s"))
		conf.Rate = unit.NewRate(unit.Messages, 1+r.Int64N(20), window)
		s := &sim{root: NewClass(start, withQueue(conf, 100000, 0)), now: start}
		for range 1 + r.IntN(3) {
			s.root.Provider().Throttled(s.now, ms, "429")
			s.now = s.now.Add(2 * ms)
		}
		for range r.Int64N(conf.Rate.Units(3 * time.Minute)) {
			s.root.Enter(s.now, message(1))
		}
		_, said := s.root.Estimate().Place(s.now, message(1).Cost)
		if left := s.wait(s.root, message(1)); (said - left).Abs() >= 2*window {
			t.Errorf("seed %d, %v of %v: the estimate is %v, and it leaves after %v", seed, conf.Algorithm, conf.Rate, said, left)
		}
	}
}

// On any path, whatever closes, pauses and gets its rate back, nearly no estimate of what leaves alone is far off. If limits hold
// items up in turn, it is early.
func TestForecastOfARandomPath(t *testing.T) {
	const paths = 2000
	early, late := 0, 0
	for seed := range uint64(paths) {
		r := rand.New(rand.NewPCG(seed, 7))
		s, path := randomPath(r)
		leaf := path[len(path)-1]
		upTo := func(most time.Duration) time.Duration { return time.Duration(r.Int64N(int64(most))) }
		for range r.IntN(30) {
			leaf.Enter(s.now, message(1))
		}
		s.run(upTo(20 * second))
		for _, c := range path {
			if r.IntN(3) == 0 {
				c.Provider().Throttled(s.now, 1+upTo(30*second), "429")
			}
		}
		s.run(upTo(20 * second))
		for range r.IntN(60) {
			leaf.Enter(s.now, message(1))
		}
		_, said := leaf.Estimate().Place(s.now, message(1).Cost)
		switch left := s.wait(leaf, message(1)); {
		case max(said, 0) < left*2/3-second:
			early++
		case said > left*11/10+second:
			late++
		}
	}
	if early > paths/500 || late > paths/500 {
		t.Errorf("of %d estimates, %d are too early by a third, and %d too late by a tenth", paths, early, late)
	}
}

// randomPath returns one to three classes, each beneath the one before, which may close in some minutes.
func randomPath(r *rand.Rand) (s *sim, path []*Class) {
	var confs []policy.Class
	for i := range 1 + r.IntN(3) {
		conf := named(strconv.Itoa(i), classBy(algorithms[r.IntN(len(algorithms))], "1 messages/s"))
		conf.Rate = unit.NewRate(unit.Messages, 1+r.Int64N(40), []time.Duration{second, 10 * second, time.Minute}[r.IntN(3)])
		if conf.Algorithm.HasBurst() {
			conf.Burst = policy.Burst{N: 1 + r.Int64N(10), Kind: unit.Messages}
		}
		conf.OnThrottle = policy.OnThrottle{Pause: unit.Duration(second), Max: unit.Duration(time.Hour)}
		conf.Adapt = r.IntN(2) == 0
		if r.IntN(4) == 0 {
			from := time.Duration(r.Int64N(int64(3*time.Minute))) * time.Duration(r.IntN(2))
			conf.Closed = policy.Span{From: at(from), Until: at(from + 1 + time.Duration(r.Int64N(int64(10*time.Minute))))}
		}
		if i > 0 {
			conf.Parent = confs[i-1].Name
		}
		confs = append(confs, conf)
	}
	path = NewTree(start, confs)
	return &sim{root: path[0], now: start}, path
}

func TestForecastWhileSharesComeBackAllocatesNothing(t *testing.T) {
	hinted := adapting(leakyClass("10 messages/s"))
	hinted.Hints = true
	for _, conf := range []policy.Class{adapting(leakyClass("10 messages/s")), adapting(classBy(policy.SlidingLog, "16 messages/h")), hinted} {
		c := NewClass(start, conf)
		c.Provider().Throttled(start, ms, "429")
		for range 10 {
			c.Enter(at(ms), message(1))
		}
		wantNoAllocs(t, string(conf.Algorithm), func() { c.Estimate().Place(at(ms), Cost{Messages: 1}) })
	}
}

// A class holds up no item that costs nothing in its unit, behind others as long as those wait.
func TestForecastOfWhatCostsNothing(t *testing.T) {
	tokens := func(n int32) *Item { return &Item{Cost: Cost{Messages: 1, Tokens: n}} }
	debt, closed, paused := named("above", tokenClass("1 tokens/s", 100)), named("above", leakyClass("100 tokens/s")), named("above", leakyClass("100 tokens/s"))
	closed.Closed = policy.Span{From: start, Until: at(50 * second)}
	paused.OnThrottle.Max = unit.Duration(time.Hour)
	for name, c := range map[string]struct {
		above policy.Class
		ahead []int32 // what those before it cost
		off   time.Duration
	}{
		"behind nothing":            {debt, []int32{0, 0, 0}, 0},
		"behind one that does":      {debt, []int32{0, 0, 1, 0}, second / 5},
		"behind one, while closed":  {closed, []int32{0, 0, 1, 0}, second / 5},
		"behind none, while closed": {closed, []int32{0, 0, 0}, 0},
		"behind one, in a pause":    {paused, []int32{0, 0, 1, 0}, second / 5},
		"behind none, in a pause":   {paused, []int32{0, 0, 0}, 0},
	} {
		classes := tree(c.above, under("above", leakyClass("10 messages/s")))
		s := &sim{root: classes["above"], now: start}
		if c.above.Algorithm == policy.Token {
			classes["above"].Enter(start, tokens(150))
		} else if c.above.Closed == (policy.Span{}) {
			classes["above"].Provider().Throttled(start, 50*second, "429")
		}
		for _, n := range c.ahead {
			classes["test"].Enter(start, tokens(n))
		}
		s.foretell(t, name, classes["test"], tokens(0), c.off)
	}
}

// What costs nothing in a class above waits nevertheless, while what has its turn before waits for that class.
func TestForecastOfWhatCostsNothingBesideWhatDoes(t *testing.T) {
	tokens := func(n int32) *Item { return &Item{Cost: Cost{Messages: 1, Tokens: n}} }
	above := func(conf policy.Class) policy.Class { return named("above", conf) }
	closed, paused := above(leakyClass("100 tokens/s")), above(leakyClass("100 tokens/s"))
	closed.Closed = policy.Span{From: start, Until: at(50 * second)}
	paused.OnThrottle.Max = unit.Duration(time.Hour)
	other := named("other", leakyClass("10 messages/s"))
	other.OnThrottle.Max = unit.Duration(time.Hour)
	borrows := func(conf policy.Class) policy.Class { return ceiling("10 messages/s", withRate("1 messages/h", conf)) }
	first, last := withPriority(other.Priority-1, leakyClass("10 messages/s")), withPriority(other.Priority+1, leakyClass("10 messages/s"))
	for name, c := range map[string]struct {
		above, own, other policy.Class
		cost              int32         // of what waits in the other class
		in                string        // if not there
		pauses            time.Duration // of the other class
		off               time.Duration
	}{
		"while closed, in turns":                    {closed, leakyClass("10 messages/s"), other, 20, "other", 0, second},
		"while closed, last":                        {closed, last, other, 20, "other", 0, second},
		"while closed, first":                       {closed, first, other, 20, "other", 0, 0},
		"while closed, beside nothing":              {closed, last, other, 0, "other", 0, 0},
		"in a pause, in turns":                      {paused, leakyClass("10 messages/s"), other, 20, "other", 0, second},
		"in a pause, last":                          {paused, last, other, 20, "other", 0, second},
		"in a pause, first":                         {paused, first, other, 20, "other", 0, 0},
		"in a pause, beside nothing":                {paused, last, other, 0, "other", 0, 0},
		"in a pause, first of borrowers":            {paused, borrows(first), borrows(other), 20, "other", 0, second},
		"in a pause, first, but borrows":            {paused, borrows(first), other, 20, "other", 0, second},
		"in a pause, last, but is assured":          {paused, last, ceiling("10 messages/s", withRate("0 messages/s", other)), 20, "other", 0, 0},
		"behind a full window":                      {above(classBy(policy.FixedWindow, "20 tokens/min")), leakyClass("10 messages/s"), other, 20, "other", 0, second},
		"in a pause, behind its queue":              {paused, borrows(last), other, 20, "above", 0, second},
		"in a pause, beside one that goes on later": {paused, last, other, 20, "other", time.Minute, 0},
	} {
		classes := tree(c.above, under("above", c.own), under("above", c.other))
		if c.above.OnThrottle.Max > 0 {
			classes["above"].Provider().Throttled(start, 50*second, "429")
		}
		if c.pauses > 0 {
			classes["other"].Provider().Throttled(start, c.pauses, "429")
		}
		for range 5 {
			classes[c.in].Enter(start, tokens(c.cost))
		}
		for range 4 {
			classes["test"].Enter(start, tokens(0))
		}
		s := &sim{root: classes["above"], now: start}
		s.foretell(t, name, classes["test"], tokens(0), c.off)
	}
}

// withRate returns a policy with another rate.
func withRate(text string, conf policy.Class) policy.Class {
	conf.Rate = rateOf(text)
	return conf
}

// A borrower that would leave before a class above closes, if nobody else sent, is not taken to wait until that opens.
func TestForecastOfABorrowerBeforeItCloses(t *testing.T) {
	account := named("account", leakyClass("1000 messages/s"))
	account.Closed = policy.Span{From: at(5 * time.Minute), Until: at(12 * time.Hour)}
	borrower := ceiling("10 messages/s", under("parent", named("urgent", leakyClass("1 messages/h"))))
	borrower.Priority = 0
	bulk := ceiling("10 messages/s", under("parent", named("bulk", withQueue(leakyClass("1 messages/h"), 5000, 0))))
	bulk.Priority = 1
	classes := tree(account, under("account", named("parent", leakyClass("10 messages/s"))), borrower, bulk)
	for range 4000 {
		classes["bulk"].Enter(start, message(1))
	}
	classes["urgent"].Enter(start, message(1))
	if _, wait := classes["urgent"].Estimate().Place(start, message(1).Cost); wait > 10*time.Minute {
		t.Errorf("the estimate is %v", wait)
	}
}

// What a queue still holds when a class above closes is what has not left since its own class went on.
func TestForecastOfAPauseBeforeItCloses(t *testing.T) {
	for _, c := range []struct {
		waits int
		until time.Duration
	}{{600, 7 * time.Minute}, {290, 6 * time.Minute}} {
		account := named("account", leakyClass("1000 messages/s"))
		account.Closed = policy.Span{From: at(5 * time.Minute), Until: at(c.until)}
		own := withQueue(leakyClass("1 messages/s"), 1000, 0)
		own.OnThrottle.Max = unit.Duration(time.Hour)
		classes := tree(account, under("account", own))
		s := &sim{root: classes["account"], now: start}
		classes["test"].Provider().Throttled(start, 4*time.Minute, "429")
		for range c.waits {
			classes["test"].Enter(start, message(1))
		}
		s.foretell(t, fmt.Sprint(c.waits), classes["test"], message(1), 2*second)
	}
}

// The turns of other buckets are certain: what waits for them when a class above closes waits until that opens.
func TestForecastOfBucketsBeforeItCloses(t *testing.T) {
	account := named("account", leakyClass("1000 messages/s"))
	account.Closed = policy.Span{From: at(5 * time.Minute), Until: at(12 * time.Hour)}
	keyed := perRecipient(2000, leakyClass("1 messages/s"))
	keyed.Name, keyed.Parent = "test", "parent"
	c := tree(account, under("account", named("parent", leakyClass("10 messages/s"))), keyed)["test"]
	for i := range 1000 {
		bucket := c.JoinKey(start, to(t, c, i))
		for range 10 {
			bucket.Enter(start, message(1))
		}
	}
	bucket := c.JoinKey(start, to(t, c, 0))
	if _, wait := bucket.Estimate().Place(start, message(1).Cost); wait < 12*time.Hour {
		t.Errorf("the last of 10,000 messages at 10/s is said to leave after %v, and the account closes from 5 min to 12 h", wait)
	}
}
