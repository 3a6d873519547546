package policy

import (
	"shaper/calendar"
	"shaper/unit"
)

const alsoForm = `a rate like "600 messages/h", a table like { rate = "200000 messages/day", zone = "UTC" }, or a list of them`

// maxAlso bounds the limits beside the rate of a class. Each is asked for each item, and each
// key of a class with `per` remembers it.
const maxAlso = 7

var limitFields = []field[Limit]{
	require(quantity("rate", func(l *Limit) *unit.Rate { return &l.Rate }, unit.ParseRate)),
	one("algorithm", algorithmForm, func(l *Limit) *Algorithm { return &l.Algorithm }, parseAlgorithm),
	one("burst", burstForm, func(l *Limit) *Burst { return &l.Burst }, parseBurst),
	quantity("window", func(l *Limit) *Window { return &l.Window }, parseWindow),
	one("zone", zoneForm, func(l *Limit) *calendar.Zone { return &l.Zone }, parseZone),
	one("reset", clockForm, func(l *Limit) *calendar.Clock { return &l.Reset }, parseReset),
	quantity("headroom", func(l *Limit) *unit.Percent { return &l.Headroom }, unit.ParsePercent),
}

// String prints the limit as a policy file has it.
func (l Limit) String() string { return inline(&l, limitFields) }

// alsoField is the key also of a class: limits, each a rate or a table.
var alsoField = tables("also", alsoForm, func(c *Class) *[]Limit { return &c.Also }, limitFields,
	func(s string) (l Limit, err error) {
		l.Rate, err = unit.ParseRate(s)
		l.setDefaults(false)
		return l, err
	},
	func(r *report, key string, l *Limit) {
		l.setDefaults(r.given(key+".zone", key+".reset"))
	})

// setDefaults sets the keys that the file leaves out. zoned says that it has a zone or a reset.
func (l *Limit) setDefaults(zoned bool) {
	if zoned {
		l.setWindow()
	}
	if l.Algorithm == "" {
		l.Algorithm = algorithmFor(l)
	}
}
