package shaper

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"shaper/policy"
	"shaper/unit"
)

// promotions returns the policy of a class of 10 messages a second that is quiet for 91* from 21:00
// to 9:00 UTC; start is at midnight UTC.
func promotions(t testing.TB, more string) []policy.Class {
	t.Helper()
	p, _, err := policy.Parse("p.toml", []byte(`
[class.promotions]
rate = "10 messages/s"
`+more+`
[[class.promotions.quiet]]
recipient = "91*"
from = "21:00"
to = "09:00"
[listener.x]
listen = "127.0.0.1:0"
protocol = "smpp"
upstream = "discard:"
class = "promotions"
`))
	if err != nil {
		t.Fatal(err)
	}
	return p.Classes
}

// asAt returns a policy as it is from a time on.
func asAt(d time.Duration, confs []policy.Class) []policy.Class {
	then := make([]policy.Class, len(confs))
	for i, c := range confs {
		then[i], _ = c.Scheduled(at(d))
	}
	return then
}

// joins returns where a message to a recipient waits.
func joins(d time.Duration, c *Class, to string) *Class {
	m := &policy.Message{SourceAddr: []byte("acme"), Recipient: []byte(to)}
	return c.JoinKey(at(d), c.Messages().Key(&policy.Conn{}, m))
}

func sms() *Item { return &Item{Cost: Cost{Messages: 1, Bytes: 1}, Held: 1} }

// What comes a moment before the quiet hours leaves. What comes at that moment waits until they
// end, holds up nobody else, and leaves then in order at the rate of the class.
func TestQuietHoursHoldSomeRecipients(t *testing.T) {
	c := NewTree(start, asAt(12*time.Hour, promotions(t, "")))[0]
	night, morning := 21*time.Hour, 33*time.Hour
	india, other := joins(0, c, "9198"), joins(0, c, "4477")
	enter(t, india, night-1, Leaves, sms())
	a, b := sms(), sms()
	enter(t, india, night+time.Second, Waits, a)
	enter(t, india, night+time.Second, Waits, b)
	holds(t, c.Status().Waits(at(night+time.Second)), "promotions", HoldQuiet, morning)
	for n := range 20 {
		enter(t, other, night+time.Second+time.Duration(n)*100*ms, Leaves, sms())
	}
	behind := sms()
	enter(t, other, night+2900*ms, Waits, behind)
	holds(t, c.Status().Waits(at(night+2900*ms)), "promotions", "10 messages/s", night+3*time.Second)
	released(t, c, night+3*time.Second, behind)
	released(t, c, morning-1)
	released(t, c, morning, a)
	released(t, c, morning+100*ms-1)
	released(t, c, morning+100*ms, b)
}

// What waits for the rate when the quiet hours begin waits until they end, though it came before.
func TestQuietHoursHoldWhatWaits(t *testing.T) {
	c := NewTree(start, asAt(12*time.Hour, promotions(t, "")))[0]
	night := 21 * time.Hour
	india := joins(0, c, "91")
	first, second, third := sms(), sms(), sms()
	enter(t, india, night-150*ms, Leaves, first)
	enter(t, india, night-150*ms, Waits, second)
	enter(t, india, night-150*ms, Waits, third)
	released(t, c, night-50*ms, second)
	released(t, c, night+50*ms)
	released(t, c, 33*time.Hour, third)
}

