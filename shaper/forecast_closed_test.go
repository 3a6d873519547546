package shaper

import (
	"fmt"
	"testing"
	"time"

	"shaper/policy"
	"shaper/unit"
)

// While a class is closed, those beside it go on, so that what waits there is not ahead when it opens; what opens at the
// same time is.
func TestForecastWhileClosed(t *testing.T) {
	until := func(d time.Duration, conf policy.Class) policy.Class {
		conf.Closed = policy.Span{From: start, Until: at(d)}
		return conf
	}
	child := func(name, parent, ceil string) policy.Class {
		return ceiling(ceil, under(parent, named(name, leakyClass("1 messages/h"))))
	}
	root := named("root", leakyClass("1 messages/s"))
	for name, c := range map[string]struct {
		confs []policy.Class
		waits map[string]int
	}{
		"beside an open class": {[]policy.Class{root, until(time.Hour, child("it", "root", "1000 messages/s")), child("open", "root", "1 messages/s")},
			map[string]int{"it": 10, "open": 1000}},
		"beside a closed class": {[]policy.Class{root, until(time.Hour, child("it", "root", "1000 messages/s")), until(time.Hour, child("closed", "root", "1000 messages/s"))},
			map[string]int{"it": 10, "closed": 1000}},
		"beside both": {[]policy.Class{root, until(time.Hour, child("it", "root", "1000 messages/s")), until(time.Hour, child("closed", "root", "1000 messages/s")), child("open", "root", "1 messages/s")},
			map[string]int{"it": 10, "closed": 100, "open": 1000}},
		"beside a longer queue than fits": {[]policy.Class{root, until(time.Hour, child("it", "root", "1000 messages/s")), child("open", "root", "1 messages/s")},
			map[string]int{"it": 10, "open": 5000}},
		"beneath a closed class": {[]policy.Class{root, until(time.Hour, child("mid", "root", "1000 messages/s")), child("it", "mid", "1000 messages/s"), child("other", "mid", "1000 messages/s"), child("open", "root", "1 messages/s")},
			map[string]int{"it": 10, "other": 100, "open": 1000}},
		"closed beneath one closed for longer": {[]policy.Class{root, until(2*time.Hour, child("mid", "root", "1000 messages/s")), until(time.Hour, child("it", "mid", "1000 messages/s")), child("open", "root", "1 messages/s")},
			map[string]int{"it": 10, "open": 1000}},
		"beside one closed for longer": {[]policy.Class{root, until(time.Hour, child("it", "root", "1000 messages/s")), until(2*time.Hour, child("longer", "root", "1000 messages/s"))},
			map[string]int{"it": 10, "longer": 900}},
		"its own rate is the lower one": {[]policy.Class{root, until(time.Hour, child("mid", "root", "1 messages/s")), child("it", "mid", "1 messages/min"), child("open", "root", "1 messages/s")},
			map[string]int{"it": 10, "open": 1000}},
	} {
		classes := tree(c.confs...)
		for class, n := range c.waits {
			for range n {
				classes[class].Enter(start, message(1))
			}
		}
		s := &sim{root: classes["root"], now: start}
		_, got := classes["it"].Estimate().Place(start, message(1).Cost)
		want := s.wait(classes["it"], message(1))
		// All that competes counts as ahead, so the estimate may be late by what has come beside it.
		if got < want-2*second || got > want+time.Duration(c.waits["closed"]+c.waits["other"])*second+2*second {
			t.Errorf("%s: the estimate is %v, and it leaves after %v", name, got, want)
		}
	}
}

// What would still wait when a class above closes waits until it opens.
func TestForecastBeneathAClassThatCloses(t *testing.T) {
	closes := func(from, until time.Duration, conf policy.Class) policy.Class {
		conf.Closed = policy.Span{From: at(from), Until: at(until)}
		return conf
	}
	account := closes(5*time.Minute, 12*time.Hour, named("account", leakyClass("1000 messages/s")))
	own := under("account", leakyClass("1 messages/s"))
	for name, c := range map[string]struct {
		confs []policy.Class
		waits int
	}{
		"before it closes":       {[]policy.Class{account, own}, 299},
		"when it has closed":     {[]policy.Class{account, own}, 600},
		"above that":             {[]policy.Class{account, under("account", named("mid", leakyClass("100 messages/s"))), under("mid", leakyClass("1 messages/s"))}, 600},
		"opens before the last":  {[]policy.Class{closes(5*time.Minute, 7*time.Minute, account), own}, 600},
		"and another one":        {[]policy.Class{account, closes(11*time.Hour, 13*time.Hour, own)}, 600},
		"and another one before": {[]policy.Class{closes(11*time.Hour, 13*time.Hour, account), closes(5*time.Minute, 12*time.Hour, own)}, 600},
	} {
		classes := tree(c.confs...)
		s := &sim{root: classes["account"], now: start}
		s.wait(classes["test"], message(1))
		for range c.waits - 1 {
			classes["test"].Enter(start, message(1))
		}
		s.foretell(t, name, classes["test"], message(1), 0)
	}
}

