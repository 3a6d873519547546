package shaper

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"shaper/limit"
	"shaper/policy"
	"shaper/unit"
)

// A world is a clock and a timer for a pacer that a test drives by hand. Whoever looks at the
// clock takes a look; whoever sleeps wakes up late.
type world struct {
	now    time.Time
	timer  time.Time     // what the timer is set to
	sets   int           // how often it was set
	looked time.Duration // how long the pacer has looked at the clock since it woke up
	onLook func()        // is called at each look; nil: nothing is
}

const look = 100 * time.Nanosecond

func (w *world) set(at time.Time) { w.timer, w.sets = at, w.sets+1 }
func (w *world) wait() bool       { return true }
func (w *world) close()           {}
func (w *world) precise() bool    { return true }

func (w *world) clock() time.Time {
	w.now = w.now.Add(look)
	w.looked += look
	if w.onLook != nil {
		w.onLook()
	}
	return w.now
}

// sleep lets the timer end its wait, late by so much. It returns how long the pacer slept.
func (w *world) sleep(late time.Duration) time.Duration {
	begin := w.now
	w.now, w.looked = later(w.now, w.timer).Add(late), 0
	return w.now.Sub(begin)
}

// in returns a pacer that lives in the world.
func (w *world) in() *pacer {
	w.now, w.timer = start, limit.Never
	p := stillPacer(w)
	p.clock = w.clock
	return p
}

// turn sleeps, lets what is due leave, and sets the timer again.
func (w *world) turn(p *pacer, late time.Duration) (slept time.Duration) {
	slept = w.sleep(late)
	p.release(p.wake())
	p.rearm()
	return slept
}

// A steady sends items of a class all the time, and notes when they leave.
type steady struct {
	w     *world
	class *Class
	item  *Item
	takes time.Duration // an item takes so long to leave
	left  []time.Time   // when they had left
	short time.Duration // how much the shortest gap is too short
	late  time.Duration // by which the last item was late
}

// send lets a class of a pacer send items.
func (w *world) send(p *pacer, conf policy.Class, cost Cost) *steady {
	c := NewClass(w.now, conf)
	c.waker = p
	s := &steady{w: w, class: c, item: &Item{Cost: cost, Settles: true}}
	s.item.Owner = s
	c.Pass(w.now, cost)
	lastLeft(c, w.now)
	s.left = append(s.left, w.now)
	c.Enter(w.now, s.item)
	return s
}

// Leave implements Owner.
func (s *steady) Leave(time.Time) {
	due := s.left[len(s.left)-1].Add(s.class.Rate().Time(s.item.Cost.In(s.class.kind)))
	s.late = s.w.now.Sub(due)
	s.short = max(s.short, -s.late)
	s.w.now = s.w.now.Add(s.takes)
	s.left = append(s.left, s.w.now)
	lastLeft(s.class, s.w.now)
	s.class.Enter(s.w.now, s.item)
}

var onePacket = Cost{Packets: 1}

// TestPunctual lets a class send a thousand packets a second while wake-ups are late by
// about 50 us. Once the pacer has learned that, gaps lose next to nothing.
func TestPunctual(t *testing.T) {
	var w world
	p := w.in()
	s := w.send(p, leakyClass("1000 packets/s"), onePacket)
	lates := []time.Duration{44, 47, 50, 53, 56, 2000, 45, 48, 51, 54}
	turn := func(i int) { w.turn(p, lates[i%len(lates)]*time.Microsecond) }
	for i := range 500 {
		turn(i)
	}
	for i := range 500 {
		if turn(i); s.late > 5*time.Microsecond && lates[i%len(lates)] < 2000 {
			t.Fatalf("item %d leaves %v late although wake-ups are seldom later than 56 us", i, s.late)
		}
		if w.looked > 30*time.Microsecond {
			t.Fatalf("the pacer looked at the clock for %v before item %d left", w.looked, i)
		}
	}
	if s.short > 0 {
		t.Errorf("an item left %v early", s.short)
	}
}

// A slowWaker makes decisions take a while: each one, or one of several.
type slowWaker struct {
	*pacer
	w     *world
	takes time.Duration
	every int
	count int
}

func (s *slowWaker) set(a *alarm, now, at time.Time, gap bool) {
	if s.count++; s.count%s.every == 0 {
		s.w.now = s.w.now.Add(s.takes)
	}
	s.pacer.set(a, now, at, gap)
}

