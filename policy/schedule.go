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
	Hours
	Rate unit.Rate `json:"rate"` // the zero Rate keeps that of the class
	Ceil unit.Rate `json:"ceil"` // the zero Rate keeps that of the class
}

// InForce returns the At of the class that holds at t; nil if none does.
func (c Class) InForce(t time.Time) (holds *At) {
	for i := range c.At {
		if c.At[i].holds(t) {
			holds = &c.At[i]
		}
	}
	return holds
}

// atTime returns the class with the rate and the ceil that hold at t.
func (c Class) atTime(t time.Time) Class { return c.under(c.InForce(t)) }

// isBlocked reports whether the limit is 0 at all times. It does not find this if only sections of several zones together
// make it so.
func (c Class) isBlocked() bool {
	if len(c.At) == 0 {
		return c.Limit().IsZero()
	}
	return slices.ContainsFunc(c.At, func(a At) bool { return c.closedIn(a.Zone).isAll() })
}

// closedIn returns when the limit is 0 for sure, on the clock of a zone. A section of another zone with a limit above 0 may hold
// at any time.
func (c Class) closedIn(zone calendar.Zone) *week {
	closed := new(week)
	everyDay := Hours{To: calendar.Midnight}
	closed.set(&everyDay, c.Limit().IsZero())
	for i := range c.At {
		a := &c.At[i]
		switch isClosed := c.under(a).Limit().IsZero(); {
		case a.Zone == zone:
			closed.set(&a.Hours, isClosed)
		case !isClosed:
			closed.set(&everyDay, false)
		}
	}
	return closed
}

// under returns the class with the rate and the ceil of a section; as it is if a is nil.
func (c Class) under(a *At) Class {
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

// paced returns the limit of the class, or the first of its sections above 0 if that is 0: the class is
// paced by that, also while it is closed.
func (c Class) paced() Limit {
	limit := c.Own()
	for i := 0; i < len(c.At) && limit.Rate.IsZero(); i++ {
		limit = c.under(&c.At[i]).Own()
	}
	return limit
}

// LimitAt returns how fast the class may send at t.
func (c Class) LimitAt(t time.Time) unit.Rate { return c.atTime(t).Limit() }

// NextChange returns when the rate or the ceil next differs from that at t; zero if never.
func (c Class) NextChange(t time.Time) time.Time {
	all := make([]Hours, len(c.At))
	for i := range c.At {
		all[i] = c.At[i].Hours
	}
	now := c.atTime(t)
	return nextChange(all, t, func(at time.Time) bool {
		then := c.atTime(at)
		return then.Rate != now.Rate || then.Ceil != now.Ceil
	})
}

// opens returns when a class that may send nothing at t may send again; zero if never.
func (c Class) opens(t time.Time) time.Time {
	for at := c.NextChange(t); !at.IsZero() && at.Sub(t) < farAhead; at = c.NextChange(at) {
		if !c.atTime(at).Limit().IsZero() {
			return at
		}
	}
	return time.Time{}
}

// HasSchedule reports whether time changes the class: it has At, or Quieted recipients.
func (c *Class) HasSchedule() bool { return len(c.At) > 0 || len(c.Quieted) > 0 }

// Scheduled returns the class as it is from t on, and when that changes; zero if it does not.
//
// While its limit is 0 the class is Closed, and has the rate and the ceil of the time after that.
// Before such a time, Closed says when it comes. So whoever has the class knows when something
// leaves that has to wait until then. The same holds for each group of Quieted.
func (c Class) Scheduled(t time.Time) (now Class, until time.Time) {
	t, now = t.Round(0), c
	if len(c.At) > 0 {
		now, until = c.limitedAt(t)
	}
	if len(c.Quieted) > 0 {
		var change time.Time
		now.Quieted, change = c.Quieted.at(t)
		until = sooner(until, change)
	}
	return now, until
}

// limitedAt is Scheduled for the limit of the class.
func (c Class) limitedAt(t time.Time) (now Class, until time.Time) {
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

// AtTime returns the policy with the rates and the quiet hours that hold at t, for people. See
// Scheduled.
func (p *Policy) AtTime(t time.Time) *Policy {
	then := *p
	then.Classes = slices.Clone(p.Classes)
	for i := range then.Classes {
		c := then.Classes[i].atTime(t)
		c.Quiet = slices.DeleteFunc(slices.Clone(c.Quiet), func(q Quiet) bool { return !q.holds(t) })
		then.Classes[i] = c
	}
	return &then
}

// Scheduled returns the policy as it is from t on, and when that changes; zero if it does not.
func (p *Policy) Scheduled(t time.Time) (now *Policy, until time.Time) {
	if !slices.ContainsFunc(p.Classes, func(c Class) bool { return c.HasSchedule() }) {
		return p, time.Time{}
	}
	then := *p
	then.Classes = slices.Clone(p.Classes)
	for i := range then.Classes {
		changes := time.Time{}
		then.Classes[i], changes = p.Classes[i].Scheduled(t)
		until = sooner(until, changes)
	}
	return &then, until
}
