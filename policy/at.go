package policy

import (
	"encoding/json"
	"fmt"
	"strings"

	"shaper/calendar"
	"shaper/unit"
)

const (
	atForm   = `sections like [[class.NAME.at]] with from, to and rate`
	daysForm = `"mon", "tue", "wed", "thu", "fri", "sat" or "sun", or a list of them`
	toForm   = `a time of day is like "06:00", "23:59" or "24:00"`

	quietForm  = `sections like [[class.NAME.quiet]] with recipient, from, to and zone`
	numberForm = `a number, or the beginning of numbers like "91*", or a list of them; leave it out for all`
)

var parseDay = choice(daysForm, days)

var atFields = append(hoursFields(func(a *At) *Hours { return &a.Hours }),
	quantity("rate", func(a *At) *unit.Rate { return &a.Rate }, unit.ParseRate),
	quantity("ceil", func(a *At) *unit.Rate { return &a.Ceil }, unit.ParseRate))

// hoursFields returns the keys that say when a section holds.
func hoursFields[T any](of func(*T) *Hours) []field[T] {
	return []field[T]{
		many("days", daysForm, func(t *T) *[]Day { return &of(t).Days }, parseDay),
		one("from", clockForm, func(t *T) *calendar.Clock { return &of(t).From }, parseReset),
		one("to", toForm, func(t *T) *calendar.Clock { return &of(t).To }, parseTo),
		one("zone", zoneForm, func(t *T) *calendar.Zone { return &of(t).Zone }, parseZone),
	}
}

// parseTo reads a time of day that ends something.
func parseTo(s string) (calendar.Clock, error) {
	c, err := calendar.ParseClock(s)
	if err != nil {
		return 0, complain(toForm, "%q is not a time of day from 00:00 to 24:00", s)
	}
	return c, nil
}

// String prints "sat, sun from 00:00 to 06:00 in Europe/Paris: rate 5 messages/s".
func (a At) String() string {
	var b strings.Builder
	b.WriteString(a.Hours.String() + ":")
	if a.Rate != (unit.Rate{}) {
		fmt.Fprintf(&b, " rate %v", a.Rate)
	}
	if a.Ceil != (unit.Rate{}) {
		fmt.Fprintf(&b, " ceil %v", a.Ceil)
	}
	return b.String()
}

// MarshalJSON leaves out the rates that the file leaves out. A rate of 0 is one.
func (a At) MarshalJSON() ([]byte, error) {
	type plain At
	given := struct {
		plain
		Rate *unit.Rate `json:"rate,omitempty"`
		Ceil *unit.Rate `json:"ceil,omitempty"`
	}{plain: plain(a)}
	if a.Rate != (unit.Rate{}) {
		given.Rate = &a.Rate
	}
	if a.Ceil != (unit.Rate{}) {
		given.Ceil = &a.Ceil
	}
	return json.Marshal(given)
}

// atField is the key at of a class.
var atField = tables("at", atForm, func(c *Class) *[]At { return &c.At }, atFields,
	func(s string) (At, error) { return At{}, complain(atForm, "it is not text") },
	func(r *report, key string, a *At) { a.setDefaults(r, key) })

// quietField is the key quiet of a class.
var quietField = tables("quiet", quietForm, func(c *Class) *[]Quiet { return &c.Quiet },
	append([]field[Quiet]{many("recipient", numberForm, func(q *Quiet) *[]Pattern { return &q.Recipient }, parseNumbers)},
		hoursFields(func(q *Quiet) *Hours { return &q.Hours })...),
	func(s string) (Quiet, error) { return Quiet{}, complain(quietForm, "it is not text") },
	func(r *report, key string, q *Quiet) { q.setDefaults(r, key) })

// setDefaults sets the end of the day if the section at key names no end.
func (h *Hours) setDefaults(r *report, key string) {
	if !r.given(key + ".to") {
		h.To = calendar.Midnight
	}
}

// parseNumbers reads a number, or the beginning of numbers.
func parseNumbers(s string) (Pattern, error) {
	if strings.HasPrefix(s, "*") {
		return "", complain(numberForm, "%q does not say how the numbers begin", s)
	}
	p, err := parsePattern(s)
	if err != nil {
		err = complain(numberForm, "%s", complaintOf(err).problem) // a "*" at the beginning is no remedy here
	}
	return p, err
}