// TestDecidesAhead has decisions take 15 us. Once the pacer has learned that, it decides so much before a gap ends: the gap
// loses nothing, and no item leaves early.
func TestDecidesAhead(t *testing.T) {
	var w world
	p := w.in()
	s := w.send(p, leakyClass("1000 packets/s"), onePacket)
	s.class.waker = &slowWaker{pacer: p, w: &w, takes: 15 * time.Microsecond, every: 1}
	for i := range 500 {
		w.turn(p, 40*time.Microsecond)
		if i > 250 && s.late > time.Microsecond {
			t.Fatalf("item %d leaves %v late although wake-ups are 40 us late, and decisions take 15 us", i, s.late)
		}
	}
	if s.short > 0 {
		t.Errorf("an item left %v early", s.short)
	}
}

// TestSlowDecisionsOfAFastClass has some decisions take nearly two gaps, as if others held the lock of the tree. The pacer
// spends no more than a quarter of its time looking at the clock, and holds the lock no longer than that.
func TestSlowDecisionsOfAFastClass(t *testing.T) {
	var w world
	p := w.in()
	s := w.send(p, leakyClass("20000 packets/s"), onePacket)
	s.class.waker = &slowWaker{pacer: p, w: &w, takes: 90 * time.Microsecond, every: 4}
	var slept, looked time.Duration
	for range 2000 {
		slept += w.turn(p, 0)
		looked += w.looked
	}
	if most := (slept+looked)/mostOfSleep + 2000*together; looked > most {
		t.Errorf("in %v the pacer looked at the clock for %v, want %v at most", slept+looked, looked, most)
	}
	if s.short > 0 {
		t.Errorf("an item left %v early", s.short)
	}
}

// TestNeighbourDelaysFew has a neighbour delay each eighth wake-up by milliseconds. The pacer
// learns how late the others are: an earlier timer does not help against the neighbour, and
// the pacer would only look at the clock for longer.
func TestNeighbourDelaysFew(t *testing.T) {
	var w world
	p := w.in()
	w.send(p, leakyClass("1000 packets/s"), onePacket)
	for i := range 2000 {
		late := 40 * time.Microsecond
		if i%8 == 0 {
			late = 3 * ms
		}
		w.turn(p, late)
		if i > 1000 && w.looked > 20*time.Microsecond {
			t.Fatalf("wake-up %d: the pacer looked at the clock for %v, although most wake-ups are 40 us late", i, w.looked)
		}
	}
}

// TestLooksForABoundedTime has all wake-ups come late by milliseconds, and then one in time. The pacer looks at the clock for
// 100 us at most, and as long as a decision takes.
func TestLooksForABoundedTime(t *testing.T) {
	var w world
	p := w.in()
	w.send(p, leakyClass("10 packets/s"), onePacket)
	for range 2000 {
		w.turn(p, 3*ms)
	}
	w.turn(p, 0)
	if least, most := 90*time.Microsecond, 110*time.Microsecond; w.looked < least || w.looked > most {
		t.Errorf("the pacer looked at the clock for %v, want %v to %v", w.looked, least, most)
	}
}

// TestTimerIsSetOnce wakes the pacer before the timer goes off. The timer is set right, so the pacer does not set it again.
func TestTimerIsSetOnce(t *testing.T) {
	var w world
	p := w.in()
	w.send(p, leakyClass("10 packets/s"), onePacket)
	sets := w.sets
	for range 10 {
		p.release(p.wake())
		p.rearm()
	}
	if w.sets != sets {
		t.Errorf("the timer was set %d times although it was set right", w.sets-sets)
	}
}

// TestPunctualIsOff holds that without `punctual` the timer is set to the end of each gap.
func TestPunctualIsOff(t *testing.T) {
	var w world
	p := w.in()
	p.setEarly(false)
	s := w.send(p, leakyClass("1000 packets/s"), onePacket)
	for i := range 200 {
		if due := s.left[len(s.left)-1].Add(ms); !w.timer.Equal(due) {
			t.Fatalf("after item %d the timer is set to %v, want %v", i, w.timer.Sub(start), due.Sub(start))
		}
		w.turn(p, 50*time.Microsecond)
	}
}

// TestBytesNeedNoPunctuality holds that the timer is never early for a class that makes up
// for lateness.
func TestBytesNeedNoPunctuality(t *testing.T) {
	for _, conf := range []policy.Class{leakyClass("1MB/s"), tokenClass("1000 packets/s", 1), classBy(policy.SlidingLog, "1000 packets/s")} {
		var w world
		p := w.in()
		w.send(p, conf, Cost{Bytes: 1000, Packets: 1})
		for range 200 {
			at := p.alarms.first()
			if !w.timer.Equal(at) {
				t.Fatalf("%v: the timer is set to %v, %v before the alarm", conf.Rate, w.timer.Sub(start), at.Sub(w.timer))
			}
			w.turn(p, 50*time.Microsecond)
		}
	}
}