// max_wait decides between waiting and refusing, and Retry tells the end of the quiet hours.
func TestMaxWaitOfQuietHours(t *testing.T) {
	night, morning := 21*time.Hour, 33*time.Hour
	make := func() *Class {
		return NewTree(start, asAt(12*time.Hour, promotions(t, `max_wait = "1min"`)))[0]
	}
	c := make()
	india, other := joins(0, c, "91"), joins(0, c, "44")
	enter(t, india, night-1, Leaves, sms())
	enter(t, india, night, TooLong, sms())
	if retry := india.Estimate().Retry(at(night), Cost{Messages: 1}); retry != 12*time.Hour {
		t.Errorf("there is room in %v, want 12h", retry)
	}
	enter(t, other, night, Waits, sms()) // for its gap only
	enter(t, india, morning-time.Minute, Waits, sms())

	c = make() // what would still wait at 21:00 is refused before
	india = joins(0, c, "91")
	enter(t, india, night-time.Second, Leaves, sms())
	for range 9 {
		enter(t, india, night-time.Second, Waits, sms())
	}
	enter(t, india, night-time.Second, TooLong, sms())
	if retry := india.Estimate().Retry(at(night-time.Second), Cost{Messages: 1}); retry != 12*time.Hour+time.Second {
		t.Errorf("there is room in %v, want 12h0m1s", retry)
	}
	enter(t, joins(0, c, "44"), night-time.Second, Waits, sms())
}

// What waits in the quiet hours does not drain meanwhile: whatever comes leaves behind it when they
// end, at the rate of the class above. What waits for others does drain.
func TestTheQueueOfTheQuietHoursLeavesAfterThem(t *testing.T) {
	const morning = 33 * time.Hour
	for _, begin := range []time.Duration{20*time.Hour + 59*time.Minute, 23 * time.Hour} {
		confs := asAt(12*time.Hour, promotions(t, "queue = \"1000 messages\"\nmax_wait = \"13h\""))
		confs[0].Rate = rateOf("100 messages/h")
		c := NewTree(start, confs)[0]
		india, others := joins(0, c, "9198"), joins(0, c, "44")
		enter(t, others, begin, Leaves, sms())
		for range 200 {
			enter(t, others, begin, Waits, sms())
		}
		accepted := 0
		for india.Enter(at(begin), sms()) == Waits {
			accepted++
		}
		if most := int(13*100 - (morning-begin).Hours()*100); accepted < most-5 || accepted > most+5 {
			t.Errorf("at %v, %d are to leave within 13 h, want %d", begin, accepted, most)
		}
		if _, drain := india.Estimate().Drain(at(begin)); drain < 13*time.Hour-5*time.Minute || drain > 13*time.Hour+time.Minute {
			t.Errorf("at %v, the last of them leaves in %v", begin, drain)
		}
	}
}

// All who are refused in a night hear of one time to come back. As many as the class sends within
// max_wait leave within max_wait after it.
func TestManyComeBackAfterQuietHours(t *testing.T) {
	c := NewTree(start, asAt(12*time.Hour, promotions(t, `max_wait = "1min"`)))[0]
	india := joins(0, c, "91")
	enter(t, india, 22*time.Hour, TooLong, sms())
	back := at(22 * time.Hour).Add(india.Estimate().Retry(at(22*time.Hour), Cost{Messages: 1}))
	for range 600 {
		if v := india.Enter(back, sms()); v != Leaves && v != Waits {
			t.Fatalf("one of 600 that come back at %v gets the verdict %v", back, v)
		}
	}
	for now := back; c.Backlog().Items > 0; now = c.Next(now) {
		if c.Release(now); now.Sub(back) > time.Minute {
			t.Fatalf("%d of 600 have waited for longer than a minute", c.Backlog().Items)
		}
	}
}

// However much waits for the morning, nobody else is refused for it: the groups take turns.
func TestQuietHoursRefuseNobodyElse(t *testing.T) {
	c := NewTree(start, asAt(30*time.Hour, promotions(t, `max_wait = "5s"`)))[0]
	morning := 33 * time.Hour
	india, other := joins(0, c, "91"), joins(0, c, "44")
	for range 41 { // the last of them leaves 4 s after the morning begins
		enter(t, india, morning-time.Second, Waits, sms())
	}
	enter(t, other, morning-time.Second, Leaves, sms())
	for range 20 {
		enter(t, other, morning-time.Second, Waits, sms())
	}
}

