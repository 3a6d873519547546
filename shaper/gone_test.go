package shaper

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"shaper/policy"
)

// passing returns how many packets leave a class at once, of so many.
func passing(c *Class, most int) (n int) {
	for n < most && c.Pass(time.Now(), Cost{Packets: 1}) {
		lastLeft(c, time.Now())
		n++
	}
	return n
}

// A class that a reload removes and another one brings back has no second budget: what has left before it went
// still counts, also of its keys and by its further limits.
func TestClassComesBack(t *testing.T) {
	other := named("other", leakyClass("1 packets/s"))
	for _, algorithm := range []policy.Algorithm{policy.Token, policy.GCRA, policy.FixedWindow, policy.SlidingLog, policy.SlidingWindow} {
		plain := classBy(algorithm, "20 packets/min")
		if algorithm.HasBurst() {
			plain.Burst = policy.Burst{N: 20, Kind: plain.Rate.Kind()}
		}
		also := tokenClass("1000 packets/s", 1000)
		also.Also = []policy.Limit{classBy(policy.SlidingLog, "20 packets/min").Own()}
		for name, conf := range map[string]policy.Class{"plain": plain, "also": also, "per": perSource(10, plain), "per message": perRecipient(10, plain)} {
			inBubble(t, func(t *testing.T, s *Shaper) {
				join := func() *Class {
					c := s.Class("test")
					if c.Messages().HaveKeys() {
						return c.JoinKey(time.Now(), to(t, c, 1))
					}
					return c.Join(time.Now(), client(1))
				}
				c := join()
				if n := passing(c, 15); n != 15 {
					t.Fatalf("%s, %s: %d leave, want 15", algorithm, name, n)
				}
				c.Quit(time.Now())
				for range 2 {
					s.Apply([]policy.Class{other})
					s.Apply([]policy.Class{other, conf})
				}
				if n := passing(join(), 20); n != 5 {
					t.Errorf("%s, %s: %d more leave when the class is there again, want 5", algorithm, name, n)
				}
			}, conf, other)
		}
	}
}

// remembered returns how many classes that are gone the Shaper remembers.
func remembered(s *Shaper) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.gone)
}

// What a class owes is forgotten when that makes no difference any more, and a class of another unit has no burst.
func TestClassComesBackLate(t *testing.T) {
	other, conf := named("other", leakyClass("1 packets/s")), classBy(policy.SlidingLog, "20 packets/min")
	inBubble(t, func(t *testing.T, s *Shaper) {
		passing(s.Class("test"), 20)
		s.Apply([]policy.Class{other})
		time.Sleep(30 * second)
		s.Apply([]policy.Class{other})
		if remembered(s) != 1 {
			t.Error("what has left is forgotten while it matters")
		}
		time.Sleep(31 * second)
		synctest.Wait()
		if remembered(s) != 0 {
			t.Error("what has left is remembered when it matters no more")
		}
		s.Apply([]policy.Class{other, conf})
		if n := passing(s.Class("test"), 30); n != 20 {
			t.Errorf("%d leave, want 20", n)
		}
	}, conf, other)
	inBubble(t, func(t *testing.T, s *Shaper) {
		passing(s.Class("test"), 20)
		s.Apply([]policy.Class{other})
		s.Apply([]policy.Class{other, classBy(policy.SlidingLog, "20 messages/min")})
		if s.Class("test").Pass(time.Now(), Cost{Messages: 1}) {
			t.Error("a message leaves at once, although nobody knows how many have left")
		}
	}, conf, other)
}

// A class that comes back is the one that was there: with what is in flight, what answers charge that are still
// to come, and its pause.
func TestClassComesBackAsItWas(t *testing.T) {
	other, conf := named("other", leakyClass("1 packets/s")), classBy(policy.FixedWindow, "1000 tokens/day")
	conf.InFlight = 3
	inBubble(t, func(t *testing.T, s *Shaper) {
		old, then := s.Class("test"), time.Now()
		for range 2 {
			if v := old.Enter(then, &Item{Cost: Cost{Tokens: 1}, Asks: true}); v != Leaves {
				t.Fatalf("a request gets the verdict %v", v)
			}
		}
		s.Apply([]policy.Class{other})
		s.Apply([]policy.Class{other, conf})
		time.Sleep(second)
		old.Provider().Settle(time.Now(), then, Cost{Tokens: 598})
		c := s.Class("test")
		if n := c.InFlight(); n != 2 {
			t.Errorf("%d are in flight, want 2", n)
		}
		if !c.Pass(time.Now(), Cost{Tokens: 400}) || c.Pass(time.Now(), Cost{Tokens: 1}) {
			t.Error("the class that came back does not have 400 of 1,000 left")
		}
		old.Provider().ThrottledHere(time.Now(), 10*second, "429")
		if until, _ := c.Provider().Signals(time.Now()); time.Until(until) != 10*second {
			t.Errorf("it pauses until %v", until)
		}
	}, conf, other)
}

