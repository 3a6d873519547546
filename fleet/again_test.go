package fleet

import (
	"testing"
	"time"
)

// alone plays the only member of a class against a store, in steps of 1 ms.
type alone struct {
	t     *testing.T
	now   time.Time
	store Model
	m     *Machine
}

// join makes a member, in the place of the last one.
func (a *alone) join(class Class, name string, first int64) {
	var err error
	if a.m, err = NewMachine(class, name, Fallback{}, first, nil); err != nil {
		a.t.Fatal(err)
	}
}

// run lets everything leave that may, and returns how many units did. The store answers if there is one.
func (a *alone) run(d time.Duration, there bool) (left int) { return a.play(d, there, 1000) }

// idle is run while nothing waits.
func (a *alone) idle(d time.Duration, there bool) { a.play(d, there, 0) }

func (a *alone) play(d time.Duration, there bool, wanted int64) (left int) {
	l := a.m.Lease("")
	for end := a.now.Add(d); a.now.Before(end); a.now = a.now.Add(time.Millisecond) {
		l.Want(a.now, wanted, min(wanted, 1))
		for c, ok := a.m.Poll(a.now); ok; c, ok = a.m.Poll(a.now) {
			if !there {
				a.m.Fail(a.now, &c)
				continue
			}
			r := a.store.Do(Stamp(a.now.UnixMicro()), &c)
			a.m.Answer(a.now.Add(time.Microsecond), &c, &r)
		}
		for wanted > 0 && !l.Next(a.now, 0, 1).After(a.now) {
			l.Take(a.now, a.now, 1)
			left++
		}
	}
	return left
}

// TestAgainAfterItsShare ends a member while the store is away, and starts it again under its name. What its share let leave
// has used the burst, and the gap after it is kept.
func TestAgainAfterItsShare(t *testing.T) {
	for _, c := range []struct {
		burst int64
		most  int // in a second
	}{{1, 1}, {100, 101}} {
		a := &alone{t: t, now: time.Unix(1_760_000_040, 0), store: Model{ID: "0"}}
		class := Class{Name: "a", Rate: mustRate(t, "1 message/s"), Burst: c.burst, Late: time.Millisecond}
		a.join(class, "m", 1)
		a.run(4*time.Second, true)
		a.idle(10*time.Second, true)
		a.run(5*time.Second, false)
		a.idle(150*time.Second, false)
		share := a.run(50*time.Millisecond, false)
		a.join(class, "m", 1_000_000)
		again := a.run(950*time.Millisecond, true)
		if share == 0 || share+again > c.most {
			t.Errorf("burst %d: %d left from the share, and %d after it; want %d at most", c.burst, share, again, c.most)
		}
		if again = a.run(5*time.Second, true); again < 3 {
			t.Errorf("burst %d: %d have left in 5s", c.burst, again)
		}
	}
}
