package shaper

import (
	"strconv"
	"testing"

	"shaper/policy"
)

// TestTreeUrgentBeneathALargeItem has a small urgent item become ready, at each depth,
// while a large one of its sibling waits for the root's tokens.
func TestTreeUrgentBeneathALargeItem(t *testing.T) {
	for depth := range 8 {
		confs := []policy.Class{named("0", tokenClass("1 messages/s", 10))}
		for i := range depth {
			confs = append(confs, under(strconv.Itoa(i), named(strconv.Itoa(i+1), leakyClass("1000 messages/s"))))
		}
		parent := strconv.Itoa(depth)
		c := tree(append(confs, under(parent, named("urgent", withPriority(0, leakyClass("1 messages/s")))),
			under(parent, named("low", withPriority(7, leakyClass("1000 messages/s")))))...)
		enter(t, c["low"], 0, Leaves, costly(9))
		enter(t, c["urgent"], 10*ms, Leaves, costly(1))
		large, small := costly(10), costly(1)
		enter(t, c["low"], 20*ms, Waits, large)
		enter(t, c["urgent"], 20*ms, Waits, small)
		if next := c["0"].Next(at(20 * ms)); !next.Equal(at(1010 * ms)) {
			t.Errorf("%d levels down the next leaves at %v, want 1.01s", depth+1, next.Sub(start))
		}
		released(t, c["0"], 1010*ms, small)
		released(t, c["0"], 11*second-1)
		released(t, c["0"], 11*second, large)
	}
}

// TestTreeFreeBeneathALargeItem has what costs the root nothing become ready while the
// root allows nothing that costs anything.
func TestTreeFreeBeneathALargeItem(t *testing.T) {
	c := tree(named("root", leakyClass("1KB/s")), under("root", named("mid", leakyClass("1MB/s"))),
		under("mid", named("conns", withPriority(0, leakyClass("1 connections/s")))), under("mid", named("low", leakyClass("1MB/s"))))
	enter(t, c["low"], 0, Leaves, packet(10_000))
	enter(t, c["conns"], 500*ms, Leaves, &Item{Cost: Cost{Connections: 1}})
	conn, low := &Item{Cost: Cost{Connections: 1}}, packet(100)
	enter(t, c["low"], 500*ms, Waits, low)
	enter(t, c["conns"], 500*ms, Waits, conn)
	released(t, c["root"], 1500*ms-1)
	if next := c["root"].Next(at(1500*ms - 1)); !next.Equal(at(1500 * ms)) {
		t.Errorf("the next leaves at %v, want 1.5s", next.Sub(start))
	}
	released(t, c["root"], 1500*ms, conn)
	released(t, c["root"], 10*second, low)
}

// costly returns an item that costs n messages.
func costly(n int64) *Item {
	return &Item{Cost: Cost{Bytes: 100 * n, Packets: n, Messages: n}, Held: 100}
}
