package shaper

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"shaper/calendar"
	"shaper/limit"
	"shaper/policy"
	"shaper/stats"
	"shaper/unit"
)

// limitBy returns a limit of that algorithm and rate.
func limitBy(algorithm policy.Algorithm, text string) policy.Limit {
	return policy.Limit{Rate: rateOf(text), Algorithm: algorithm}
}

// with returns a policy with further limits.
func with(conf policy.Class, also ...policy.Limit) policy.Class {
	conf.Also = also
	return conf
}

// byDay returns a limit that counts by the days of a zone.
func byDay(text, zone string) policy.Limit {
	z, err := calendar.ParseZone(zone)
	if err != nil {
		panic(err)
	}
	return policy.Limit{Rate: rateOf(text), Algorithm: policy.FixedWindow, Window: policy.Window{Period: calendar.Day}, Zone: z}
}

// anyAlso draws up to three limits of the unit of a class.
func anyAlso(t *rapid.T, kind unit.Kind) (also []policy.Limit) {
	for range rapid.IntRange(0, 3).Draw(t, "limits") {
		l := policy.Limit{Algorithm: rapid.SampledFrom(algorithms).Draw(t, "algorithm of a limit"),
			Rate: unit.NewRate(kind, rapid.SampledFrom([]int64{3, 20, 2000}).Draw(t, "limit"), rapid.SampledFrom([]time.Duration{time.Second, time.Minute}).Draw(t, "period"))}
		if l.Algorithm.HasBurst() {
			l.Burst = policy.Burst{N: rapid.Int64Range(0, 30).Draw(t, "burst of a limit"), Kind: kind}
		}
		also = append(also, l)
	}
	return also
}

// departuresOf lets items leave as soon as they may, and returns when.
func departuresOf(c *Class, now time.Duration, n int) (left []time.Duration) {
	for range n {
		c.Enter(at(now), packet(1))
		if next := c.Next(at(now)); next != limit.Never && c.Backlog().Items > 0 {
			now = max(now, next.Sub(start))
			c.Release(at(now))
		}
		lastLeft(c, at(now))
		left = append(left, now)
	}
	return left
}

// An item leaves at the first moment at which the class of each limit alone would let it.
func TestAlsoIsEachLimit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		conf := classBy(rapid.SampledFrom(algorithms).Draw(t, "algorithm"), "10 packets/s")
		conf.Also = anyAlso(t, unit.Packets)
		c := NewClass(start, conf)
		alone := []*Class{NewClass(start, classBy(conf.Algorithm, "10 packets/s"))}
		for _, l := range conf.Also {
			one := classBy(l.Algorithm, "10 packets/s")
			one.Rate, one.Burst = l.Rate, l.Burst
			alone = append(alone, NewClass(start, one))
		}
		now := start
		for range rapid.IntRange(1, 60).Draw(t, "items") {
			want := now
			for _, one := range alone {
				want = later(want, one.limiter.Next(now, 0, 1))
			}
			it := packet(1)
			if c.Enter(now, it) == Waits {
				if next := c.Next(now); next != want {
					t.Fatalf("the next item leaves at %v, want %v", next, want)
				}
				if want == limit.Never {
					return
				}
				now = want
				left := c.Release(now)
				if again := c.Next(now); left == nil && again.Sub(now) <= time.Microsecond { // a token bucket rounds
					now = again
					left = c.Release(now)
				}
				if left != it {
					t.Fatalf("the item does not leave at %v", now)
				}
			} else if want != now {
				t.Fatalf("an item leaves at %v, want %v", now, want)
			}
			lastLeft(c, now)
			for _, one := range alone {
				one.limiter.Take(now, now, 1)
			}
			now = now.Add(time.Duration(rapid.SampledFrom([]int{0, 0, 0, 30, 700, 20_000}).Draw(t, "pause")) * ms)
		}
	})
}

