package fleet

import (
	"testing"
	"time"
)

// TestOver says until when an item may leave that has its turn: as long as Next would have let it leave by that slot.
func TestOver(t *testing.T) {
	for name, class := range map[string]Class{
		"gaps":   {Name: "a", Rate: mustRate(t, "1000 messages/s"), Late: 50 * time.Microsecond},
		"slow":   {Name: "a", Rate: mustRate(t, "20 messages/s"), Late: 470 * time.Microsecond},
		"bucket": {Name: "a", Rate: mustRate(t, "1000 messages/s"), Burst: 10, Late: 50 * time.Microsecond},
		"window": {Name: "a", Rate: mustRate(t, "1000 messages/s"), Algorithm: FixedWindow, Window: time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			a := &alone{t: t, now: time.Unix(1_760_000_100, 0), store: Model{ID: "0"}}
			a.join(class, "m", 1)
			a.idle(3*time.Second, true) // so that the fence of a new store is over
			l := a.m.Lease("")
			for n := int64(1); n <= 3; n++ {
				for range 20 {
					for begin := a.now; l.Next(a.now, 0, n).After(a.now); a.now = a.now.Add(100 * time.Microsecond) {
						if l.Want(a.now, 100, n); a.now.Sub(begin) > time.Minute {
							t.Fatalf("no item of %d units leaves", n)
						}
						a.exchange(true)
					}
					before := *l
					l.Take(a.now, a.now, n)
					over := l.Over()
					if over.Before(a.now) {
						t.Fatalf("an item of %d units may leave until %v before its turn", n, a.now.Sub(over))
					}
					unit := before.first(&before.held[0], a.now, n)
					if in := before.first(&before.held[0], over.Add(-1), n); in != unit {
						t.Errorf("unit %d may not be used within its time, but unit %d", unit, in)
					}
					if in := before.first(&before.held[0], over.Add(1), n); in == unit {
						t.Errorf("unit %d may still be used when it is over", unit)
					}
				}
			}
		})
	}
}

// TestLost counts what has had its turn and was not sent as not used in time. No count falls.
func TestLost(t *testing.T) {
	a := &alone{t: t, now: time.Unix(1_760_000_100, 0), store: Model{ID: "0"}}
	a.join(Class{Name: "a", Rate: mustRate(t, "1000 messages/s"), Late: 50 * time.Microsecond}, "m", 1)
	a.run(time.Second, true)
	l := a.m.Lease("")
	before := l.Counts()
	l.Take(a.now, a.now, 1)
	taken := l.Counts()
	if l.Lost(1); taken.Used != before.Used+1 || l.Counts().Used != taken.Used || l.Counts().Expired != taken.Expired+1 {
		t.Errorf("the counts were %+v, then %+v with one that leaves, and are %+v when it has not left", before, taken, l.Counts())
	}
}

// TestOverWithoutASlot has an item leave although nothing is in hand, as an answer that charges more does.
func TestOverWithoutASlot(t *testing.T) {
	a := &alone{t: t, now: time.Unix(1_760_000_100, 0), store: Model{ID: "0"}}
	a.join(Class{Name: "a", Rate: mustRate(t, "20 messages/s"), Late: time.Millisecond}, "m", 1)
	l := a.m.Lease("")
	l.Take(a.now, a.now, 1)
	if over := l.Over(); !over.IsZero() {
		t.Errorf("an item without a slot may leave until %v, want at any time", over)
	}
}
