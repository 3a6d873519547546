package policy

import (
	"slices"
	"time"

	"shaper/calendar"
	"shaper/unit"
)

// At is a section [[class.NAME.at]]: what is different at certain times. Of several that hold,
// the last one in the file counts.
type At struct {
	Days []Day          `json:"days,omitempty"` // on which it begins; none: each day
	From calendar.Clock `json:"from"`
	To   calendar.Clock `json:"to"` // on the next day if it is not after From
	Zone calendar.Zone  `json:"zone,omitzero"`
	Rate unit.Rate      `json:"rate"` // the zero Rate keeps that of the class
	Ceil unit.Rate      `json:"ceil"` // the zero Rate keeps that of the class
}

// Day is a day of the week: "mon".
type Day string

// days are the days of the week, as package time counts them.
var days = []Day{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}

// begins reports whether it begins on a date.
func (a *At) begins(date time.Time) bool {
	return len(a.Days) == 0 || slices.Contains(a.Days, days[date.Weekday()])
}

// on returns when it begins and ends, if it begins on a date.
func (a *At) on(date time.Time) (begin, end time.Time) {
	loc := a.Zone.Location()
	y, m, d := date.Date()
	begin = a.From.On(y, m, d, loc)
	if a.To <= a.From {
		d++
	}
	return begin, a.To.On(y, m, d, loc)
}

// date returns the date in the zone, some days after t, as midnight in UTC.
func (a *At) date(t time.Time, after int) time.Time {
	y, m, d := t.In(a.Zone.Location()).Date()
	return time.Date(y, m, d+after, 0, 0, 0, 0, time.UTC)
}

// holds reports whether it holds at t.
func (a *At) holds(t time.Time) bool {
	for after := -2; after <= 1; after++ {
		date := a.date(t, after)
		if begin, end := a.on(date); a.begins(date) && !t.Before(begin) && t.Before(end) {
			return true
		}
	}
	return false
}

// next returns when it begins or ends next, after t.
func (a *At) next(t time.Time) (next time.Time) {
	for after := -2; after <= 8; after++ {
		date := a.date(t, after)
		if !a.begins(date) {
			continue
		}
		begin, end := a.on(date)
		for _, at := range []time.Time{begin, end} {
			if at.After(t) && (next.IsZero() || at.Before(next)) {
				next = at
			}
		}
	}
	return next
}

// InForce returns which At of the class holds at t; nil if none does.
func (c Class) InForce(t time.Time) (holds *At) {
	for i := range c.At {
		if c.At[i].holds(t) {
			holds = &c.At[i]
		}
	}
	return holds
}

// atTime returns the class with the rate and the ceil that hold at t.
func (c Class) atTime(t time.Time) Class {
	a := c.InForce(t)
	if a == nil {
		return c
	}
	if a.Rate != (unit.Rate{}) {
		c.Rate = a.Rate
	}
	if a.Ceil != (unit.Rate{}) {
		c.Ceil = a.Ceil
	}
	return c
}

// LimitAt returns how fast the class may send at t.
func (c Class) LimitAt(t time.Time) unit.Rate { return c.atTime(t).Limit() }

// farAhead is how far into the future a schedule is followed: over a week, with a change of summer
// time.
const farAhead = 9 * 24 * time.Hour

// NextChange returns when the rate or the ceil becomes another one than at t; zero if never.
func (c Class) NextChange(t time.Time) time.Time {
	now := c.atTime(t)
	for at := t; at.Sub(t) < farAhead; {
		next := time.Time{}
		for i := range c.At {
			if n := c.At[i].next(at); !n.IsZero() && (next.IsZero() || n.Before(next)) {
				next = n
			}
		}
		if next.IsZero() {
			break
		}
		if then := c.atTime(next); then.Rate != now.Rate || then.Ceil != now.Ceil {
			return next.UTC()
		}
		at = next
	}
	return time.Time{}
}

// opens returns when the class may send again that may not at t; zero if never.
func (c Class) opens(t time.Time) time.Time {
	for at := c.NextChange(t); !at.IsZero() && at.Sub(t) < farAhead; at = c.NextChange(at) {
		if !c.atTime(at).Limit().IsZero() {
			return at
		}
	}
	return time.Time{}
}

// never is later than any time of a schedule.
var never = time.Unix(1<<55, 0)

// Scheduled returns the class as it is from t on, and when that changes; zero if it does not.
//
// In a time whose limit is 0 the class is Closed, and has the rate and the ceil of the time after
// that. Before such a time it says when it will be Closed. So whoever has the class knows when
// something leaves that waits over such a time.
func (c Class) Scheduled(t time.Time) (now Class, until time.Time) {
	if len(c.At) == 0 {
		return c, time.Time{}
	}
	t = t.Round(0)
	until, now = c.NextChange(t), c.atTime(t)
	if now.Limit().IsZero() {
		opens := c.opens(t)
		if opens.IsZero() {
			return now, until
		}
		now = c.atTime(opens)
		now.Closed.Until = opens
		return now, opens
	}
	if !until.IsZero() && c.atTime(until).Limit().IsZero() {
		now.Closed = Span{until, never}
		if opens := c.opens(until); !opens.IsZero() {
			now.Closed.Until = opens
		}
	}
	return now, until
}

// Shown returns, for people, a class that Scheduled has returned, as it is at t: while it is
// Closed, its rate is 0.
func (c Class) Shown(t time.Time) Class {
	if !t.Before(c.Closed.From) && t.Before(c.Closed.Until) {
		c.Rate, c.Ceil = unit.NewRate(c.Rate.Kind(), 0, c.Rate.Period()), unit.Rate{}
	}
	return c
}

// AtTime returns the policy with the rates that hold at t, for people. See Scheduled.
func (p *Policy) AtTime(t time.Time) *Policy {
	then := *p
	then.Classes = slices.Clone(p.Classes)
	for i := range then.Classes {
		then.Classes[i] = then.Classes[i].atTime(t)
	}
	return &then
}

// Span is a time from From on, and before Until. The zero Span is none.
type Span struct{ From, Until time.Time }

// Scheduled returns the policy as it is from t on, and when that changes; zero if it does not.
func (p *Policy) Scheduled(t time.Time) (now *Policy, until time.Time) {
	if !slices.ContainsFunc(p.Classes, func(c Class) bool { return len(c.At) > 0 }) {
		return p, time.Time{}
	}
	then := *p
	then.Classes = slices.Clone(p.Classes)
	for i := range then.Classes {
		changes := time.Time{}
		if then.Classes[i], changes = p.Classes[i].Scheduled(t); until.IsZero() || !changes.IsZero() && changes.Before(until) {
			until = changes
		}
	}
	return &then, until
}
