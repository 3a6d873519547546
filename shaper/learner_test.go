package shaper

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"shaper/policy"
)

// A hidden provider accepts or refuses a message that comes at a time, in seconds.
type hidden func(at float64) bool

// gapOf refuses what comes closer than 1/rate after what it has accepted last.
func gapOf(rate float64) hidden {
	last := -1.0
	return func(at float64) bool {
		if at-last < 1/rate-1e-9 {
			return false
		}
		last = at
		return true
	}
}

// windowOf accepts so many in each second.
func windowOf(rate int) hidden {
	second, n := -1, 0
	return func(at float64) bool {
		if int(at) != second {
			second, n = int(at), 0
		}
		n++
		return n <= rate
	}
}

// bucketOf has a bucket of so many.
func bucketOf(rate, burst float64) hidden {
	level, last := burst, 0.0
	return func(at float64) bool {
		level, last = min(burst, level+(at-last)*rate), at
		if level < 1-1e-9 {
			return false
		}
		level--
		return true
	}
}

// noisy refuses a fraction of all messages at random, too.
func noisy(p float64, x *rand.Rand, of hidden) hidden {
	return func(at float64) bool { return x.Float64() >= p && of(at) }
}

func everything(float64) bool { return true }

// A learning is a saturated class with learn and its provider, in virtual time.
type learning struct {
	class   *Class
	now     time.Time
	begin   time.Time
	accepts hidden
	sent    int
	refused int
}

func newLearning(rate, keys string, accepts hidden) *learning {
	text := fmt.Sprintf("[class.acme]\nrate = %q\nlearn = { floor = \"2 messages/s\" }\n%s[listener.l]\nlisten = \"127.0.0.1:1\"\nprotocol = \"smpp\"\nupstream = \"discard:\"\nclass = \"acme\"\n", rate, keys)
	p, _, err := policy.Parse("p.toml", []byte(text))
	if err != nil {
		panic(err)
	}
	begin := time.Unix(1000, 0)
	return &learning{class: NewTree(begin, p.Classes)[0], now: begin, begin: begin, accepts: accepts}
}

// run sends for so long, whenever the class allows it.
func (l *learning) run(d time.Duration) {
	l.sent, l.refused = 0, 0
	for end := l.now.Add(d); ; {
		it := &Item{Cost: Cost{Messages: 1}, Asks: true, Settles: true}
		if verdict := l.class.Enter(l.now, it); verdict == Waits {
			if at := l.class.Next(l.now); at.After(l.now) {
				l.now = at
			}
			if l.class.Release(l.now) != it {
				panic("the item does not leave when the class says so")
			}
		}
		it.Left(l.now)
		l.sent++
		ok := l.accepts(l.now.Sub(l.begin).Seconds())
		if !ok {
			l.refused++
			l.class.Provider().Throttled(l.now, 0, "0x58")
		}
		if l.class.Provider().Answered(l.now, ok); l.now.After(end) {
			return
		}
	}
}

// level returns the pace that the class has come to.
func (l *learning) level() float64 { return l.class.throttle.learner.level }

// Learn finds a limit of 17 a second within 5 % in two minutes, whatever the rate of the class,
// and then at most 1 message in 1,000 is refused.
func TestLearnFindsALimit(t *testing.T) {
	for _, rate := range []int{18, 20, 25, 50, 100, 400} {
		for name, accepts := range map[string]func() hidden{
			"gap": func() hidden { return gapOf(17) }, "window": func() hidden { return windowOf(17) }, "bucket of 1": func() hidden { return bucketOf(17, 1) },
		} {
			l := newLearning(fmt.Sprintf("%d messages/s", rate), "", accepts())
			l.run(2 * time.Minute)
			if found := l.level(); found < 17*0.95 || found > 17*1.05 {
				t.Errorf("below %d, a %s of 17 is found as %.2f", rate, name, found)
			}
			l.run(time.Hour)
			t.Logf("below %d, %s: %.2f; then %d of %d refused", rate, name, l.level(), l.refused, l.sent)
			if l.refused*1000 > l.sent || l.level() < 17*0.95 {
				t.Errorf("below %d, a %s of 17: at %.2f, %d of %d are refused", rate, name, l.level(), l.refused, l.sent)
			}
		}
	}
}

