package policy

import (
	"fmt"
	"time"

	"shaper/unit"
)

// A limitChecker checks that the limits of a class can hold: its own, and those of also.
type limitChecker struct{ *checker }

// ofClass checks all limits of a class.
func (c limitChecker) ofClass(key string, class *Class) {
	own := class.Own()
	c.limit(key, class.limitKey(), &own, class.Rate)
	for i := range class.Also {
		c.also(key+".also", i, class)
	}
}

// limitKey returns the key of the limit of the class itself.
func (c *Class) limitKey() string {
	if c.Limit() != c.Rate {
		return join("class", c.Name) + ".ceil"
	}
	return join("class", c.Name) + ".rate"
}

// also checks one of the limits beside that of the class.
func (c limitChecker) also(key string, i int, class *Class) {
	l := &class.Also[i]
	if at := numbered(key, i); c.given(at) {
		key = at
	}
	limitKey := key
	if c.given(key + ".rate") {
		limitKey = key + ".rate"
	}
	switch {
	case !c.sound(key, key+".rate"):
	case l.Rate.Kind() != class.Rate.Kind():
		c.wrong(limitKey, fmt.Sprintf("%q counts %v, and the rate %q counts %v", l.Rate, l.Rate.Kind(), class.Rate, class.Rate.Kind()),
			fmt.Sprintf("a limit in %v; another unit is a class of its own, above or below this one", class.Rate.Kind()))
	case i >= maxAlso:
		c.wrong(key, fmt.Sprintf("the class has more than %d limits beside its rate", maxAlso), "fewer limits")
	default:
		c.limit(key, limitKey, l, l.Rate)
	}
}

// limit checks the keys of one limit. limitKey is the key of what it allows, and rate is the
// rate beside it.
func (c limitChecker) limit(key, limitKey string, l *Limit, rate unit.Rate) {
	if c.sound(key+".algorithm", key+".burst") {
		c.burst(key+".burst", l, rate)
	}
	if c.sound(key+".algorithm", key+".window", key+".zone", key+".reset", key+".headroom") && c.calendar(key, l) {
		c.window(key, limitKey, l)
	}
}

// burst checks that the algorithm has a burst, in the unit of the rate.
func (c limitChecker) burst(key string, l *Limit, rate unit.Rate) {
	switch {
	case l.Burst.IsZero():
	case !l.Algorithm.HasBurst():
		c.wrong(key, string(l.Algorithm)+" has no burst", `leave it out, or set algorithm = "token" or "gcra"`)
	case l.Burst.Kind != rate.Kind():
		c.wrong(key, fmt.Sprintf("%q counts %v, and the rate %q counts %v", l.Burst, l.Burst.Kind, rate, rate.Kind()),
			"a burst in "+rate.Kind().String())
	}
}

// calendar checks that a limit counts by the calendar if it has keys about that, and that it
// can. It reports whether the window can be checked further.
func (c limitChecker) calendar(key string, l *Limit) bool {
	for _, one := range []struct {
		name string
		set  bool
	}{{".zone", l.Zone != Limit{}.Zone}, {".reset", l.Reset != 0}} {
		switch at := key + one.name; {
		case !one.set && !c.given(at):
		case l.Window.Period == "" && l.Window.Length > 0:
			c.wrong(at, fmt.Sprintf("a window of %q is of no calendar", l.Window), `leave it out, or set window = "day", "week" or "month"`)
			return false
		case l.Window.Period == "":
			c.wrong(at, fmt.Sprintf("%q is of no calendar", l.Rate), "leave it out, or a rate for each day, week or month")
			return false
		}
	}
	if l.Window.Period == "" || l.Algorithm == FixedWindow {
		return true
	}
	at := key + ".window"
	if !c.given(at) {
		at = key + ".zone"
	}
	if !c.given(at) {
		at = key + ".reset"
	}
	c.wrong(at, fmt.Sprintf("%s does not count by the calendar", l.Algorithm), `leave it out, or set algorithm = "fixed-window"`)
	return false
}

// window checks that the limit of a window is a whole number. A part of a unit never leaves,
// so otherwise the limit in force would differ from the one in the file.
func (c limitChecker) window(key, limitKey string, l *Limit) {
	window, kind := unit.Duration(l.WindowInForce()), l.Rate.Kind()
	_, ns := l.Rate.Exact() // in lowest terms, so only a multiple of ns has a whole limit
	switch {
	case !l.Algorithm.HasWindow():
		if l.Window.Length > 0 {
			c.wrong(key+".window", string(l.Algorithm)+" has no window",
				`leave it out, or set algorithm = "fixed-window", "sliding-log" or "sliding-window"`)
		}
	case l.Rate.IsZero():
	case int64(window)%ns > 0 && l.Window.Length > 0:
		c.wrong(key+".window", fmt.Sprintf("%q at the rate %q does not hold a whole number of %v", window, l.Rate, kind),
			fmt.Sprintf("a multiple of %q", unit.Duration(ns)))
	case int64(window)%ns > 0 && l.Window.Period != "":
		c.wrong(limitKey, fmt.Sprintf("%q is not a whole number of %v in a %s", l.Rate, kind, l.Window), fmt.Sprintf("a whole number of %v in a %s", kind, l.Window))
	case int64(window)%ns > 0:
		c.wrong(limitKey, fmt.Sprintf("%q is not a whole number of %v in a window of %v", l.Rate, kind, window),
			fmt.Sprintf("add a window that is a multiple of %q", unit.Duration(ns)))
	case l.Rate.Below(l.Headroom).Units(time.Duration(window)) == 0:
		c.wrong(key+".headroom", fmt.Sprintf("%q leaves less than one of the %d %v in a window of %v",
			l.Headroom, l.Rate.Units(time.Duration(window)), kind, window), "a smaller headroom, or a longer window")
	}
}