// A class with a shadow is not closed, and refuses nothing.
func TestForecastOfAShadowThatIsClosed(t *testing.T) {
	night := policy.Span{From: start, Until: at(8 * time.Hour)}
	shadow := leakyClass("1 messages/s")
	shadow.Shadow, shadow.Closed, shadow.MaxWait = true, night, unit.Duration(ms)
	shadow = withQueue(shadow, 6, 0)
	above := named("above", leakyClass("10 messages/s"))
	for name, c := range map[string]struct {
		confs []policy.Class
		in    string
	}{
		"it":         {[]policy.Class{above, under("above", shadow)}, "test"},
		"beneath it": {[]policy.Class{above, under("above", shadow), under("test", named("child", withQueue(leakyClass("100 messages/s"), 6, 0)))}, "child"},
	} {
		classes := tree(c.confs...)
		s := &sim{root: classes["above"], now: start}
		s.wait(classes[c.in], message(1))
		for range 5 {
			classes[c.in].Enter(start, message(1))
		}
		if _, drain := classes[c.in].Estimate().Drain(start); drain != second/2 {
			t.Errorf("%s: the class drains in %v", name, drain)
		}
		s.foretell(t, name, classes[c.in], message(1), 0)
		for range 6 {
			classes[c.in].Enter(s.now, message(1))
		}
		if retry := classes[c.in].Estimate().Retry(s.now, message(1).Cost); retry != second/10 {
			t.Errorf("%s: there is room in %v", name, retry)
		}
	}
}

// While a class pauses, those beside it go on.
func TestForecastWhileAClassPauses(t *testing.T) {
	pausing := func(name string) policy.Class {
		conf := ceiling("10 messages/s", under("root", named(name, leakyClass("1 messages/h"))))
		conf.OnThrottle = policy.OnThrottle{Pause: unit.Duration(second), Max: unit.Duration(time.Hour)}
		return conf
	}
	for name, c := range map[string]struct {
		waits  map[string]int
		pauses map[string]time.Duration
		off    time.Duration
	}{
		"beside one that goes on":                 {map[string]int{"api": 1, "bulk": 500}, map[string]time.Duration{"api": time.Minute}, second},
		"beside one that has more":                {map[string]int{"api": 1, "bulk": 900}, map[string]time.Duration{"api": time.Minute}, 31 * second},
		"beside one that pauses":                  {map[string]int{"api": 1, "bulk": 100, "other": 50}, map[string]time.Duration{"api": time.Minute, "other": time.Minute}, 5 * second},
		"beside one that pauses for longer":       {map[string]int{"api": 1, "bulk": 100, "other": 100}, map[string]time.Duration{"api": time.Minute, "other": time.Hour}, second},
		"beside one that pauses for shorter":      {map[string]int{"api": 1, "bulk": 100, "other": 100}, map[string]time.Duration{"api": time.Minute, "other": second}, second},
		"beside one that goes on a little sooner": {map[string]int{"api": 5, "other": 50}, map[string]time.Duration{"api": time.Minute, "other": time.Minute - 10*ms}, 5 * second},
		"beside one that goes on a little later":  {map[string]int{"api": 5, "other": 50}, map[string]time.Duration{"api": time.Minute, "other": time.Minute + 10*ms}, 5 * second},
		"beside one that goes on 4 s later":       {map[string]int{"api": 1, "other": 200}, map[string]time.Duration{"api": time.Minute, "other": time.Minute + 4*second}, second},
		"beneath one that pauses":                 {map[string]int{"api": 1, "bulk": 100}, map[string]time.Duration{"root": time.Minute}, 10 * second},
	} {
		root := leakyClass("10 messages/s")
		root.OnThrottle.Max = unit.Duration(time.Hour)
		classes := tree(named("root", root), pausing("api"), pausing("bulk"), pausing("other"))
		s := &sim{root: classes["root"], now: start}
		for class, pause := range c.pauses {
			classes[class].Provider().Throttled(start, pause, "429")
		}
		for class, n := range c.waits {
			for range n {
				classes[class].Enter(start, message(1))
			}
		}
		s.foretell(t, name, classes["api"], message(1), c.off)
	}
}

