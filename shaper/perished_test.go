package shaper

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"shaper/policy"
	"shaper/unit"
)

// delayed is the owner of a ticket that loses its processor before it sends, so many times.
type delayed struct {
	wakeUp
	times *int
}

const delay = 2 * time.Millisecond

func (d delayed) Leave(now time.Time) {
	if *d.times > 0 {
		*d.times--
		time.Sleep(delay)
	}
	d.wakeUp.Leave(now)
}

// A Waiter whose slot is over when it is about to send waits for the next slot, before all others. Nothing is lost but
// the slot: a window above the shared class has the units again.
func TestPerishedItemWaitsAgain(t *testing.T) {
	above, own := policy.DefaultClass("above"), shared20()
	above.Rate, above.Algorithm = rateOf("2 messages/h"), policy.FixedWindow
	own.Parent, own.Shared = "above", "prod"
	for over, perishes := range map[time.Duration]bool{delay - 1: true, delay: false, 0: false} {
		inBubble(t, func(t *testing.T, s *Shaper) {
			member := &fakeMember{budgets: map[string]*fakeBudget{}}
			s.SetMembers(map[string]Member{"acme": member})
			s.Apply([]policy.Class{above, own})
			c, times := s.Class("acme"), 2
			b, slow, quick := member.budgets["0"], NewWaiter(c), NewWaiter(c)
			slow.flow.Init(c, delayed{slow.leaves, &times})
			ends := make(chan string, 2)
			go func() { ends <- "slow " + errorOf(slow.Wait(bg, Cost{Messages: 1}, false)) }()
			synctest.Wait()
			go func() { ends <- "quick " + errorOf(quick.Wait(bg, Cost{Messages: 1}, false)) }()
			synctest.Wait()
			grant := func() (end string) {
				time.Sleep(leavePatience / 10) // after that the class goes on, whatever was said of the last item
				if b.have, b.over = 1, time.Now().Add(over); over == 0 {
					b.over = time.Time{}
				}
				s.Told("acme", "")
				time.Sleep(2 * delay)
				synctest.Wait()
				select {
				case end = <-ends:
				default:
				}
				return end
			}
			want := []string{"slow ", "quick ", ""}
			if perishes {
				want = append([]string{"", ""}, want...)
			}
			for i, want := range want {
				if got := grant(); got != want {
					t.Errorf("with slot %d, which is over %v later, this ends: %q, want %q", i, over, got, want)
				}
			}
			if lost := int64(len(want) - 3); b.wanted != 0 || c.Backlog().Items != 0 || b.lost != lost {
				t.Errorf("%d wait, and the fleet is told of %d, and that %d are lost, want %d", c.Backlog().Items, b.wanted, b.lost, lost)
			}
			if b.have = 1; c.Enter(time.Now(), &Item{Owner: &noting{}, Cost: Cost{Messages: 1}}) != Waits {
				t.Error("a third one leaves in a window of 2")
			}
		})
	}
}

// What happens to the class after the slot of a perished item is over does not make that item late: it has not left.
func TestPerishedItemIsNotLate(t *testing.T) {
	own := shared20()
	own.Shared = "prod"
	inBubble(t, func(t *testing.T, s *Shaper) {
		member := &fakeMember{budgets: map[string]*fakeBudget{}}
		s.SetMembers(map[string]Member{"acme": member})
		s.Apply([]policy.Class{own})
		c, times := s.Class("acme"), 1
		b, slow := member.budgets["0"], NewWaiter(c)
		slow.flow.Init(c, delayed{slow.leaves, &times})
		go slow.Wait(bg, Cost{Messages: 1}, false)
		synctest.Wait()
		b.have, b.over = 1, time.Now().Add(delay/4)
		over := b.over
		s.Told("acme", "")
		time.Sleep(delay / 2)
		s.Told("acme", "")
		time.Sleep(2 * delay)
		synctest.Wait()
		if b.lost != 1 || b.left.After(over) {
			t.Errorf("%d are lost, and the fleet is told that one left %v after its slot", b.lost, b.left.Sub(over))
		}
		b.have, b.over = 1, time.Time{}
		s.Told("acme", "")
		synctest.Wait()
	})
}

