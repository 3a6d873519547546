package limit

import (
	"math"
	"time"
)

// An Amender is a Limiter that can correct what it has charged, when somebody knows better
// what an item costs. Answers say that of messages and tokens. A message that leaves in the turn of
// another one costs less in bytes, too.
type Amender interface {
	// Amend says at now that the item that left at the time then costs n units more than Take
	// charged for it; if n is negative, it costs less. What it costs less is given back as far
	// as it still counts. A window gets nothing back for an item that left in another window, except
	// what it still pays for one larger than a window. A token bucket never has more than its burst.
	Amend(now, then time.Time, n int64)
}

// Amend calls Amend of a limiter that has it. Others keep what they have charged. A limiter gives
// nothing back for an item that another one has charged, before it took the place of that.
func Amend(l Limiter, now, then time.Time, n int64) {
	if s, ok := l.(successor); ok && n < 0 && !s.charged(then) {
		return
	}
	if a, ok := l.(Amender); ok {
		a.Amend(now, then, n)
	}
}

// AmendWindows is Amend for those of the limits of l that count in windows. The others keep what they have
// charged.
func AmendWindows(l Limiter, now, then time.Time, n int64) {
	for _, part := range Parts(l) {
		switch part.(type) {
		case *FixedWindow, *SlidingWindow, *SlidingLog, *CalendarWindow:
			Amend(part, now, then, n)
		}
	}
}

// Amend implements Amender, for each part.
func (a *All) Amend(now, then time.Time, n int64) {
	for _, l := range a.parts {
		Amend(l, now, then, n)
	}
}

// Amend implements Amender. What is given back beyond the burst is lost.
func (t *Token) Amend(now, then time.Time, n int64) {
	now = t.see(now)
	if n >= 0 {
		t.Take(now, now, n)
		return
	}
	back := t.ebbs.giveBack(then, min(-n, maxUnits))
	t.bucket.ReserveN(now, -int(back))         // a negative number adds tokens, also to a debt
	t.bucket.SetBurstAt(now, t.bucket.Burst()) // and this takes away those above the burst
}

// Amend implements Amender. TAT never becomes a time before now.
func (g *GCRA) Amend(now, then time.Time, n int64) {
	if n >= 0 {
		g.Take(now, now, n)
		return
	}
	g.arrive(now)
	n = -g.ebbs.giveBack(then, -n)
	whole, part, _ := g.missing()
	if whole+n < 0 || whole+n == 0 && part == 0 {
		g.tat, g.owed = g.now, 0 // the token bucket is full
		return
	}
	units, ns := g.rate.Exact()
	if g.owed += n; g.owed >= 0 || units == 0 {
		return
	}
	periods := (-g.owed-1)/units + 1 // TAT goes back by whole nanoseconds only
	g.tat, g.owed = g.tat.Add(-time.Duration(periods*ns)), g.owed+periods*units
}

// Amend implements Amender. What is still owed is given back first, then what has left in this
// window. What left in a window that is over and paid for has no room to give back, but it weighs
// less in the next one.
func (c *counters) Amend(now, then time.Time, n int64) {
	if n >= 0 {
		c.Take(now, now, n)
		return
	}
	c.turn(now)
	back := c.ebbs.giveBack(then, -n)
	if since := then.Sub(c.zero); since < c.start && since >= c.start-c.window {
		reduce(&c.before, -n-back)
	}
	back -= reduce(&c.owed, back)
	reduce(&c.used, back)
	c.pay()
}

// Amend implements Amender; see counters.
func (w *CalendarWindow) Amend(now, then time.Time, n int64) {
	if n >= 0 {
		w.Take(now, now, n)
		return
	}
	w.turn(now)
	back := w.ebbs.giveBack(then.Round(0), -n)
	back -= reduce(&w.owed, back)
	reduce(&w.used, back)
	w.pay()
}

// reduce takes up to n units away, and returns how many.
func reduce(from *int64, n int64) int64 {
	n = min(n, *from)
	*from -= n
	return n
}

// Amend implements Amender. What costs more is logged as a departure of now. What costs less
// is taken out of the log, from when the item was charged on: it may have left later. An item that
// fills fewer windows then is noted that much earlier.
func (l *SlidingLog) Amend(now, then time.Time, n int64) {
	if n >= 0 {
		l.Take(now, now, n)
		return
	}
	since, at := max(now.Sub(l.zero), 0), max(then.Sub(l.zero), 0)
	l.forget(since)
	switch {
	case l.isLarge(at):
		l.shorten(l.firstFrom(at), -n)
	case plus(at, l.window) > since:
		l.withdraw(at, math.MaxInt64, -n)
	}
	l.dropEmpty()
}

// dropEmpty drops the last departures of which nothing remains. Turns that are lost, one after the other, would else
// fill the log with them, and what leaves then would join the last one.
func (l *SlidingLog) dropEmpty() {
	for l.log.n > 0 && l.unitsIn(l.log.n-1) == 0 {
		l.log.n--
	}
}

// shorten takes up to n units out of an entry, and makes it earlier by as many windows as it fills no more, but no
// earlier than the one before it.
func (l *SlidingLog) shorten(entry int, n int64) {
	d, filled := l.log.at(entry), l.spread(l.unitsIn(entry))
	l.withdraw(d.at, math.MaxInt64, min(n, l.unitsIn(entry)))
	if d.at -= filled - l.spread(l.unitsIn(entry)); entry > 0 {
		d.at = max(d.at, l.log.at(entry-1).at)
	}
}

// isLarge reports whether the item that was charged at a time is in the log as one that fills several windows, by
// the limit of now. No other such item is charged within a window of it, since that waits until the log is empty.
func (l *SlidingLog) isLarge(at time.Duration) bool {
	first := l.firstFrom(at)
	if first == l.log.n || at < l.changed {
		return false
	}
	late := l.spread(l.unitsIn(first))
	left := l.log.at(first).at - late
	return late > 0 && left >= at && left < plus(at, l.window)
}
