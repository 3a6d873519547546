package shaper

import (
	"sort"
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

// TestReloadBeneathAnItemOnItsWay replaces a class between one of which an item is on its way out, and an account. The account
// still waits until that item has left.
func TestReloadBeneathAnItemOnItsWay(t *testing.T) {
	account, child := named("account", leakyClass("10 messages/s")), named("child", under("parent", leakyClass("1MB/s")))
	parent := func(rate string) policy.Class { return under("account", named("parent", leakyClass(rate))) }
	inBubble(t, func(t *testing.T, s *Shaper) {
		start := time.Now()
		first, onItsWay := enters(s.Class("child"))
		<-first
		next, _ := enters(s.Class("child"))
		s.Apply([]policy.Class{account, parent("100 packets/s"), child})
		time.Sleep(second / 2)
		onItsWay.Left(time.Now())
		if left := (<-next).Sub(start); left != 600*ms {
			t.Errorf("the next may leave after %v, want a gap after the first has left, 600ms", left)
		}
	}, account, parent("2MB/s"), child)
}

// TestReloadReplacesAnAccountWithAnItemOnItsWay replaces the account itself, for other quiet hours. The one that goes on from it waits
// until the item has left, if that is of a class beneath it. Of one that moves elsewhere, it does not hear, and waits 10 ms.
func TestReloadReplacesAnAccountWithAnItemOnItsWay(t *testing.T) {
	account, other := named("account", leakyClass("10 messages/s")), named("other", leakyClass("1MB/s"))
	of := func(name, parent string) policy.Class { return named(name, under(parent, leakyClass("1MB/s"))) }
	quiet := account
	quiet.Quieted = make([]policy.QuietGroup, 1)
	for _, c := range []struct {
		parent string // of the class of the item, in the end
		left   time.Duration
	}{{"account", 600 * ms}, {"other", 110 * ms}} {
		inBubble(t, func(t *testing.T, s *Shaper) {
			start := time.Now()
			first, onItsWay := enters(s.Class("child"))
			<-first
			next, _ := enters(s.Class("sibling"))
			s.Apply([]policy.Class{quiet, other, of("child", c.parent), of("sibling", "account")})
			time.Sleep(second / 2)
			onItsWay.Left(time.Now())
			if left := (<-next).Sub(start); left != c.left {
				t.Errorf("when the class goes beneath %s, the next may leave after %v, want %v", c.parent, left, c.left)
			}
		}, account, other, of("child", "account"), of("sibling", "account"))
	}
}

// An account that goes on above a class that a reload replaces, or above two between which a class moves, has been charged for what left
// before. So it gets back what that turns out not to cost, and so does a class that goes on from where another one was. A new limit and
// a new parent get nothing back.
func TestReloadCorrectsAnAccountThatGoesOn(t *testing.T) {
	hundred := classBy(policy.FixedWindow, "100 messages/h")
	parent := func(conf policy.Class) policy.Class { return under("account", named("parent", conf)) }
	quiet := parent(hundred)
	quiet.Quieted = make([]policy.QuietGroup, 1)
	first := []policy.Class{named("account", hundred), named("other", hundred), parent(hundred), named("child", under("parent", hundred))}
	for name, c := range map[string]struct {
		next            []policy.Class
		account, parent int64 // how much each has charged in the end; of the parent, if it counts messages
	}{
		"the parent counts another unit": {[]policy.Class{first[0], parent(classBy(policy.FixedWindow, "100 packets/h")), first[3]}, 10, 0},
		"the parent has other groups":    {[]policy.Class{first[0], quiet, first[3]}, 10, 10},
		"a class comes between":          {append([]policy.Class{under("parent", named("new", hundred)), under("new", first[3])}, first[:3]...), 10, 10},
		"the parent goes":                {[]policy.Class{first[0], under("account", first[3])}, 10, 0},
		"another account":                {[]policy.Class{first[0], first[1], under("other", named("parent", hundred)), first[3]}, 60, 10},
	} {
		inBubble(t, func(t *testing.T, s *Shaper) {
			account, child, left := s.Class("account"), s.Class("child"), time.Now()
			if !child.Pass(left, Cost{Messages: 60}) {
				t.Fatal("nothing leaves")
			}
			time.Sleep(second)
			s.Apply(c.next)
			s.Apply(c.next)
			time.Sleep(second)
			child.Provider().Settle(time.Now(), left, Cost{Messages: -50})
			if got := chargedOf(account, 100); got != c.account {
				t.Errorf("%s: the account has charged %d, want %d", name, got, c.account)
			}
			if p := s.Class("parent"); c.parent > 0 && chargedOf(p, 100) != c.parent {
				t.Errorf("%s: the parent has charged %d, want %d", name, chargedOf(p, 100), c.parent)
			}
		}, first...)
	}
}

// A class that is replaced and moves to another account in one reload goes on beneath an account that has charged nothing.
func TestReloadMovesAnHeirToAnotherAccount(t *testing.T) {
	hundred := classBy(policy.FixedWindow, "100 messages/h")
	first := []policy.Class{named("account", hundred), named("other", hundred), under("account", named("parent", hundred)), named("child", under("parent", hundred))}
	quieted := named("parent", hundred)
	quieted.Quieted = make([]policy.QuietGroup, 1)
	for name, parent := range map[string]policy.Class{
		"unit": named("parent", classBy(policy.FixedWindow, "100 packets/h")), "groups": quieted,
	} {
		inBubble(t, func(t *testing.T, s *Shaper) {
			child, left := s.Class("child"), time.Now()
			other := s.Class("other")
			if !child.Pass(left, Cost{Messages: 60}) || !other.Pass(left, Cost{Messages: 60}) {
				t.Fatal("nothing leaves")
			}
			time.Sleep(second)
			s.Apply([]policy.Class{first[0], first[1], under("other", parent), first[3]})
			time.Sleep(second)
			child.Provider().Settle(time.Now(), left, Cost{Messages: -50})
			if got := chargedOf(other, 100); got != 60 {
				t.Errorf("%s: the other account has charged %d, want 60", name, got)
			}
		}, first...)
	}
}

// chargedOf returns what a window of so many units has charged.
func chargedOf(c *Class, units int64) int64 {
	now := time.Now()
	return int64(sort.Search(int(units), func(n int) bool { return !c.allowedAt(now, units-int64(n)).After(now) }))
}
