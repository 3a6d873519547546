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

// takeSlots grants a block of slots, one period apart, or puts the member in the line for them. A block is granted if
// it lies within reach: all that the member wants, or as much as fills half of reach. Where silent members may use slots
// too, the slots of the block are as much further apart.
func (s *step) takeSlots() modelGrant {
	b := s.bucket
	b.setBack(s.now)
	us, rem, due := s.nextSlot()
	asking := whole - s.silent // the shares of those who ask
	if asking < whole/64 {
		return s.refused(s.now + s.reach)
	}
	period := s.period() * (float64(whole) / float64(asking))
	block := max(min(float64(s.wanted), math.Floor(float64(s.reach)/2/period)), 1)
	ahead := b.rank(s.member, s.lastSlot())
	free := max(us, due+ahead*s.turn) - s.reach + int64(math.Ceil((block-1)*period))
	if s.now <= free {
		return s.wait(free + 1)
	}
	b.leaveLine(s.member, int(ahead))

	k := s.blockFrom(us, period)
	span := k + b.skip(k, asking)
	g := modelGrant{number: s.number, units: k, first: us, rem: rem, span: span}
	b.us, b.rem = s.advance(us, rem, span)
	b.at = s.now
	b.full = max(b.full, b.us+s.depth)
	b.expires = s.expiry(max(b.full-s.now, 0))
	return g
}

// setBack keeps the slots as far away as they were if the store's clock has been set back.
func (b *modelBucket) setBack(now int64) {
	if back := b.at - now; back > 0 {
		b.us, b.full, b.at = b.us-back, b.full-back, now
	}
}

// nextSlot returns the next slot that the member may get, and since when a slot is free, whoever asks.
func (s *step) nextSlot() (us, rem, due int64) {
	us, rem = s.bucket.us, s.bucket.rem
	if rem >= s.parts { // the last member to ask had another rate
		us, rem = us+1, 0
	}
	// A slot that was lost begins before the fence. So the first one after it is a gap later.
	due = max(us, s.class.fence+int64(math.Ceil(s.period())), s.quiet)
	if start := max(s.now+s.lead-s.depth, due); us < start {
		us, rem = start, 0
	}
	return us, rem, due
}

// period returns the time from a slot to the next, in microseconds.
func (s *step) period() float64 { return float64(s.quo) + float64(s.rem)/float64(s.parts) }

// advance returns the slot n periods after a slot.
func (s *step) advance(us, rem, n int64) (int64, int64) {
	sum := rem + n*s.rem
	return us + n*s.quo + sum/s.parts, sum % s.parts
}

// blockFrom returns how many slots from us on the member gets: those within reach, and not fewer than it needs.
func (s *step) blockFrom(us int64, period float64) int64 {
	within := int64(math.Floor(float64(s.now+s.reach-us) / period))
	if s.need > 1 { // items of several units need whole blocks: the slot that begins last within reach counts, too
		within++
	}
	return max(min(s.wanted, max(1, within)), s.need)
}

// skip returns how many slots silent members use beside k that are granted. asking is the shares of all others.
func (b *modelBucket) skip(k, asking int64) (n int64) {
	if asking < whole {
		b.owed += k * (whole - asking)
		n, b.owed = b.owed/asking, b.owed%asking
	}
	return n
}

// lastSlot returns when the last block of the member began; 0 if it had none.
func (s *step) lastSlot() int64 {
	if g := s.bucket.grants[s.member]; g != nil {
		return g.first
	}
	return 0
}

// rank returns how many members wait before this one, which need not be in the line. last is its last slot.
func (b *modelBucket) rank(member string, last int64) (n int64) {
	for i, w := range b.line {
		if w.member == member {
			return int64(i)
		}
		if w.since < last {
			n++
		}
	}
	return n
}

// leaveLine removes a member and the first ahead others, which have missed their turns.
func (b *modelBucket) leaveLine(member string, ahead int) {
	b.line = slices.DeleteFunc(b.line, func(w waiting) bool { return w.member == member })
	b.line = b.line[min(ahead, len(b.line)):]
}

// wait puts the member in the line for the next slot that comes within reach, and has it ask again at retry. The member
// whose last slot is the longest ago comes first, so that an urgent item of an idle member passes the bulk of others.
func (s *step) wait(retry int64) modelGrant {
	b := s.bucket
	if !slices.ContainsFunc(b.line, func(w waiting) bool { return w.member == s.member }) {
		b.line = append(b.line, waiting{s.member, s.lastSlot()})
		slices.SortFunc(b.line, func(a, o waiting) int {
			return cmp.Or(cmp.Compare(a.since, o.since), cmp.Compare(a.member, o.member))
		})
	}
	b.lineEnd = s.expiry(retry - s.now)
	return s.refused(retry)
}