// A key that has been away goes on as one that has stayed, in each of its limits.
func TestAlsoOfAKeyThatWasAway(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		conf := classBy(rapid.SampledFrom(algorithms).Draw(t, "algorithm"), "10 packets/s")
		conf.Also = append(anyAlso(t, unit.Packets), byDay("50 packets/day", "America/Los_Angeles"))
		c := NewClass(start, perSource(10, conf))
		stays, goes := c.Join(start, client(1)), c.Join(start, client(2))
		now := start
		for range rapid.IntRange(1, 40).Draw(t, "items") {
			if a, b := stays.limiter.Next(now, 0, 1), goes.limiter.Next(now, 0, 1); a.Sub(b).Abs() <= time.Microsecond {
				now = later(now, later(a, b)) // what is remembered may be later by a nanosecond
			}
			passes := stays.Pass(now, Cost{Packets: 1})
			if passes != goes.Pass(now, Cost{Packets: 1}) {
				t.Fatalf("at %v one may send and the other may not", now)
			}
			if passes {
				lastLeft(stays, now)
				lastLeft(goes, now)
			}
			now = now.Add(time.Duration(rapid.SampledFrom([]int{0, 30, 100, 700, 20_000}).Draw(t, "pause")) * ms)
			if goes.Quit(now); rapid.IntRange(0, 9).Draw(t, "set") == 0 {
				conf.Also = slices.Clone(conf.Also)
				for i := range conf.Also {
					l := &conf.Also[i]
					l.Rate = unit.NewRate(unit.Packets, rapid.Int64Range(1, 40).Draw(t, "new limit"), l.Rate.Period())
				}
				c.Set(now, perSource(10, conf))
			}
			goes = c.Join(now, client(2))
			got, want := goes.limiter.Next(now, 0, 1), stays.limiter.Next(now, 0, 1)
			if got.Sub(want).Abs() > time.Microsecond && (got.After(now) || want.After(now)) {
				t.Fatalf("the key that was away may send at %v, the other at %v", got.Sub(start), want.Sub(start))
			}
		}
	})
}

// A reload that adds, removes or changes one limit leaves the others as they are. A new limit
// begins as if all that it lets leave at once had just left.
func TestSetChangesOneLimitOfSeveral(t *testing.T) {
	perSecond, perMinute, perDay := limitBy(policy.GCRA, "10 packets/s"), limitBy(policy.SlidingLog, "20 packets/min"), byDay("25 packets/day", "UTC")
	perSecond.Burst = policy.Burst{N: 10, Kind: unit.Packets}
	base := classBy(policy.Token, "100 packets/s")
	base.Burst = policy.Burst{N: 100, Kind: unit.Packets}
	midnight := 24 * time.Hour
	for _, c := range []struct {
		what string
		set  policy.Class
		next time.Duration // when an eleventh item leaves after ten at the start
	}{
		{"nothing changes", with(base, perSecond, perMinute, perDay), 100 * ms},
		{"another order", with(base, perDay, perSecond, perMinute), 100 * ms},
		{"the bucket goes", with(base, perMinute, perDay), 0},
		{"the log goes", with(base, perSecond, perDay), 100 * ms},
		{"the bucket is slower", with(base, limitBy(policy.GCRA, "1 packets/s"), perMinute, perDay), second},
		{"the log is smaller", with(base, limitBy(policy.SlidingLog, "10 packets/min"), perDay), time.Minute},
		{"the day is smaller", with(base, byDay("10 packets/day", "UTC")), midnight},
		{"a new log", with(base, perSecond, perMinute, perDay, limitBy(policy.SlidingLog, "30 packets/2min")), 2 * time.Minute},
		{"the day of another zone", with(base, byDay("25 packets/day", "Europe/Paris")), 23 * time.Hour},
		{"none remains", base, 0},
	} {
		class := NewClass(start, with(base, perSecond, perMinute, perDay))
		for range 10 {
			enter(t, class, 0, Leaves, packet(1))
		}
		class.Set(start, c.set)
		it := packet(1)
		if c.next == 0 {
			enter(t, class, 0, Leaves, it)
			continue
		}
		enter(t, class, 0, Waits, it)
		if next := class.Next(start); !next.Equal(at(c.next)) {
			t.Errorf("%s: an eleventh item leaves after %v, want %v", c.what, next.Sub(start), c.next)
		}
	}
}

