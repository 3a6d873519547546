package shaper

import (
	"sync/atomic"
	"time"

	"shaper/stats"
)

// A tally counts for a class and for all classes above it at the same moment. So the
// counters of a class include all that is beneath it, and never go back when a reload
// moves or removes a child. The buckets of a class share the tally of the class.
//
// A tally needs no lock: all of it is atomic.
type tally struct {
	Stats *stats.Class          // see Class.Stats
	above atomic.Pointer[tally] // that of the parent; nil: there is none
}

// sent counts what has left the class in a direction.
func (t *tally) sent(d stats.Direction, cost Cost) {
	v := cost.Volume()
	for ; t != nil; t = t.above.Load() {
		t.Stats.Sent[d].Add(v)
	}
}

// dropped counts items that were dropped, and all their bytes.
func (t *tally) dropped(r stats.Reason, items, bytes int64) {
	for ; t != nil; t = t.above.Load() {
		t.Stats.Dropped[r].AddItems(items, bytes)
	}
}

// refused counts one item of so many bytes that was refused.
func (t *tally) refused(r stats.Reason, bytes int64) {
	for ; t != nil; t = t.above.Load() {
		t.Stats.Refused[r].Add(bytes)
	}
}

// lose counts what a shadow would have dropped or refused.
func (t *tally) lose(r stats.Reason, cost *Cost) {
	t.dropped(r, max(cost.Packets, 1), cost.Bytes)
}

// overlimit counts an item that has to wait.
func (t *tally) overlimit() {
	for ; t != nil; t = t.above.Load() {
		t.Stats.Overlimits.Add(1)
	}
}

// waited counts how long an item has waited.
func (t *tally) waited(d time.Duration) {
	wait := stats.Observed(d)
	for ; t != nil; t = t.above.Load() {
		t.Stats.Wait.Add(wait)
	}
}

// retried counts what became of a message that the provider has refused.
func (t *tally) retried(outcome string) {
	for ; t != nil; t = t.above.Load() {
		t.Stats.Retried.Add(outcome)
	}
}

// throttled counts a signal of the provider.
func (t *tally) throttled(signal string) {
	for ; t != nil; t = t.above.Load() {
		t.Stats.Throttled.Add(signal)
	}
}