// A class that comes back with quiet hours for others goes on from where it was, too.
func TestClassComesBackWithOtherQuietHours(t *testing.T) {
	other, conf := named("other", leakyClass("1 packets/s")), classBy(policy.FixedWindow, "1000 packets/day")
	quiet := conf
	quiet.Quieted = make([]policy.QuietGroup, 1)
	inBubble(t, func(t *testing.T, s *Shaper) {
		passing(s.Class("test"), 10)
		s.Apply([]policy.Class{other})
		s.Apply([]policy.Class{other, quiet})
		if n := passing(s.Class("test"), 1000); n != 990 {
			t.Errorf("%d more leave, want 990", n)
		}
	}, conf, other)
}

// A class stays while somebody is in it, over any number of reloads and also if another one has replaced it: in each of
// them, Apply returns it. Without that, its users would go on at its whole rate beside those of the class that follows it.
func TestClassStaysWhileUsed(t *testing.T) {
	other := named("other", leakyClass("1 packets/s"))
	for what, c := range map[string]struct{ conf, next policy.Class }{
		"gone":           {conf: leakyClass("10 packets/s")},
		"replaced":       {leakyClass("10 packets/s"), leakyClass("10 messages/s")},
		"with buckets":   {conf: perSource(10, leakyClass("10 packets/s"))},
		"keyed messages": {conf: perRecipient(10, leakyClass("10 messages/s"))},
	} {
		inBubble(t, func(t *testing.T, s *Shaper) {
			old := s.Class("test")
			in := old.Join(time.Now(), client(1))
			confs := []policy.Class{other}
			if c.next.Name != "" {
				confs = append(confs, c.next)
			}
			for n := range 3 {
				if gone := s.Apply(confs); len(gone) != 1 || gone[0] != old {
					t.Errorf("%s: reload %d returns %v", what, n, gone)
				}
				time.Sleep(time.Hour)
				synctest.Wait()
			}
			in.Quit(time.Now())
			time.Sleep(2 * time.Hour)
			synctest.Wait()
			if gone := s.Apply(confs); len(gone) != 0 || remembered(s) != 0 {
				t.Errorf("%s: %v stays, and nobody is in it", what, gone)
			}
		}, c.conf, other)
	}
}

// Sessions that wait for a permit of a class that is gone get none of those that a reload moves, also in a later one.
func TestPermitsOfAClassThatIsGone(t *testing.T) {
	one, other := named("one", withPermits(leakyClass("1MB/s"), 1)), named("other", withPermits(leakyClass("1MB/s"), 1))
	inBubble(t, func(t *testing.T, s *Shaper) {
		all := append(take(t, s.Class("one"), 1, 1), take(t, s.Class("one"), 1, 0)...)
		letIn := func(gone []*Class) {
			for _, c := range gone {
				c.LetIn()
			}
		}
		letIn(s.Apply([]policy.Class{other}))
		gone := s.Apply([]policy.Class{other})
		for _, one := range all {
			one.Move(s.Class("other"))
		}
		letIn(gone)
		wantOpen(t, all, true, false)
	}, one, other)
}

// Keys of which nobody knows anything do not start anew if their class was gone for hours.
func TestSpentKeysComeBack(t *testing.T) {
	other, conf := named("other", leakyClass("1 packets/s")), classBy(policy.FixedWindow, "1000 packets/day")
	inBubble(t, func(t *testing.T, s *Shaper) {
		s.Apply([]policy.Class{other, perSource(10, conf)}) // nobody knows what its keys have used
		s.Apply([]policy.Class{other})
		time.Sleep(5 * time.Hour)
		s.Apply([]policy.Class{other, perSource(10, conf)})
		c := s.Class("test").Join(time.Now(), client(1))
		if n := passing(c, 1); n != 0 {
			t.Error("a key has a whole budget")
		}
	}, conf, other)
}