// A limit that a reload adds or removes takes nothing from the others, also after a restart.
func TestSetOfALimitLeavesTheOthers(t *testing.T) {
	bucket := func(text string, burst int64) policy.Limit {
		l := limitBy(policy.Token, text)
		l.Burst = policy.Burst{N: burst, Kind: unit.Packets}
		return l
	}
	day, fast := bucket("1000 packets/day", 1000), bucket("10 packets/s", 20)
	withHeadroom := day
	withHeadroom.Headroom = 20_000
	for name, c := range map[string]struct{ old, next []policy.Limit }{
		"before it": {[]policy.Limit{day}, []policy.Limit{fast, day}},
		"behind it": {[]policy.Limit{day}, []policy.Limit{day, fast}},
		"removed":   {[]policy.Limit{fast, day}, []policy.Limit{day}},
		"headroom":  {[]policy.Limit{fast, withHeadroom}, []policy.Limit{withHeadroom}},
	} {
		for _, restarts := range []bool{false, true} {
			old, next := paceOf(with(leakyClass("1000 packets/s"), c.old...)), paceOf(with(leakyClass("1000 packets/s"), c.next...))
			l := old.idle(start)
			for _, part := range limit.Parts(l)[1:] {
				has := int64(part.(limit.TokenBucket).Tokens(start))
				part.Take(start, start, has-has/100) // 10 remain of the day
			}
			if restarts {
				r := recordOf(start, l, &old, old.rate, policy.Per{})
				r, ok := decodeRecord(r.encode())
				if old, l = r.pace, r.limiter(start, &limit.Lease{At: start, Until: start}); !ok || l == nil {
					t.Fatal("the record makes no sense")
				}
			}
			for i, part := range limit.Parts(next.takeOver(start, l, &old, old.rate))[1:] {
				want := 0.0
				if c.next[i].Rate == day.Rate {
					want = 10
				}
				if got := part.(limit.TokenBucket).Tokens(start); got < want-0.1 || got > want+0.1 {
					t.Errorf("%s, restart %t: the bucket of %v has %.2f, want %v", name, restarts, c.next[i].Rate, got, want)
				}
			}
		}
	}
}

// The gap of an item that is on its way out goes on when a reload changes another limit.
func TestSetOfALimitKeepsTheGap(t *testing.T) {
	conf := with(leakyClass("10 packets/s"), limitBy(policy.SlidingLog, "30 packets/min"))
	class := NewClass(start, conf)
	first, next := packet(1), packet(1)
	first.Settles = true
	enter(t, class, 0, Leaves, first)
	conf.Also = append(conf.Also, limitBy(policy.GCRA, "20 packets/s"))
	class.Set(at(10*ms), conf)
	enter(t, class, 20*ms, Waits, next)
	first.Left(at(50 * ms))
	released(t, class, 150*ms-1)
	released(t, class, 150*ms, next)
}

// adapt takes away from the rate of the class, and from no other limit.
func TestAdaptLeavesFurtherLimitsAlone(t *testing.T) {
	c := messageClass("16 messages/s", func(conf *policy.Class) {
		conf.Adapt = true
		conf.Also = []policy.Limit{limitBy(policy.FixedWindow, "100 messages/min")}
	})
	c.Provider().Throttled(start, time.Second, "429")
	parts := limit.Parts(c.limiter)
	parts[1].Take(start, start, 99)
	if next := parts[1].Next(start, 0, 1); next.After(start) {
		t.Errorf("of 100 a minute, one may leave at %v", next)
	}
	parts[0].Take(at(second), at(second), 1)
	if next := parts[0].Next(at(second), 0, 1); !next.Equal(at(second + second/8)) {
		t.Errorf("at half the rate the next may leave at %v", next.Sub(start))
	}
}

// A piece of a stream fits each limit.
func TestPieceFitsEachLimit(t *testing.T) {
	conf := with(leakyClass("100mbit"), limitBy(policy.FixedWindow, "1000B/s"), limitBy(policy.GCRA, "1GB/s"))
	if piece := NewClass(start, conf).Piece(); piece > 1000 {
		t.Errorf("a piece of %d bytes is larger than the window", piece)
	}
	conf.Also = []policy.Limit{limitBy(policy.FixedWindow, "1GB/day")}
	if got, want := NewClass(start, conf).Piece(), NewClass(start, leakyClass("100mbit")).Piece(); got < want/2 {
		t.Errorf("beside a quota a piece has %d bytes, and without it %d", got, want)
	}
}

// Under demand a class with a quota for each calendar day sends it each day, and no more.
func TestQuotaOfACalendarDay(t *testing.T) {
	c := NewClass(start, with(classBy(policy.Token, "10 packets/s"), byDay("100 packets/day", "America/Los_Angeles")))
	loc, _ := time.LoadLocation("America/Los_Angeles")
	perDate := map[string]int{}
	for _, left := range departuresOf(c, 0, 100*400) {
		perDate[at(left).In(loc).Format(time.DateOnly)]++
	}
	if len(perDate) != 400 {
		t.Errorf("%d days", len(perDate))
	}
	for date, n := range perDate {
		if n != 100 {
			t.Errorf("%d items leave on %s", n, date)
		}
	}
}

