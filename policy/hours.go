package policy

import (
	"fmt"
	"slices"
	"time"

	"shaper/calendar"
)

// Hours are times of the week: from one time of day to another one, on some of the days.
type Hours struct {
	Days []Day          `json:"days,omitempty"` // on which they begin; none: each day
	From calendar.Clock `json:"from"`
	To   calendar.Clock `json:"to"` // on the next day if it is not after From
	Zone calendar.Zone  `json:"zone,omitzero"`
}

// Day is a day of the week: "mon".
type Day string

// days are the days of the week, as package time counts them.
var days = []Day{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}

// String prints "sat, sun from 00:00 to 06:00 in Europe/Paris".
func (h Hours) String() string {
	text := fmt.Sprintf("from %v to %v in %v", h.From, h.To, h.Zone)
	if len(h.Days) > 0 {
		text = list(h.Days) + " " + text
	}
	return text
}

// begin reports whether the hours begin on a date.
func (h *Hours) begin(date time.Time) bool {
	return len(h.Days) == 0 || slices.Contains(h.Days, days[date.Weekday()])
}

// on returns when the hours that begin on a date begin and end.
func (h *Hours) on(date time.Time) (begin, end time.Time) {
	loc := h.Zone.Location()
	y, m, d := date.Date()
	begin = h.From.On(y, m, d, loc)
	if h.To <= h.From {
		d++
	}
	return begin, h.To.On(y, m, d, loc)
}

// date returns the date in the zone, some days after t, as midnight in UTC.
func (h *Hours) date(t time.Time, after int) time.Time {
	y, m, d := t.In(h.Zone.Location()).Date()
	return time.Date(y, m, d+after, 0, 0, 0, 0, time.UTC)
}

// holds reports whether t is one of these times.
func (h *Hours) holds(t time.Time) bool {
	for after := -2; after <= 1; after++ {
		date := h.date(t, after)
		if begin, end := h.on(date); h.begin(date) && !t.Before(begin) && t.Before(end) {
			return true
		}
	}
	return false
}

// next returns when they begin or end next, after t.
func (h *Hours) next(t time.Time) (next time.Time) {
	for after := -2; after <= 8; after++ {
		date := h.date(t, after)
		if !h.begin(date) {
			continue
		}
		begin, end := h.on(date)
		for _, at := range []time.Time{begin, end} {
			if at.After(t) {
				next = sooner(next, at)
			}
		}
	}
	return next
}

// minutes calls do with each minute of the week in which they hold.
func (h *Hours) minutes(do func(int)) {
	const day, week = 24 * 60, 7 * 24 * 60
	for d, name := range days {
		if len(h.Days) > 0 && !slices.Contains(h.Days, name) {
			continue
		}
		end := int(h.To)
		if h.To <= h.From {
			end += day
		}
		for minute := int(h.From); minute < end; minute++ {
			do((d*day + minute) % week)
		}
	}
}

// A week says of each of its minutes, on the clock of a zone, whether something holds.
type week [7 * 24 * 60]bool

// set says whether it holds in some hours.
func (w *week) set(h *Hours, holds bool) {
	h.minutes(func(minute int) { w[minute] = holds })
}

// isAll reports whether it holds all the time.
func (w *week) isAll() bool { return !slices.Contains(w[:], false) }

// farAhead is how far into the future a schedule is followed: over a week, with a change of summer
// time.
const farAhead = 9 * 24 * time.Hour

// nextChange returns the first time after t at which some of the hours begin or end, and for which
// differs is true; zero if there is none.
func nextChange(all []Hours, t time.Time, differs func(time.Time) bool) time.Time {
	for at := t; at.Sub(t) < farAhead; {
		next := time.Time{}
		for i := range all {
			next = sooner(next, all[i].next(at))
		}
		if next.IsZero() {
			break
		}
		if differs(next) {
			return next.UTC()
		}
		at = next
	}
	return time.Time{}
}

// never is later than any time of a schedule.
var never = time.Unix(1<<55, 0)

// sooner returns the sooner of two times. The zero Time means never.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// Span is a time from From on, and before Until. The zero Span is none.
type Span struct{ From, Until time.Time }