// A class that is gone goes on under its parent, also if this reload or a later one replaces that: nothing leaves through the
// old parent any more.
func TestClassGoesAndItsParentIsReplaced(t *testing.T) {
	parent, child := named("parent", leakyClass("10 packets/s")), under("parent", named("child", classBy(policy.SlidingLog, "10 packets/min")))
	quiet := parent
	quiet.Quieted = make([]policy.QuietGroup, 1)
	if !NewClass(start, parent).IsReplacedBy(quiet) {
		t.Fatal("the parent is not replaced")
	}
	for _, reloads := range [][][]policy.Class{{{quiet}}, {{parent}, {quiet}}} {
		inBubble(t, func(t *testing.T, s *Shaper) {
			c := s.Class("child")
			c.Pass(time.Now(), Cost{Packets: 1})
			for _, confs := range reloads {
				s.Apply(confs)
			}
			if err := NewWaiter(c).Wait(bg, Cost{Packets: 1}, true); err != nil {
				t.Error(err)
			}
			if c.Parent() != s.Class("parent") {
				t.Error("it is under another parent")
			}
		}, parent, child)
	}
}

// A crash after a class has come back forgets nothing that it had let out before it went.
func TestClassComesBackIntoTheLedger(t *testing.T) {
	other, conf := named("other", leakyClass("1 packets/s")), classBy(policy.FixedWindow, "1000 packets/day")
	inBubble(t, func(t *testing.T, s *Shaper) {
		passing(s.Class("test"), 900)
		s.Apply([]policy.Class{other})
		ledger := newInstant()
		defer close(ledger.queue)
		s.Keep(ledger)
		s.Apply([]policy.Class{other, conf})
		time.Sleep(second)
		synctest.Wait()
		again := NewClass(time.Now(), conf)
		lease, ok := ledger.leases["test"]
		if !ok {
			t.Fatal("the ledger has nothing")
		}
		again.backing.resume(time.Now(), &lease)
		if n := passing(again, 200); n > 100 || n < 90 {
			t.Errorf("%d leave after a crash, want 100, or up to a lease less", n)
		}
	}, conf, other)
}

// A class that is gone is forgotten though a bucket of it still lingered when it went. One that was replaced, and that
// nobody uses, is kept for a minute or so, however long its window is.
func TestGoneClassesAreBounded(t *testing.T) {
	inBubble(t, func(t *testing.T, s *Shaper) {
		bucket := s.Class("test").Join(time.Now(), client(1))
		bucket.Provider().Throttled(time.Now(), time.Minute, "429")
		bucket.Quit(time.Now())
		s.Apply(nil)
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		if n := remembered(s); n != 0 {
			t.Errorf("%d classes are remembered", n)
		}
	}, perSource(10, leakyClass("10 packets/s")))

	inBubble(t, func(t *testing.T, s *Shaper) {
		for n := range 300 {
			s.Apply([]policy.Class{classBy(policy.FixedWindow, fmt.Sprintf("1000 %s/day", []string{"packets", "messages"}[n%2]))})
			time.Sleep(time.Second)
			synctest.Wait()
		}
		if n := remembered(s); n > 70 {
			t.Errorf("%d classes that were replaced are remembered", n)
		}
	}, classBy(policy.FixedWindow, "1000 messages/day"))
}

// A class in the shadow is forgotten when its shadow owes nothing any more and no copies are still to leave, and what a class
// has learned is kept for an hour or two. Else each reload that gives such a class another name would leave one.
func TestGoneClassesThatEnforceNothingAreForgotten(t *testing.T) {
	learns := func(conf policy.Class) policy.Class {
		conf.Learn.Floor = rateOf("1 messages/s")
		return conf
	}
	window := classBy(policy.FixedWindow, "1000 messages/min")
	for what, conf := range map[string]policy.Class{
		"shadow":                inShadow(window),
		"shadow of bytes":       inShadow(leakyClass("1MB/s")),
		"learn":                 learns(window),
		"learn in shadow":       inShadow(learns(window)),
		"shadow of keys":        inShadow(perSource(1, window)),
		"shadow at a rate of 0": inShadow(leakyClass("0B/s")),
	} {
		inBubble(t, func(t *testing.T, s *Shaper) {
			for n := range 3 { // more than one key: the others share a bucket
				c := s.Class("test").Join(time.Now(), client(n))
				c.Pass(time.Now(), Cost{Messages: 1, Bytes: 1000})
				c.Quit(time.Now())
			}
			s.Apply(nil)
			time.Sleep(3 * time.Hour)
			synctest.Wait()
			if n := remembered(s); n != 0 {
				t.Errorf("%s: %d classes are remembered", what, n)
			}
		}, conf)
	}
}

