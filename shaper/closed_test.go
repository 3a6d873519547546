package shaper

import (
	"testing"
	"time"

	"shaper/limit"
	"shaper/policy"
	"shaper/unit"
)

// closing returns a class of 10 items a second that closes an hour after the start, for 12 hours.
func closing(change func(*policy.Class)) *Class {
	conf := classBy(policy.GCRA, "10 packets/s")
	conf.Closed = policy.Span{From: at(time.Hour), Until: at(13 * time.Hour)}
	if change != nil {
		change(&conf)
	}
	return NewClass(start, conf)
}

// What comes before a class closes leaves. What comes at that moment waits until it opens, and then
// leaves at the rate. Nobody has to tell the class that the time has come.
func TestAClosedClassHoldsEverything(t *testing.T) {
	c := closing(nil)
	enter(t, c, time.Hour-1, Leaves, packet(1))
	a, b := packet(1), packet(1)
	enter(t, c, time.Hour, Waits, a)
	enter(t, c, time.Hour, Waits, b)
	holds(t, c.Status().Waits(at(time.Hour)), "test", HoldClosed, 13*time.Hour)
	released(t, c, 13*time.Hour-1)
	released(t, c, 13*time.Hour, a)
	released(t, c, 13*time.Hour+100*ms-1)
	released(t, c, 13*time.Hour+100*ms, b)
}

// max_wait decides between waiting and refusing, also for what would still wait when the class
// closes. Retry says when there is room.
func TestMaxWaitOfAClosedClass(t *testing.T) {
	c := closing(func(conf *policy.Class) { conf.MaxWait = unit.Duration(time.Minute) })
	enter(t, c, 2*time.Hour, TooLong, packet(1))
	if retry := c.Estimate().Retry(at(2*time.Hour), Cost{Packets: 1}); retry != 11*time.Hour-time.Minute {
		t.Errorf("there is room in %v", retry)
	}
	enter(t, c, 13*time.Hour-time.Minute, Waits, packet(1))

	c = closing(func(conf *policy.Class) { conf.MaxWait = unit.Duration(time.Minute) })
	enter(t, c, time.Hour-time.Second, Leaves, packet(1))
	for range 9 { // the last of them leaves just before the class closes
		enter(t, c, time.Hour-time.Second, Waits, packet(1))
	}
	enter(t, c, time.Hour-time.Second, TooLong, packet(1))
}

// A class above that is closed holds up those beneath it.
func TestAClosedParent(t *testing.T) {
	root := classBy(policy.GCRA, "10 packets/s")
	root.Closed.Until = at(time.Hour)
	child := named("child", under("root", leakyClass("5 packets/s")))
	child.MaxWait = unit.Duration(time.Minute)
	classes := NewTree(start, []policy.Class{named("root", root), child})
	it := packet(1)
	enter(t, classes[1], 0, TooLong, packet(1))
	enter(t, classes[1], time.Hour-time.Second, Waits, it)
	holds(t, classes[1].Status().Waits(at(time.Hour-time.Second)), "root", HoldClosed, time.Hour)
	released(t, classes[1], time.Hour-1)
	released(t, classes[1], time.Hour, it)
}

// A class that closes while it waits for the class above lets nothing out any more.
func TestAClosedChild(t *testing.T) {
	child := named("child", under("root", classBy(policy.GCRA, "10000 packets/s")))
	child.Closed = policy.Span{From: at(time.Hour), Until: at(2 * time.Hour)}
	classes := NewTree(start, []policy.Class{named("root", leakyClass("1 packets/s")), child})
	late := packet(1)
	enter(t, classes[1], time.Hour-ms, Leaves, packet(1))
	enter(t, classes[1], time.Hour-ms, Waits, late)
	released(t, classes[1], time.Hour-ms/2) // it may send from now on, and waits for the class above
	released(t, classes[1], time.Hour+time.Second)
	released(t, classes[1], 2*time.Hour, late)
}

// When the class of a schedule changes, it goes on: to close and open gives no burst beyond that
// of the limit, and what was charged stays charged.
func TestSetOfAClosedTime(t *testing.T) {
	conf := perSource(10, with(classBy(policy.GCRA, "10 packets/s"), limitBy(policy.FixedWindow, "3 packets/h")))
	c := NewClass(start, conf)
	bucket := c.Join(start, client(1))
	for n := range 3 {
		bucket.Pass(at(time.Duration(n)*time.Second), Cost{Packets: 1})
	}
	bucket.Quit(at(10 * time.Second))
	conf.Closed.Until = at(30 * time.Minute)
	c.Set(at(time.Minute), conf)
	bucket = c.Join(at(time.Minute), client(1))
	if next := bucket.limiter.Next(at(time.Minute), 0, 1); !next.Equal(at(time.Hour)) {
		t.Errorf("the key whose hour is used up may send at %v", next)
	}
	fresh := c.Join(at(time.Minute), client(2))
	if next := fresh.limiter.Next(at(time.Minute), 0, 1); !next.Equal(at(30 * time.Minute)) {
		t.Errorf("a new key may send at %v", next)
	}
	conf.Closed = policy.Span{From: at(2 * time.Hour), Until: limit.Never}
	c.Set(at(30*time.Minute), conf)
	if !fresh.Pass(at(30*time.Minute), Cost{Packets: 1}) || bucket.Pass(at(30*time.Minute), Cost{Packets: 1}) {
		t.Error("when it opens, the new key may not send, or the other one may")
	}
}

// The classes of a trial follow their schedules: it counts what would have waited and what would
// have been refused at each time.
func TestATrialFollowsSchedules(t *testing.T) {
	conf := classBy(policy.GCRA, "10 packets/s")
	conf.MaxWait = unit.Duration(time.Minute)
	conf.At = []policy.At{
		{Hours: policy.Hours{From: 60, To: 120}, Rate: rateOf("1 packets/s")}, // start is at midnight UTC
		{Hours: policy.Hours{From: 120, To: 180}, Rate: rateOf("0 packets/s")},
	}
	trial := NewTrial(start, []policy.Class{conf})
	c := trial.Classes()[0]
	want := func(d time.Duration, items int, delayed, dropped uint64) {
		t.Helper()
		trial.CatchUp(at(d))
		before := of(c.Stats)
		for range items {
			trial.mirror(at(d), c, Cost{Packets: 1}, nil, false)
		}
		after := of(c.Stats)
		if got := after.delayed - before.delayed; got != delayed || after.tooLong-before.tooLong != dropped {
			t.Errorf("at %v, %d of %d would wait and %d be dropped, want %d and %d", d, got, items, after.tooLong-before.tooLong, delayed, dropped)
		}
	}
	want(30*time.Minute, 100, 99, 0)
	want(90*time.Minute, 100, 99, 39)            // at one a second, 60 wait at most a minute
	want(2*time.Hour-30*time.Second, 40, 39, 10) // 30 leave before it closes
	want(150*time.Minute, 10, 10, 10)
	want(3*time.Hour-time.Minute, 10, 10, 9) // one leaves when it opens; the rate of ten a second holds from then on
	want(4*time.Hour, 100, 99, 0)
}
