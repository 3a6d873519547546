package shaper

import (
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"shaper/limit"
	"shaper/policy"
	"shaper/unit"
)

// fakeMember hands out units as the test says.
type fakeMember struct {
	budgets map[string]*fakeBudget
	limits  []Limit
	slowed  map[string]time.Duration // by key
	paused  map[string]time.Time
	secret  [32]byte
}

func (s *fakeMember) Budget(i int, key string) Budget {
	key = string(rune('0'+i)) + key
	if s.budgets[key] == nil {
		s.budgets[key] = &fakeBudget{}
	}
	return s.budgets[key]
}
func (s *fakeMember) Set(limits []Limit)               { s.limits = limits }
func (s *fakeMember) Slow(key string, d time.Duration) { s.slowed[key] = d }
func (s *fakeMember) PausedUntil(key string) time.Time { return s.paused[key] }
func (s *fakeMember) Secret() *[32]byte                { return &s.secret }

// fakeBudget lets as many units leave as it has.
type fakeBudget struct {
	have, wanted, need int64
	next               []int64
	owed               int64
	owedTill           time.Time
	rate               unit.Rate
	reduced            unit.Rate
	away               bool // the store
	forgotten          bool
	opens              time.Time // nothing more comes before, as far as it knows
	refused            time.Time // nor before that, as the store says
	left               time.Time // when an item has left last, as the class says
	over               time.Time // until when it may leave
	lost               int64     // units of items that have not left
}

func (b *fakeBudget) Next(now time.Time, ahead, n int64) time.Time {
	if ahead+n > b.have {
		return limit.Never
	}
	return now
}
func (b *fakeBudget) Estimate(now time.Time, ahead, n int64) time.Time {
	return later(b.opens, now).Add(time.Duration(ahead) * time.Second)
}
func (b *fakeBudget) Take(_, _ time.Time, n int64) {
	b.have -= n
	if len(b.next) > 1 && b.next[0] == n {
		b.next = slices.Delete(b.next, 0, 1)
	}
}
func (b *fakeBudget) Amend(_, _ time.Time, n int64)                { b.have -= n }
func (b *fakeBudget) SetRate(_ time.Time, rate unit.Rate, _ int64) { b.rate = rate }
func (b *fakeBudget) Memory(now time.Time) (m limit.Memory, whole bool) {
	return limit.Memory{Until: now}, true
}
func (b *fakeBudget) Remember(limit.Memory) {}
func (b *fakeBudget) Want(_ time.Time, units int64, next ...int64) {
	b.wanted, b.need, b.next = units, next[0], append(b.next[:0], next...)
}
func (b *fakeBudget) RefusedUntil(_ time.Time, n int64) time.Time {
	if n <= b.have {
		return time.Time{}
	}
	return b.refused
}
func (b *fakeBudget) Left(now time.Time)        { b.left = now }
func (b *fakeBudget) Over() time.Time           { return b.over }
func (b *fakeBudget) Lost(_ time.Time, n int64) { b.lost += n }
func (b *fakeBudget) Hold(time.Time, time.Time) {}
func (b *fakeBudget) Owe(_ time.Time, units int64, until time.Time) {
	b.owed, b.owedTill = b.owed+units, until
}
func (b *fakeBudget) Reduced(time.Time, int64) (to unit.Rate, away bool) { return b.reduced, b.away }
func (b *fakeBudget) Forget()                                            { b.forgotten = true }

// withMember runs a Shaper with one class that has a share.
func withMember(t *testing.T, conf policy.Class, do func(s *Shaper, member *fakeMember, c *Class)) {
	synctest.Test(t, func(t *testing.T) {
		s := NewOnRuntimeTimer()
		defer s.Close()
		member := &fakeMember{budgets: map[string]*fakeBudget{}, slowed: map[string]time.Duration{}, paused: map[string]time.Time{}}
		conf.Shared = "prod"
		s.SetMembers(map[string]Member{conf.Name: member})
		s.Apply([]policy.Class{conf})
		do(s, member, s.Class(conf.Name))
	})
}

