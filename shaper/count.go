package shaper

import (
	"sync/atomic"
	"time"

	"shaper/stats"
)

// A Tally counts for a class and for all classes above it at the same moment. So the
// counters of a class include all that is beneath it, and never go back when a reload
// moves or removes a child. The buckets of a class share the tally of the class.
//
// A Tally needs no lock: all of it is atomic. A nil Tally counts nothing.
type Tally struct {
	Stats *stats.Class          // see Class.Stats
	above atomic.Pointer[Tally] // that of the parent; nil: there is none
	lost  *stats.Lost           // of all classes of a Shaper; nil: nobody adds them up
}

// Sent counts what has left the class in a direction.
func (t *Tally) Sent(d stats.Direction, cost Cost) {
	v := cost.Volume()
	for ; t != nil; t = t.above.Load() {
		t.Stats.Sent[d].Add(v)
	}
}

// Dropped counts items that were dropped, and all their bytes.
func (t *Tally) Dropped(r stats.Reason, items, bytes int64) {
	if t != nil && t.lost != nil {
		t.lost.Dropped.AddItems(items, bytes)
	}
	for ; t != nil; t = t.above.Load() {
		t.Stats.Dropped[r].AddItems(items, bytes)
	}
}

// Refused counts one item of so many bytes that was refused.
func (t *Tally) Refused(r stats.Reason, bytes int64) {
	if t != nil && t.lost != nil {
		t.lost.Refused.Add(bytes)
	}
	for ; t != nil; t = t.above.Load() {
		t.Stats.Refused[r].Add(bytes)
	}
}

// lose counts what a shadow would have dropped or refused.
func (t *Tally) lose(r stats.Reason, cost *Cost) {
	t.Dropped(r, max(cost.Packets, 1), cost.Bytes)
}

// overlimit counts an item that has to wait.
func (t *Tally) overlimit() {
	for ; t != nil; t = t.above.Load() {
		t.Stats.Overlimits.Add(1)
	}
}

// waited counts how long an item has waited.
func (t *Tally) waited(d time.Duration) {
	wait := stats.Observed(d)
	for ; t != nil; t = t.above.Load() {
		t.Stats.Wait.Add(wait)
	}
}

// Retried counts what became of a message that the provider has refused. outcome is one of
// stats.Retries, and signal one of stats.Refusals.
func (t *Tally) Retried(outcome, signal string) {
	for ; t != nil; t = t.above.Load() {
		t.Stats.Retried.Add(stats.Retry{Outcome: outcome, Signal: signal})
	}
}

// Hinted counts what became of one hint in an answer. The fate is one of stats.HintFates.
func (t *Tally) Hinted(fate string) {
	for ; t != nil; t = t.above.Load() {
		t.Stats.Hinted.Add(fate)
	}
}

// throttled counts a signal of the provider.
func (t *Tally) throttled(signal string) {
	for ; t != nil; t = t.above.Load() {
		t.Stats.Throttled.Add(signal)
	}
}