// section returns quiet hours of promotions.
func section(recipient, from, to string) string {
	return fmt.Sprintf("[[class.promotions.quiet]]\nrecipient = %q\nfrom = %q\nto = %q\n", recipient, from, to)
}

// What would still wait when quiet hours begin is what has not left until then, in its turns with the other groups. Those that go
// on meanwhile have left when they end.
func TestForecastBeforeQuietHours(t *testing.T) {
	const evening = 20*time.Hour + 55*time.Minute
	borrowing := func(conf policy.Class) policy.Class {
		return withPriority(0, ceiling("10 messages/s", under("root", withRate("1 messages/h", conf))))
	}
	bulk := withPriority(7, ceiling("10 messages/s", under("root", named("bulk", withQueue(leakyClass("1 messages/h"), 10000, 0)))))
	for name, c := range map[string]struct {
		borrows           bool
		others            string // a number that is not asleep
		asleep, own, bulk int    // what waits for the numbers that are asleep, for others, and in another class
		off               time.Duration
	}{
		"the rest of a queue":         {false, "44", 4000, 0, 0, second},
		"the rest, beside others":     {false, "44", 4000, 4000, 0, second},
		"the rest, beside a group":    {false, "33", 4000, 4000, 0, second},
		"all, beside others":          {false, "44", 1000, 1000, 0, second},
		"a borrower that goes first":  {true, "44", 5, 0, 6000, 11 * time.Minute},
		"the rest of what a borrower": {true, "44", 4000, 0, 6000, second},
	} {
		confs := asAt(evening, promotions(t, "queue = \"10000 messages\"\n"+section("33*", "12:00", "13:00")))
		if c.borrows {
			confs[0] = borrowing(confs[0])
		}
		classes := tree(append(confs, named("root", leakyClass("10 messages/s")), bulk)...)
		india, home := joins(evening, classes["promotions"], "91"), joins(evening, classes["promotions"], c.others)
		for range c.bulk {
			classes["bulk"].Enter(at(evening), sms())
		}
		for i := range max(c.asleep, c.own) {
			if i < c.asleep {
				india.Enter(at(evening), sms())
			}
			if i < c.own {
				home.Enter(at(evening), sms())
			}
		}
		s := &sim{root: classes["promotions"].root().class, now: at(evening)}
		s.foretell(t, name, india, sms(), c.off)
	}
}

// What goes on a little sooner than an item leaves meanwhile, as much as that takes. What leaves before it closes does not stand still.
func TestForecastBesideWhatGoesOnSooner(t *testing.T) {
	child := func(name string, from, until time.Duration) policy.Class {
		conf := ceiling("10 messages/s", under("root", named(name, withQueue(leakyClass("1 messages/h"), 20000, 0))))
		conf.Closed = policy.Span{From: at(from), Until: at(until)}
		conf.OnThrottle.Max = unit.Duration(time.Hour)
		return conf
	}
	for name, c := range map[string]struct {
		from, until time.Duration // when the other class is closed
		pauses      time.Duration // and until when it pauses
		shadow      bool
		waits       int
		off         time.Duration
	}{
		"4 s, and little":            {0, 56 * second, 0, false, 40, 100 * ms},
		"4 s, and more":              {0, 56 * second, 0, false, 60, second},
		"4 s, after a pause":         {0, 0, 56 * second, false, 40, 100 * ms},
		"a pause within a schedule":  {0, time.Hour, time.Minute, false, 100, 100 * ms},
		"it closes when all is gone": {20 * second, time.Minute, 0, false, 100, 100 * ms},
		"it closes before":           {20 * second, time.Minute, 0, false, 300, 30 * second},
		"a schedule in the shadow":   {0, time.Minute, 0, true, 100, 100 * ms},
		"that begins later":          {20 * second, time.Minute, 0, true, 300, 100 * ms},
	} {
		other := child("other", c.from, c.until)
		other.Shadow = c.shadow
		classes := tree(named("root", leakyClass("10 messages/s")), withPriority(7, child("it", 0, time.Minute)), other)
		s := &sim{root: classes["root"], now: start}
		if c.pauses > 0 {
			classes["other"].Provider().Throttled(start, c.pauses, "429")
		}
		classes["it"].Enter(start, message(1))
		for range c.waits {
			classes["other"].Enter(start, message(1))
		}
		s.foretell(t, name, classes["it"], message(1), c.off)
	}
}