// A provider with a burst hides its limit for as long as the burst lasts. Learn finds it too,
// and then at most 1 message in 300 is refused.
func TestLearnFindsABucket(t *testing.T) {
	for _, burst := range []float64{5, 17} {
		l := newLearning("20 messages/s", "", bucketOf(17, burst))
		l.run(10 * time.Minute)
		l.run(time.Hour)
		t.Logf("bucket of %v: %.2f; %d of %d refused", burst, l.level(), l.refused, l.sent)
		if l.refused*300 > l.sent || l.level() < 17*0.9 || l.level() > 17*1.05 {
			t.Errorf("a bucket of %v: at %.2f, %d of %d are refused", burst, l.level(), l.refused, l.sent)
		}
	}
}

// A provider that refuses 1 % at random does not make the class slow.
func TestLearnIgnoresNoise(t *testing.T) {
	for seed := range uint64(4) {
		l := newLearning("20 messages/s", "", noisy(0.01, rand.New(rand.NewPCG(seed, 8)), everything))
		lowest := l.level()
		all := 0
		for range 120 {
			l.run(time.Minute)
			lowest, all = min(lowest, l.level()), all+l.sent
		}
		mean := float64(all) / (2 * 3600)
		t.Logf("seed %d: on average %.1f/s, at least %.1f/s", seed, mean, lowest)
		if mean < 18 || lowest < 5 {
			t.Errorf("seed %d: on average %.1f/s, at least %.1f/s", seed, mean, lowest)
		}
	}
}

// What was learned survives another policy, and the end of learn ends it.
func TestLearnSurvivesSet(t *testing.T) {
	l := newLearning("50 messages/s", "", gapOf(17))
	l.run(3 * time.Minute)
	found := l.level()
	conf := l.class.Policy()
	for _, rate := range []string{"30 messages/s", "50 messages/s", "100 messages/s"} {
		conf.Rate = rateOf(rate)
		if l.class.Set(l.now, conf); l.level() != found {
			t.Errorf("at %s: %.2f, want %.2f", rate, l.level(), found)
		}
		if l.run(time.Minute); l.refused*100 > l.sent {
			t.Errorf("at %s: %d of %d are refused", rate, l.refused, l.sent)
		}
	}
	if text := l.class.Status().Why(l.now).Path[0].Text; text == "" {
		t.Error("why does not say what it waits for")
	}
	conf.Rate, conf.Learn = rateOf("50 messages/s"), policy.Learn{}
	l.class.Set(l.now, conf)
	before := l.now
	for range 50 {
		it := &Item{Cost: Cost{Messages: 1}}
		if l.class.Enter(l.now, it) == Waits {
			l.now = l.class.Next(l.now)
			l.class.Release(l.now)
		}
	}
	if took := l.now.Sub(before); took > time.Second+20*time.Millisecond {
		t.Errorf("without learn, 50 messages take %v", took)
	}
}

