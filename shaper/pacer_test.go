package shaper

import (
	"runtime"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"shaper/limit"
	"shaper/policy"
)

// stillTimer remembers what it was set to, and never ends a wait.
type stillTimer struct {
	at   time.Time
	sets int
}

func (s *stillTimer) set(at time.Time) { s.at = at; s.sets++ }
func (s *stillTimer) wait() bool       { return false }
func (s *stillTimer) close()           {}
func (s *stillTimer) precise() bool    { return false }

// stillPacer returns a pacer that a test drives by hand.
func stillPacer(t timer) *pacer {
	p := idlePacer()
	p.timer = t
	return p
}

// alarmsOfRoots returns alarms, each of a root of its own.
func alarmsOfRoots(n int) []*alarm {
	all := make([]*alarm, n)
	for i := range all {
		root := &node{}
		root.alarm.node = root
		all[i] = &root.alarm
	}
	return all
}

// TestPacerIsAMap compares the heap of alarms with a map under random operations. The
// timer is never set later than the earliest alarm.
func TestPacerIsAMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		clock := &stillTimer{at: limit.Never}
		p := stillPacer(clock)
		pool := alarmsOfRoots(8)
		model := map[*alarm]time.Time{}
		earliest := func() time.Time {
			min := limit.Never
			for _, at := range model {
				if at.Before(min) {
					min = at
				}
			}
			return min
		}
		some := rapid.Custom(func(t *rapid.T) time.Time {
			return at(time.Duration(rapid.IntRange(0, 10).Draw(t, "at")) * second)
		})
		t.Repeat(map[string]func(*rapid.T){
			"set": func(t *rapid.T) {
				a, at := pool[rapid.IntRange(0, 7).Draw(t, "which")], some.Draw(t, "time")
				p.set(a, start, at, false)
				model[a] = at
			},
			"remove": func(t *rapid.T) {
				a := pool[rapid.IntRange(0, 7).Draw(t, "which")]
				p.set(a, start, limit.Never, false)
				delete(model, a)
			},
			"pop": func(t *rapid.T) {
				now, first := some.Draw(t, "now"), earliest()
				a, _, _ := p.pop(now)
				if want := !first.After(now); want != (a != nil) {
					t.Fatalf("at %v, with the first alarm at %v, the pacer takes out %v", now, first, a)
				}
				if a != nil && !model[a].Equal(first) {
					t.Fatalf("an alarm at %v comes before one at %v", model[a], first)
				}
				delete(model, a)
			},
			"rearm": func(t *rapid.T) {
				if p.rearm(); len(model) > 0 && !clock.at.Equal(earliest()) {
					t.Fatalf("the timer is set to %v, want %v", clock.at, earliest())
				}
			},
			"": func(t *rapid.T) {
				if clock.at.After(earliest()) || len(p.alarms) != len(model) {
					t.Fatalf("of %d alarms the first is at %v, the timer at %v", len(model), earliest(), clock.at)
				}
			},
		})
	})
}

// TestPacerSetsTheTimerOnlyForward bounds the number of system calls: a deadline that
// becomes later needs none.
func TestPacerSetsTheTimerOnlyForward(t *testing.T) {
	clock := &stillTimer{}
	p := stillPacer(clock)
	two := alarmsOfRoots(2)
	a, b := two[0], two[1]
	p.set(a, start, at(second), false)
	p.set(b, start, at(2*second), false)
	p.set(a, start, at(3*second), false)
	p.set(a, start, limit.Never, false)
	p.set(b, start, limit.Never, false)
	p.set(b, start, at(second), false)
	if clock.sets != 1 {
		t.Errorf("the timer was set %d times, want once", clock.sets)
	}
}

