package shaper

import (
	"testing"
	"testing/synctest"
	"time"

	"shaper/policy"
)

// leaver is told when its item may leave.
type leaver chan time.Time

func (l leaver) Leave(now time.Time) { l <- now }

// enters puts a message into a class, where it has to wait.
func enters(c *Class) (l leaver, it *Item) {
	l = make(leaver, 1)
	it = message(100)
	it.Owner, it.Settles, it.Patient = l, true, true
	if c.Enter(time.Now(), it) == Leaves {
		l.Leave(time.Now())
	}
	return l, it
}

// TestReloadMovesAnItemOnItsWay moves a class from one parent that counts to another. An
// item of the class is on its way out, and so is one of the new parent.
func TestReloadMovesAnItemOnItsWay(t *testing.T) {
	ten := leakyClass("10 messages/s")
	confs := func(parent string) []policy.Class {
		return []policy.Class{
			named("p", ten), named("q", ten),
			named("b", under("p", leakyClass("1MB/s"))), named("d", under("q", leakyClass("1MB/s"))),
			named("top", under(parent, leakyClass("1MB/s"))), named("leaf", under("top", leakyClass("1MB/s"))),
		}
	}
	synctest.Test(t, func(t *testing.T) {
		s := NewOnRuntimeTimer()
		defer s.Close()
		s.Apply(confs("p"))
		start := time.Now()
		left := func(what string, l leaver, want time.Duration) {
			t.Helper()
			if got := (<-l).Sub(start); got != want {
				t.Errorf("%s may leave after %v, want %v", what, got, want)
			}
		}
		moved, onItsWay := enters(s.Class("leaf"))
		left("the one that is moved", moved, 0)
		other, alsoOnItsWay := enters(s.Class("d"))
		left("the other", other, 0)
		inP, _ := enters(s.Class("b"))
		inQ, _ := enters(s.Class("d"))

		s.Apply(confs("q"))
		time.Sleep(5 * time.Millisecond)
		onItsWay.Left(time.Now()) // the new parent was never charged for it, and still waits for the other item
		time.Sleep(200 * time.Millisecond)
		alsoOnItsWay.Left(time.Now())
		left("the next of the old parent", inP, leaveMargin+100*time.Millisecond)
		left("the next of the new parent", inQ, 305*time.Millisecond)
	})
}