// What was learned survives a time of a lower rate, also one below the floor.
func TestLearnSurvivesALowRate(t *testing.T) {
	l := newLearning("50 messages/s", "", gapOf(17))
	l.run(3 * time.Minute)
	found, conf := l.class.Provider().Learned(), l.class.Policy()
	for _, low := range []string{"10 messages/s", "1 messages/s", "15 messages/s"} {
		conf.Rate = rateOf(low)
		l.class.Set(l.now, conf)
		l.run(time.Hour)
		if pace := l.class.pacedRate(); pace.Compare(conf.Rate) != 0 || l.class.Provider().Learned() != 0 || l.refused > 0 {
			t.Errorf("at %s it is paced at %v, has found %v, and %d are refused", low, pace, l.class.Provider().Learned(), l.refused)
		}
		conf.Rate = rateOf("50 messages/s")
		if l.class.Set(l.now, conf); l.class.Provider().Learned() != found {
			t.Errorf("after a time at %s: %.2f, want %.2f", low, l.class.Provider().Learned(), found)
		}
		if l.run(time.Minute); l.refused*100 > l.sent {
			t.Errorf("after a time at %s, %d of %d are refused", low, l.refused, l.sent)
		}
	}
	conf.Rate = rateOf("10 messages/s")
	l.class.Set(l.now, conf)
	l.accepts = gapOf(7)
	if l.run(10 * time.Minute); l.level() > 7*1.05 || l.level() < 7*0.95 {
		t.Errorf("at 10 messages/s, a gap of 7 is found as %.2f", l.level())
	}
}

// A rate that equals what was found hides it only for a while, also for the ledger and a restart.
func TestLearnSurvivesTheRateThatItFound(t *testing.T) {
	l := newLearning("50 messages/s", "", gapOf(17))
	now, conf, learner := l.now, l.class.Policy(), l.class.throttle.learner
	learner.goOn(now, 10, 10, 0)
	conf.Rate = rateOf("10 messages/s")
	l.class.Set(now, conf)
	if found := l.class.Provider().Learned(); found != 0 {
		t.Errorf("at 10 messages/s it has found %v below that", found)
	}
	lease, ok := l.class.backing.finding(now)
	if !ok || !lease.Expires.After(now) {
		t.Error("at the rate that was found, the ledger forgets it")
	}
	next := NewClass(now, conf) // after a restart
	next.backing.resumeFinding(now, lease.Record)
	conf.Rate = rateOf("50 messages/s")
	for _, c := range []*Class{l.class, next} {
		if c.Set(now, conf); c.Provider().Learned() != 10 {
			t.Errorf("after a time at what was found it goes on from %v, want 10", c.Provider().Learned())
		}
	}
}

// A learner that goes up to its rate has found nothing below that, and follows it.
func TestLearnForgetsALimitThatIsNoMore(t *testing.T) {
	l := newLearning("50 messages/s", "", gapOf(17))
	l.run(3 * time.Minute)
	l.accepts = gapOf(1000)
	if l.run(3 * time.Hour); l.class.Provider().Learned() != 0 {
		t.Fatalf("it has found %v", l.class.Provider().Learned())
	}
	if lease, _ := l.class.backing.finding(l.now); lease.Expires.After(l.now) {
		t.Error("the ledger keeps what is no more")
	}
	conf := l.class.Policy()
	conf.Rate = rateOf("80 messages/s")
	if l.class.Set(l.now, conf); l.level() != 80 {
		t.Errorf("it is at %v, want 80", l.level())
	}
}

// Why reads what a class has learned when it does not hold the lock any more. So answers that come
// meanwhile change nothing of what it reads.
func TestWhyCopiesWhatWasLearned(t *testing.T) {
	l := newLearning("50 messages/s", "", gapOf(17))
	l.run(3 * time.Minute)
	still := rehearse(l.now, l.class.root(), &l.class.node)
	copied := still.nodes[&l.class.node]
	before, learned := copied.pacedRate(), l.level()
	l.accepts = gapOf(10)
	if l.run(time.Minute); l.level() == learned || copied.pacedRate() != before {
		t.Errorf("the class went from %.2f to %.2f, its copy from %v to %v", learned, l.level(), before, copied.pacedRate())
	}
}

