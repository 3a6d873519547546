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
// They are kept as far as they are the least since their time, so their units rise. Old ones are
// joined; see thin.
type ebbs []ebb

// mostEbbs bounds the memory of ebbs, and the work. If some forty items are in flight, each giving back half
// of what it was charged, a bucket uses two thirds of its rate with 8, and all of it with 64.
const mostEbbs = 64

// note notes that so many units count at a time. Times never go back.
func (e *ebbs) note(at time.Time, units int64) {
	kept := *e
	for len(kept) > 0 && kept[len(kept)-1].units >= units {
		kept = kept[:len(kept)-1]
	}
	if len(kept) == mostEbbs {
		kept = kept.thin()
	}
	*e = append(kept, ebb{at, units})
}

// thin joins the older half in twos. So the latest times are exact, and those before are known to within a
// part of their age. What left between two that are joined gets less back than it might.
func (e ebbs) thin() ebbs {
	half := len(e) / 2
	for i := range half / 2 {
		e[i] = ebb{e[2*i+1].at, e[2*i].units}
	}
	return append(e[:half/2], e[half:]...)
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
