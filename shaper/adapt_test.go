package shaper

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"shaper/calendar"
	"shaper/limit"
	"shaper/policy"
	"shaper/unit"
)

// wholeAgain is how long after the end of a pause a class has its whole rate again.
const wholeAgain = (sixteenths - 1) * regainEvery

// adapting returns a policy with adapt. It pauses for a second at first and for a minute
// at most.
func adapting(conf policy.Class) policy.Class {
	conf.Adapt, conf.OnThrottle = true, policy.DefaultOnThrottle
	return conf
}

// If a sixteenth of the rate is less than one unit in a window, the class goes on with
// one.
func TestAdaptLeavesAWindowOneUnit(t *testing.T) {
	for rate, want := range map[string]float64{
		"1 messages/s": 1, "2 messages/s": 0.5, "15 messages/s": 2. / 16, "16 messages/s": 1. / 16, "1 messages/d": 1,
	} {
		for _, algorithm := range algorithms[3:] {
			c := NewClass(start, adapting(classBy(algorithm, rate)))
			for n := range time.Duration(6) {
				c.Provider().Throttled(at(n*second), second, "429")
			}
			if _, part := c.Provider().Signals(at(6 * second)); part != want {
				t.Errorf("%s of %s: the part of the rate is %v, want %v", algorithm, rate, part, want)
			}
			it := request()
			if c.Enter(at(6*second), it) == Waits {
				released(t, c, 6*second+2*24*time.Hour, it)
			}
		}
	}
}

// A part of a rate with many digits is rounded down, but never to nothing.
func TestAdaptOfATinyRate(t *testing.T) {
	c := NewClass(start, adapting(leakyClass("0.000000001 messages/s")))
	c.Provider().Throttled(start, second, "429")
	enter(t, c, second, Leaves, request())
}

// A sixteenth of the rate comes back even if nothing leaves and nobody asks. The pacer wakes for it.
func TestTimeAloneGivesTheShareBack(t *testing.T) {
	for _, algorithm := range algorithms {
		conf := named("c", adapting(classBy(algorithm, "16 messages/h")))
		if algorithm.HasBurst() {
			conf.Burst = policy.Burst{N: 1, Kind: unit.Messages}
		}
		inBubble(t, func(t *testing.T, s *Shaper) {
			c, begin := s.Class("c"), time.Now()
			for c.Pass(begin, Cost{Messages: 1}) {
				lastLeft(c, begin)
			}
			for range 4 {
				c.Provider().Throttled(time.Now(), second, "429")
				time.Sleep(second)
			}
			if _, part := c.Provider().Signals(time.Now()); part != 1./16 {
				t.Errorf("%s: it has %v of its rate", algorithm, part)
			}
			left := make(chan time.Time, 1)
			c.Enter(time.Now(), &Item{Cost: Cost{Messages: 1}, Owner: departed{c, left}})
			after := (<-left).Sub(begin)
			most := 4*second + wholeAgain + conf.Rate.Time(1)
			switch algorithm { // all that these hold at once has left
			case policy.FixedWindow, policy.SlidingLog:
				most = time.Hour
			case policy.SlidingWindow:
				most = time.Hour + conf.Rate.Time(1)
			}
			if after > most {
				t.Errorf("%s: the next item leaves after %v", algorithm, after)
			}
			if algorithm == policy.Leaky && after != conf.Rate.Time(1) {
				t.Errorf("the gap is %v", after)
			}
			time.Sleep(wholeAgain)
			if _, part := c.Provider().Signals(time.Now()); part != 1 {
				t.Errorf("%s: it has %v of its rate", algorithm, part)
			}
		}, conf)
	}
}

// If the next sixteenth lets a window hold more, an item leaves then, and not at the end of
// the window.
func TestShareOpensAWindow(t *testing.T) {
	for _, algorithm := range algorithms[3:] {
		c := NewClass(start, adapting(classBy(algorithm, "16 messages/h")))
		c.Provider().Throttled(start, second, "429")
		for range 8 {
			enter(t, c, second, Leaves, request())
		}
		it := request()
		enter(t, c, second, Waits, it)
		released(t, c, 11*second-1)
		released(t, c, 11*second, it)
	}
}