// TestPacerOfManyClasses lets items leave a hundred classes of different rates, each at
// its exact instants.
func TestPacerOfManyClasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewOnRuntimeTimer()
		defer s.Close()
		begin := time.Now()
		var confs []policy.Class
		for i := range 100 {
			conf := leakyClass(strconv.Itoa(i+1) + " packets/s")
			conf.Name = strconv.Itoa(i)
			confs = append(confs, conf)
		}
		s.Apply(confs)
		left := make(chan time.Time, 1000)
		for i, c := range s.Classes() {
			c.Enter(begin, packet(1))
			for range 3 {
				c.Enter(begin, &Item{Cost: Cost{Packets: 1}, Owner: departed{c, left}})
			}
			if i%2 == 0 { // faster, while they wait
				setRateNow(c, "1000 packets/s")
			}
		}
		time.Sleep(time.Hour)
		if len(left) != 300 {
			t.Errorf("%d items left, want 300", len(left))
		}
		last := begin
		for range len(left) {
			at := <-left
			if at.Before(last) {
				t.Errorf("an item left at %v, after one at %v", at.Sub(begin), last.Sub(begin))
			}
			last = at
		}
	})
}

// departed sends the time at which its item left, and fails if the class let it leave at
// another time.
type departed struct {
	class *Class
	left  chan<- time.Time
}

func (d departed) Leave(now time.Time) {
	lastLeft(d.class, now)
	d.left <- time.Now()
}

func setRateNow(c *Class, text string) {
	conf := c.Policy()
	conf.Rate = rateOf(text)
	c.Set(time.Now(), conf)
}

// The pacer looks at least once a minute at an alarm that the wall clock decides, since somebody
// may set that clock. It waits for any other alarm by the monotonic clock.
func TestPacerFollowsTheWallClock(t *testing.T) {
	clock := &stillTimer{at: limit.Never}
	p, a := stillPacer(clock), alarmsOfRoots(1)[0]
	now := time.Now()
	p.clock = func() time.Time { return now }
	monotonic := now.Add(time.Hour)
	p.set(a, now, monotonic, false)
	if p.rearm(); clock.at != monotonic {
		t.Errorf("for an alarm at %v the timer is set to %v", monotonic, clock.at)
	}
	p.set(a, now, monotonic.Round(0), false)
	if p.rearm(); clock.at.Sub(now) > clockPatience+time.Minute || clock.at.Before(now.Add(clockPatience)) {
		t.Errorf("for an alarm of the wall clock in an hour the timer is set to %v", clock.at)
	}
	p.set(a, now, now.Add(time.Second).Round(0), false)
	if p.rearm(); !clock.at.Equal(now.Add(time.Second)) {
		t.Errorf("for one in a second the timer is set to %v, want %v", clock.at, now.Add(time.Second))
	}
}

// On one processor, other goroutines run while something is always due: each time the pacer has gone on for yieldAfter.
func TestPacerLetsOthersRun(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const items, takes = 30_000, 3 * time.Microsecond
	s := New()
	defer s.Close()
	conf := named("a", leakyClass("1 messages/s"))
	conf.Queue = policy.Queue{}
	s.Apply([]policy.Class{conf})
	c := s.Class("a")
	var left atomic.Int64
	for range items {
		busy := &busyOwner{takes: takes, left: &left}
		busy.item = Item{Owner: busy, Cost: Cost{Messages: 1, Bytes: 10}, Held: 10, Patient: true, Accepted: true}
		if c.Enter(time.Now(), &busy.item) == Leaves {
			left.Add(1)
		}
	}
	conf.Rate = rateOf("50000000 messages/s")
	s.Apply([]policy.Class{conf})
	ran := 0
	for left.Load() < items {
		runtime.Gosched()
		ran++
	}
	if least := items / int(yieldAfter/takes) / 2; ran < least {
		t.Errorf("another goroutine has run %d times while %d items left, want %d at least", ran, items, least)
	}
}

// busyOwner is busy for a while if its item leaves.
type busyOwner struct {
	item  Item
	takes time.Duration
	left  *atomic.Int64
}

func (o *busyOwner) Leave(now time.Time) {
	o.item.Left(now)
	for began := time.Now(); time.Since(began) < o.takes; {
	}
	o.left.Add(1)
}