// TestGapsInATree holds that a gap counts on any level, and that the bytes of a parent do
// not.
func TestGapsInATree(t *testing.T) {
	for _, test := range []struct {
		parent, child string
		gap           bool
	}{
		{"1000000 packets/s", "10 packets/s", true},
		{"1GB/s", "10 packets/s", true},
		{"10 packets/s", "1GB/s", true},
		{"1000 B/s", "1000000 packets/s", false},
		{"1GB/s", "1000 B/s", false},
	} {
		c := tree(named("parent", leakyClass(test.parent)), under("parent", named("child", leakyClass(test.child))))
		for range 3 {
			c["child"].Enter(start, &Item{Cost: Cost{Bytes: 1000, Packets: 1}})
		}
		c["child"].Next(at(10 * time.Microsecond))
		if gap := c["parent"].asChild.awaitsGap(); gap != test.gap {
			t.Errorf("%s under %s: what waits for a gap is %v, want %v", test.child, test.parent, gap, test.gap)
		}
	}
}

// TestNothingIsEarly lets classes send while wake-ups and writes take random times. No gap
// is short, and the pacer looks at the clock for a quarter of its time at most.
func TestNothingIsEarly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var w world
		p := w.in()
		micros := func(what string, most int) time.Duration {
			return time.Duration(rapid.IntRange(0, most).Draw(t, what)) * time.Microsecond
		}
		var all []*steady
		rates := []string{"30 packets/s", "400 packets/s", "1000 packets/s", "5000 packets/s", "20000 packets/s", "1MB/s"}
		for range rapid.IntRange(1, 4).Draw(t, "classes") {
			conf := leakyClass(rapid.SampledFrom(rates).Draw(t, "rate"))
			all = append(all, w.send(p, conf, Cost{Bytes: 1000, Packets: 1}))
		}
		usual := micros("usual lateness", 150)
		var slept, looked time.Duration
		for i := range 400 {
			late := usual
			if i%10 == 0 {
				late = micros("lateness", 300)
				all[i%len(all)].takes = micros("write", 40)
			}
			slept += w.turn(p, late)
			looked += w.looked
		}
		for _, s := range all {
			if s.class.kind == unit.Packets && s.short > 0 {
				t.Errorf("an item of %v left %v early", s.class.Rate(), s.short)
			}
		}
		if most := (slept+looked)/mostOfSleep + 400*(2*together); looked > most {
			t.Errorf("in %v the pacer looked at the clock for %v, want %v at most", slept+looked, looked, most)
		}
	})
}

// TestNobodyWaitsForALook lets another tree begin to send while the pacer looks at the clock
// until a gap ends. Its second item is due before that, and leaves when it is due.
func TestNobodyWaitsForALook(t *testing.T) {
	var w world
	p := w.in()
	first := w.send(p, leakyClass("1000 packets/s"), onePacket)
	for range 300 {
		w.turn(p, 50*time.Microsecond)
	}
	w.sleep(0) // so all that the timer is early is left to look at the clock
	var second *steady
	looks := 0
	w.onLook = func() {
		if looks++; looks == 20 {
			second = w.send(p, leakyClass("100000 packets/s"), onePacket)
		}
	}
	before := len(first.left)
	p.release(p.wake())
	if len(second.left) < 2 || second.short > 0 || second.late > 5*look {
		t.Errorf("of the other tree %d items left, the last one %v late", len(second.left)-1, second.late)
	}
	if len(first.left) != before+1 || first.short > 0 || first.late > 5*look {
		t.Errorf("the gap ends %v late, or %v early", first.late, first.short)
	}
}

// TestCloseEndsALook closes the pacer while it looks at the clock.
func TestCloseEndsALook(t *testing.T) {
	var w world
	p := w.in()
	s := w.send(p, leakyClass("1000 packets/s"), onePacket)
	for range 300 {
		w.turn(p, 50*time.Microsecond)
	}
	before := len(s.left)
	w.sleep(0)
	w.onLook = func() { p.closed = true }
	p.release(p.wake())
	if len(s.left) != before || w.looked > 5*look {
		t.Errorf("the pacer looks at the clock for %v after it was closed", w.looked)
	}
}

// TestDeparturesTogether lets two trees send that are due a few microseconds apart. One
// wake-up serves both.
func TestDeparturesTogether(t *testing.T) {
	var w world
	p := w.in()
	p.setEarly(false)
	a := w.send(p, leakyClass("1000 packets/s"), onePacket)
	w.now = w.now.Add(8 * time.Microsecond)
	b := w.send(p, leakyClass("1000 packets/s"), onePacket)
	w.turn(p, 0)
	if len(a.left) != 2 || len(b.left) != 2 {
		t.Errorf("in one wake-up %d and %d items left, want one each", len(a.left)-1, len(b.left)-1)
	}
	if a.short > 0 || b.short > 0 {
		t.Errorf("items left %v and %v early", a.short, b.short)
	}
}