// A reload keeps the part of the rate and the time from which the next one counts. So many reloads
// hold nothing up.
func TestReloadsDoNotDelayTheShare(t *testing.T) {
	c := adapted()
	for n := range time.Duration(100) {
		c.Set(at((1+2*n)*second), c.Policy())
	}
	if _, part := c.Provider().Signals(at(201 * second)); part != 1 {
		t.Errorf("the part of the rate is %v", part)
	}
}

// What is owed at a reduced rate does not grow when the algorithm changes.
func TestSetWhileItAdapts(t *testing.T) {
	for _, algorithm := range algorithms {
		c := NewClass(start, adapting(leakyClass("1 messages/s")))
		for n := range time.Duration(5) {
			c.Provider().Throttled(at(n*second), second, "429")
		}
		enter(t, c, 5*second, Leaves, request())
		c.Set(at(5*second), adapting(classBy(algorithm, "1 messages/s")))
		it := request()
		enter(t, c, 5*second, Waits, it)
		for now := c.Next(at(5 * second)); c.Release(now) == nil; now = c.Next(now) {
			if now.After(at(40 * second)) {
				t.Fatalf("%s: an item waits until %v", algorithm, now.Sub(start))
			}
		}
	}
}

// The time that a refused client is told takes into account that the rate comes back.
func TestRetryWhileItAdapts(t *testing.T) {
	c := NewClass(start, withQueue(adapting(leakyClass("1 messages/min")), 1, 0))
	enter(t, c, 0, Leaves, request())
	for n := range time.Duration(5) {
		c.Provider().Throttled(at(n*second), second, "429")
	}
	it := request()
	enter(t, c, 5*second, Waits, it)
	enter(t, c, 5*second, Full, request())
	wait := c.Estimate().Retry(at(5*second), request().Cost)
	now := at(5 * second)
	for c.Release(now) == nil {
		now = c.Next(now)
	}
	if room := now.Sub(at(5 * second)); wait < room || wait > room+wholeAgain {
		t.Errorf("Retry is %v, and there is room in %v", wait, room)
	}
}

// A script is what happens to a class with adapt, and to the items that wait in it.
type script struct {
	confs   []policy.Class // the last is that of the items
	costs   []int64
	signals []signal
	looks   []time.Duration // somebody reads the counters
	quiet   time.Duration   // when the items come, if they come after all signals
}

type signal struct{ at, wait time.Duration }

func anyScript(t *rapid.T) script {
	signals := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) signal {
		return signal{
			at:   time.Duration(rapid.Int64Range(0, 300e9).Draw(t, "at")),
			wait: time.Duration(rapid.SampledFrom([]int64{0, 0, 1e9, 30e9, 3600e9}).Draw(t, "wait")),
		}
	}), 0, 12).Draw(t, "signals")
	slices.SortFunc(signals, func(a, b signal) int { return int(a.at - b.at) })
	s := script{
		confs:   []policy.Class{adapting(anyAdapting(t))},
		costs:   rapid.SliceOfN(rapid.Int64Range(1, 9), 1, 12).Draw(t, "costs"),
		signals: signals,
		quiet:   time.Duration(rapid.Int64Range(0, 600e9).Draw(t, "quiet")),
	}
	switch rapid.IntRange(0, 2).Draw(t, "form") {
	case 1: // a child that borrows
		child := named("child", anyAdapting(t))
		child.Rate, child.Ceil = rateOf("1 messages/h"), child.Rate
		s.confs = append(s.confs, under("test", child))
	case 2: // a bucket for each client
		s.confs[0].Per = policy.Per{{By: policy.BySource}}
	}
	return s
}

