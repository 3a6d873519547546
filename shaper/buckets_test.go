package shaper

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"shaper/policy"
)

// ours are addresses of ours, as a listener has them.
var ours = []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("192.0.2.3")}

// perBind gives a class a bucket for each address of ours.
func perBind(conf policy.Class) policy.Class {
	conf.Per, conf.MaxKeys = policy.Per{{By: policy.ByBind}}, 100
	return conf
}

// The address whose bucket is free first is the soonest one; among equals the one with the fewest
// sessions, and among these the first.
func TestSoonest(t *testing.T) {
	c := NewClass(start, perBind(leakyClass("10 packets/s")))
	if !c.Buckets().Per(policy.ByBind) || c.Buckets().Per(policy.BySource) || NewClass(start, leakyClass("10 packets/s")).Buckets().Per(policy.ByBind) {
		t.Error("the class has no bucket for each address, or another has")
	}
	choose := func(want int) *Class {
		t.Helper()
		got := c.Buckets().Soonest(start, policy.Conn{}, slices.Values(ours))
		if got != ours[want] {
			t.Fatalf("it is %v, want %v", got, ours[want])
		}
		return c.Join(start, policy.Conn{Bind: got})
	}
	first := choose(0)
	choose(1)
	choose(2)
	choose(0)
	enter(t, first, 0, Leaves, packet(1))
	choose(1)
	choose(2)
	choose(1)
	if got := c.Buckets().Soonest(start, policy.Conn{}, slices.Values(ours[:0])); got.IsValid() {
		t.Errorf("of none it is %v", got)
	}
}

// A class without permits left makes its bucket the last choice.
func TestSoonestHasAPermit(t *testing.T) {
	c := NewClass(start, withPermits(perBind(leakyClass("10 packets/s")), 1))
	var permits [3]waiter
	for i := range permits {
		got := c.Buckets().Soonest(start, policy.Conn{}, slices.Values(ours[:2]))
		if got != ours[i%2] {
			t.Errorf("session %d is at %v, want %v", i, got, ours[i%2])
		}
		permits[i].Acquire(c.Join(start, policy.Conn{Bind: got}), &permits[i])
	}
	permits[1].Release()
	if got := c.Buckets().Soonest(start, policy.Conn{}, slices.Values(ours[:2])); got != ours[1] {
		t.Errorf("the next session is at %v, want %v", got, ours[1])
	}
}

// If each item goes where it is free the soonest, all leave as early as several servers of one
// queue would let them.
func TestSoonestLosesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := NewClass(start, perBind(leakyClass("10 packets/s")))
		var free [3]time.Duration // when each lets the next one leave, by the model
		var want, got []time.Duration
		now := time.Duration(0)
		release := func(until time.Duration) {
			for ; now < until; now += ms {
				for c.Release(at(now)) != nil {
					got = append(got, now)
				}
			}
		}
		for range rapid.IntRange(1, 60).Draw(t, "items") {
			release(now + time.Duration(rapid.IntRange(0, 120).Draw(t, "pause"))*ms)
			best := slices.Index(free[:], slices.Min(free[:]))
			left := max(now, free[best])
			want, free[best] = append(want, left), left+100*ms
			from := c.Buckets().Soonest(at(now), policy.Conn{}, slices.Values(ours))
			if c.Join(at(now), policy.Conn{Bind: from}).Enter(at(now), packet(1)) == Leaves {
				got = append(got, now)
			}
		}
		release(10 * second)
		if slices.Sort(want); !slices.Equal(got, want) {
			t.Fatalf("they leave at %v, want %v", got, want)
		}
	})
}