func TestAlsoAllocatesNothing(t *testing.T) {
	c, now, it := NewClass(start, threeWindows()), start, packet(1)
	step := func() {
		if c.Enter(now, it) == Waits {
			now = c.Next(now)
			c.Release(now)
		}
		lastLeft(c, now)
	}
	for range 2000 { // the log grows at first
		step()
	}
	wantNoAllocs(t, "a class with three windows", step)
}

// threeWindows returns a class with a limit for a second, a minute and a day.
func threeWindows() policy.Class {
	return with(classBy(policy.GCRA, "1000 packets/s"), limitBy(policy.FixedWindow, "59000 packets/min"), byDay("100000000 packets/day", "America/Los_Angeles"))
}

// BenchmarkAlso takes one item after the other through a class with three windows.
func BenchmarkAlso(b *testing.B) {
	c, now, it := NewClass(start, threeWindows()), start, packet(1)
	b.ReportAllocs()
	for b.Loop() {
		if c.Enter(now, it) == Waits {
			now = c.Next(now)
			c.Release(now)
		}
	}
}

// BenchmarkAlsoOfManyKeys lets items leave from a million keys with three windows each.
func BenchmarkAlsoOfManyKeys(b *testing.B) {
	const most = 1_000_000
	c := NewClass(start, perSource(most, threeWindows()))
	for n := range most {
		bucket := c.Join(start, client(n))
		bucket.Pass(start, Cost{Packets: 1})
		bucket.Quit(start)
	}
	b.ReportAllocs()
	n, now := 0, start.Add(time.Second)
	for b.Loop() {
		n = (n + 7919) % most
		bucket := c.Join(now, client(n))
		bucket.Pass(now, Cost{Packets: 1})
		bucket.Quit(now)
	}
}

// BenchmarkAlsoOfManyMessageKeys decides about messages to a million recipients with three windows
// each: one operation finds the key of a message, joins its bucket, lets the message leave, and
// quits. Enter alone, which decides whether it may, is ns/decision. The recipients come in random order, and
// times have a monotonic reading, as those of a live class do.
func BenchmarkAlsoOfManyMessageKeys(b *testing.B) {
	const most = 1_000_000
	now := time.Now()
	c, it := NewClass(now, perRecipient(most, threeWindows())), packet(1)
	var digits [16]byte
	var conn policy.Conn
	var to policy.Message
	var deciding time.Duration
	step := func(n int) {
		now = now.Add(2 * time.Microsecond)
		to.Recipient = strconv.AppendInt(digits[:0], int64(n), 10)
		key := c.Messages().Key(&conn, &to)
		bucket := c.JoinKey(now, key)
		began := time.Now()
		verdict := bucket.Enter(now, it)
		deciding += time.Since(began)
		if verdict == Waits {
			bucket.Cancel(now, it)
		}
		it.Left(now)
		bucket.QuitKey(now, key)
	}
	for n := range most {
		step(n)
	}
	if got := c.Buckets().Keys(now); got != most {
		b.Fatalf("%d keys are remembered", got)
	}
	deciding = 0
	b.ReportAllocs()
	for b.Loop() {
		step(rand.IntN(most))
	}
	b.ReportMetric(float64(deciding)/float64(b.N), "ns/decision")
}

// BenchmarkMapOfManyKeys is a measure of the machine for the benchmark above: a map finds and changes as much of each of a
// million keys.
func BenchmarkMapOfManyKeys(b *testing.B) {
	const most = 1_000_000
	c := NewClass(start, perRecipient(most, threeWindows()))
	var digits [16]byte
	var conn policy.Conn
	var to policy.Message
	key := func(n int) Key {
		to.Recipient = strconv.AppendInt(digits[:0], int64(n), 10)
		return c.Messages().Key(&conn, &to)
	}
	kept := map[Key]*[12]int64{}
	for n := range most {
		kept[key(n)] = new([12]int64)
	}
	for b.Loop() {
		of := kept[key(rand.IntN(most))]
		for i := range of {
			of[i]++
		}
	}
}

// holds fails unless a class waits for a limit until d.
func holds(t *testing.T, h *stats.Hold, class, what string, until time.Duration) {
	t.Helper()
	want := stats.Hold{Class: class, Limit: what, Text: cmp.Or(inWords[what], what), Until: at(until)}
	if what == "" && h == nil {
		return
	}
	if h == nil || *h != want && !(until < 0 && h.Until.IsZero() && h.Class == class && h.Limit == what) {
		t.Errorf("it waits for %+v, want %+v", h, want)
	}
}