// anyAdapting returns a policy of any algorithm, rate and window, also of the calendar, and with any
// further limits; a ceil has no more units than the rate that it stands for.
func anyAdapting(t *rapid.T) policy.Class {
	period := rapid.SampledFrom([]time.Duration{second, 10 * second, time.Minute, time.Hour, 24 * time.Hour}).Draw(t, "period")
	conf := classBy(rapid.SampledFrom(algorithms).Draw(t, "algorithm"), "1 messages/s")
	conf.Rate = unit.NewRate(unit.Messages, rapid.Int64Range(1, 40).Draw(t, "units"), period)
	switch {
	case conf.Algorithm.HasBurst():
		conf.Burst = policy.Burst{N: rapid.Int64Range(1, 20).Draw(t, "burst"), Kind: unit.Messages}
	case conf.Algorithm == policy.FixedWindow && rapid.Bool().Draw(t, "calendar"):
		day := byDay("1 messages/day", rapid.SampledFrom([]string{"UTC", "America/Los_Angeles", "Pacific/Auckland"}).Draw(t, "zone"))
		conf.Window, conf.Zone = day.Window, day.Zone
		conf.Window.Period = rapid.SampledFrom([]calendar.Period{calendar.Day, calendar.Week, calendar.Month}).Draw(t, "days")
	case conf.Algorithm.HasWindow():
		conf.Window.Length = unit.Duration(period) * unit.Duration(rapid.Int64Range(1, 3).Draw(t, "windows"))
	}
	if paced := rapid.Bool().Draw(t, "headroom"); paced && (!conf.Algorithm.HasWindow() || conf.Rate.Units(time.Duration(conf.Window.Length)) > 1) {
		conf.Headroom = 20_000
	}
	if conf.Also = anyAlso(t, unit.Messages); rapid.Bool().Draw(t, "days too") {
		conf.Also = append(conf.Also, byDay("5 messages/day", "America/Los_Angeles"))
	}
	return conf
}

// play follows the script, and returns when each item has left.
func (s script) play(t *rapid.T) (left []time.Duration) {
	tree := NewTree(start, s.confs)
	leaf := tree[len(tree)-1].Join(start, policy.Conn{})
	for _, cost := range s.costs {
		it := request()
		it.Cost.Messages = cost
		if leaf.Enter(at(s.quiet), it) == Leaves {
			left = append(left, s.quiet)
		}
	}
	var last time.Duration
	now := at(s.quiet)
	for _, one := range s.signals {
		left = append(left, drain(t, leaf, now, at(s.quiet+one.at), s.looks)...)
		now, last = at(s.quiet+one.at), one.at
		leaf.Provider().Throttled(now, one.wait, "429")
	}
	left = append(left, drain(t, leaf, now, limit.Never, s.looks)...)
	if len(left) != len(s.costs) {
		t.Fatalf("%d of %d items leave", len(left), len(s.costs))
	}
	if end, most := left[len(left)-1]-s.quiet, last+s.most(); end > most {
		t.Fatalf("the last item leaves after %v, want at most %v", end, most)
	}
	return left
}

// most returns how long after the last signal all items have left, at most.
func (s script) most() time.Duration {
	most := time.Duration(policy.DefaultOnThrottle.Max) + wholeAgain
	units := int64(0)
	for _, cost := range s.costs {
		units += cost
	}
	for _, conf := range s.confs {
		p := paceOf(bucketPolicy(conf, false)) // a class with buckets limits nothing itself
		for r := range p.restraints() {
			// A sliding window of one unit is full in every second window, and each
			// item that is larger than a window waits for an empty one. A window of the
			// calendar is shorter than two of its nominal length.
			most += 2*r.rate.Time(units) + time.Duration(2*units+4)*r.window
		}
	}
	return most
}