// TestShareAmends has answers say that an item costs more, and less, than it was charged.
func TestShareAmends(t *testing.T) {
	withMember(t, shared20(), func(s *Shaper, member *fakeMember, c *Class) {
		b, o := member.budgets["0"], &noting{}
		b.have = 5
		if c.Enter(time.Now(), &Item{Owner: o, Cost: Cost{Messages: 5}, Held: 10}) != Leaves {
			t.Fatal("the first item waits")
		}
		c.Enter(time.Now(), &Item{Owner: o, Cost: Cost{Messages: 2}, Held: 10})
		then := time.Now()
		for i, step := range []struct{ more, have, left int64 }{{1, -1, 0}, {-2, 1, 0}, {-1, 0, 1}} {
			time.Sleep(10 * time.Millisecond)
			c.Provider().Settle(time.Now(), then, Cost{Messages: step.more})
			time.Sleep(10 * time.Millisecond)
			synctest.Wait()
			if b.have != step.have || o.left.Load() != step.left {
				t.Errorf("step %d: %d units are in hand and %d more items have left, want %d and %d", i, b.have, o.left.Load(), step.have, step.left)
			}
		}
	})
}

// What waits of a shared class when its schedule closes it leaves after that, in the estimate too.
func TestShareEstimatesThroughAClosedTime(t *testing.T) {
	for _, c := range []struct{ from, until, want time.Duration }{
		{10 * second, 70 * second, 90 * second},  // 10 of 30 leave before
		{25 * second, 85 * second, 90 * second},  // 25 do
		{0, 60 * second, 90 * second},            // none does
		{31 * second, 91 * second, 30 * second},  // all do
		{-60 * second, -1 * second, 30 * second}, // it is over
	} {
		conf := adapting(shared20())
		begin := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) // when a bubble of synctest begins
		conf.Closed = policy.Span{From: begin.Add(c.from), Until: begin.Add(c.until)}
		withMember(t, conf, func(s *Shaper, member *fakeMember, class *Class) {
			for range 30 {
				class.Enter(time.Now(), &Item{Cost: Cost{Messages: 1}})
			}
			if _, wait := class.Estimate().Place(time.Now(), Cost{Messages: 1}); wait != c.want {
				t.Errorf("closed from %v until %v, the wait behind 30 is %v, want %v", c.from, c.until, wait, c.want)
			}
			class.Provider().Throttled(time.Now(), 1, "429")
			least := c.want - 15*second
			if c.want > c.until {
				least = max(least, c.until)
			}
			if _, wait := class.Estimate().Place(time.Now(), Cost{Messages: 1}); wait < least || wait > c.want+1 {
				t.Errorf("closed from %v until %v, the wait behind 30 is %v while the rate comes back", c.from, c.until, wait)
			}
		})
	}
}

// While its rate comes back, a shared class leaves sooner what waits for its rate. When a window of the fleet has room, that
// does not change. The estimate and why say the same.
func TestShareEstimatesWhileSharesComeBack(t *testing.T) {
	for algorithm, want := range map[policy.Algorithm]time.Duration{policy.Leaky: 27 * second, policy.FixedWindow: 30 * second} {
		conf := adapting(shared20())
		conf.Algorithm = algorithm
		withMember(t, conf, func(s *Shaper, member *fakeMember, class *Class) {
			class.Enter(time.Now(), message(1)) // makes its budget
			class.Provider().Throttled(time.Now(), 1, "429")
			time.Sleep(time.Nanosecond) // the pause is over then
			for _, b := range member.budgets {
				b.opens = time.Now().Add(30 * second)
			}
			_, wait := class.Estimate().Place(time.Now(), Cost{})
			if (wait - want).Abs() > ms {
				t.Errorf("%v: the wait is %v, want %v", algorithm, wait, want)
			}
			holds := class.Status().Why(time.Now()).Path
			if len(holds) != 1 || holds[0].Until.Sub(time.Now().Add(want)).Abs() > ms {
				t.Errorf("%v: it waits for %+v, want %v", algorithm, holds, want)
			}
		})
	}
}

// noting counts that its item has left.
type noting struct{ left atomic.Int64 }

func (o *noting) Leave(time.Time) { o.left.Add(1) }

func shared20() policy.Class {
	c := policy.DefaultClass("acme")
	c.Rate, _ = unit.ParseRate("20 messages/s")
	c.Headroom, _ = unit.ParsePercent("2%")
	return c
}

