package shaper

import (
	"testing"
	"time"
	"unsafe"

	"shaper/limit"
	"shaper/policy"
)

// afterStep returns a time as time.Now does once somebody has set the wall clock by so many whole
// seconds: its monotonic reading stays.
func afterStep(t time.Time, by time.Duration) time.Time {
	then := t
	(*struct { // as in package time
		wall uint64
		ext  int64
		loc  *time.Location
	})(unsafe.Pointer(&then)).wall += uint64(by/time.Second) << 30
	if then.Sub(t) != 0 || then.Round(0).Sub(t.Round(0)) != by {
		panic("package time has changed")
	}
	return then
}

// closedUntil returns a tree of a class that is closed until the wall clock shows a time, and of
// one that never is and has a rate, with the root first.
func closedUntil(now, until time.Time, rate string) []policy.Class {
	closed := named("closed", under("root", classBy(policy.GCRA, "10 packets/s")))
	closed.Closed = policy.Span{From: now.Round(0), Until: until.Round(0)}
	return []policy.Class{named("root", classBy(policy.GCRA, "100 packets/s")), closed, named("open", under("root", leakyClass(rate)))}
}

// If the clock is set back while a class waits for a time of that clock, its siblings go on, and it
// opens when the clock shows that time.
func TestClockSetBack(t *testing.T) {
	const back = 30 * time.Minute
	begin := time.Now()
	opens := begin.Add(time.Hour)
	classes := NewTree(begin, closedUntil(begin, opens, "1 packets/s"))
	root, closed, open := classes[0], classes[1], classes[2]
	waits := packet(1)
	if v := closed.Enter(begin, waits); v != Waits {
		t.Fatalf("the closed class: %v", v)
	}
	for d := time.Hour + time.Minute; d < time.Hour+20*time.Minute; d += time.Minute {
		now, next := afterStep(begin.Add(d), -back), packet(1)
		open.Enter(now, packet(1))
		if v := open.Enter(now, next); v != Waits {
			t.Fatalf("at %v, the second item: %v", d, v)
		}
		if at := root.Next(now); at.Sub(now) > time.Second {
			t.Fatalf("at %v, the sibling has to wait for %v", d, at.Sub(now))
		}
		if it := root.Release(now.Add(time.Second)); it != next {
			t.Fatalf("at %v, the sibling's item does not leave", d)
		}
	}
	last := afterStep(opens.Add(back), -back)
	if it := root.Release(last.Add(-1)); it != nil {
		t.Error("the class opens too early")
	}
	if it := root.Release(last); it != waits {
		t.Error("the class does not open")
	}
}

// If the clock is set forward, also past the time for which a class waits, somebody looks at it
// within a minute, although a sibling waits too.
func TestClockSetForward(t *testing.T) {
	begin := time.Now()
	classes := NewTree(begin, closedUntil(begin, begin.Add(time.Hour), "2 packets/h"))
	root, closed, open := classes[0], classes[1], classes[2]
	waits := packet(1)
	closed.Enter(begin, waits)
	for range 2 { // one waits for half an hour
		open.Enter(begin, packet(1))
	}
	if it := root.Release(afterStep(begin.Add(clockPatience), time.Hour)); it != waits {
		t.Error("the class has not opened")
	}
}

// Trees on one pacer do not wait for each other's times of the wall clock either.
func TestPacerWhenTheClockIsSet(t *testing.T) {
	now := time.Now()
	p, all := stillPacer(&stillTimer{at: limit.Never}), alarmsOfRoots(2)
	p.clock = func() time.Time { return now }
	p.set(all[0], now, now.Add(10*time.Minute).Round(0), false)
	p.set(all[1], now, now.Add(20*time.Minute), false)
	now = afterStep(now.Add(20*time.Minute), -time.Hour)
	for {
		switch a, _, _ := p.pop(now); a {
		case nil:
			t.Fatal("the second alarm is not due")
		case all[1]:
			return
		}
	}
}

// Why looks ahead by the clock that everything else uses, and takes no more steps for that.
func TestWhyWhileClosed(t *testing.T) {
	begin := time.Now()
	opens := begin.Add(400 * 24 * time.Hour) // at a look each minute, too far
	classes := NewTree(begin, closedUntil(begin, opens, "1 packets/s"))
	classes[1].Enter(begin, packet(1))
	for _, c := range classes[:2] {
		if w := c.Status().Why(begin.Add(time.Second)); !w.Exact || w.At.Sub(opens) != 0 {
			t.Errorf("%s: %+v, want %v, exact", c.Name(), w, opens)
		}
	}
}
