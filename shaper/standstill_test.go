package shaper

import (
	"testing"
	"time"

	"shaper/policy"
)

// TestStandstill asks what cannot leave before the end: what stands still until then or a little less, but neither what goes on nor
// what stands still for longer.
func TestStandstill(t *testing.T) {
	until := func(d time.Duration, conf policy.Class) policy.Class {
		conf.Closed = policy.Span{From: start, Until: at(d)}
		return conf
	}
	c := tree(root30(), child("open", "1"), until(time.Hour, child("hour", "1")), until(time.Hour-3*second, child("sooner", "1")), until(2*time.Hour, child("longer", "1")))
	enter(t, c["open"], 0, Leaves, message(1)) // so nothing else leaves at once
	for name, n := range map[string]int{"open": 1, "hour": 2, "sooner": 4, "longer": 8} {
		for range n {
			enter(t, c[name], 0, Waits, message(1))
		}
	}
	for name, want := range map[string]struct {
		all, sooner int64
		from        time.Duration
	}{"root": {6, 4, time.Hour - 3*second}, "open": {0, 0, time.Hour}, "hour": {2, 0, time.Hour}, "sooner": {4, 4, time.Hour - 3*second}, "longer": {0, 0, time.Hour}} {
		got := standstill{start, at(time.Hour)}.in(&c[name].node)
		if got.messages != want.all || got.sooner.messages != want.sooner || !got.from.Equal(at(want.from)) {
			t.Errorf("in %s, %d messages stand still, %d of them until a little sooner, from %v on; want %d, %d and %v",
				name, got.messages, got.sooner.messages, got.from.Sub(start), want.all, want.sooner, want.from)
		}
	}
}