// What waits leaves with the units that the fleet grants, and not otherwise; and the fleet hears how
// much waits.
func TestShareGrantsWhatLeaves(t *testing.T) {
	withMember(t, shared20(), func(s *Shaper, member *fakeMember, c *Class) {
		b, o := member.budgets["0"], &noting{}
		for range 5 {
			if v := c.Enter(time.Now(), &Item{Owner: o, Cost: Cost{Messages: 1, Bytes: 10}, Held: 10}); v != Waits {
				t.Fatalf("an item gets the verdict %v, want that it waits", v)
			}
		}
		time.Sleep(time.Minute)
		if o.left.Load() != 0 || b.wanted == 0 {
			t.Fatalf("%d items have left without a grant; the fleet knows of %d", o.left.Load(), b.wanted)
		}
		for left := 1; left <= 5; left++ {
			b.have = 1
			s.Told("acme", "")
			time.Sleep(time.Second)
			if o.left.Load() != int64(left) {
				t.Fatalf("%d items have left with %d units", o.left.Load(), left)
			}
			lastLeft(c, time.Now())
			if !b.left.Equal(time.Now()) {
				t.Errorf("the fleet is told that an item has left at %v, want %v", b.left, time.Now())
			}
		}
		s.Told("acme", "")
		if b.wanted != 0 {
			t.Errorf("nothing waits, and the fleet is told of %d", b.wanted)
		}
	})
}

// The fleet hears what each of the next items costs, as many as it grants slots for at once.
func TestShareTellsCosts(t *testing.T) {
	withMember(t, shared20(), func(s *Shaper, member *fakeMember, c *Class) {
		b := member.budgets["0"]
		told := func(want ...int64) {
			t.Helper()
			synctest.Wait()
			if !slices.Equal(b.next, want) {
				t.Errorf("the fleet hears of items of %v, want %v", b.next, want)
			}
		}
		for _, n := range []int64{3, 1, 2, 7, 1} {
			c.Enter(time.Now(), &Item{Owner: &noting{}, Cost: Cost{Messages: n, Bytes: 10}, Held: 10})
		}
		s.Told("acme", "")
		told(3, 1, 2, 7) // 20/s grant no more than 7 at once
		b.have = 3
		s.Told("acme", "")
		time.Sleep(time.Second)
		told(1, 2, 7)
		c.Enter(time.Now(), &Item{Owner: &noting{}, Cost: Cost{Messages: 2, Bytes: 10}, Held: 10, First: true})
		told(2, 1, 2, 7)
		defer c.lock().mu.Unlock()
		limiter := c.limiter.(*shared)
		wantNoAllocs(t, "telling costs", func() {
			limiter.wanted = -1
			limiter.ask(time.Now(), 1)
		})
	})
}

// An estimate of max_wait is that of the fleet, not Never.
func TestShareEstimatesWaits(t *testing.T) {
	conf := shared20()
	conf.MaxWait = unit.Duration(2 * time.Second)
	withMember(t, conf, func(_ *Shaper, _ *fakeMember, c *Class) {
		var got []Verdict
		for range 4 {
			got = append(got, c.Enter(time.Now(), &Item{Owner: &noting{}, Cost: Cost{Messages: 1, Bytes: 10}, Held: 10}))
		}
		if want := []Verdict{Waits, Waits, Waits, TooLong}; !slices.Equal(got, want) {
			t.Errorf("items that wait a second each get %v, want %v", got, want)
		}
	})
}

// If the store is away and the class stops, it is the store that the class waits for, and not its rate.
func TestShareWaitsForTheStore(t *testing.T) {
	withMember(t, shared20(), func(_ *Shaper, member *fakeMember, c *Class) {
		member.Budget(0, "").(*fakeBudget).opens = limit.Never
		c.Enter(time.Now(), &Item{Owner: &noting{}, Cost: Cost{Messages: 1, Bytes: 10}, Held: 10})
		h := c.Status().Waits(time.Now())
		holds(t, h, "acme", HoldStore, -1)
		if want := "the store of its fleet"; h.Words() != want {
			t.Errorf("in words it waits for %q, want %q", h.Words(), want)
		}
	})
}

// A pause goes to the fleet, and comes from it; adapt slows the class down for both.
func TestSharePauses(t *testing.T) {
	conf := shared20()
	conf.Adapt = true
	withMember(t, conf, func(s *Shaper, member *fakeMember, c *Class) {
		c.Provider().Throttled(time.Now(), 5*time.Second, "0x58")
		if member.slowed[""] != 5*time.Second {
			t.Errorf("the fleet hears of the pauses %v, want 5s of the class", member.slowed)
		}
		if until, half := c.Provider().Signals(time.Now()); half != 0.5 || until.IsZero() || member.budgets["0"].rate.Compare(c.Rate()) >= 0 {
			t.Errorf("the class has %v of its rate until %v", half, until)
		}
		time.Sleep(time.Hour)
		clear(member.slowed)
		paused := time.Now().Add(7 * time.Second)
		member.paused[""] = paused
		s.Told("acme", "")
		if until, half := c.Provider().Signals(time.Now()); !until.Equal(paused) || half != 0.5 {
			t.Errorf("another member was refused something: the class pauses until %v, want %v, with %v of its rate", until, paused, half)
		}
		if len(member.slowed) > 0 {
			t.Error("the fleet hears again of what it has said")
		}
	})
}

