package limit

import (
	"slices"
	"sort"
	"time"

	"shaper/unit"
)

// All is several limits at once: an item leaves when each of them allows it, and it is charged
// to each. So whatever one of them promises holds. An All may have a closed time, in which
// nothing leaves: a schedule or quiet hours.
//
// The first limit is the one whose rate changes with SetRate. The others have rates of their
// own; see Parts.
type All struct {
	parts  []Limiter
	closed Span
}

// A Span is the time from From until Until, without Until itself. The zero Span contains nothing.
type Span struct{ From, Until time.Time }

// Contains reports whether t is in the span.
func (s Span) Contains(t time.Time) bool { return !t.Before(s.From) && t.Before(s.Until) }

// Next is Limiter.Next for a limiter from which nothing leaves in the span. next is its Next without
// the span.
//
// Some of the units ahead leave before the span begins. If the item does not, it leaves after the span,
// behind the rest of them: at the later of two times, one as if all units ahead were still to leave, and
// one as if only the rest were, from the end of the span on.
func (s Span) Next(now time.Time, ahead, n int64, next func(now time.Time, ahead, n int64) time.Time) time.Time {
	at := next(now, ahead, n)
	switch {
	case !now.Before(s.Until), latest(at, now).Before(s.From):
		return at
	case ahead == 0 && !at.Before(s.Until): // nobody need leave before, and what holds the item up ends after the span
		return at
	}
	gone := sort.Search(int(ahead), func(i int) bool { return !latest(next(now, int64(i), 1), now).Before(s.From) })
	return latest(latest(at, s.Until), next(s.Until, ahead-int64(gone), n))
}

// NewAll returns a limiter of all limits in parts, of which there is at least one. Nothing
// leaves in closed. If a part counts from when an item has actually left, so does the whole,
// as a Settler.
func NewAll(closed Span, parts ...Limiter) Limiter {
	a := &All{parts: parts, closed: closed}
	for _, l := range parts {
		if _, settles := l.(Settler); settles {
			return &settlingAll{a}
		}
	}
	return a
}

// Parts returns the limits of which a limiter consists: those of an All, or else the limiter
// itself. What each of them remembers is in its own Memory.
func Parts(l Limiter) []Limiter {
	switch l := l.(type) {
	case *All:
		return l.parts
	case *settlingAll:
		return l.parts
	}
	return []Limiter{l}
}

// Next implements Limiter. With nothing ahead it is exact. Else it takes the units ahead to
// leave as each limit by itself lets them; if another one delays them, the item may leave later
// than Next says, and never sooner. What is ahead when the closed time begins leaves after it.
func (a *All) Next(now time.Time, ahead, n int64) time.Time {
	return a.closed.Next(now, ahead, n, a.next)
}

// next is Next without the closed time.
func (a *All) next(now time.Time, ahead, n int64) time.Time {
	_, at := a.last(now, ahead, n)
	return at
}

// last returns the part that lets an item leave last, and when.
func (a *All) last(now time.Time, ahead, n int64) (part int, at time.Time) {
	at = a.parts[0].Next(now, ahead, n)
	for i, l := range a.parts[1:] {
		if next := l.Next(now, ahead, n); next.After(at) {
			part, at = i+1, next
		}
	}
	return part, at
}

// Holding returns which limit an item of n units waits for at now if ahead units leave before it: its number among the
// Parts of l, and until when. If it waits for the end of the closed time, part is len(Parts(l)). If it
// need not wait, until is not after now.
func Holding(l Limiter, now time.Time, ahead, n int64) (part int, until time.Time) {
	if s, ok := l.(*settlingAll); ok {
		l = s.All
	}
	a, ok := l.(*All)
	if !ok {
		return 0, l.Next(now, ahead, n)
	}
	part, until = a.last(now, ahead, n)
	if at := a.Next(now, ahead, n); at.After(latest(until, now)) {
		return len(a.parts), at
	}
	return part, until
}

// Take implements Limiter.
func (a *All) Take(since, now time.Time, n int64) {
	for _, l := range a.parts {
		l.Take(since, now, n)
	}
}

// SetRate implements Limiter, for the first limit.
func (a *All) SetRate(now time.Time, rate unit.Rate, burst int64) {
	a.parts[0].SetRate(now, rate, burst)
}

// Memory implements Limiter. It is not whole, since one Memory has no room for several limits:
// whoever knows Parts keeps the Memory of each.
func (a *All) Memory(now time.Time) (m Memory, whole bool) {
	m, whole = a.parts[0].Memory(now)
	for _, l := range a.parts[1:] {
		next, _ := l.Memory(now)
		m.Until = latest(m.Until, next.Until)
	}
	return m, whole && len(a.parts) == 1
}

// Remember implements Limiter, for the first limit.
func (a *All) Remember(m Memory) { a.parts[0].Remember(m) }

// A settlingAll is an All of which a part is a Settler.
type settlingAll struct{ *All }

// Left implements Settler.
func (a *settlingAll) Left(now, then time.Time, n int64) {
	for _, l := range a.parts {
		if s, settles := l.(Settler); settles {
			s.Left(now, then, n)
		}
	}
}

// Alone implements Settler.
func (a *settlingAll) Alone() bool {
	return slices.ContainsFunc(a.parts, func(l Limiter) bool {
		s, settles := l.(Settler)
		return settles && s.Alone()
	})
}

// latest returns the later of two times.
func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