// Buckets have groups too, within the limits of each bucket, and are given up with them. What a key
// has used is remembered.
func TestQuietHoursOfBuckets(t *testing.T) {
	for _, per := range []string{"recipient", "source_addr"} {
		t.Run(per, func(t *testing.T) {
			confs := promotions(t, fmt.Sprintf("algorithm = \"gcra\"\nburst = \"2 messages\"\nper = %q", per))
			c := NewTree(start, asAt(12*time.Hour, confs))[0]
			night, morning := 21*time.Hour, 33*time.Hour
			for range 3 { // the bucket comes and goes
				india := joins(night-time.Second, c, "91")
				if len(c.keys.table.active) != 1 {
					t.Fatalf("%d keys are in use", len(c.keys.table.active))
				}
				india.Quit(at(night - time.Second))
				if len(c.keys.table.active) != 0 {
					t.Fatalf("%d keys are in use", len(c.keys.table.active))
				}
			}
			india := joins(0, c, "91")
			a, b, late := sms(), sms(), sms()
			enter(t, india, night, Waits, a)
			enter(t, india, night, Waits, b)
			enter(t, india, night, Waits, late)
			other := joins(0, c, "44")
			enter(t, other, night, Leaves, sms())
			india.Quit(at(night)) // the bucket stays while something waits in its group
			released(t, c, morning, a, b)
			released(t, c, morning+100*ms-1)
			released(t, c, morning+100*ms, late)
			other.Quit(at(morning))
			if n := len(c.keys.table.active); n != 0 {
				t.Errorf("%d keys are in use at the end", n)
			}
			again := joins(morning+100*ms, c, "91")
			enter(t, again, morning+100*ms, Waits, sms())
		})
	}
}

// When the schedule goes on, each group is closed in its next quiet hours, and so are those of
// buckets.
func TestQuietHoursFollowSet(t *testing.T) {
	for _, more := range []string{"", `per = "source_addr"`} {
		confs := promotions(t, more)
		c := NewTree(start, asAt(12*time.Hour, confs))[0]
		it := sms()
		india := joins(0, c, "91")
		enter(t, india, 21*time.Hour, Waits, it)
		c.Set(at(21*time.Hour), asAt(21*time.Hour, confs)[0])
		released(t, c, 33*time.Hour-1)
		released(t, c, 33*time.Hour, it)
		c.Set(at(33*time.Hour), asAt(33*time.Hour, confs)[0])
		enter(t, india, 44*time.Hour, Leaves, sms())
		enter(t, india, 45*time.Hour, Waits, it)
		released(t, c, 57*time.Hour-1)
		released(t, c, 57*time.Hour, it)
	}
}

// A reload that changes for whom a class is quiet replaces the class, which goes on from where the
// old one was. One that changes only the hours does not.
func TestQuietHoursOfAReload(t *testing.T) {
	confs := promotions(t, "")
	confs[0].Algorithm, confs[0].Rate = policy.FixedWindow, unit.NewRate(unit.Messages, 3, 24*time.Hour)
	s := newShaper()
	defer s.Close()
	s.Apply(confs)
	before := s.Class("promotions")
	now := time.Now()
	for range 2 {
		if !before.Pass(now, Cost{Messages: 1}) {
			t.Fatal("the class is full at once")
		}
	}
	hours := asAt(0, confs)
	if removed := s.Apply(hours); len(removed) != 0 || s.Class("promotions") != before {
		t.Error("the same recipients are another class")
	}
	without := asAt(0, confs)
	without[0].Quiet, without[0].Quieted = nil, nil
	removed := s.Apply(without)
	after := s.Class("promotions")
	if len(removed) != 1 || removed[0] != before || after == before {
		t.Fatalf("%d classes are gone", len(removed))
	}
	if before.Pass(now, Cost{Messages: 1}) || !after.Pass(now, Cost{Messages: 1}) || after.Pass(now, Cost{Messages: 1}) {
		t.Error("the class does not go on with one message of three")
	}
}