// A pause of one key goes to the fleet as that of the key, and what the fleet says of a key pauses that only.
func TestSharePausesOneKey(t *testing.T) {
	conf := shared20()
	conf.Per, conf.Adapt = policy.Per{{By: policy.BySource}}, true
	withMember(t, conf, func(s *Shaper, member *fakeMember, c *Class) {
		join := func(address string) *Class {
			return c.Join(time.Now(), policy.Conn{Source: netip.MustParseAddrPort(address)})
		}
		one, other := join("10.0.0.1:7"), join("10.0.0.2:7")
		one.Provider().Throttled(time.Now(), 5*time.Second, "0x58")
		if len(member.slowed) != 1 || member.slowed[keyText(one.key)] != 5*time.Second {
			t.Errorf("the fleet hears of the pauses %v, want 5s of one key", member.slowed)
		}
		clear(member.slowed)
		paused := time.Now().Add(7 * time.Second)
		member.paused[keyText(other.key)] = paused
		for _, bucket := range []*Class{one, other} {
			s.Told("acme", keyText(bucket.key))
		}
		for bucket, want := range map[*Class]time.Time{one: time.Now().Add(5 * time.Second), other: paused} {
			if until, half := bucket.Provider().Signals(time.Now()); !until.Equal(want) || half != 0.5 {
				t.Errorf("a key pauses until %v, want %v, with %v of its rate", until, want, half)
			}
		}
		if len(member.slowed) > 0 {
			t.Error("the fleet hears again of what it has said")
		}
		one.Quit(time.Now())
		other.Quit(time.Now())
	})
}

// Each key has a budget of its own, which is forgotten with its bucket.
func TestShareOfKeys(t *testing.T) {
	conf := shared20()
	conf.Per = policy.Per{{By: policy.BySourcePort}}
	withMember(t, conf, func(s *Shaper, member *fakeMember, c *Class) {
		bucket := c.Join(time.Now(), policy.Conn{Source: netip.MustParseAddrPort("10.0.0.1:7")})
		o := &noting{}
		bucket.Enter(time.Now(), &Item{Owner: o, Cost: Cost{Messages: 1, Bytes: 10}, Held: 10})
		if len(member.budgets) != 1 {
			t.Fatalf("there are %d budgets, want that of the key", len(member.budgets))
		}
		for key, b := range member.budgets {
			b.have = 1
			s.Told("acme", key[1:])
			time.Sleep(time.Second)
			if o.left.Load() != 1 {
				t.Errorf("%d items have left", o.left.Load())
			}
			lastLeft(bucket, time.Now())
			if bucket.Quit(time.Now()); !b.forgotten {
				t.Error("the budget of a bucket that is gone stays")
			}
		}
	})
}

// A class whose budget is no longer shared goes on from what this process has let out, and without a burst.
func TestShareEnds(t *testing.T) {
	conf := shared20()
	withMember(t, conf, func(s *Shaper, member *fakeMember, c *Class) {
		o := &noting{}
		member.budgets["0"].have = 1
		c.Enter(time.Now(), &Item{Owner: o, Cost: Cost{Messages: 1, Bytes: 10}, Held: 10})
		lastLeft(c, time.Now())
		s.SetMembers(nil)
		s.Apply([]policy.Class{conf})
		for range 3 {
			if v := c.Enter(time.Now(), &Item{Owner: o, Cost: Cost{Messages: 1, Bytes: 10}, Held: 10, Settles: true}); v != Waits {
				t.Errorf("an item gets the verdict %v right after another one", v)
			}
		}
		time.Sleep(60 * time.Millisecond)
		if o.left.Load() != 1 {
			t.Errorf("%d items have left on their own, want 1", o.left.Load())
		}
	})
}