// waitsWithKey returns what an item of one unit waits for that comes to a class at now, and until when. It fails unless WhyWithKey says
// the same time, and what holds the item up in that class.
func waitsWithKey(t *testing.T, c *Class, now time.Time, conn policy.Conn, m *policy.Message) *stats.Hold {
	t.Helper()
	root, now := c.lockAt(now)
	h, _ := arrival{c, now, c.Messages().Key(&conn, m)}.hold()
	root.mu.Unlock()
	why, r := c.Status().WhyWithKey(now, conn, m), h.reading()
	of := func(hold Hold) bool { return hold.Class == r.Class && hold.Until.After(now) }
	if !why.At.Equal(later(h.until, now)) || (r == nil) != (len(why.Path) == 0) || r != nil && !slices.ContainsFunc(why.Path, of) {
		t.Errorf("at %v it waits for %+v, and WhyWithKey says %+v", now, r, why)
	}
	return r
}

// The class says which limit of the path lets the next item leave last.
func TestWaitsSaysForWhich(t *testing.T) {
	account := named("account", with(leakyClass("10 packets/s"), limitBy(policy.FixedWindow, "4 packets/min")))
	child := named("child", under("account", with(classBy(policy.GCRA, "5 packets/s"), limitBy(policy.SlidingLog, "3 packets/min"))))
	classes := NewTree(start, []policy.Class{account, child})
	a, c := classes[0], classes[1]
	holds(t, c.Status().Waits(start), "", "", 0)
	enter(t, c, 0, Leaves, packet(1))
	holds(t, c.Status().Waits(start), "", "", 0)
	holds(t, waitsWithKey(t, c, start, policy.Conn{}, nil), "child", "5 packets/s", 200*ms)
	second, third, fourth := packet(1), packet(1), packet(1)
	enter(t, c, 0, Waits, second, third, fourth)
	holds(t, c.Status().Waits(start), "child", "5 packets/s", 200*ms)
	lastLeft(c, at(150*ms))
	holds(t, c.Status().Waits(at(150*ms)), "account", "10 packets/s", 250*ms)
	holds(t, a.Status().Waits(at(150*ms)), "account", "10 packets/s", 250*ms)
	released(t, c, 250*ms, second)
	lastLeft(c, at(250*ms))
	released(t, c, 450*ms, third)
	lastLeft(c, at(450*ms))
	holds(t, c.Status().Waits(at(time.Second)), "child", "3 packets/min", 60*time.Second)
	a.Pass(at(time.Second), Cost{Packets: 1})
	lastLeft(a, at(time.Second))
	holds(t, waitsWithKey(t, a, at(2*time.Second), policy.Conn{}, nil), "account", "4 packets/min", 60*time.Second)
	none := named("account", leakyClass("0 packets/s"))
	a.Set(at(2*time.Second), none)
	holds(t, c.Status().Waits(at(2*time.Second)), "account", "0 packets/s", -1)
}

// Each key waits for its own limits, also if it has been away.
func TestWaitsOfAKey(t *testing.T) {
	c := NewClass(start, perSource(10, with(classBy(policy.GCRA, "5 packets/s"), limitBy(policy.FixedWindow, "2 packets/min"))))
	bucket := c.Join(start, client(1))
	bucket.Pass(start, Cost{Packets: 1})
	bucket.Pass(at(second), Cost{Packets: 1})
	holds(t, waitsWithKey(t, c, at(second), client(1), nil), "test", "2 packets/min", time.Minute)
	bucket.Quit(at(second))
	holds(t, waitsWithKey(t, c, at(second), client(1), nil), "test", "2 packets/min", time.Minute)
	holds(t, waitsWithKey(t, c, at(second), client(2), nil), "", "", 0)
	bucket = c.Join(at(second), client(1))
	enter(t, bucket, second, Waits, packet(1))
	holds(t, c.Status().Waits(at(second)), "test", "2 packets/min", time.Minute)
}

// Answers that are missing and a pause hold up too.
func TestWaitsForAnswersAndPauses(t *testing.T) {
	c := messageClass("16 messages/s", func(conf *policy.Class) { conf.InFlight = 1 })
	one := request()
	one.Asks = true
	enter(t, c, 0, Leaves, one)
	holds(t, waitsWithKey(t, c, at(second), policy.Conn{}, nil), "test", HoldInFlight, -1)
	c.Provider().Answered(at(second), false)
	c.Provider().Throttled(at(second), 3*time.Second, "429")
	holds(t, waitsWithKey(t, c, at(second), policy.Conn{}, nil), "test", HoldPause, 4*second)
}
