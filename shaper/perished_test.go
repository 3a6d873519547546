package shaper

import (
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
			share := &fakeShare{budgets: map[string]*fakeBudget{}}
			s.Shares(map[string]Share{"acme": share})
			s.Apply([]policy.Class{above, own})
			c, times := s.Class("acme"), 2
			b, slow, quick := share.budgets["0"], NewWaiter(c), NewWaiter(c)
			slow.flow.Init(c, delayed{slow.leaves, &times})
			ends := make(chan string, 2)
			go func() { ends <- "slow " + errorOf(slow.Wait(bg, Cost{Messages: 1}, false)) }()
			synctest.Wait()
			go func() { ends <- "quick " + errorOf(quick.Wait(bg, Cost{Messages: 1}, false)) }()
			synctest.Wait()
			grant := func() (end string) {
				time.Sleep(time.Second)
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

func errorOf(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// A ticket that has perished once goes before others only until it has left, and only in that class.
func TestPerishedGoesFirstOnce(t *testing.T) {
	one, other := shared20(), shared20()
	one.Shared, other.Shared, other.Name = "prod", "prod", "other"
	for _, moves := range []bool{false, true} {
		inBubble(t, func(t *testing.T, s *Shaper) {
			shares := map[string]Share{"acme": &fakeShare{budgets: map[string]*fakeBudget{}}, "other": &fakeShare{budgets: map[string]*fakeBudget{}}}
			s.Shares(shares)
			s.Apply([]policy.Class{one, other})
			from, to := s.Class("acme"), s.Class("other")
			grant := func(c *Class, over time.Duration) {
				b := shares[c.Name()].Budget(0, "").(*fakeBudget)
				b.have, b.over = 1, time.Now().Add(over)
				s.Told(c.Name(), "")
				time.Sleep(2 * delay)
				synctest.Wait()
			}
			times := 1
			var late Flow
			turns := make(wakeUp, 1)
			late.Init(from, delayed{turns, &times})
			late.Ask(time.Now(), Cost{Messages: 1}, false)
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
			from.Enter(time.Now(), &Item{Owner: before, Cost: Cost{Messages: 1}})
			if moves {
				late.Move(time.Now(), from)
			} else {
				late.Ask(time.Now(), Cost{Messages: 1}, false)
			}
			if grant(from, time.Hour); before.left.Load() != 1 || len(turns) != 0 {
				t.Errorf("moved: %v: the ticket goes before one that came before it", moves)
			}
		})
	}
}

// A ticket that is refused has no slot that could be over, although the one before it had.
func TestRefusedTicketHasNotPerished(t *testing.T) {
	conf := policy.DefaultClass("acme")
	conf.Rate, conf.Algorithm, conf.MaxWait, conf.Overflow = rateOf("1000 messages/h"), policy.FixedWindow, unit.Duration(10*second), policy.Refuse
	shareOf(t, conf, func(s *Shaper, share *fakeShare, c *Class) {
		b, owner := share.budgets["0"], make(wakeUp, 1)
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
