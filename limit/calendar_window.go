package limit

import (
	"time"

	"shaper/calendar"
	"shaper/unit"
)

// CalendarWindow lets a number of units leave in each day, week or month of a zone: the whole
// units that the rate allows in a nominal one, of 24 hours, 7 days or 30 days. So 1,000 a day
// are 1,000 also in a day of 23 or of 25 hours.
//
// In each window at most limit units leave. An item of more than limit leaves in an empty
// window, and the windows that follow pay for it.
//
// Windows follow the wall clock, since midnight does: in a month the monotonic clock may differ
// from it by seconds. So Next returns times without a monotonic reading. If the wall clock is set
// back, the present window goes on until the clock shows its end. So no window comes twice.
type CalendarWindow struct {
	Start
	windows calendar.Windows
	limit   int64 // units in a window

	start, end time.Time // of this window; without a monotonic reading
	used       int64     // units in this window
	owed       int64     // units that have left, and that no window has counted yet
	ebbs       ebbs      // low-water marks of what a window had to pay when it began, for Amend
}

// NewCalendarWindow returns a limiter from which nothing has left at now.
func NewCalendarWindow(now time.Time, rate unit.Rate, windows calendar.Windows) *CalendarWindow {
	w := &CalendarWindow{windows: windows}
	w.start, w.end = windows.Around(now.Round(0))
	w.SetRate(now, rate, 0)
	return w
}

// Next implements Limiter. It is as exact as that of FixedWindow.
func (w *CalendarWindow) Next(now time.Time, ahead, n int64) time.Time {
	return w.next(w.limit, now, ahead, n)
}

// NextAt implements Window.
func (w *CalendarWindow) NextAt(rate unit.Rate, now time.Time, ahead, n int64) time.Time {
	return w.next(windowLimit(rate, w.windows.Period.Nominal()), now, ahead, n)
}

// next is Next if a limit holds from now on.
func (w *CalendarWindow) next(limit int64, now time.Time, ahead, n int64) time.Time {
	if limit == 0 {
		return Never
	}
	then := *w
	then.advance(now)
	n = min(n, limit)
	before, room := plus(then.owed, ahead), max(limit-then.used, 0)
	if plus(before, n) <= room {
		return now
	}
	before -= min(before, room)
	windows := 1 + before/limit
	if before%limit > limit-n {
		windows++
	}
	return then.after(windows)
}

// Take implements Limiter.
func (w *CalendarWindow) Take(_, now time.Time, n int64) {
	w.turn(now)
	w.owed = min(plus(w.owed, n), maxUnits)
	w.pay()
}

// SetRate implements Limiter. What has left in this window counts against the new limit.
func (w *CalendarWindow) SetRate(now time.Time, rate unit.Rate, _ int64) {
	w.turn(now)
	w.limit = windowLimit(rate, w.windows.Period.Nominal())
}

// Memory implements Limiter. Used[0] is what the window has let out, or if something is owed that,
// as a negative number, as in counters. Used[1] is when the window began by the wall clock, in
// seconds since 1970. At says the same by the clock of now, and cannot replace it: by the time of
// Remember, the two clocks may differ.
func (w *CalendarWindow) Memory(now time.Time) (m Memory, whole bool) {
	w.turn(now)
	m = Memory{Until: now, At: byClockOf(now, w.start), Used: [2]int64{w.used, w.start.Unix()}}
	switch {
	case w.owed > 0 && w.limit == 0:
		m.Until = Never
	case w.used > 0:
		windows := 1 + (w.owed+max(w.limit, 1)-1)/max(w.limit, 1)
		m.Until = byClockOf(now, w.after(windows)).Add(setBack)
	}
	if w.owed > 0 {
		m.Used[0] = -(w.owed + max(w.used-w.limit, 0))
	}
	return m, true
}

// setBack is for how long after its last window a limiter is not forgotten. If the wall clock is set
// back by no more than that, the limiter still knows the window, and does not open it again.
const setBack = time.Hour

// Remember implements Limiter. The limiter may have been that of another key.
func (w *CalendarWindow) Remember(m Memory) {
	if start := time.Unix(m.Used[1], 0); !start.Equal(w.start) { // mostly it is the same window
		w.start, w.end = w.windows.Around(start)
	}
	w.ebbs = w.ebbs[:0]
	if w.used, w.owed = m.Used[0], 0; w.used < 0 {
		w.used, w.owed = w.limit, -m.Used[0]
	}
}

// Record implements Recorder. Its numbers are Memory.Used: when the window began counts from 1970, and
// not from now.
func (w *CalendarWindow) Record(now time.Time) []int64 {
	m, _ := w.Memory(now)
	if !m.Until.After(now) {
		return nil
	}
	return m.Used[:]
}

// Recall implements Recorder.
func (w *CalendarWindow) Recall(then time.Time, record []int64) bool {
	if len(record) != 2 || then.Sub(time.Unix(record[1], 0)).Abs() > mostApart {
		return false
	}
	w.Remember(Memory{Used: [2]int64(record)})
	return true
}

// mostApart bounds how far the beginning of a window may be from the time of its record: a window lasts
// a month at most, but somebody may have set the clock. A record beyond that is damaged.
const mostApart = 366 * 24 * time.Hour

// turn is advance. If a window begins, turn notes in ebbs what it has to pay.
func (w *CalendarWindow) turn(now time.Time) {
	before := w.start
	if w.advance(now); !w.start.Equal(before) {
		w.ebbs.note(w.start, w.used+w.owed)
	}
}

// advance moves to the window that contains now. If the wall clock goes back, it stays in the
// present window.
func (w *CalendarWindow) advance(now time.Time) {
	for now = now.Round(0); !now.Before(w.end); w.pay() {
		next := w.end
		if w.owed == 0 {
			next = now
		}
		w.start, w.end = w.windows.Around(next)
		w.used = 0
	}
}

// after returns when the n-th window after this one begins. Mostly n is 1, and the calendar need not
// be asked.
func (w *CalendarWindow) after(n int64) time.Time {
	if n == 1 {
		return w.end
	}
	return w.windows.After(w.start, n)
}

// pay moves what is owed into this window as far as that has room.
func (w *CalendarWindow) pay() {
	n := min(w.owed, max(w.limit-w.used, 0))
	w.used += n
	w.owed -= n
}