// What answers charge or give back for messages of a class that a reload has replaced counts in the
// one that goes on from it.
func TestAnswersAfterAReplacement(t *testing.T) {
	for more, want := range map[int64]int{2: 3, 0: 5, -1: 6} {
		confs := promotions(t, "")
		confs[0].Algorithm, confs[0].Rate = policy.FixedWindow, unit.NewRate(unit.Messages, 10, 24*time.Hour)
		s := newShaper()
		s.Apply(confs)
		now := time.Now()
		group := s.Class("promotions").JoinKey(now, s.Class("promotions").Messages().Key(&policy.Conn{}, &policy.Message{Recipient: []byte("9198")}))
		if !group.Pass(now, Cost{Messages: 5}) {
			t.Fatal("the class is full at once")
		}
		for range 2 { // the one that goes on may be replaced, too
			confs[0].Quiet, confs[0].Quieted = nil, nil
			s.Apply(confs)
			confs = promotions(t, "")
			confs[0].Algorithm, confs[0].Rate = policy.FixedWindow, unit.NewRate(unit.Messages, 10, 24*time.Hour)
			s.Apply(confs)
		}
		group.Provider().Settle(now, now, Cost{Messages: more})
		n := 0
		for s.Class("promotions").Pass(now, Cost{Messages: 1}) {
			n++
		}
		if n != want {
			t.Errorf("after an answer that charges %d more, %d messages leave, want %d", more, n, want)
		}
		s.Close()
	}
}

// A reload that changes the quiet hours of a parent replaces its children, too. Answers count in all
// classes that go on from those.
func TestAnswersAfterReplacementsOnThePath(t *testing.T) {
	day := func(n int64) unit.Rate { return unit.NewRate(unit.Messages, n, 24*time.Hour) }
	confs := promotions(t, "")
	child := named("child", confs[0])
	confs[0].Algorithm, confs[0].Rate = policy.FixedWindow, day(20)
	child.Algorithm, child.Rate = policy.FixedWindow, day(10)
	confs = append(confs, under("promotions", child))
	s := newShaper()
	defer s.Close()
	s.Apply(confs)
	now := time.Now()
	group := s.Class("child").JoinKey(now, s.Class("child").Messages().Key(&policy.Conn{}, &policy.Message{Recipient: []byte("9198")}))
	if !group.Pass(now, Cost{Messages: 5}) {
		t.Fatal("the class is full at once")
	}
	for i := range confs {
		confs[i].Quiet, confs[i].Quieted = nil, nil
	}
	if removed := s.Apply(confs); len(removed) != 2 {
		t.Fatalf("the reload replaces %d classes, want 2", len(removed))
	}
	group.Provider().Settle(now, now, Cost{Messages: 2})
	for _, want := range []struct {
		class string
		n     int
	}{{"child", 3}, {"promotions", 10}} { // of 20, seven were sent and charged, and now three more
		n := 0
		for s.Class(want.class).Pass(now, Cost{Messages: 1}) {
			n++
		}
		if n != want.n {
			t.Errorf("%d messages leave %s after the answer, want %d", n, want.class, want.n)
		}
	}
}

