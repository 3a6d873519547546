package simulate

import (
	"time"

	"shaper/shaper"
	"shaper/stats"
	"shaper/unit"
)

// An Amount counts items and their bytes.
type Amount struct {
	Items uint64 `json:"items"`
	Bytes uint64 `json:"bytes"` // of payload
}

func (a *Amount) add(bytes int64) {
	a.Items++
	a.Bytes += uint64(bytes)
}

func (a *Amount) remove(bytes int64) {
	a.Items--
	a.Bytes -= uint64(bytes)
}

// in returns the amount in the unit of a rate. Each item is one datagram, message or
// connection.
func (a Amount) in(kind unit.Kind) uint64 {
	if kind == unit.Bytes {
		return a.Bytes
	}
	return a.Items
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
	level                      *level    // nil: not wanted, or the class has no bucket of tokens
	last                       time.Time // the last departure; zero: there was none
	lastCost                   uint64    // of that, in the unit of kind

	// In a fleet.
	sum   *tally        // of all members; nil: this is it
	gap   time.Duration // the shortest between two departures
	calls uint64        // to the store
}

func (t *tally) arrive(r *run, cost *shaper.Cost) {
	for ; t != nil; t = t.sum {
		t.offered.add(cost.Bytes)
		t.trace(r)
	}
}

func (t *tally) wait(r *run, cost *shaper.Cost) {
	for ; t != nil; t = t.sum {
		t.waiting.add(cost.Bytes)
		t.most.Items = max(t.most.Items, t.waiting.Items)
		t.most.Bytes = max(t.most.Bytes, t.waiting.Bytes)
		t.trace(r)
	}
}

func (t *tally) leave(r *run, cost *shaper.Cost, wait time.Duration, waited bool) {
	for ; t != nil; t = t.sum {
		if since := r.now.Sub(t.last); t.departed.Items == 1 || since < t.gap {
			t.gap = since
		}
		t.last, t.lastCost = r.now, Amount{1, uint64(cost.Bytes)}.in(t.kind)
		t.departed.add(cost.Bytes)
		if waited {
			t.waiting.remove(cost.Bytes)
		}
		t.waits.Observe(wait)
		t.longest = max(t.longest, wait)
		t.trace(r)
	}
}

// lose notes that an item was lost: it was dropped or refused.
func (t *tally) lose(reason stats.Reason, dropped bool, bytes int64) {
	for ; t != nil; t = t.sum {
		if dropped {
			t.dropped[reason].add(bytes)
		} else {
			t.refused[reason].add(bytes)
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
func (t *tally) quit(bytes int64, waited bool) {
	for ; t != nil && waited; t = t.sum {
		t.waiting.remove(bytes)
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
	t.curve.note(r.now.Sub(r.start), point{t.offered.in(t.kind), t.departed.in(t.kind), t.waiting.in(t.kind)})
}
