// Package calendar computes with time zones: when a day, a week or a month begins, and when
// a clock on the wall shows a time of day. Days have 23 or 25 hours if summer time begins or
// ends, and each of them begins once.
//
// Files call downwards only, in this order:
//
//	calendar  periods of the calendar: days, weeks and months
//	clock     times of day, and when a clock shows them
//	zone      time zones by name
package calendar

import (
	"fmt"
	"time"
)

// Period is a period of the calendar. The zero Period is none.
type Period string

// The periods of the calendar.
const (
	Day   Period = "day"
	Week  Period = "week" // from Monday
	Month Period = "month"
)

// Nominal returns how long a period is if nothing but its name is known: 24 hours, 7 days or
// 30 days.
func (p Period) Nominal() time.Duration {
	switch p {
	case Week:
		return 7 * 24 * time.Hour
	case Month:
		return 30 * 24 * time.Hour
	}
	return 24 * time.Hour
}

// PeriodOf returns the period of which a duration is the nominal length; "" for none.
func PeriodOf(nominal time.Duration) Period {
	for _, p := range []Period{Day, Week, Month} {
		if p.Nominal() == nominal {
			return p
		}
	}
	return ""
}

// Windows divide all time into days, weeks or months. Each begins when a clock in the zone
// shows Reset, on the first day of its period. The zero Windows has no Period and divides
// nothing.
type Windows struct {
	Period Period
	Zone   Zone
	Reset  Clock
}

// String says which windows these are: "day from 00:00 in UTC".
func (w Windows) String() string {
	return fmt.Sprintf("%s from %v in %v", w.Period, w.Reset, w.Zone)
}

// Around returns when the window begins and ends in which t is. The end belongs to the next
// window. Only the reading of t's wall clock matters.
func (w Windows) Around(t time.Time) (start, end time.Time) {
	loc := w.Zone.Location()
	y, m, d := t.In(loc).Date()
	switch w.Period {
	case Week:
		d -= int(time.Date(y, m, d, 0, 0, 0, 0, time.UTC).Weekday()+6) % 7
	case Month:
		d = 1
	}
	n := 0 // periods after this date
	for start = w.begin(y, m, d, n, loc); start.After(t); start = w.begin(y, m, d, n, loc) {
		n--
	}
	for end = w.begin(y, m, d, n+1, loc); !end.After(t); end = w.begin(y, m, d, n+1, loc) {
		start = end // the zone has skipped a day, or the date comes twice
		n++
	}
	return start, end
}

// After returns when the window begins that is n windows after the one that begins at start.
func (w Windows) After(start time.Time, n int64) time.Time {
	n = min(n, 1<<20) // thousands of years
	loc := w.Zone.Location()
	y, m, d := start.In(loc).Date()
	return w.begin(y, m, d, int(n), loc)
}

// begin returns when the window begins that is n periods after a date.
func (w Windows) begin(y int, m time.Month, d, n int, loc *time.Location) time.Time {
	switch w.Period {
	case Week:
		d += 7 * n
	case Month:
		m += time.Month(n)
	default:
		d += n
	}
	return w.Reset.On(y, m, d, loc)
}
