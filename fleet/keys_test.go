package fleet

import (
	"context"
	"fmt"
	"testing"
	"time"

	"shaper/fleet/fleettest"
	"shaper/tests/trial"
)

// TestManyKeys has one item of each of many keys: what a key costs the store, and that it goes when it makes no
// difference any more.
func TestManyKeys(t *testing.T) {
	t.Parallel()
	srv := fleettest.StartRedis(t)
	keys := trial.Size(1_000, 100_000)
	for _, class := range []*Class{
		{Name: "slots", Rate: mustRate(t, "20 messages/s"), Late: time.Millisecond},
		{Name: "window", Algorithm: FixedWindow, Rate: mustRate(t, "20 messages/s"), Window: time.Second},
	} {
		c := newCaller(t, Config{Addresses: []string{srv.Addr}}, class)
		c.take(1) // after the fence and the recovery
		for i := range keys {
			call := c.call(Take, 1)
			call.Key = fmt.Sprintf("4917000%05d", i)
			r, err := c.store.Do(context.Background(), call)
			if err != nil || r.Units != 1 {
				t.Fatalf("%s: key %d gets %+v, %v", class.Name, i, r, err)
			}
		}
		each := srv.Do("MEMORY", "USAGE", fmt.Sprintf("{%s}:bucket:4917000%05d", class.Name, keys-1)).(int64)
		trial.Figure(t, "memory of the store for a key, "+class.Name, "%d B (%d keys)", each, keys)
		if each > 600 {
			t.Errorf("%s: a key costs the store %d bytes", class.Name, each)
		}
	}
	left := func() int { return len(srv.Do("KEYS", "*:bucket:4917*").([]any)) }
	if n := left(); n > 2*keys {
		t.Errorf("the store has %d keys", n)
	}
	for until := time.Now().Add(time.Minute); left() > 0; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("%d keys do not expire", left())
		}
	}
}

// BenchmarkBudget measures what an item of a leased class costs the data path: Want, Next and Take of a Budget.
func BenchmarkBudget(b *testing.B) {
	l := newLeased(b)
	m := &Member{kick: make(chan struct{}, 1), machine: l.machine}
	budget := &Budget{member: m, lease: l.lease}
	b.ReportAllocs()
	for b.Loop() {
		for budget.lease.Next(l.now, 0, 1).After(l.now) {
			l.item()
		}
		budget.Want(l.now, 1_000_000, 1)
		if at := budget.Next(l.now, 0, 1); !at.After(l.now) {
			budget.Take(l.now, l.now, 1)
		}
	}
}
