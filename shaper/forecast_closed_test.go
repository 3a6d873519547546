package shaper

import (
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
