package policy

import (
	"fmt"
	"slices"

	"shaper/unit"
)

// maxTimes bounds the sections of a class. To find the next change, shaper looks at each of them
// for each time at which one begins or ends.
const maxTimes = 32

// maxRecipients bounds the recipients of a section about quiet hours. Each of them is compared with the
// recipient of each message.
const maxRecipients = 256

// A timesChecker checks the sections [[class.NAME.at]] and [[class.NAME.quiet]] of a class.
type timesChecker struct{ *checker }

// section checks what both kinds of sections have in common: section i of the list at key, and its
// hours. It returns the key of the section, and whether that can be checked further.
func (c timesChecker) section(key string, i int, h *Hours) (at string, ok bool) {
	switch at = c.numbered(key, i); {
	case c.badUnder(at):
		return at, false
	case i == maxTimes:
		c.wrong(at, fmt.Sprintf("the class has more than %d sections", maxTimes), "fewer sections")
	case h.To == h.From:
		c.wrong(at+".to", fmt.Sprintf("from %v to %v is no time", h.From, h.To), `leave it out for "24:00", or another time of day`)
		return at, false
	}
	return at, true
}

// numbered returns the key of section i of the list at key; key itself if the list is on one line.
func (c timesChecker) numbered(key string, i int) string {
	if at := numbered(key, i); c.given(at) {
		return at
	}
	return key
}

// quiet checks one of the sections about quiet hours.
func (c timesChecker) quiet(key string, i int, class *Class) {
	key, ok := c.section(key, i, &class.Quiet[i].Hours)
	switch kind := class.Rate.Kind(); {
	case !ok:
	case kind != unit.Messages:
		c.wrong(key, fmt.Sprintf("the class counts %v, and only messages have recipients", kind), "leave it out, or set a rate in messages")
	case len(class.Quiet[i].Recipient) > maxRecipients:
		c.wrong(key+".recipient", fmt.Sprintf("it names more than %d recipients", maxRecipients), "fewer, or another section")
	case class.Shadow:
		c.wrong(key, "the class has shadow, so it holds nothing up", "leave it out, or put it into the class above")
	}
}

// at checks one of the sections about times with other rates.
func (c timesChecker) at(key string, i int, class *Class) {
	a := &class.At[i]
	key, ok := c.section(key, i, &a.Hours)
	if !ok {
		return
	}
	switch none := (unit.Rate{}); {
	case a.Rate == none && a.Ceil == none:
		c.wrong(key, "it changes nothing", "a rate or a ceil")
		return
	case a.Rate != none && a.Rate.Kind() != class.Rate.Kind():
		c.wrong(key+".rate", fmt.Sprintf("%q counts %v, and the rate %q counts %v", a.Rate, a.Rate.Kind(), class.Rate, class.Rate.Kind()),
			"a rate in "+class.Rate.Kind().String())
		return
	case a.Ceil != none && class.Parent == "" && !c.sound(join("class", class.Name)+".parent"):
		return
	case a.Ceil != none && class.Parent == "":
		c.wrong(key+".ceil", "the class has no parent, so it shares with nobody", "name a parent, or leave it out")
		return
	}
	if then := class.under(a); !then.Limit().IsZero() {
		c.limitOf(key, class, &then)
	}
}

// limitOf checks the limit of a section: that of the class as it is then.
func (c timesChecker) limitOf(key string, class, then *Class) {
	limitKey := key + ".rate"
	if then.Ceil != (unit.Rate{}) {
		at := key + ".ceil"
		if !c.given(at) {
			at = limitKey
		}
		pathChecker(c).ceil(at, then)
		limitKey = at
	}
	if own := then.Own(); c.sound(limitKey) {
		limitChecker(c).window(key, limitKey, &own)
	}
	c.sameWindow(limitKey, class, then.Limit(), `window = "%v" in [`+join("class", class.Name)+"], or a rate for each %[1]v")
}

// sameWindow checks that a class counts in the same windows at another limit. Otherwise each change from one to
// the other would begin with a window that is used up. allowed is a format for the length of the window.
func (c timesChecker) sameWindow(limitKey string, class *Class, limit unit.Rate, allowed string) {
	key := join("class", class.Name)
	if l := class.paced(); c.sound(limitKey, key+".rate", key+".ceil", key+".algorithm", key+".window") && l.hasOtherWindowAt(limit) {
		window := unit.Duration(l.Rate.Period())
		c.wrong(limitKey, fmt.Sprintf("%q counts in windows of %v, and %q in windows of %v: each change would close the class for a whole window",
			limit, unit.Duration(limit.Period()), l.Rate, window), fmt.Sprintf(allowed, window))
	}
}

// warnUnstopped warns of a rate of 0, at key, that does not stop the class, because its ceil holds on.
func (c timesChecker) warnUnstopped(key string, class *Class) {
	if class.Rate.IsZero() && !class.Limit().IsZero() {
		c.warn(key, fmt.Sprintf("%q stops nothing: the class still borrows up to its ceil %q", class.Rate, class.Ceil),
			fmt.Sprintf("ceil = %q too, if nothing is to leave", class.Rate))
	}
}

// warnTimes warns of a section that never holds, since later ones of the same zone hold at all its
// times, and of one whose rate of 0 stops nothing.
func (c timesChecker) warnTimes(class *Class) {
	c.warnBlocked(class)
	for i := range class.At {
		if a := &class.At[i]; a.Rate != (unit.Rate{}) && a.Ceil == (unit.Rate{}) {
			then := class.under(a)
			c.warnUnstopped(numbered(join("class", class.Name)+".at", i)+".rate", &then)
		}
		covered, zone := map[int]bool{}, class.At[i].Zone
		for _, later := range class.At[i+1:] {
			if later.Zone == zone {
				later.minutes(func(minute int) { covered[minute] = true })
			}
		}
		reached := false
		class.At[i].minutes(func(minute int) { reached = reached || !covered[minute] })
		if !reached {
			c.warn(c.numbered(join("class", class.Name)+".at", i), "it never holds: later ones hold at all its times", "put it after them, or leave it out")
		}
	}
}

// warnBlocked warns of sections that let nothing leave at any time: from the class, or to some recipients.
func (c timesChecker) warnBlocked(class *Class) {
	const allowed = "days, from or to, unless this is to block"
	key := join("class", class.Name)
	if class.isBlocked() && !class.Limit().IsZero() {
		last := 0
		for i := range class.At {
			if then := class.under(&class.At[i]); then.Limit().IsZero() {
				last = i
			}
		}
		c.warn(c.numbered(key+".at", last), "the limit is 0 at all times, so nothing ever leaves", allowed)
	}
	warned := map[int]bool{}
	for _, group := range newQuietGroups(class.Quiet) {
		last := 0
		for i := range class.Quiet {
			if slices.ContainsFunc(class.Quiet[i].patterns(), func(p Pattern) bool { return p.includes(group.Recipients[0]) }) {
				last = i
			}
		}
		if coverAll(group.Hours) && !warned[last] {
			warned[last] = true
			c.warn(c.numbered(key+".quiet", last), fmt.Sprintf("it is quiet at all times, so nothing ever leaves to %s", group.Text()), allowed)
		}
	}
}

// coverAll reports whether some hours of one zone together are the whole week.
func coverAll(all []Hours) bool {
	return slices.ContainsFunc(all, func(one Hours) bool {
		covered := new(week)
		for i := range all {
			if all[i].Zone == one.Zone {
				covered.set(&all[i], true)
			}
		}
		return covered.isAll()
	})
}
