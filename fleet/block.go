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
	till   time.Time // when the units of a window end; zero: these are slots
	units  int64
	span   int64 // the slots that the units are spread over, evenly
	used   int64 // units that have left or were lost
	local  bool  // of the member's own share
}

// left returns how many units the block still has.
func (b *block) left() int64 { return b.units - b.used }

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

// first returns the first unit that may leave at now or later: its slot is not before floor, and
// not more than tolerance before now. It is b.units if there is none.
func (b *block) first(now, floor time.Time, tolerance time.Duration) int64 {
	if b.used == b.units {
		return b.units
	}
	if !b.till.IsZero() {
		if !now.Before(b.till) || floor.After(b.till) {
			return b.units
		}
		return b.used
	}
	after := now.Add(-tolerance)
	if floor.After(after) {
		after = floor
	}
	missed := after.Sub(b.at)
	if missed <= 0 {
		return b.used
	}
	slots := b.rate.Units(missed-1) + 1 // those that begin before after
	i := slots
	if b.span != b.units {
		i = (slots-1)*b.units/b.span + 1
	}
	return min(max(i, b.used), b.units)
}