// A class in the shadow that a reload removes and another one brings back goes on: what has left counts, also if it enforces
// its limit from then on. What it has learned is there, too.
func TestShadowAndFindingComeBack(t *testing.T) {
	day := classBy(policy.FixedWindow, "1000 packets/day")
	inBubble(t, func(t *testing.T, s *Shaper) {
		passing(s.Class("test"), 900)
		s.Apply(nil)
		time.Sleep(5 * time.Hour)
		synctest.Wait()
		s.Apply([]policy.Class{day})
		if n := passing(s.Class("test"), 1000); n != 100 {
			t.Errorf("%d more leave, want 100", n)
		}
	}, inShadow(day))
	waits := inShadow(leakyClass("1 packets/min"))
	inBubble(t, func(t *testing.T, s *Shaper) {
		passing(s.Class("test"), 10)
		s.Apply(nil)
		time.Sleep(5 * time.Minute)
		s.Apply([]policy.Class{waits})
		if n := s.Class("test").Status().Shadow(time.Now()).Wait.Read().Count; n != 6 {
			t.Errorf("%d of 10 copies at 1 packet/min have left in 5 minutes, want 6", n)
		}
	}, waits)
	learning := leakyClass("100 messages/s")
	learning.Learn.Floor = rateOf("1 messages/s")
	inBubble(t, func(t *testing.T, s *Shaper) {
		c := s.Class("test")
		c.throttle.learner.goOn(time.Now(), 20, 20, 21)
		s.Apply(nil)
		time.Sleep(30 * time.Minute)
		synctest.Wait()
		s.Apply([]policy.Class{learning})
		if s.Class("test").throttle.learner.level != 20 {
			t.Error("what the class has learned is forgotten")
		}
	}, learning)
}

// As long as a session is in a class that is gone, shaper asks less and less often whether it may be forgotten.
func TestGoneClassesAreAskedSeldom(t *testing.T) {
	for what, next := range map[string][]policy.Class{"gone": nil, "replaced": {leakyClass("10 messages/s")}} {
		inBubble(t, func(t *testing.T, s *Shaper) {
			old := s.Class("test")
			in := old.Join(time.Now(), client(1))
			s.Apply(next)
			asked := 0
			for end := time.Now().Add(24 * time.Hour); time.Now().Before(end); asked++ {
				s.mu.Lock()
				at := s.gone[old].next
				s.mu.Unlock()
				time.Sleep(time.Until(at))
				synctest.Wait()
			}
			if t.Logf("%s: asked %d times in a day", what, asked); asked > 50 {
				t.Errorf("%s: asked %d times in a day", what, asked)
			}
			in.Quit(time.Now())
			time.Sleep(2 * time.Hour)
			synctest.Wait()
			if n := remembered(s); n != 0 {
				t.Errorf("%s: %d classes are remembered", what, n)
			}
		}, leakyClass("10 packets/s"))
	}
}

// What waits in a class that a reload has removed, replaced or put elsewhere waits all the same, and counts once.
func TestBacklogOfGoneClasses(t *testing.T) {
	packets, bytes := leakyClass("1 packets/min"), leakyClass("60B/min")
	beneath := func(c policy.Class) policy.Class { c.Parent = "top"; return c }
	for name, confs := range map[string][]policy.Class{
		"nothing is gone":            {named("a", packets), named("top", packets), beneath(named("b", packets))},
		"a root is gone":             {named("top", packets), beneath(named("b", packets))},
		"a root is replaced":         {named("a", bytes), named("top", packets), beneath(named("b", packets))},
		"a root moves beneath":       {beneath(named("a", packets)), named("top", packets), beneath(named("b", packets))},
		"a child is gone":            {named("a", packets), named("top", packets)},
		"a child is replaced":        {named("a", packets), named("top", packets), beneath(named("b", bytes))},
		"a child becomes a root":     {named("a", packets), named("top", packets), named("b", packets)},
		"a tree is gone":             {named("a", packets)},
		"the root of a tree is gone": {named("a", packets), named("b", packets)},
		"all are gone":               {named("other", packets)},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *Shaper) {
				for _, class := range [...]string{"a", "a", "b", "b", "b"} {
					s.Class(class).Enter(time.Now(), packet(100))
				}
				want := Backlog{Items: 3, Bytes: 300} // the first of each tree has left
				if got := s.Backlog(); got != want {
					t.Fatalf("%+v waits before, want %+v", got, want)
				}
				for range 2 {
					s.Apply(confs)
					if got := s.Backlog(); got != want {
						t.Errorf("%+v waits, want %+v", got, want)
					}
				}
			}, named("a", packets), named("top", packets), beneath(named("b", packets)))
		})
	}
}
