package fleet

import (
	"time"

	"shaper/unit"
)

// A block is what a member holds of one grant: slots that follow one another, or units of a window.
type block struct {
	number int64
	rate   unit.Rate // of the slots
	from   Stamp     // First of the grant
	at     time.Time // the first slot
	ends   Stamp     // when the units of a window end; of slots, how far they have moved: see Reply.Moved
	till   time.Time // until then they may leave, by what was known of the clock at the grant; see hand.till. Zero: these are slots
	units  int64
	span   int64 // the slots that the units are spread over, evenly
	used   int64 // units that have left or were lost
	again  int64 // of the others, so many count as used already: by an item that has not left
	local  bool  // of the member's own share
	joins  bool  // its slots follow directly on those of the block before it
	need   int32 // what the next item needed when it was asked for
}

// remaining returns how many units the block still has.
func (b *block) remaining() int64 { return b.units - b.used }

// lose drops the units before one, and returns how many.
func (b *block) lose(before int64) (lost int64) {
	lost, b.used = before-b.used, before
	return lost
}

// refill adds units of its window that count as used already.
func (b *block) refill(units int64) {
	b.again += units
	if b.used -= units; b.used < 0 {
		b.units, b.used = b.units-b.used, 0
	}
}

// slot returns when a unit may leave.
func (b *block) slot(i int64) time.Time {
	if !b.till.IsZero() || i == 0 {
		return b.at
	}
	if b.span != b.units {
		i = (i*b.span + b.units - 1) / b.units
	}
	return b.at.Add(b.rate.Time(i))
}

// lateness says how late a slot may be used.
type lateness struct {
	slot time.Duration // any slot
	// A leaky bucket keeps items apart, so that the slots of an item have to follow one another. If others of the
	// same member come after these, departures catch up there, by so much in each.
	keeps bool
	own   time.Duration
}

// first returns the first slot at which an item of n units may still leave at a time. It is b.units if there
// is none. After the block come more units whose slots follow directly on its own.
func (b *block) first(at time.Time, n, more int64, l lateness) int64 {
	fits := b.fits(n, more, l)
	low, high := b.used, b.units // the first that is not too late is in [low, high]
	for middle := low; low < high; middle = low + (high-low)/2 {
		if b.over(middle, fits, l).Before(at) {
			low = middle + 1
		} else {
			high = middle
		}
	}
	if low > fits {
		return b.units
	}
	return low
}

// fits returns the last unit at which an item of n units may leave: too few slots follow on later ones.
func (b *block) fits(n, more int64, l lateness) int64 {
	if l.keeps {
		return b.units + more - n
	}
	return b.units
}

// over returns until when an item may leave at its first slot i, if the last one at which it could is fits.
func (b *block) over(i, fits int64, l lateness) time.Time {
	return b.slot(i).Add(l.slot + l.own*time.Duration(fits-i))
}
