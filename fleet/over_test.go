package fleet

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
	"unsafe"

	"shaper/fleet/fleettest"
	"shaper/tests/trial"
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
	if l.Lost(a.now, 1); taken.Used != before.Used+1 || l.Counts().Used != taken.Used || l.Counts().Expired != taken.Expired+1 {
		t.Errorf("the counts were %+v, then %+v with one that leaves, and are %+v when it has not left", before, taken, l.Counts())
	}
}

// TestLostOfAWindow loses half of the items of a window after their turn, one item in ten when another one has been
// charged. The window lets as many leave as it holds, or somewhat less, and never more.
func TestLostOfAWindow(t *testing.T) {
	const limit, windows = 200, 5
	for name, algorithm := range map[string]Algorithm{"fixed": FixedWindow, "log": SlidingLog, "sliding": SlidingWindow} {
		t.Run(name, func(t *testing.T) {
			a := &alone{t: t, now: time.Unix(1_760_000_100, 0), store: Model{ID: "0"}}
			a.join(Class{Name: "a", Rate: mustRate(t, "20 messages/s"), Algorithm: algorithm, Window: limit * time.Second / 20}, "m", 1)
			a.idle(3*time.Second, true)
			l := a.m.Lease("")
			var left []time.Time
			end := a.now.Add(windows * limit * time.Second / 20)
			for i := 0; a.now.Before(end); i++ {
				l.Want(a.now, 100, 1)
				a.exchange(true)
				a.now = a.now.Add(10 * time.Millisecond)
				if l.Next(a.now, 0, 1).After(a.now) {
					continue
				}
				then := a.now
				l.Take(then, then, 1)
				switch {
				case i%2 == 0:
					left = append(left, then)
				case i%20 == 1:
					a.now = a.now.Add(time.Millisecond)
					if !l.Next(a.now, 0, 1).After(a.now) {
						l.Take(a.now, a.now, 1)
						left = append(left, a.now)
					}
					l.Lost(then, 1)
				default:
					l.Lost(then, 1)
				}
			}
			var all []fleettest.Departure
			for _, at := range left {
				all = append(all, a.departure(at, 1))
			}
			if err := holds(a.m.class, all); err != nil {
				t.Error(err)
			}
			t.Logf("%d of %d left; the counts are %+v", len(left), windows*limit, l.Counts())
			if n := len(left); n < windows*limit*85/100 {
				t.Errorf("%d items left in %d windows of %d", n, windows, limit)
			}
		})
	}
}

// departure is an item that has left the member.
func (a *alone) departure(at time.Time, units int64) fleettest.Departure {
	return fleettest.Departure{At: at.Sub(time.Unix(0, 0)), Stamp: at, Units: units, Error: a.m.link.clock.error(at)}
}

// holds returns an error if some window of a class holds too much.
func holds(class Class, all []fleettest.Departure) error {
	switch class.Algorithm {
	case SlidingLog:
		return fleettest.Within(all, class.Limit(), class.Window)
	case SlidingWindow:
		return fleettest.Weighed(all, class.Limit(), class.Window)
	}
	return fleettest.Windows(all, class.Limit(), func(at time.Time) (from, to time.Time) {
		first, end := class.windowOf(Stamp(at.UnixMicro()))
		return time.UnixMicro(int64(first)), time.UnixMicro(int64(end))
	})
}

