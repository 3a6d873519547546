package shaper

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"shaper/policy"
	"shaper/tests/trial"
	"shaper/unit"
)

// A shared class that is gone lets out what the fleet grants until nobody uses it any more, and hears of it. Then it gives its share up.
// If it comes back before, it goes on with the share that it gets then.
func TestGoneClassKeepsItsShare(t *testing.T) {
	conf := shared20()
	conf.Algorithm, conf.Burst = policy.Token, policy.Burst{N: 10, Kind: conf.Rate.Kind()}
	for _, comesBack := range []bool{false, true} {
		withMember(t, conf, func(s *Shaper, member *fakeMember, c *Class) {
			b, o := member.budgets["0"], &noting{}
			c.Join(time.Now(), policy.Conn{})
			for range 5 {
				c.Enter(time.Now(), &Item{Owner: o, Cost: Cost{Messages: 1, Bytes: 10}, Held: 10})
			}
			s.SetMembers(nil)
			for range 3 {
				s.Apply(nil)
				time.Sleep(time.Minute)
			}
			if n := o.left.Load(); n != 0 {
				t.Fatalf("%d items have left without a grant", n)
			}
			b.have = 2
			s.Told("acme", "")
			time.Sleep(time.Minute)
			if n := o.left.Load(); n != 2 || !s.Unshare(member) {
				t.Fatalf("%d items have left, want 2; the member is used: %v", n, s.Unshare(member))
			}
			if comesBack {
				next := &fakeMember{budgets: map[string]*fakeBudget{}}
				s.SetMembers(map[string]Member{conf.Name: next})
				shared := conf
				shared.Shared = "prod"
				s.Apply([]policy.Class{shared})
				next.budgets["0"].have = 1
				if s.Told("acme", ""); s.Unshare(member) || !s.Unshare(next) {
					t.Errorf("the old member is used: %v, the new one: %v", s.Unshare(member), s.Unshare(next))
				}
				time.Sleep(time.Minute)
				if n := o.left.Load(); n != 3 {
					t.Errorf("%d items have left, want 3", n)
				}
				return
			}
			b.have = 3
			s.Told("acme", "")
			time.Sleep(time.Minute)
			if s.Unshare(member); o.left.Load() != 5 || !s.Unshare(member) {
				t.Errorf("%d items have left, want 5; the member is used by who is in the class: %v", o.left.Load(), s.Unshare(member))
			}
			c.Quit(time.Now())
			if s.Unshare(member) {
				t.Error("the member is used, and nobody is in the class")
			}
			if _, is := c.limiter.(*shared); is {
				t.Error("the class has its member still")
			}
		})
	}
}

// A shared class that another one replaces, which counts in another unit or for other keys, lets out nothing more by a budget of its
// own before its items are taken out: it may have a whole burst, and the fleet has not granted any.
func TestReplacedClassHasNoBurst(t *testing.T) {
	conf := shared20()
	conf.Algorithm, conf.Burst = policy.Token, policy.Burst{N: 10, Kind: conf.Rate.Kind()}
	for what, change := range map[string]func(*policy.Class){
		"another unit": func(c *policy.Class) {
			c.Rate, c.Burst = rateOf("1MB/s"), policy.Burst{N: 10000, Kind: c.Rate.Kind()}
		},
		"buckets": func(c *policy.Class) { c.Per[0].By = policy.ByConnection },
	} {
		withMember(t, conf, func(s *Shaper, member *fakeMember, c *Class) {
			o := &noting{}
			c.Join(time.Now(), policy.Conn{})
			for range 5 {
				c.Enter(time.Now(), &Item{Owner: o, Cost: Cost{Messages: 1, Bytes: 10}, Held: 10})
			}
			next := conf
			next.Shared = "prod"
			change(&next)
			s.SetMembers(map[string]Member{conf.Name: &fakeMember{budgets: map[string]*fakeBudget{}}})
			s.Apply([]policy.Class{next})
			time.Sleep(time.Millisecond)
			if n := o.left.Load(); n != 0 {
				t.Errorf("%s: %d items have left at once without a grant", what, n)
			}
		})
	}
}