func errorOf(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// A ticket that has perished once goes before others, and needs no room, only until it has left, and only in that class.
func TestPerishedGoesFirstOnce(t *testing.T) {
	one, other := shared20(), shared20()
	one.Shared, other.Shared, other.Name = "prod", "prod", "other"
	one.Overflow, other.Overflow = policy.Refuse, policy.Refuse
	for i := range 4 {
		moves, full := i&1 != 0, i&2 != 0
		one.Queue.Items.N, other.Queue.Items.N = 9, 9
		if full {
			one.Queue.Items.N, other.Queue.Items.N = 1, 1
		}
		inBubble(t, func(t *testing.T, s *Shaper) {
			members := map[string]Member{"acme": &fakeMember{budgets: map[string]*fakeBudget{}}, "other": &fakeMember{budgets: map[string]*fakeBudget{}}}
			s.SetMembers(members)
			s.Apply([]policy.Class{one, other})
			from, to := s.Class("acme"), s.Class("other")
			grant := func(c *Class, over time.Duration) {
				b := members[c.Name()].Budget(0, "").(*fakeBudget)
				b.have, b.over = 1, time.Now().Add(over)
				s.Told(c.Name(), "")
				time.Sleep(2 * delay)
				synctest.Wait()
			}
			times := 1
			var late Flow
			turns := make(wakeUp, 1)
			late.Init(from, delayed{turns, &times})
			late.Ask(time.Now(), Cost{Messages: 1, Packets: 1}, false)
			grant(from, delay-1)
			<-turns
			if late.Turn(time.Now) != Waits {
				t.Fatal("the ticket has not perished")
			}
			if moves {
				from, to = to, from
			} else {
				grant(from, time.Hour)
				<-turns
				if late.Turn(time.Now) != Leaves {
					t.Fatal("the ticket has perished again")
				}
				late.Left(time.Now())
			}
			before := &noting{}
			from.Enter(time.Now(), &Item{Owner: before, Cost: Cost{Messages: 1, Packets: 1}})
			var verdict Verdict
			if moves {
				verdict = late.Move(time.Now(), from)
			} else {
				verdict = late.Ask(time.Now(), Cost{Messages: 1, Packets: 1}, false)
			}
			if (verdict == Full) != full {
				t.Errorf("moved: %v: the verdict is %v where there is room: %v", moves, verdict, !full)
			}
			if grant(from, time.Hour); before.left.Load() != 1 || len(turns) != 0 {
				t.Errorf("moved: %v: the ticket goes before one that came before it", moves)
			}
		})
	}
}

// A ticket that perishes after its flow has moved to another class has not waited there: it goes behind those that have, and the queue
// there may have no room for it.
func TestPerishedInAnotherClass(t *testing.T) {
	one, other := shared20(), shared20()
	one.Shared, other.Name, other.Overflow = "prod", "other", policy.Refuse
	for most, want := range map[int64]Verdict{1: Full, 2: Waits} {
		other.Queue.Items.N = most
		inBubble(t, func(t *testing.T, s *Shaper) {
			member := &fakeMember{budgets: map[string]*fakeBudget{}}
			s.SetMembers(map[string]Member{"acme": member})
			s.Apply([]policy.Class{one, other})
			from, to, times := s.Class("acme"), s.Class("other"), 1
			var late Flow
			turns := make(wakeUp, 1)
			late.Init(from, delayed{turns, &times})
			late.Ask(time.Now(), Cost{Messages: 1, Packets: 1}, false)
			member.budgets["0"].have, member.budgets["0"].over = 1, time.Now().Add(delay-1)
			s.Told("acme", "")
			<-turns
			to.Enter(time.Now(), &Item{Owner: &noting{}, Cost: Cost{Messages: 1}}) // leaves
			before := &noting{}
			to.Enter(time.Now(), &Item{Owner: before, Cost: Cost{Messages: 1, Packets: 1}})
			if late.Move(time.Now(), to) != Waits {
				t.Fatal("the ticket waits, although it has had its turn")
			}
			if v := late.Turn(time.Now); v != want {
				t.Fatalf("the verdict is %v, want %v", v, want)
			}
			if time.Sleep(60 * time.Millisecond); before.left.Load() != 1 || len(turns) != 0 {
				t.Error("the ticket goes before one that came to its class before it")
			}
		})
	}
}

// A request that perishes is in flight no more, until it has left.
func TestPerishedRequestIsNotInFlight(t *testing.T) {
	conf := shared20()
	conf.InFlight = 1
	withMember(t, conf, func(s *Shaper, member *fakeMember, c *Class) {
		times, b := 1, member.budgets["0"]
		w := NewRequestWaiter(c)
		w.flow.ticket.Owner = delayed{w.leaves, &times}
		done := make(chan error, 1)
		go func() { done <- w.Wait(bg, Cost{Messages: 1}, false) }()
		for _, want := range []int{0, 1} {
			synctest.Wait()
			b.have, b.over = 1, time.Now().Add(delay-1)
			s.Told("acme", "")
			time.Sleep(2 * delay)
			if n := c.InFlight(); n != want {
				t.Errorf("%d requests are in flight, want %d", n, want)
			}
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// What waits behind an item that has perished is refused if the window of the fleet turns out to be used up for longer than it may wait.
func TestRefusedBehindAPerishedOne(t *testing.T) {
	conf := policy.DefaultClass("acme")
	conf.Rate, conf.Algorithm, conf.MaxWait, conf.Overflow = rateOf("1000 messages/h"), policy.FixedWindow, unit.Duration(10*second), policy.Refuse
	withMember(t, conf, func(s *Shaper, member *fakeMember, c *Class) {
		b, times, turns := member.budgets["0"], 1, make(wakeUp, 1)
		var late Flow
		late.Init(c, delayed{turns, &times})
		late.Ask(time.Now(), Cost{Messages: 1}, false)
		all := make([]*judged, 3)
		for i := range all {
			all[i] = &judged{}
			all[i].item = &Item{Owner: all[i], Cost: Cost{Messages: 1}}
			c.Enter(time.Now(), all[i].item)
		}
		b.have, b.over = 1, time.Now().Add(delay-1)
		s.Told("acme", "")
		<-turns
		if late.Turn(time.Now) != Waits {
			t.Fatal("the ticket has not perished")
		}
		b.refused = time.Now().Add(time.Hour)
		s.Told("acme", "")
		time.Sleep(second)
		synctest.Wait()
		for i, j := range all {
			if !slices.Equal(j.verdicts, []Verdict{TooLong}) {
				t.Errorf("item %d gets the verdicts %v, want that it is refused", i, j.verdicts)
			}
		}
		if n := c.Backlog().Items; n != 1 {
			t.Errorf("%d wait, want the one that has had its turn", n)
		}
	})
}

// A ticket that is refused has no slot that could be over, although the one before it had.
func TestRefusedTicketHasNotPerished(t *testing.T) {
	conf := policy.DefaultClass("acme")
	conf.Rate, conf.Algorithm, conf.MaxWait, conf.Overflow = rateOf("1000 messages/h"), policy.FixedWindow, unit.Duration(10*second), policy.Refuse
	withMember(t, conf, func(s *Shaper, member *fakeMember, c *Class) {
		b, owner := member.budgets["0"], make(wakeUp, 1)
		var f Flow
		f.Init(c, owner)
		b.have, b.over = 1, time.Now().Add(delay)
		s.Told("acme", "")
		if f.Ask(time.Now(), Cost{Messages: 1}, false) != Leaves || f.Ask(time.Now(), Cost{Messages: 1}, false) != Waits {
			t.Fatal("the second one does not wait")
		}
		b.refused = time.Now().Add(time.Hour)
		s.Told("acme", "")
		time.Sleep(second)
		<-owner
		if v := f.Turn(time.Now); v != TooLong {
			t.Errorf("the verdict is %v, want that it would wait too long", v)
		}
	})
}