// A slot is never so late that the gap to the next one is as short as the rate says: a sixteenth of the headroom is for what
// happens on the way. Without headroom, the gap may be too short by 2 %.
func TestLateSlotKeepsTheGap(t *testing.T) {
	for headroom, want := range map[string]time.Duration{
		"0.01%": 4689 * time.Nanosecond, "1%": 473_486 * time.Nanosecond, "2%": 956_634 * time.Nanosecond, "10%": 5_208_334 * time.Nanosecond,
		"0%": time.Millisecond,
	} {
		conf := shared20()
		conf.Headroom, _ = unit.ParsePercent(headroom)
		l := Limits(conf)[0]
		if (l.Late - want).Abs() > 2*time.Nanosecond {
			t.Errorf("headroom %s: a slot may be late by %v, want %v", headroom, l.Late, want)
		}
		if gap := l.gap(); headroom != "0%" && gap <= 50*time.Millisecond {
			t.Errorf("headroom %s: a gap may be %v, want more than 50ms", headroom, gap)
		}
	}
}

// Limits says what members have to agree on: a slot may be late by the headroom of a gap, less a sixteenth.
func TestLimitsOfAClass(t *testing.T) {
	conf := shared20()
	conf.Also = []policy.Limit{{Algorithm: policy.FixedWindow, Rate: unit.NewRate(unit.Messages, 600, time.Hour)}}
	all := Limits(conf)
	if len(all) != 2 || all[0].Burst != 1 {
		t.Errorf("the limits are %+v; want a gap and an hour", all)
	}
	if all[1].Window != time.Hour || all[1].Burst != 1 || all[1].Late != 0 {
		t.Errorf("the further limit is %+v; want an hour", all[1])
	}
}

// What waits for quiet hours to end wants nothing of the fleet.
func TestShareOfQuietHours(t *testing.T) {
	midnight := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) // when a bubble of synctest begins
	for _, more := range []string{"", "per = \"source\"\n"} {
		conf, _ := promotions(t, more)[0].Scheduled(midnight)
		withMember(t, conf, func(s *Shaper, member *fakeMember, c *Class) {
			now := time.Now()
			to := func(recipient string) *Class {
				m := &policy.Message{SourceAddr: []byte("acme"), Recipient: []byte(recipient)}
				return c.JoinKey(now, c.Messages().Key(&policy.Conn{}, m))
			}
			asleep, awake, o := to("9198"), to("4477"), &noting{}
			b, key := member.budgets["0"], ""
			if more != "" {
				key = keyText(awake.key)
				b = member.budgets["0"+key]
			}
			locked := func(do func()) {
				root := c.lock()
				defer root.mu.Unlock()
				do()
			}
			wanted := func() (n int64) {
				locked(func() { n = b.wanted })
				return n
			}
			for range 10 {
				asleep.Enter(now, &Item{Owner: o, Cost: Cost{Messages: 1}})
			}
			if n := wanted(); n != 0 {
				t.Errorf("%sthe fleet is told of %d messages that wait for quiet hours", more, n)
			}
			for range 2 {
				awake.Enter(now, &Item{Owner: o, Cost: Cost{Messages: 1}})
			}
			s.Told(conf.Name, key)
			if n := wanted(); n != 2 {
				t.Errorf("%sthe fleet is told of %d messages, want 2", more, n)
			}
			locked(func() { b.have = 2 })
			s.Told(conf.Name, key)
			time.Sleep(time.Second)
			s.Told(conf.Name, key)
			if n := wanted(); o.left.Load() != 2 || n != 0 {
				t.Errorf("%s%d messages have left, want 2; the fleet is told of %d", more, o.left.Load(), n)
			}
			time.Sleep(9 * time.Hour)
			if n := wanted(); n != 10 {
				t.Errorf("%sin the morning, the fleet is told of %d messages, want 10", more, n)
			}
		})
	}
}

// What an answer says beyond the charge is charged to the fleet, and what it gives back goes there.
func TestShareSettles(t *testing.T) {
	withMember(t, shared20(), func(_ *Shaper, member *fakeMember, c *Class) {
		b, now := member.budgets["0"], time.Now()
		b.have = 10
		if v := c.Enter(now, &Item{Owner: &noting{}, Cost: Cost{Messages: 4}}); v != Leaves {
			t.Fatalf("an item gets the verdict %v", v)
		}
		for _, step := range []struct{ more, have int64 }{{3, 3}, {-3, 6}, {5, 1}} {
			if c.Provider().Settle(now, now, Cost{Messages: step.more}); b.have != step.have {
				t.Errorf("after %d more, the fleet has %d left, want %d", step.more, b.have, step.have)
			}
		}
	})
}

