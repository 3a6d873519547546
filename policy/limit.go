package policy

import (
	"time"

	"shaper/calendar"
	"shaper/unit"
)

// Limit is one of several limits of a class: how much may leave, and how that is counted.
type Limit struct {
	Rate      unit.Rate      `json:"rate"`
	Algorithm Algorithm      `json:"algorithm"`
	Burst     Burst          `json:"burst,omitzero"`
	Window    Window         `json:"window,omitzero"`
	Zone      calendar.Zone  `json:"zone,omitzero"`
	Reset     calendar.Clock `json:"reset,omitzero"`
	Headroom  unit.Percent   `json:"headroom,omitzero"`
}

// Own returns the limit of the class itself, beside which those of Also hold.
func (c Class) Own() Limit {
	return Limit{Rate: c.Limit(), Algorithm: c.Algorithm, Burst: c.Burst, Window: c.Window, Zone: c.Zone, Reset: c.Reset, Headroom: c.Headroom}
}

// WindowInForce returns the length of the window. If the file leaves that out, it is the period
// of the rate as written: 15 minutes for "20000 packets/15min". A period of the calendar has
// its nominal length.
func (l Limit) WindowInForce() time.Duration {
	switch {
	case l.Window.Length > 0:
		return time.Duration(l.Window.Length)
	case l.Window.Period != "":
		return l.Window.Period.Nominal()
	}
	return l.Rate.Period()
}

// hasOtherWindowAt reports whether the limit would count in another window at a rate, because the file leaves
// its window out. What has left under one window fills a whole one of another length.
func (l Limit) hasOtherWindowAt(rate unit.Rate) bool {
	return l.Algorithm.HasWindow() && l.Window.IsZero() && rate.Period() != l.Rate.Period()
}

// Calendar returns the windows of the calendar in which the limit counts; zero if it counts in
// none.
func (l Limit) Calendar() calendar.Windows {
	if l.Window.Period == "" {
		return calendar.Windows{}
	}
	return calendar.Windows{Period: l.Window.Period, Zone: l.Zone, Reset: l.Reset}
}

// WindowText prints the window in force: "15min", or "day from 00:00 in Europe/Paris".
func (l Limit) WindowText() string {
	if w := l.Calendar(); w.Period != "" {
		return w.String()
	}
	return unit.FormatDuration(l.WindowInForce())
}

// AtOnce returns how much may leave at once according to the policy, in the unit of the rate:
// what a window allows, or Burst. It returns 0 if that is one quantum.
func (l Limit) AtOnce() int64 {
	switch {
	case l.Algorithm.HasWindow():
		return l.Rate.Below(l.Headroom).Units(l.WindowInForce())
	case l.Algorithm.HasBurst():
		return l.Burst.N
	}
	return 0
}

// setWindow makes the limit count by the calendar, in the period of its rate.
func (l *Limit) setWindow() {
	if l.Window == (Window{}) {
		l.Window.Period = calendar.PeriodOf(l.Rate.Period())
	}
}

// algorithmFor returns the algorithm of a limit that names none. Below a minute a provider
// counts items that come too close, up to an hour in any window, and above by the clock. A log
// of more than an hour would take too much memory.
func algorithmFor(l *Limit) Algorithm {
	switch window := l.WindowInForce(); {
	case l.Window.Period != "", window > time.Hour:
		return FixedWindow
	case window >= time.Minute:
		return SlidingLog
	}
	return GCRA
}

// Window is the length of a window, or the period of the calendar that is one. The zero Window
// is the period of the rate.
type Window struct {
	Length unit.Duration
	Period calendar.Period
}

// IsZero reports whether the window is left out, which means the period of the rate.
func (w Window) IsZero() bool { return w == Window{} }

// String prints the window as a policy file has it, and the zero Window as "0s".
func (w Window) String() string {
	if w.Period != "" {
		return string(w.Period)
	}
	return w.Length.String()
}

// MarshalText is String.
func (w Window) MarshalText() ([]byte, error) { return []byte(w.String()), nil }

// UnmarshalText reads what String prints.
func (w *Window) UnmarshalText(text []byte) (err error) {
	if *w = (Window{}); string(text) != w.String() {
		*w, err = parseWindow(string(text))
	}
	return err
}

// parseWindow reads the key window: a duration or a period of the calendar.
func parseWindow(s string) (w Window, err error) {
	switch p := calendar.Period(s); p {
	case calendar.Day, calendar.Week, calendar.Month:
		return Window{Period: p}, nil
	}
	if w.Length, err = parseWait(s); err != nil {
		c := complaintOf(err)
		err = complaint{problem: c.problem, allowed: c.allowed + `, or a period of the calendar: "day", "week" or "month"`}
	}
	return w, err
}

const (
	zoneForm  = `the name of a time zone is like "UTC", "Europe/Paris" or "America/Los_Angeles"`
	clockForm = `a time of day is like "00:00", "09:30" or "23:59"`
)

// parseZone reads the name of a time zone.
func parseZone(s string) (calendar.Zone, error) {
	z, err := calendar.ParseZone(s)
	if err != nil {
		err = complain(zoneForm, "%q is not the name of a time zone", s)
	}
	return z, err
}

// parseReset reads a time of day that begins a day.
func parseReset(s string) (calendar.Clock, error) {
	c, err := calendar.ParseClock(s)
	if err != nil || c == calendar.Midnight {
		return 0, complain(clockForm, "%q is not a time of day from 00:00 to 23:59", s)
	}
	return c, nil
}
