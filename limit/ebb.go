package limit

import (
	"slices"
	"time"
)

// An ebb says that so many units of all that had left still counted at a time.
type ebb struct {
	at    time.Time
	units int64
}

// ebbs tell how much of an item still counts that left at some time before: no more than counted of
// all items at any moment since. Why: a bucket that lacks u units is full, and a window that has u
// units to pay has paid them, no later than if the item had cost u less. From that moment on it makes
// no difference how much less it has cost.
//
// They are kept as far as they are the least since their time, so their units rise. The oldest are
// joined: what left between them gets less back than it might.
type ebbs []ebb

// mostEbbs bounds the memory of ebbs, and the work.
const mostEbbs = 8

// note notes that so many units count at a time. Times never go back.
func (e *ebbs) note(at time.Time, units int64) {
	kept := *e
	for len(kept) > 0 && kept[len(kept)-1].units >= units {
		kept = kept[:len(kept)-1]
	}
	if len(kept) == mostEbbs {
		kept[1].units = kept[0].units
		kept = slices.Delete(kept, 0, 1)
	}
	*e = append(kept, ebb{at, units})
}

// giveBack returns how many of n units still count that an item costs less which left at the time
// then. They do not count any more afterwards.
func (e *ebbs) giveBack(then time.Time, n int64) int64 {
	since := slices.IndexFunc(*e, func(b ebb) bool { return b.at.After(then) })
	if since < 0 {
		return n
	}
	n = min(n, (*e)[since].units)
	for i := range (*e)[since:] {
		(*e)[since+i].units -= n
	}
	least := (*e)[since].units
	above := slices.IndexFunc(*e, func(b ebb) bool { return b.units >= least })
	*e = slices.Delete(*e, above, since)
	return n
}
