package shaper

import (
	"time"

	"shaper/stats"
)

// What is counted of a class is counted of all classes above it at the same moment. So
// the counters of a class have all that is beneath it, and never go back when a reload
// moves or removes a child.

// CountSent counts what has left the class in a direction.
func (c *Class) CountSent(d stats.Direction, cost Cost) {
	v := cost.Volume()
	for c = c.Named(); c != nil; c = c.parent.Load() {
		c.Stats.Sent[d].Add(v)
	}
}

// CountDropped counts items that were dropped, and their bytes together.
func (c *Class) CountDropped(r stats.Reason, items, bytes int64) {
	for c = c.Named(); c != nil; c = c.parent.Load() {
		c.Stats.Dropped[r].AddItems(items, bytes)
	}
}

// CountRefused counts one item that was refused, of so many bytes.
func (c *Class) CountRefused(r stats.Reason, bytes int64) {
	for c = c.Named(); c != nil; c = c.parent.Load() {
		c.Stats.Refused[r].Add(bytes)
	}
}

// countOverlimit counts an item that has to wait.
func (c *Class) countOverlimit() {
	for c = c.Named(); c != nil; c = c.parent.Load() {
		c.Stats.Overlimits.Add(1)
	}
}

// countWait counts how long an item has waited.
func (c *Class) countWait(d time.Duration) {
	waited := stats.Observed(d)
	for c = c.Named(); c != nil; c = c.parent.Load() {
		c.Stats.Wait.Add(waited)
	}
}

// countThrottled counts a signal of the provider.
func (c *Class) countThrottled(signal string) {
	for c = c.Named(); c != nil; c = c.parent.Load() {
		c.Stats.Throttled.Add(signal)
	}
}
