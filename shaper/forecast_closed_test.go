package shaper

import (
	"testing"
	"time"

	"shaper/policy"
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
