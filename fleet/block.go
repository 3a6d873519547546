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

// lateness says how late a slot may be used.
type lateness struct {
	slot time.Duration // any slot
	own  time.Duration // how much later for each slot that the same block has after it: departures may catch up there
}

// first returns the first unit at which an item of n units may still leave at a time. It is b.units if there
// is none. A slot that is later than l.slot, and after which the block has not enough slots to catch up, is lost.
func (b *block) first(at time.Time, n int64, l lateness) int64 {
	if !b.till.IsZero() {
		if b.used == b.units || !at.Before(b.till) {
			return b.units
		}
		return b.used
	}
	lost, usable := b.used, b.since(at.Add(-l.slot))
	if l.own == 0 {
		return usable
	}
	for lost < usable { // the first usable one is in [lost, usable]
		middle := lost + (usable-lost)/2
		late := l.slot + l.own*time.Duration(max(b.units-middle-n, 0))
		if b.slot(middle).Add(late).Before(at) {
			lost = middle + 1
		} else {
			usable = middle
		}
	}
	return usable
}

// since returns the first unit whose slot is not before a time.
func (b *block) since(after time.Time) int64 {
	missed := after.Sub(b.at)
	if missed <= 0 || b.used == b.units {
		return b.used
	}
	slots := b.rate.Units(missed-1) + 1 // those that begin before after
	i := slots
	if b.span != b.units {
		i = (slots-1)*b.units/b.span + 1
	}
	return min(max(i, b.used), b.units)
}
