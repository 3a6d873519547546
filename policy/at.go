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
)

var parseDay = choice(daysForm, days, nil)

var atFields = []field[At]{
	many("days", daysForm, func(a *At) *[]Day { return &a.Days }, parseDay),
	one("from", clockForm, func(a *At) *calendar.Clock { return &a.From }, parseReset),
	one("to", toForm, func(a *At) *calendar.Clock { return &a.To }, parseTo),
	one("zone", zoneForm, func(a *At) *calendar.Zone { return &a.Zone }, parseZone),
	quantity("rate", func(a *At) *unit.Rate { return &a.Rate }, unit.ParseRate),
	quantity("ceil", func(a *At) *unit.Rate { return &a.Ceil }, unit.ParseRate),
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
	if len(a.Days) > 0 {
		b.WriteString(list(a.Days) + " ")
	}
	fmt.Fprintf(&b, "from %v to %v in %v:", a.From, a.To, a.Zone)
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
	func(r *report, key string, a *At) {
		if !r.given(key + ".to") {
			a.To = calendar.Midnight
		}
	})