// TestGoneParentKeepsItsShare takes a shared class away with the one beneath it, while a session is in that and sends nothing. What it
// sends later needs what the fleet grants, until the session has ended.
func TestGoneParentKeepsItsShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewOnRuntimeTimer()
		defer s.Close()
		member := &fakeMember{budgets: map[string]*fakeBudget{}, slowed: map[string]time.Duration{}, paused: map[string]time.Time{}}
		above, beneath := shared20(), policy.DefaultClass("sub")
		above.Algorithm, above.Burst, above.Shared = policy.Token, policy.Burst{N: 100, Kind: above.Rate.Kind()}, "prod"
		beneath.Parent, beneath.Rate = "acme", rateOf("1000 messages/s")
		s.SetMembers(map[string]Member{"acme": member})
		s.Apply([]policy.Class{above, beneath})
		c, o := s.Class("sub"), &noting{}
		c.Join(time.Now(), policy.Conn{})
		s.SetMembers(nil)
		s.Apply(nil)
		time.Sleep(2 * time.Second)
		used := s.Unshare(member)
		for range 50 {
			if c.Enter(time.Now(), &Item{Owner: o, Cost: Cost{Messages: 1, Bytes: 10}, Held: 10}) == Leaves {
				o.left.Add(1)
			}
		}
		time.Sleep(10 * time.Second)
		if n := o.left.Load(); !used || n != 0 {
			t.Fatalf("%d items have left without a grant; the member is used: %v", n, used)
		}
		member.budgets["0"].have = 1000
		s.Told("acme", "")
		time.Sleep(10 * time.Second)
		if n := o.left.Load(); n != 50 {
			t.Errorf("%d of 50 items have left with a grant", n)
		}
		if c.Quit(time.Now()); s.Unshare(member) {
			t.Error("the member is used, and nobody is in the classes")
		}
	})
}

// TestUnshareWhileASessionEnters has a session enter a class that is gone while the share of that is taken. Its item waits for a
// grant, and then the class keeps the share, or finds the share taken. It never waits for a grant and then leaves without one.
func TestUnshareWhileASessionEnters(t *testing.T) {
	const beneath = 1000 // it takes a while to ask all of them whether somebody is there
	above, plenty := shared20(), policy.Burst{N: 1_000_000, Kind: unit.Messages}
	above.Algorithm, above.Burst, above.Shared = policy.Token, plenty, "prod"
	confs := []policy.Class{above}
	for i := range beneath {
		sub := policy.DefaultClass(fmt.Sprintf("sub%d", i))
		sub.Parent, sub.Rate, sub.Algorithm, sub.Burst = "acme", rateOf("1000 messages/s"), policy.Token, plenty
		confs = append(confs, sub)
	}
	s := NewOnRuntimeTimer()
	defer s.Close()
	member := &fakeMember{budgets: map[string]*fakeBudget{}, slowed: map[string]time.Duration{}, paused: map[string]time.Time{}}
	s.SetMembers(map[string]Member{"acme": member})
	s.Apply(confs)
	acme, sub := s.Class("acme"), s.Class("sub0")
	s.SetMembers(nil)
	s.Apply(nil)
	took := time.Duration(0) // by the last Unshare: the session enters at any moment of the next one
	for round := range trial.Size(300, 20_000) {
		acme.Share(time.Now(), member)
		begin := time.Now()
		at := begin.Add(took * time.Duration(round%100) / 80)
		it, verdict := &Item{Owner: &noting{}, Cost: Cost{Messages: 1, Bytes: 10}, Held: 10}, make(chan Verdict)
		go func() {
			for time.Now().Before(at) {
			}
			sub.Join(time.Now(), policy.Conn{})
			verdict <- sub.Enter(time.Now(), it)
		}()
		used := s.Unshare(member)
		took = time.Since(begin)
		v := <-verdict
		if v == Waits && !used {
			t.Fatalf("round %d: the member was taken while an item waited for a grant", round)
		}
		sub.Cancel(time.Now(), it)
		sub.Quit(time.Now())
	}
}
