package simulate

import (
	"time"

	"shaper/shaper"
	"shaper/stats"
	"shaper/unit"
)

// An Amount counts items, their bytes, and what a class charges for them.
type Amount struct {
	Items uint64 `json:"items"`
	Bytes uint64 `json:"bytes"` // of payload
	units uint64 // in the unit of the class
}

func (t *tally) add(to *Amount, cost *shaper.Cost) {
	to.Items++
	to.Bytes += uint64(cost.Bytes)
	to.units += t.units(cost)
}

func (t *tally) remove(from *Amount, cost *shaper.Cost) {
	from.Items--
	from.Bytes -= uint64(cost.Bytes)
	from.units -= t.units(cost)
}

// lost counts what was lost, by reason. Only the first reasons occur in a simulation.
type lost [stats.MaxWait + 1]Amount

// A tally counts what a class and all beneath it do.
type tally struct {
	kind                       unit.Kind
	offered, departed, waiting Amount
	most                       Amount // the most that waited at one time
	dropped, refused           lost
	waits                      stats.Histogram
	longest                    time.Duration
	curve                      *curve    // nil: not wanted, or nothing has happened
	level                      *level    // nil: not wanted, or the class has no token bucket
	last                       time.Time // the last departure; zero: there was none
	lastCost                   uint64    // of that, in the unit of kind

	// In a fleet.
	sum   *tally        // of all members; nil: this is it
	gap   time.Duration // the shortest between two departures
	calls uint64        // to the store
}

// units returns what the class charges for an item, in the unit of its rate. Modulo 2^64 it may be less
// than 0, as is what settles an item.
func (t *tally) units(cost *shaper.Cost) uint64 { return uint64(cost.In(t.kind)) }

func (t *tally) arrive(r *run, cost *shaper.Cost) {
	for ; t != nil; t = t.sum {
		t.add(&t.offered, cost)
		t.trace(r)
	}
}

func (t *tally) wait(r *run, cost *shaper.Cost) {
	for ; t != nil; t = t.sum {
		t.add(&t.waiting, cost)
		t.most.Items = max(t.most.Items, t.waiting.Items)
		t.most.Bytes = max(t.most.Bytes, t.waiting.Bytes)
		t.trace(r)
	}
}

// settle notes that an item that is about to leave costs more than it was charged.
func (t *tally) settle(more *shaper.Cost, waited bool) {
	for ; t != nil; t = t.sum {
		if t.offered.units += t.units(more); waited {
			t.waiting.units += t.units(more)
		}
	}
}

func (t *tally) leave(r *run, cost *shaper.Cost, wait time.Duration, waited bool) {
	for ; t != nil; t = t.sum {
		if since := r.now.Sub(t.last); t.departed.Items == 1 || since < t.gap {
			t.gap = since
		}
		t.last, t.lastCost = r.now, t.units(cost)
		t.add(&t.departed, cost)
		if waited {
			t.remove(&t.waiting, cost)
		}
		r.lastLeft = r.now
		t.waits.Observe(wait)
		t.longest = max(t.longest, wait)
		t.trace(r)
	}
}

// lose notes that an item was lost: it was dropped or refused.
func (t *tally) lose(reason stats.Reason, dropped bool, cost *shaper.Cost) {
	for ; t != nil; t = t.sum {
		if dropped {
			t.add(&t.dropped[reason], cost)
		} else {
			t.add(&t.refused[reason], cost)
		}
	}
}

// call notes a call to the store of a fleet.
func (t *tally) call() {
	for ; t != nil; t = t.sum {
		t.calls++
	}
}

// quit notes that an item will not leave.
func (t *tally) quit(cost *shaper.Cost, waited bool) {
	for ; t != nil && waited; t = t.sum {
		t.remove(&t.waiting, cost)
	}
}

// trace notes the state for a plot.
func (t *tally) trace(r *run) {
	if !r.Curves {
		return
	}
	if t.curve == nil {
		t.curve = newCurve()
	}
	t.curve.note(r.now.Sub(r.start), point{t.offered.units, t.departed.units, t.waiting.units})
}
