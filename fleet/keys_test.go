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

// TestManyFullKeys has many keys wait for the ends of their windows. They ask again so seldom that a key that has room does not wait for
// their calls.
func TestManyFullKeys(t *testing.T) {
	class := Class{Name: "a", Algorithm: FixedWindow, Rate: mustRate(t, "10 messages/min"), Window: time.Minute}
	a := &alone{t: t, now: time.Unix(1_760_000_040, 0), store: Model{ID: "0"}}
	a.join(class, "m", 1)
	a.idle(2*time.Second, true)
	const keys = 5000
	for i := range keys {
		key := fmt.Sprint(i)
		a.store.Do(Stamp(a.now.UnixMicro()), &Call{Op: Take, Class: &class, Key: key, Member: "n", Seq: 1, Number: 1, Wanted: 10, Need: 1, Grace: time.Hour})
		a.m.Lease(key).Want(a.now, 1, 1)
	}
	calls := func(d time.Duration) (n int) {
		for end := a.now.Add(d); a.now.Before(end); a.now = a.now.Add(time.Millisecond) {
			for c, ok := a.m.Poll(a.now); ok; c, ok = a.m.Poll(a.now) {
				r := a.store.Do(Stamp(a.now.UnixMicro()), &c)
				a.m.Answer(a.now.Add(time.Microsecond), &c, &r)
				n++
			}
		}
		return n
	}
	if n := calls(time.Second); n < keys {
		t.Fatalf("%d calls for %d keys", n, keys)
	}
	if n := calls(45 * time.Second); n > 45*150 {
		t.Errorf("%d keys that are refused make %d calls in 45 s", keys, n)
	}
}