// A class moves beneath a parent, and then a reload replaces both. What left before the move was not
// charged to the parent, so nothing is given back to the class that goes on from it.
func TestAnswersGiveNothingToAnotherParentsHeir(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		day := unit.NewRate(unit.Messages, 10, 24*time.Hour)
		confs := promotions(t, "")
		confs[0].Algorithm, confs[0].Rate = policy.FixedWindow, day
		confs = append(confs, named("child", confs[0]))
		s := NewOnRuntimeTimer()
		defer s.Close()
		s.Apply(confs)
		now := time.Now()
		group := s.Class("child").JoinKey(now, s.Class("child").Messages().Key(&policy.Conn{}, &policy.Message{Recipient: []byte("9198")}))
		if !group.Pass(now, Cost{Messages: 5}) || !s.Class("promotions").Pass(now, Cost{Messages: 10}) {
			t.Fatal("a class is full at once")
		}
		time.Sleep(time.Second)
		confs[1].Parent = "promotions"
		s.Apply(confs)
		for i := range confs {
			confs[i].Quiet, confs[i].Quieted = nil, nil
		}
		s.Apply(confs)
		group.Provider().Settle(time.Now(), now, Cost{Messages: -5})
		if s.Class("promotions").Pass(time.Now(), Cost{Messages: 1}) {
			t.Error("the parent lets out an eleventh message, for one that it was not charged for")
		}
	})
}

// A message in a class with quiet hours allocates nothing, and why tells for whom it waits.
func TestQuietHoursAllocateNothing(t *testing.T) {
	c := NewTree(start, asAt(12*time.Hour, promotions(t, "")))[0]
	now, it, who := at(13*time.Hour), sms(), policy.Conn{}
	m := &policy.Message{Recipient: []byte("919999")}
	if n := testing.AllocsPerRun(1000, func() {
		now = now.Add(time.Second)
		group := c.JoinKey(now, c.Messages().Key(&who, m))
		group.Enter(now, it)
		it.Left(now)
		group.Quit(now)
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestWhyOfQuietHours(t *testing.T) {
	c := NewTree(start, asAt(22*time.Hour, promotions(t, "")))[0]
	enter(t, joins(22*time.Hour, c, "91"), 22*time.Hour, Waits, sms())
	w := c.Status().Why(at(22 * time.Hour))
	if len(w.Path) != 1 || w.Path[0].Cause != ByQuiet || w.Path[0].Text != "quiet hours of 91*" || !w.At.Equal(at(33*time.Hour)) || !w.Exact {
		t.Errorf("it waits for %+v", w)
	}
	h := waitsWithKey(t, c, at(22*time.Hour), policy.Conn{}, &policy.Message{Recipient: []byte("911")})
	holds(t, h, "promotions", HoldQuiet, 33*time.Hour+100*ms) // behind the one that waits
	if h := waitsWithKey(t, c, at(22*time.Hour), policy.Conn{}, &policy.Message{Recipient: []byte("44")}); h != nil {
		t.Errorf("another recipient waits for %v", h)
	}
}

// A provider that refuses a message of a class which a reload has replaced pauses the class that goes on from it.
func TestThrottleAfterAReplacement(t *testing.T) {
	confs := promotions(t, "")
	s := newShaper()
	defer s.Close()
	s.Apply(confs)
	now := time.Now()
	group := s.Class("promotions").JoinKey(now, s.Class("promotions").Messages().Key(&policy.Conn{}, &policy.Message{Recipient: []byte("9198")}))
	for range 2 { // the one that goes on may be replaced, too
		confs[0].Quiet, confs[0].Quieted = nil, nil
		s.Apply(confs)
		confs = promotions(t, "")
		s.Apply(confs)
	}
	group.Provider().Throttled(now, 5*time.Second, "http")
	next := s.Class("promotions")
	if until, _ := next.Provider().Signals(now); until.Before(now.Add(5 * time.Second)) {
		t.Errorf("the class pauses until %v, want 5 s from %v", until, now)
	}
	if n := next.Stats.Throttled.Read()["http"]; n != 1 {
		t.Errorf("%d signals are counted, want 1", n)
	}
}

// withoutQuiet returns classes without quiet hours.
func withoutQuiet(confs []policy.Class) []policy.Class {
	confs = slices.Clone(confs)
	for i := range confs {
		confs[i].Quiet, confs[i].Quieted = nil, nil
	}
	return confs
}

// An answer for a message of a class which a reload has replaced counts once, also against what the
// class is assured.
func TestAnswerAfterAReplacementCountsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		confs := promotions(t, "parent = \"all\"\nceil = \"100 messages/s\"\nalgorithm = \"token\"\nburst = \"100 messages\"\n[class.all]\nrate = \"1000 messages/s\"\nalgorithm = \"token\"\nburst = \"1000 messages\"\n")
		s := newShaper()
		defer s.Close()
		s.Apply(confs)
		now := time.Now()
		group := joins(now.Sub(start), s.Class("promotions"), "9198")
		if !group.Pass(now, Cost{Messages: 10}) {
			t.Fatal("the class is full at once")
		}
		s.Apply(withoutQuiet(confs))
		group.Provider().Settle(now, now, Cost{Messages: 20})
		if within := s.Class("promotions").assured.Next().Sub(now); within != 3*second {
			t.Errorf("after 30 messages, the class is within 10 messages/s in %v, want 3s", within)
		}
	})
}

