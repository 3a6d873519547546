package fleet

import (
	"cmp"
	"math"
	"slices"
)

// A waiting member is in the line for the next slot.
type waiting struct {
	member string
	since  int64 // its last slot
}

// advance returns the slot n periods after a slot.
func (s *step) advance(us, rem, n int64) (int64, int64) {
	sum := rem + n*s.rem
	return us + n*s.quo + sum/s.parts, sum % s.parts
}

// takeSlots grants departure times, one period apart.
func (s *step) takeSlots() modelGrant {
	b := s.bucket
	us, rem := b.us, b.rem
	if b.at > s.now {
		us -= b.at - s.now
		b.us, b.full, b.at = us, b.full-(b.at-s.now), s.now
	}
	if rem >= s.parts { // of a member with another rate
		us, rem = us+1, 0
	}
	gap := int64(math.Ceil(float64(s.quo) + float64(s.rem)/float64(s.parts)))
	due := max(us, s.class.fence+gap, s.quiet) // the slot has been free since, whoever asked
	if start := max(s.now+s.lead-s.depth, due); us < start {
		us, rem = start, 0
	}
	f := whole - s.silent
	if f < whole/64 {
		return s.refused(s.now + s.reach)
	}
	period := (float64(s.quo) + float64(s.rem)/float64(s.parts)) * (float64(whole) / float64(f))
	block := max(min(float64(s.wanted), math.Floor(float64(s.reach)/2/period)), 1)
	ahead := b.place(s.member, s.lastSlot())
	free := max(us, due+ahead*s.turn) - s.reach + int64(math.Ceil((block-1)*period))
	if s.now <= free {
		return s.wait(free + 1)
	}
	b.leaveLine(s.member, int(ahead))

	lastToo := int64(0) // items of several units need whole blocks: then the slot that begins last within reach counts, too
	if s.need > 1 {
		lastToo = 1
	}
	k := max(min(s.wanted, max(1, int64(math.Floor(float64(s.now+s.reach-us)/period))+lastToo)), s.need)
	skip := int64(0)
	if f < whole {
		b.owed += k * (whole - f)
		skip, b.owed = b.owed/f, b.owed%f
	}
	g := modelGrant{number: s.number, units: k, first: us, rem: rem, span: k + skip}
	b.us, b.rem = s.advance(us, rem, k+skip)
	b.at = s.now
	b.full = max(b.full, b.us+s.depth)
	b.expires = s.now + (int64(math.Ceil(float64(max(b.full-s.now, 0))/1000))+10000)*1000
	return g
}

// lastSlot returns when the last block of the member began; 0 if it had none.
func (s *step) lastSlot() int64 {
	if g := s.bucket.grants[s.member]; g != nil {
		return g.first
	}
	return 0
}

// place returns how many members wait before this one.
func (b *modelBucket) place(member string, last int64) (ahead int64) {
	for i, w := range b.line {
		if w.member == member {
			return int64(i)
		}
		if w.since < last {
			ahead++
		}
	}
	return ahead
}

// leaveLine removes a member and the first ahead others, which have missed their turns.
func (b *modelBucket) leaveLine(member string, ahead int) {
	b.line = slices.DeleteFunc(b.line, func(w waiting) bool { return w.member == member })
	b.line = b.line[min(ahead, len(b.line)):]
}

// wait puts the member in the line for the next slot that comes within the horizon.
func (s *step) wait(retry int64) modelGrant {
	b := s.bucket
	if !slices.ContainsFunc(b.line, func(w waiting) bool { return w.member == s.member }) {
		b.line = append(b.line, waiting{s.member, s.lastSlot()})
		slices.SortFunc(b.line, func(a, o waiting) int {
			return cmp.Or(cmp.Compare(a.since, o.since), cmp.Compare(a.member, o.member))
		})
	}
	b.lineEnd = s.now + (int64(math.Ceil(float64(retry-s.now)/1000))+10000)*1000
	return s.refused(retry)
}