// A limit that rises is found, too, and an idle class does not go up.
func TestLearnGoesUp(t *testing.T) {
	limit := 10
	l := newLearning("40 messages/s", "", func(at float64) bool { return true })
	window := windowOf(limit)
	l.accepts = func(at float64) bool { return window(at) }
	l.run(5 * time.Minute)
	if l.level() > 10.5 {
		t.Fatalf("found %.2f of 10", l.level())
	}
	window = windowOf(30)
	for range 2000 { // one message every two seconds
		l.now = l.now.Add(2 * time.Second)
		l.run(0)
	}
	if l.level() > 10.5 {
		t.Errorf("while the class is nearly idle, it goes up to %.2f", l.level())
	}
	l.run(2 * time.Hour)
	if l.level() < 28 || l.level() > 33 || l.refused*500 > l.sent { // it may be trying 5 % more just now
		t.Errorf("the limit is 30 now, the class is at %.2f, and %d of %d are refused", l.level(), l.refused, l.sent)
	}
}

// What was found goes on in the next process, after a stop and after a crash, and under another
// policy.
func TestFindingsAreKept(t *testing.T) {
	conf := leakyClass("50 messages/s")
	conf.Learn = policy.Learn{Floor: rateOf("2 messages/s")}
	for _, crash := range []bool{true, false} {
		d := newDisk(func() time.Duration { return 0 })
		first := NewClass(start, conf)
		first.backing.keepIn(start, d)
		now := start
		for range 3000 { // it is saturated: each message leaves as soon as it may
			now = later(now, first.limiter.Next(now, 0, 1))
			enter(t, first, now.Sub(start), Leaves, request())
			lastLeft(first, now)
			if first.throttle.learner.level > 17 {
				first.Provider().Throttled(now, 0, "0x58")
				first.Provider().Answered(now, false)
			} else {
				first.Provider().Answered(now, true)
			}
		}
		found := first.Provider().Learned()
		if found < 16 || found > 17 {
			t.Fatalf("it has found %v", found)
		}
		leases := first.backing.leases(now)
		if crash {
			leases = slices.Collect(maps.Values(d.asked))
		}
		next := func(change func(*policy.Class)) *Class {
			c := conf
			change(&c)
			s := New()
			s.Apply([]policy.Class{c})
			s.Resume(time.Now(), leases)
			defer s.Close()
			return s.Class("test")
		}
		same := next(func(*policy.Class) {})
		if got := same.Provider().Learned(); got < found*0.95 || got > found {
			t.Errorf("after a crash (%t) it goes on from %v, want %v", crash, got, found)
		} else if rate := same.pacedRate().PerSecond(); rate < got*0.999 || rate > got*1.001 {
			t.Errorf("it is paced at %v, and has learned %v", rate, got)
		}
		if got := next(func(c *policy.Class) { c.Learn.Floor = rateOf("30 messages/s") }).Provider().Learned(); got != 30 {
			t.Errorf("above its floor it goes on from %v", got)
		}
		low := next(func(c *policy.Class) { c.Rate = rateOf("10 messages/s") })
		if got := low.Provider().Learned(); got != 0 {
			t.Errorf("below what was found, it goes on from %v", got)
		}
		if lease, ok := low.backing.finding(now); !ok || !lease.Expires.After(now) {
			t.Error("below what was found, the ledger forgets it")
		}
		if low.Set(now, conf); low.Provider().Learned() != same.Provider().Learned() {
			t.Errorf("when the rate is back, it goes on from %v, want %v", low.Provider().Learned(), same.Provider().Learned())
		}
		if got := next(func(c *policy.Class) { c.Learn = policy.Learn{} }).Provider().Learned(); got != 0 {
			t.Errorf("without learn it goes on from %v", got)
		}
	}
}

// A record that makes no sense is ignored.
func TestFindingOfNonsense(t *testing.T) {
	conf := leakyClass("50 messages/s")
	conf.Learn = policy.Learn{Floor: rateOf("2 messages/s")}
	for _, record := range [][]byte{nil, make([]byte, 24), make([]byte, 23), bytes.Repeat([]byte{0xff}, 24), bytes.Repeat([]byte{0x7f}, 24)} {
		c := NewClass(start, conf)
		if c.backing.resumeFinding(start, record); c.Provider().Learned() != 0 {
			t.Errorf("from %x it goes on from %v", record, c.Provider().Learned())
		}
	}
}
