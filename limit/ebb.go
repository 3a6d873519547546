package limit

import (
	"slices"
	"time"
)

// An ebb is a low-water mark: how many units of all that had left still counted at a time.
type ebb struct {
	at    time.Time
	units int64
}

// ebbs bound what an item may get back that turns out to cost less than it was charged: no more than
// the lowest mark since it left. Why: suppose that at some moment u units of all items counted. If
// the item had cost u less, nothing would have counted then: the token bucket would have been full, and the
// window would have had nothing to pay. To have cost even less would have changed nothing.
//
// Only a mark that is lower than all later ones matters, so their units rise. Old marks are
// joined; see thin.
type ebbs []ebb

// mostEbbs bounds the memory of ebbs, and the work. If some forty items are in flight, each giving back half
// of what it was charged, a token bucket uses two thirds of its rate with 8, and all of it with 64.
const mostEbbs = 64

// note adds a mark, and drops those that are not lower. Times never go back.
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

// thin joins the older half of the marks in pairs: the later time, and the lower mark. An item that left
// between the two may get less back than it could, and never more. Later items lose nothing.
func (e ebbs) thin() ebbs {
	half := len(e) / 2
	for i := range half / 2 {
		e[i] = ebb{e[2*i+1].at, e[2*i].units}
	}
	return append(e[:half/2], e[half:]...)
}

// giveBack returns how many units an item gets back that left at the time then, and that costs n units
// less than it was charged: n, or the lowest mark since then if that is less. It lowers the marks by that.
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