// What the provider answers to a class which a reload has replaced changes nothing that the one that
// goes on from it has learned: they have different locks.
func TestAnswerAfterAReplacementTeachesNothing(t *testing.T) {
	confs := promotions(t, "learn = { floor = \"1 messages/s\" }\n")
	s := newShaper()
	defer s.Close()
	s.Apply(confs)
	now := time.Now()
	group := joins(now.Sub(start), s.Class("promotions"), "9198")
	s.Apply(withoutQuiet(confs))
	learner := s.Class("promotions").throttle.learner
	before := *learner
	group.Provider().Answered(now, true)
	if *learner != before {
		t.Errorf("the learner is %+v, want %+v", *learner, before)
	}
}

// A class in the shadow pauses too, as far as it hears of its provider. The one that a reload puts in
// its place goes on with that.
func TestReplacementOfAShadowKeepsThePause(t *testing.T) {
	confs := promotions(t, "")
	shadow := withoutQuiet(confs)
	shadow[0].Shadow = true
	s := newShaper()
	defer s.Close()
	s.Apply(shadow)
	now := time.Now()
	s.Class("promotions").Provider().Throttled(now, 5*time.Second, "http")
	s.Apply(confs)
	if until, _ := s.Class("promotions").Provider().Signals(now); until.Before(now.Add(5 * time.Second)) {
		t.Errorf("the class pauses until %v, want 5 s from %v", until, now)
	}
}

// What a class has in flight when a reload replaces it counts in the one that goes on from it, and in
// those above once. Each answer makes room for one.
func TestInFlightAfterAReplacement(t *testing.T) {
	const most = 5
	confs := promotions(t, fmt.Sprintf("parent = \"all\"\nin_flight = %d\nalgorithm = \"token\"\nburst = \"100 messages\"\n[class.all]\nrate = \"1000 messages/s\"\nalgorithm = \"token\"\nburst = \"1000 messages\"\n", most))
	i := slices.IndexFunc(confs, func(c policy.Class) bool { return c.Name == "promotions" })
	child := leakyClass("1000 messages/s")
	child.Algorithm, child.Burst = policy.Token, confs[i].Burst
	confs = append(confs, named("child", under("promotions", child)))
	s := newShaper()
	defer s.Close()
	s.Apply(confs)
	now := time.Now()
	group := joins(now.Sub(start), s.Class("promotions"), "9198")
	leaves := func(c *Class) bool {
		it := request()
		v := c.Enter(now, it)
		c.Cancel(now, it)
		return v == Leaves
	}
	for _, c := range []*Class{group, group, group, s.Class("child"), s.Class("child")} {
		if !leaves(c) {
			t.Fatal("the class is full at once")
		}
	}
	for _, next := range [][]policy.Class{withoutQuiet(confs), confs} { // the one that goes on may be replaced, too
		if s.Apply(next); leaves(s.Class("promotions")) {
			t.Fatalf("one more leaves than %d", most)
		}
	}
	for n, of := range []*Class{group, s.Class("child"), group, s.Class("child"), group} {
		of.Provider().Answered(now, true)
		if got := s.Class("promotions").InFlight(); got != most-n-1 {
			t.Errorf("after %d answers, %d are in flight", n+1, got)
		}
		if got := s.Class("all").InFlight(); got != most-n-1 {
			t.Errorf("after %d answers, %d are in flight of all", n+1, got)
		}
	}
	for n := range most + 1 {
		if leaves(s.Class("promotions")) != (n < most) {
			t.Errorf("after all answers, with %d in flight, another one leaves or does not", n)
		}
	}
}