// TestAmend has answers say, a while after items have left, that these cost less than they were charged. Windows let as much leave
// by what items cost, and never more (a sliding log less), although some count as one window and some are answered in a later one. Meanwhile the store
// is away, or the member is suspended.
func TestAmend(t *testing.T) {
	t.Parallel()
	const limit = 1000
	least := map[Algorithm]float64{FixedWindow: 0.8, SlidingWindow: 0.8, SlidingLog: 0.4}
	for name, algorithm := range map[string]Algorithm{"fixed": FixedWindow, "sliding": SlidingWindow, "log": SlidingLog} {
		for seed := range uint64(trial.Size(10, 400)) {
			a, random := &alone{t: t, now: time.Unix(1_760_000_100, 0), store: Model{ID: "0"}, disk: map[string]Debt{}}, rand.New(rand.NewPCG(seed, 1))
			class := Class{Name: "a", Rate: mustRate(t, "100 messages/s"), Algorithm: algorithm, Window: limit * time.Second / 100}
			a.join(class, "m", 1)
			a.idle(3*time.Second, true)
			l, disturbed := a.m.Lease(""), seed%2 == 1
			type answer struct {
				at, then time.Time
				less     int64
			}
			var coming []answer
			var all []fleettest.Departure // by what they cost
			cost, end, away := int64(1), a.now.Add(20*class.Window), time.Time{}
			for ; a.now.Before(end); a.now = a.now.Add(20 * time.Millisecond) {
				if disturbed && random.IntN(2000) == 0 {
					away = a.now.Add(time.Duration(random.IntN(10_000)) * time.Millisecond)
				}
				if disturbed && random.IntN(5000) == 0 {
					a.m.Slept(a.now)
				}
				l.Want(a.now, 500, cost)
				a.exchange(!a.now.Before(away))
				if !l.Next(a.now, 0, cost).After(a.now) {
					real := 1 + random.Int64N(cost)
					l.Take(a.now, a.now, cost)
					all = append(all, a.departure(a.now, min(real, limit)))
					coming = append(coming, answer{a.now.Add(time.Duration(random.IntN(3000)) * time.Millisecond), a.now, cost - real})
					if cost = 1 + random.Int64N(60); disturbed && random.IntN(100) == 0 {
						cost = limit + random.Int64N(500)
					}
				}
				coming = slices.DeleteFunc(coming, func(of answer) bool {
					if of.at.After(a.now) {
						return false
					}
					l.Amend(a.now, of.then, -of.less)
					return true
				})
			}
			if err := holds(class, all); err != nil {
				t.Errorf("%s, %d: %v", name, seed, err)
			}
			sum := int64(0)
			for _, d := range all {
				sum += d.Units
			}
			if used := float64(sum) / (20 * limit); !disturbed && used < least[algorithm] {
				t.Errorf("%s, %d: %.1f %% of the limit was used", name, seed, 100*used)
			}
		}
	}
}

// TestAmendAfterALowerRate has answers say that items cost less than they were charged, after the rate was lowered: for all of the
// class, and for one bucket, as adapt does. Not more leaves than the window holds now.
func TestAmendAfterALowerRate(t *testing.T) {
	const cost, real, before, now = 10, 2, 800, 5000 // a window holds 10,000 units, and then 5,000
	class := Class{Name: "a", Rate: mustRate(t, "100 messages/s"), Window: 100 * time.Second}
	slow := mustRate(t, "50 messages/s")
	for name, algorithm := range map[string]Algorithm{"fixed": FixedWindow, "sliding": SlidingWindow, "log": SlidingLog} {
		for how, lower := range map[string]func(a *alone, l *Lease) error{
			"all": func(a *alone, _ *Lease) error {
				next := a.m.class
				next.Rate = slow
				return a.m.Set(a.now, next, Fallback{})
			},
			"bucket": func(a *alone, l *Lease) error { l.SetRate(a.now, slow, 0); return nil },
		} {
			a := &alone{t: t, now: time.Unix(1_760_000_100, 0), store: Model{ID: "0"}}
			class.Algorithm = algorithm
			a.join(class, "m", 1)
			a.idle(3*time.Second, true)
			l := a.m.Lease("")
			var left []time.Time
			take := func(ticks, most int) {
				for ; ticks > 0 && len(left) < most; ticks-- {
					l.Want(a.now, 500, cost)
					if a.exchange(true); !l.Next(a.now, 0, cost).After(a.now) {
						l.Take(a.now, a.now, cost)
						left = append(left, a.now)
					}
					a.now = a.now.Add(time.Millisecond)
				}
			}
			take(2000, before)
			if err := lower(a, l); err != nil || len(left) != before {
				t.Fatalf("%s, %s: %d items have left, want %d; %v", name, how, len(left), before, err)
			}
			for _, then := range left {
				l.Amend(a.now, then, real-cost)
			}
			take(5000, 2*before)
			if n := before*real + (len(left)-before)*cost; n > now {
				t.Errorf("%s, %s: %d units leave in a window that holds %d", name, how, n, now)
			}
		}
	}
}

