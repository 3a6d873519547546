package policy

import (
	"fmt"
	"slices"

	"shaper/unit"
)

// maxAt bounds the sections of a class. To find the next change, shaper looks at each of them for
// each time at which one begins or ends.
const maxAt = 32

// A timesChecker checks the sections [[class.NAME.at]] of a class.
type timesChecker struct{ *checker }

// at checks one of these sections.
func (c timesChecker) at(key string, i int, class *Class) {
	a := &class.At[i]
	if at := numbered(key, i); c.given(at) {
		key = at
	}
	if c.badUnder(key) {
		return
	}
	if i == maxAt {
		c.wrong(key, fmt.Sprintf("the class has more than %d sections", maxAt), "fewer sections")
	}
	then := *class
	switch none := (unit.Rate{}); {
	case a.Rate == none && a.Ceil == none:
		c.wrong(key, "it changes nothing", "a rate or a ceil")
		return
	case a.To == a.From:
		c.wrong(key+".to", fmt.Sprintf("from %v to %v is no time", a.From, a.To), `leave it out for "24:00", or another time of day`)
		return
	case a.Rate != none && a.Rate.Kind() != class.Rate.Kind():
		c.wrong(key+".rate", fmt.Sprintf("%q counts %v, and the rate %q counts %v", a.Rate, a.Rate.Kind(), class.Rate, class.Rate.Kind()),
			"a rate in "+class.Rate.Kind().String())
		return
	case a.Ceil != none && class.Parent == "":
		c.wrong(key+".ceil", "the class has no parent, so it shares with nobody", "name a parent, or leave it out")
		return
	case a.Rate != none:
		then.Rate = a.Rate
	}
	if a.Ceil != (unit.Rate{}) {
		then.Ceil = a.Ceil
	}
	if then.Limit().IsZero() {
		return
	}
	limitKey := key + ".rate"
	if then.Ceil != (unit.Rate{}) {
		at := key + ".ceil"
		if !c.given(at) {
			at = limitKey
		}
		pathChecker(c).ceil(at, &then)
		limitKey = at
	}
	if own := then.Own(); c.sound(limitKey) {
		limitChecker(c).window(key, limitKey, &own)
	}
}

// warnTimes warns of a section that never holds, since later ones of the same zone hold at all its
// times.
func (c timesChecker) warnTimes(class *Class) {
	for i := range class.At {
		covered, zone := map[int]bool{}, class.At[i].Zone
		for _, later := range class.At[i+1:] {
			if later.Zone == zone {
				later.minutes(func(minute int) { covered[minute] = true })
			}
		}
		reached := false
		class.At[i].minutes(func(minute int) { reached = reached || !covered[minute] })
		if !reached {
			c.warn(numbered(join("class", class.Name)+".at", i), "it never holds: later ones hold at all its times", "put it after them, or leave it out")
		}
	}
}

// minutes calls do with each minute of the week in which a section holds.
func (a *At) minutes(do func(int)) {
	const day, week = 24 * 60, 7 * 24 * 60
	for d, name := range days {
		if len(a.Days) > 0 && !slices.Contains(a.Days, name) {
			continue
		}
		end := int(a.To)
		if a.To <= a.From {
			end += day
		}
		for minute := int(a.From); minute < end; minute++ {
			do((d*day + minute) % week)
		}
	}
}