// BenchmarkShareOfALongQueue measures what an item of a shared class costs while a hundred wait, without the fleet: each
// enters again when it has left.
func BenchmarkShareOfALongQueue(b *testing.B) {
	for name, sizes := range map[string]int{"1": 1, "1-5": 5} {
		b.Run(name, func(b *testing.B) {
			conf, now := shared20(), start
			conf.Rate, _ = unit.ParseRate("100000 messages/s")
			c, member := NewClass(now, conf), &fakeMember{budgets: map[string]*fakeBudget{}}
			c.Share(now, member)
			for i := range 100 {
				if v := c.Enter(now, &Item{Owner: &noting{}, Cost: Cost{Messages: int64(1 + i%sizes), Bytes: 10}, Held: 10}); v != Waits {
					b.Fatalf("an item gets the verdict %v", v)
				}
			}
			member.budgets["0"].have = 1 << 60
			b.ReportAllocs()
			for b.Loop() {
				now = now.Add(time.Microsecond)
				if it := c.Release(now); it == nil || c.Enter(now, it) != Waits {
					b.Fatal("an item does not leave, or does not wait again")
				}
			}
		})
	}
}

// When a class becomes shared, the fleet hears what the class has used of its windows, and until when that counts: once.
func TestShareOwesWhatWasUsed(t *testing.T) {
	for algorithm, until := range map[policy.Algorithm]time.Duration{policy.FixedWindow: 10 * time.Second, policy.SlidingLog: 14 * time.Second} {
		conf := classBy(algorithm, "20 messages/10s")
		c := NewClass(start, conf)
		for i := range 4 {
			if !c.Pass(at(time.Duration(i+1)*time.Second), Cost{Messages: 1}) {
				t.Fatalf("%v: message %d does not leave", algorithm, i)
			}
		}
		first, second := &fakeMember{budgets: map[string]*fakeBudget{}}, &fakeMember{budgets: map[string]*fakeBudget{}}
		c.Share(at(5*time.Second), first)
		if b := first.budgets["0"]; b.owed != 4 || !b.owedTill.Equal(at(until)) {
			t.Errorf("%v: the fleet hears of %d units until %v, want 4 until %v", algorithm, b.owed, b.owedTill.Sub(start), until)
		}
		c.Share(at(6*time.Second), second)
		if b := second.budgets["0"]; b.owed != 0 {
			t.Errorf("%v: the fleet hears of %d units again", algorithm, b.owed)
		}
	}
}

// If another class takes the place of a shared one, the fleet knows what that has used, and hears of nothing.
func TestSuccessorOwesNothing(t *testing.T) {
	for name, before := range map[string]func(*policy.Class){
		"groups": func(conf *policy.Class) {
			conf.Quieted = policy.QuietGroups{{Recipients: []policy.Pattern{"49"}}}
		},
		"unit": func(conf *policy.Class) { conf.Rate = rateOf("30 packets/day") },
		"keys": func(conf *policy.Class) { *conf = perSource(10, *conf) },
	} {
		synctest.Test(t, func(t *testing.T) {
			s := NewOnRuntimeTimer()
			defer s.Close()
			apply := func(conf policy.Class) (own *fakeBudget) {
				member := &fakeMember{budgets: map[string]*fakeBudget{}}
				s.SetMembers(map[string]Member{"a": member})
				s.Apply([]policy.Class{conf})
				return member.budgets["0"]
			}
			conf := named("a", classBy(policy.FixedWindow, "20 messages/day"))
			first := conf
			before(&first)
			own, c := apply(first), s.Class("a")
			if own != nil { // else each key has one
				own.have = 5
				c.Pass(time.Now(), Cost{Packets: 5, Messages: 5})
			}
			if n := apply(conf).owed; n != 0 || s.Class("a") == c {
				t.Errorf("after a class with other %s, the fleet hears of %d units again", name, n)
			}
		})
	}
}

// When a class becomes shared, a ledger forgets what it has kept of it: a process that begins after a crash would tell the
// fleet again.
func TestShareErasesTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ledger := NewOnRuntimeTimer(), newInstant()
		defer s.Close()
		defer close(ledger.queue)
		conf := named("a", classBy(policy.FixedWindow, "2000 messages/day"))
		s.Apply([]policy.Class{conf})
		s.Keep(ledger)
		s.Class("a").Enter(time.Now(), &Item{Cost: Cost{Messages: 1}, Owner: nobodyLeaves{}, Patient: true})
		synctest.Wait()
		if !ledger.leases["a"].Expires.After(time.Now()) {
			t.Fatalf("the ledger has %v of the class", ledger.leases["a"])
		}
		s.SetMembers(map[string]Member{"a": &fakeMember{budgets: map[string]*fakeBudget{}}})
		s.Apply([]policy.Class{conf})
		synctest.Wait()
		if lease := ledger.leases["a"]; lease.Expires.After(time.Now()) {
			t.Errorf("the ledger still has %v of a shared class", lease)
		}
		s.SetMembers(nil)
		s.Apply([]policy.Class{conf})
		synctest.Wait()
		if !ledger.leases["a"].Expires.After(time.Now()) {
			t.Error("the ledger has nothing of a class that is not shared any more")
		}
	})
}