// TestLostOfTheLastOnly gives back what the last item has of a window, once, and not what one before it has: that may
// have been of another window.
func TestLostOfTheLastOnly(t *testing.T) {
	a := &alone{t: t, now: time.Unix(1_760_000_100, 0), store: Model{ID: "0"}}
	a.join(Class{Name: "a", Rate: mustRate(t, "1000 messages/s"), Algorithm: FixedWindow, Window: time.Second}, "m", 1)
	a.run(3*time.Second, true)
	l := a.m.Lease("")
	for begin := a.now; ; a.now = a.now.Add(time.Millisecond) {
		if have, _ := l.inHand(a.now); have >= 2 {
			break
		}
		if l.Want(a.now, 100, 1); a.now.Sub(begin) > time.Minute {
			t.Fatal("nothing is granted")
		}
		a.exchange(true)
	}
	first, second := a.now, a.now.Add(time.Millisecond)
	have, _ := l.inHand(first)
	l.Take(first, first, 1)
	l.Take(second, second, 1)
	for _, step := range []struct {
		then time.Time
		back int64
	}{{first, have - 2}, {second, have - 1}, {second, have - 1}} {
		l.Lost(step.then, 1)
		if got, _ := l.inHand(second); got != step.back {
			t.Errorf("%v after the first: %d units are in hand, want %d of %d", step.then.Sub(first), got, step.back, have)
		}
	}
	used := l.Counts().Used
	if l.Take(second, second, 1); l.Counts().Used != used {
		t.Errorf("a unit that is used again counts twice: %d and then %d", used, l.Counts().Used)
	}
}

// windowInHand returns a member that has at least 8 units of a window in hand.
func windowInHand(t *testing.T) (*alone, *Lease) {
	a := &alone{t: t, now: time.Unix(1_760_000_100, 0), store: Model{ID: "0"}}
	a.join(Class{Name: "a", Rate: mustRate(t, "20 messages/s"), Algorithm: FixedWindow, Window: 10 * time.Second}, "m", 1)
	a.idle(3*time.Second, true)
	a.reach(8)
	return a, a.m.Lease("")
}

// reach waits until so many units are in hand.
func (a *alone) reach(units int64) {
	l := a.m.Lease("")
	for begin := a.now; ; a.now = a.now.Add(time.Millisecond) {
		if have, _ := l.inHand(a.now); have >= units {
			return
		}
		if l.Want(a.now, 100, units); a.now.Sub(begin) > time.Minute {
			a.t.Fatal("nothing is granted")
		}
		a.exchange(true)
	}
}

// TestLostOfTwoAtOnce charges two items at one moment, and loses the first, which costs less. What the other has is not given
// back.
func TestLostOfTwoAtOnce(t *testing.T) {
	a, l := windowInHand(t)
	have, _ := l.inHand(a.now)
	l.Take(a.now, a.now, 1)
	l.Take(a.now, a.now, 5)
	before := l.Counts()
	l.Lost(a.now, 1)
	if got, _ := l.inHand(a.now); got > have-5 || l.Counts().Expired < before.Expired {
		t.Errorf("%d units are in hand, want at most %d; the counts were %+v, and are %+v", got, have-5, before, l.Counts())
	}
}

// TestLostAndGivenBack gives units back to the store that an item had that has not left. Those of a later window count as used.
func TestLostAndGivenBack(t *testing.T) {
	a, l := windowInHand(t)
	l.Take(a.now, a.now, 5)
	l.Lost(a.now, 5)
	a.idle(20*time.Second, true)
	a.reach(5)
	before := l.Counts().Used
	if l.Take(a.now, a.now, 5); l.Counts().Used != before+5 {
		t.Errorf("5 units of a later window have left, and %d count as used", l.Counts().Used-before)
	}
}

// TestLeaseIsSmall holds what each key of a class with slots takes. Only a window has blocks besides.
func TestLeaseIsSmall(t *testing.T) {
	const most = 1024
	size := unsafe.Sizeof(Lease{})
	t.Logf("a lease has %d bytes, and its window %d", size, unsafe.Sizeof(open{}))
	if size > most {
		t.Errorf("a lease has %d bytes, want at most %d", size, most)
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
