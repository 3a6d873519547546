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
	next, due := s.nextSlot()
	asking := whole - s.silent // the shares of those who ask
	if asking < whole/64 {
		return s.refused(s.now + s.reach)
	}
	period := s.period.length() * (float64(whole) / float64(asking))
	block := max(min(float64(s.wanted), math.Floor(float64(s.reach)/2/period)), 1)
	ahead := b.rank(s.member, b.lastSlot(s.member))
	free := max(int64(next.us), due+ahead*s.turn) - s.reach + int64(math.Ceil((block-1)*period))
	if s.now <= free {
		return s.wait(free + 1)
	}
	b.leaveLine(s.member, int(ahead))

	k := s.blockFrom(int64(next.us), period)
	span := k + b.skip(k, asking)
	g := modelGrant{number: s.number, units: k, first: int64(next.us), rem: next.rem, span: span, till: s.class.moved}
	b.expires = s.expiry(b.leadTo(s.period.after(next, span), s.now, s.depth))
	return g
}

// leadTo notes which slot comes next, and returns how long after now the bucket makes a difference.
func (b *modelBucket) leadTo(next slotTime, now, depth int64) (lasts int64) {
	b.next, b.at = next, now
	b.full = max(b.full, int64(next.us)+depth)
	return max(b.full-now, 0)
}

// moveSlots moves the next slot, and has members move what they have been granted. It does so for the class itself only, of which
// each member hears soon. What was granted before a loss stays: it has to end before the fence. A call may come again.
func (s *step) moveSlots() {
	b, m := s.bucket, s.class.members[s.member]
	if b != s.class.buckets[""] || s.kind != int64(Slots) || s.now < s.class.recover || m == nil || s.number <= m.moved {
		return
	}
	b.setBack(s.now)
	next := slotTime{max(b.next.us, Stamp(s.now)) + Stamp(s.wanted), b.next.rem}
	b.expires = s.expiry(b.leadTo(next, s.now, s.depth))
	s.class.moved += s.wanted
	m.moved = s.number
}

// setBack keeps the slots as far away as they were if the store's clock has been set back, and the line as it was: who had a slot
// before that has waited longer than who had one since.
func (b *modelBucket) setBack(now int64) {
	back := b.at - now
	if back <= 0 {
		return
	}
	b.next.us, b.full, b.at = b.next.us-Stamp(back), b.full-back, now
	for _, g := range b.grants {
		g.first -= back
	}
	for i := range b.line {
		b.line[i].since -= back
	}
}

// nextSlot returns the next slot that the member may get, and since when a slot is free, whoever asks.
func (s *step) nextSlot() (next slotTime, due int64) {
	next = s.bucket.next
	if next.rem >= s.period.parts { // the last member to ask had another rate
		next = slotTime{us: next.us + 1}
	}
	// A slot that was lost begins before the fence. So the first one after it is a gap later.
	due = max(int64(next.us), s.class.fence+int64(math.Ceil(s.period.length())), s.quiet)
	if start := max(s.now+s.lead-s.depth, due); int64(next.us) < start {
		next = slotTime{us: Stamp(start)}
	}
	return next, due
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

// lastSlot returns when the last block of a member began; 0 if it had none.
func (b *modelBucket) lastSlot(member string) int64 {
	if g := b.grants[member]; g != nil {
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
		b.line = append(b.line, waiting{s.member, b.lastSlot(s.member)})
		slices.SortFunc(b.line, func(a, o waiting) int {
			return cmp.Or(cmp.Compare(a.since, o.since), cmp.Compare(a.member, o.member))
		})
	}
	b.lineEnd = s.expiry(retry - s.now)
	return s.refused(retry)
}