// If a class becomes shared and gets another limit at once, the fleet hears nothing of that one: nobody knows what has left
// of it, and the budget of all would be over.
func TestShareOfANewLimitOwesNothing(t *testing.T) {
	first := named("a", classBy(policy.FixedWindow, "20 messages/h"))
	for name, c := range map[string]struct {
		conf policy.Class
		owed map[string]int64
	}{
		"same":      {first, map[string]int64{"0": 4}},
		"rate":      {named("a", classBy(policy.FixedWindow, "10 messages/h")), map[string]int64{"0": 4}},
		"also":      {with(first, byDay("100 messages/day", "UTC")), map[string]int64{"0": 4, "1": 0}},
		"window":    {named("a", classBy(policy.FixedWindow, "20 messages/day")), map[string]int64{"0": 0}},
		"algorithm": {named("a", classBy(policy.SlidingLog, "20 messages/h")), map[string]int64{"0": 0}},
		"unit":      {named("a", classBy(policy.FixedWindow, "20 packets/h")), map[string]int64{"0": 0}},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := NewOnRuntimeTimer()
			defer s.Close()
			s.Apply([]policy.Class{first})
			s.Class("a").Pass(time.Now(), Cost{Messages: 4, Packets: 4})
			member := &fakeMember{budgets: map[string]*fakeBudget{}}
			s.SetMembers(map[string]Member{"a": member})
			s.Apply([]policy.Class{c.conf})
			for limit, want := range c.owed {
				if b := member.budgets[limit]; b == nil || b.owed != want {
					t.Errorf("%s: the fleet hears %+v of limit %s, want %d units", name, b, limit, want)
				}
			}
		})
	}
}

// judged notes what becomes of its item.
type judged struct {
	item     *Item
	verdicts []Verdict
}

func (j *judged) Leave(time.Time) { j.verdicts = append(j.verdicts, j.item.Verdict()) }

// Items that wait when the fleet says that the window is used up are refused if max_wait ends before the window does: those at the
// head, in the class and beneath it, and not those that hold up their own source.
func TestShareRefusesWhatWaits(t *testing.T) {
	window := func() policy.Class {
		c := policy.DefaultClass("acme")
		c.Rate, c.Algorithm, c.MaxWait = rateOf("1000 messages/h"), policy.FixedWindow, unit.Duration(1000*second)
		c.Overflow = policy.Refuse
		return c
	}
	for _, c := range []struct {
		name    string
		resets  time.Duration
		patient bool
		beneath bool
		have    int64
		refused int
	}{
		{"until late", time.Hour, false, false, 0, 150},
		{"some in hand", time.Hour, false, false, 3, 147},
		{"beneath", time.Hour, false, true, 0, 150},
		{"soon", 1000 * second, false, false, 0, 0},
		{"between", 1010 * second, false, false, 0, 10},
		{"patient", time.Hour, true, false, 0, 0},
	} {
		conf := window()
		if c.patient {
			conf.Overflow = policy.Wait
		}
		withMember(t, conf, func(s *Shaper, member *fakeMember, in *Class) {
			if c.beneath {
				own := window()
				own.Shared, own.MaxWait = "prod", 0
				child := window()
				child.Name, child.Parent, child.Algorithm = "child", "acme", policy.Leaky
				child.Rate = rateOf("1000 messages/s")
				s.Apply([]policy.Class{own, child})
				in = s.Class("child")
			}
			begin := time.Now()
			var all []*judged
			for range 150 {
				j := &judged{}
				j.item = &Item{Owner: j, Cost: Cost{Messages: 1}, Patient: true}
				if v := in.Enter(time.Now(), j.item); v != Waits {
					t.Fatalf("%s: an item gets the verdict %v, want that it waits", c.name, v)
				}
				all = append(all, j)
				time.Sleep(second)
			}
			member.budgets["0"].refused, member.budgets["0"].have = begin.Add(c.resets), c.have
			s.Told("acme", "")
			time.Sleep(second)
			synctest.Wait()
			refused := 0
			for _, j := range all {
				if slices.Equal(j.verdicts, []Verdict{TooLong}) {
					refused++
				} else if len(j.verdicts) > 0 && !slices.Equal(j.verdicts, []Verdict{Leaves}) {
					t.Errorf("%s: an item gets the verdicts %v", c.name, j.verdicts)
				}
			}
			if b := in.Backlog(); refused != c.refused || b.Items != int64(len(all)-refused)-c.have {
				t.Errorf("%s: %d are refused and %d wait, want %d to be refused", c.name, refused, b.Items, c.refused)
			}
			member.budgets["0"].refused, member.budgets["0"].have = time.Time{}, 1000
			s.Told("acme", "")
			time.Sleep(time.Minute)
			if b := in.Backlog(); b.Items != 0 {
				t.Errorf("%s: %d wait although there are units for all", c.name, b.Items)
			}
		})
	}
}

