package fleet

import (
	"slices"
	"time"
)

// A spending is what has left at a member's share of a window, and what the store has not heard of: parts, in the order in
// which they left.
type spending []spent

type spent struct {
	units int64
	left  time.Time // when the last of them has left, or later
	until time.Time // from then on they make no difference
	first time.Time // from then on those that came first make none
	told  bool      // a call has told the store of all of them; it may not have answered
}

// spend adds units of a window that leave at now. ends is when the window ends for all members.
func (s *spending) spend(now time.Time, class *Class, units int64, ends time.Time) {
	grain := class.Window / 2 // parts of one window end at about the same time
	switch class.Algorithm {
	case Slots:
		return
	case SlidingLog:
		grain = class.Window / 16
	}
	s.note(spent{units: units, left: now, until: class.countsUntil(now, ends)}, grain)
}

// owe adds units of a class that count until a time. When they left is not known.
func (s *spending) owe(now time.Time, class *Class, units int64, until time.Time) {
	left := now
	if class.Algorithm == SlidingLog && until.Sub(now) < class.Window {
		left = until.Add(-class.Window)
	}
	s.note(spent{units: units, left: left, until: until}, 0)
}

// note adds units. They join the part before them if they count about as long, to within grain.
func (s *spending) note(n spent, grain time.Duration) {
	n.first = n.until
	if i := len(*s) - 1; i >= 0 {
		if last := &(*s)[i]; n.until.Sub(last.first).Abs() < grain {
			last.units += n.units
			last.left, last.until, last.told = latest(last.left, n.left), latest(last.until, n.until), false
			return
		}
	}
	*s = append(*s, n)
}

// units returns how many units count at now.
func (s spending) units(now time.Time) (units int64) {
	for _, part := range s {
		if now.Before(part.until) {
			units += part.units
		}
	}
	return units
}

// until returns from when on nothing of it makes a difference.
func (s spending) until() (at time.Time) {
	for _, part := range s {
		at = latest(at, part.until)
	}
	return at
}

// owes reports whether the store has to hear of any of it.
func (s spending) owes(now time.Time) bool { return s.units(now) > 0 }

// isNews reports whether no call has told the store of some of it.
func (s spending) isNews() bool {
	return slices.ContainsFunc(s, func(part spent) bool { return !part.told })
}

// lapse forgets the first parts if they count no more, and reports whether those were the last ones.
func (s *spending) lapse(now time.Time) (over bool) {
	if len(*s) == 0 {
		return false
	}
	for len(*s) > 0 && !now.Before((*s)[0].until) {
		*s = (*s)[1:]
	}
	return len(*s) == 0
}

// fastest bounds how fast a clock is, one part in so many.
const fastest = 1000

// tell returns what the store has to hear, the first parts if there are many, and notes that a call tells it. Each Age is
// somewhat less than by our clock, which may be fast: no Use may seem older than it is.
func (s spending) tell(now time.Time) []Use {
	uses := make([]Use, 0, len(s))
	for i := range s[:min(len(s), mostUses)] {
		part := &s[i]
		part.told = true
		age := max(now.Sub(part.left), 0)
		uses = append(uses, Use{part.units, age - age/fastest})
	}
	return uses
}

// mostUses bounds what one call tells.
const mostUses = 32