// answeredMeanwhile is a shadow of a class that goes on from old. The last answer to old comes just
// before the class counts it.
type answeredMeanwhile struct {
	shadow
	old *Class
}

func (s *answeredMeanwhile) moveInFlight(now time.Time, _ int) {
	if s.old.InFlight() > 0 {
		answered(now, s.old, true) // what Answered does then lowers nothing: the class has not begun
	}
}

// An answer that comes while a class begins to count what it inherits takes no room for ever.
func TestAnswerWhileAReplacementBegins(t *testing.T) {
	confs := promotions(t, "in_flight = 1\n")
	s := newShaper()
	defer s.Close()
	s.Apply(confs)
	now, old := time.Now(), s.Class("promotions")
	enter(t, joins(now.Sub(start), old, "9198"), now.Sub(start), Leaves, request())
	s.Apply(withoutQuiet(confs))
	next := s.Class("promotions")
	if next.InFlight() != 1 {
		t.Fatalf("%d are in flight, want 1", next.InFlight())
	}
	next.inherited, next.shadow = 0, &answeredMeanwhile{old: old} // as before it begins
	begin(now, old)
	if next.shadow = nil; next.InFlight() != 0 {
		t.Errorf("after the answer, %d are in flight", next.InFlight())
	}
}

// A shadow that begins after a replacement knows what is in flight of the class before, and each answer to that.
func TestShadowAfterAReplacement(t *testing.T) {
	confs := promotions(t, "in_flight = 5\nalgorithm = \"token\"\nburst = \"100 messages\"\n")
	s := newShaper()
	defer s.Close()
	s.Apply(confs)
	now := time.Now()
	group := joins(now.Sub(start), s.Class("promotions"), "9198")
	for range 3 {
		enter(t, group, now.Sub(start), Leaves, request())
	}
	next := withoutQuiet(confs)
	s.Apply(next)
	next[0].Shadow = true
	s.Apply(next)
	for want := 3; ; want-- {
		if got := s.Class("promotions").shadow.(*trialShadow).trial.othersInFlight; got != want {
			t.Errorf("the shadow knows of %d in flight, want %d", got, want)
		}
		if want == 0 {
			break
		}
		group.Provider().Answered(now, true)
	}
}

// A hint in the answer to a message of a class which a reload has replaced holds the one that goes on
// from it.
func TestHintAfterAReplacement(t *testing.T) {
	confs := promotions(t, "algorithm = \"token\"\nburst = \"100 messages\"\n")
	confs[0].Hints = true
	s := newShaper()
	defer s.Close()
	s.Apply(confs)
	now := time.Now()
	group := joins(now.Sub(start), s.Class("promotions"), "9198")
	if !group.Pass(now, Cost{Messages: 1}) {
		t.Fatal("the class is full at once")
	}
	s.Apply(withoutQuiet(confs))
	s.Apply(confs)
	group.Provider().Heard(now, now, Cost{Messages: 1}, []Hint{{unit.Messages, 7, 2, now.Add(time.Hour)}})
	n := 0
	for s.Class("promotions").Pass(now, Cost{Messages: 1}) {
		n++
	}
	if n != 2 {
		t.Errorf("%d messages leave, and the provider has said 2", n)
	}
}