// An answer that charges the last units in hand leaves none for an item that waits for a class beneath. If the window of the fleet is
// used up, that item is refused.
func TestShareRefusesAfterSettling(t *testing.T) {
	own := policy.DefaultClass("acme")
	own.Rate, own.Algorithm, own.Shared = rateOf("1000 messages/h"), policy.FixedWindow, "prod"
	child := policy.DefaultClass("child")
	child.Rate, child.Parent, child.MaxWait, child.Overflow = rateOf("1 messages/s"), "acme", unit.Duration(10*second), policy.Refuse
	withMember(t, own, func(s *Shaper, member *fakeMember, _ *Class) {
		s.Apply([]policy.Class{own, child})
		in, budget := s.Class("child"), member.budgets["0"]
		budget.have, budget.refused = 2, time.Now().Add(time.Hour)
		s.Told("acme", "")
		first, begin := &Item{Cost: Cost{Messages: 1}}, time.Now()
		if v := in.Enter(begin, first); v != Leaves {
			t.Fatalf("the first item gets the verdict %v, want that it leaves", v)
		}
		next := &judged{}
		next.item = &Item{Owner: next, Cost: Cost{Messages: 1}}
		if v := in.Enter(time.Now(), next.item); v != Waits {
			t.Fatalf("the next item gets the verdict %v, want that it waits", v)
		}
		synctest.Wait() // until nobody looks for what is overdue
		in.Provider().Settle(time.Now(), begin, Cost{Messages: 1})
		time.Sleep(2 * second)
		synctest.Wait()
		if !slices.Equal(next.verdicts, []Verdict{TooLong}) {
			t.Errorf("the next item gets the verdicts %v, want that it is refused", next.verdicts)
		}
	})
}

// why names the store if nothing leaves before it is back, and else the limit.
func TestWhyTheStoreIsAway(t *testing.T) {
	withMember(t, shared20(), func(_ *Shaper, member *fakeMember, c *Class) {
		c.Enter(time.Now(), &Item{Owner: &noting{}, Cost: Cost{Messages: 1}})
		member.budgets["0"].opens = time.Now().Add(second)
		if w := c.Status().Why(time.Now()); len(w.Path) != 1 || w.Path[0].Cause != ByLimit {
			t.Errorf("it waits for %+v, want the limit", w.Path)
		}
		member.budgets["0"].opens = limit.Never
		if w := c.Status().Why(time.Now()); len(w.Path) != 1 || w.Path[0].Cause != ByStore || w.Path[0].Until != limit.Never {
			t.Errorf("it waits for %+v, want the store", w.Path)
		}
	})
}

// A reload gives a class another share of the same fleet. Messages look for their keys meanwhile,
// without a lock, so it writes nothing that they read.
func TestReloadKeepsTheSecret(t *testing.T) {
	c := NewClass(start, perSource(10, classBy(policy.GCRA, "10 packets/s")))
	c.backing.setMember(&fakeMember{budgets: map[string]*fakeBudget{}})
	before := c.keys.secret
	if c.backing.setMember(&fakeMember{budgets: map[string]*fakeBudget{}}); c.keys.secret != before {
		t.Error("the secret was written again")
	}
}

// An estimate of a shared class allocates nothing, also while its rate comes back.
func TestEstimateOfASharedClassAllocatesNothing(t *testing.T) {
	withMember(t, adapting(shared20()), func(_ *Shaper, _ *fakeMember, class *Class) {
		for range 30 {
			class.Enter(time.Now(), &Item{Cost: Cost{Messages: 1}})
		}
		class.Provider().Throttled(time.Now(), time.Millisecond, "429")
		wantNoAllocs(t, "Place", func() { class.Estimate().Place(time.Now(), Cost{Messages: 1}) })
	})
}