// drain lets items leave from one time to another, only when Next says so.
func drain(t *rapid.T, c *Class, now, to time.Time, looks []time.Duration) (left []time.Duration) {
	for steps := 0; ; steps++ {
		for _, look := range looks {
			if d := at(look); d.After(now) && d.Before(to) && d.Before(c.Next(now)) {
				c.Provider().Signals(d)
				now = d
			}
		}
		next := later(c.Next(now), now)
		if next == limit.Never || !next.Before(to) {
			return left
		}
		if it := c.Release(next); it != nil {
			it.Left(next)
			left = append(left, next.Sub(start))
		} else if !c.Next(next).After(next) {
			t.Fatalf("Next says that an item leaves at %v, and none does", next.Sub(start))
		}
		if now = next; steps > 10_000 {
			t.Fatalf("at %v the pacer keeps waking for nothing", now.Sub(start))
		}
	}
}

// Whatever a provider signals, items leave within the promised time. When they leave does
// not depend on whether somebody looks.
func TestAdaptSendsAgain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := anyScript(t)
		unseen := s.play(t)
		s.looks = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) time.Duration {
			return time.Duration(rapid.Int64Range(0, 1000e9).Draw(t, "look"))
		}), 1, 8).Draw(t, "looks")
		slices.Sort(s.looks)
		// Tokens are float64, so each item may be off by a nanosecond.
		same := func(a, b time.Duration) bool { return (a - b).Abs() < time.Microsecond }
		if seen := s.play(t); !slices.EqualFunc(unseen, seen, same) {
			t.Fatalf("items leave at %v if nobody looks, at %v if somebody does: %v", unseen, seen, s.confs)
		}
	})
}

// A class that was idle meanwhile has earned what the rest of its rate allowed, whether or not
// somebody looked.
func TestIdleWhileItAdapts(t *testing.T) {
	for _, algorithm := range algorithms {
		var next []time.Time
		for _, look := range []bool{true, false} {
			conf := adapting(classBy(algorithm, "6 messages/min"))
			conf.Burst = policy.Burst{N: 100, Kind: unit.Messages}
			c := NewClass(start, conf)
			for c.Pass(start, Cost{Messages: 1}) {
				lastLeft(c, start)
			}
			c.Provider().Throttled(start, second, "429")
			for n := range time.Duration(100) {
				if look {
					c.Provider().Signals(at(n * second))
				}
			}
			for c.Pass(at(100*second), Cost{Messages: 1}) {
				lastLeft(c, at(100*second))
			}
			enter(t, c, 100*second, Waits, request())
			next = append(next, c.Next(at(100*second)))
		}
		if !next[0].Equal(next[1]) {
			t.Errorf("%s: if somebody looks, the next item leaves at %v, else at %v", algorithm, next[0], next[1])
		}
	}
}

// Nothing leaves earlier or later because somebody asks what a key waits for while its bucket gets its rate back.
func TestWhyChangesNoBucket(t *testing.T) {
	for _, algorithm := range algorithms {
		for _, keys := range []int{10, 1} { // client 1 has a bucket of its own, or the common one
			var left [2]int
			for looks := range left {
				conf := adapting(classBy(algorithm, "600 messages/min"))
				conf.Burst = policy.Burst{N: 600, Kind: unit.Messages}
				c := NewClass(start, perSource(keys, conf))
				enter(t, c.Join(start, client(0)), 0, Leaves, request())
				bucket := c.Join(start, client(1))
				for bucket.Pass(start, Cost{Messages: 1}) && left[looks] < 500 {
					lastLeft(bucket, start)
					left[looks]++
				}
				bucket.Provider().Throttled(start, second, "429")
				for n := range time.Duration(50) {
					if looks == 1 {
						c.Status().WhyWithKey(at(n*second), client(1), nil)
					}
				}
				for bucket.Pass(at(50*second), Cost{Messages: 1}) {
					lastLeft(bucket, at(50*second))
					left[looks]++
				}
			}
			if left[0] != left[1] {
				t.Errorf("%s: what leaves is %d, and %d if somebody asks", algorithm, left[0], left[1])
			}
		}
	}
}