// All that waits beneath a class that pauses goes on with it.
func TestForecastOfAPauseAbove(t *testing.T) {
	root := named("root", leakyClass("10 messages/s"))
	root.OnThrottle.Max = unit.Duration(time.Hour)
	child := func(name string, priority int) policy.Class {
		return withPriority(priority, ceiling("10 messages/s", under("root", named(name, leakyClass("0 messages/h")))))
	}
	classes := tree(root, child("it", 7), child("other", 0))
	classes["root"].Provider().Throttled(start, time.Minute, "429")
	for range 100 {
		classes["other"].Enter(start, message(1))
	}
	s := &sim{root: classes["root"], now: start}
	s.foretell(t, "behind others", classes["it"], message(1), second)
}

// Those that wake at the same moment drain together, whoever else wakes before.
func TestDrainOfGroupsThatWakeTogether(t *testing.T) {
	const night = 26 * time.Hour
	confs := asAt(night, promotions(t, section("33*", "20:00", "08:00")+section("34*", "22:00", "09:00")))
	c := tree(confs...)["promotions"]
	for to, n := range map[string]int{"33": 10, "34": 300, "91": 300} {
		for range n {
			enter(t, joins(night, c, to), night, Waits, sms())
		}
	}
	if _, drain := c.Estimate().Drain(at(night)); (drain - 7*time.Hour - time.Minute).Abs() > second {
		t.Errorf("600 of which each waits until 9:00 drain in %v from 2:00 on, want 7h1m", drain)
	}
}

// What is left of a queue when a class above closes is so much in the unit of that class, too.
func TestForecastBeneathAClassOfAnotherUnitThatCloses(t *testing.T) {
	account := named("account", leakyClass("100000 tokens/s"))
	account.Closed = policy.Span{From: at(5 * time.Minute), Until: at(12 * time.Hour)}
	classes := tree(account, under("account", named("mid", leakyClass("100 tokens/s"))), under("mid", withQueue(leakyClass("10 messages/s"), 1000, 0)))
	large := func() *Item { return &Item{Cost: Cost{Messages: 1, Tokens: 100}} }
	for range 600 {
		classes["test"].Enter(start, large())
	}
	s := &sim{root: classes["account"], now: start}
	s.foretell(t, "the last of 600", classes["test"], large(), 2*second)
}

// What costs nothing in its own class, but does in one above that closes, waits until that opens again.
func TestForecastOfWhatIsFreeBeneathAClassThatCloses(t *testing.T) {
	root, mid := named("root", leakyClass("1mbit")), named("mid", leakyClass("80bit")) // 10 bytes/s
	root.Closed = policy.Span{From: at(5 * second), Until: at(100 * second)}
	classes := tree(root, under("root", mid), under("mid", withQueue(named("c", leakyClass("1000 messages/s")), 100, 0)))
	s, c := &sim{root: classes["root"], now: start}, classes["c"]
	free := func() *Item { return &Item{Cost: Cost{Bytes: 10, Packets: 1}} }
	for range 10 {
		c.Enter(s.now, free())
	}
	_, said := c.Estimate().Place(s.now, free().Cost)
	if left := s.wait(c, free()); said < left-2*second || said > left+ms {
		t.Errorf("the estimate is %v, and it leaves after %v", said, left)
	}
}

// What waits when a class above closes during a pause waits until it opens.
func TestForecastOfAPauseUntilItIsClosed(t *testing.T) {
	root, mid := named("root", leakyClass("1000 messages/s")), under("root", named("mid", leakyClass("10 messages/s")))
	root.Closed = policy.Span{From: at(30 * second), Until: at(time.Hour)}
	borrows := func(name string, priority int) policy.Class {
		conf := withPriority(priority, ceiling("10 messages/s", under("mid", named(name, leakyClass("0 messages/h")))))
		conf.OnThrottle.Max = unit.Duration(time.Hour)
		return withQueue(conf, 5000, 0)
	}
	classes := tree(root, mid, borrows("it", 7), borrows("other", 0))
	for range 2000 {
		classes["other"].Enter(start, message(1))
	}
	classes["it"].Provider().Throttled(start, time.Minute, "429")
	s := &sim{root: classes["root"], now: start}
	s.foretell(t, "behind what is left of another class", classes["it"], message(1), 31*second)
}
