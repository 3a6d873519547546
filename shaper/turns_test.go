package shaper

import (
	"slices"
	"testing"
	"time"

	"shaper/policy"
)

// TestResumeAfterALightItem lets c come back after a pause, long after an item of a light
// class. b, which has the same weight, goes on as before.
func TestResumeAfterALightItem(t *testing.T) {
	c := tree(named("root", leakyClass("100 messages/s")),
		under("root", withWeight(1, named("light", leakyClass("100 messages/s")))),
		under("root", withWeight(10000, named("b", leakyClass("100 messages/s")))),
		under("root", withWeight(10000, named("c", leakyClass("100 messages/s")))))
	s := &sim{root: c["root"], now: start}
	s.load(c["b"], -1, 3)
	s.enter(c["light"], message(1)) // once, and never again
	s.run(300 * second)
	before := s.left[c["b"]]
	s.load(c["c"], -1, 3)
	s.run(10 * second)
	if b := s.left[c["b"]] - before; b < 400 {
		t.Errorf("since c is back, b sent %d of 1000, and c %d", b, s.left[c["c"]])
	}
}

// TestSetWeightHoldsAtOnce holds that the share of a class follows its weight at once.
func TestSetWeightHoldsAtOnce(t *testing.T) {
	c := tree(named("root", leakyClass("100 messages/s")),
		under("root", withWeight(1, named("a", leakyClass("100 messages/s")))),
		under("root", withWeight(10000, named("b", leakyClass("100 messages/s")))))
	s := &sim{root: c["root"], now: start}
	s.load(c["a"], -1, 3)
	s.load(c["b"], -1, 3)
	s.run(1 * second)
	conf := c["a"].Policy()
	conf.Weight = 10000
	c["a"].Set(s.now, conf)
	a := s.left[c["a"]]
	s.run(10 * second)
	if got := s.left[c["a"]] - a; got < 400 {
		t.Errorf("a sent %d of 1000 in the ten seconds since it got the weight of b", got)
	}
}

// TestAdaptWithoutOnThrottle holds that a class with adapt slows down itself. Its parent,
// which counts messages too, does not pause for it.
func TestAdaptWithoutOnThrottle(t *testing.T) {
	conf := child("a", "20")
	conf.Adapt = true
	c := tree(named("root", leakyClass("40 messages/s")), conf)
	enter(t, c["a"], 0, Leaves, message(1))
	c["a"].Provider().Throttled(at(0), 0, "throttled")
	if _, part := c["a"].Provider().Signals(at(second)); part != 0.5 {
		t.Errorf("a has %v of its rate after a signal, want half", part)
	}
}

// TestNewClassAfterALargeItem holds that a new class, as after a reload, gets its share
// although a large item left long ago.
func TestNewClassAfterALargeItem(t *testing.T) {
	c := tree(named("root", leakyClass("1000 B/s")),
		under("root", named("a", leakyClass("1000 B/s"))),
		under("root", named("b", leakyClass("1000 B/s"))))
	s := &sim{root: c["root"], now: start}
	s.enter(c["a"], packet(100))
	s.enter(c["a"], packet(256<<10))
	s.send(c["b"], packet(100))
	s.run(3600 * second)
	late := NewClass(s.now, under("root", named("new", leakyClass("1000 B/s"))))
	attach(s.now, late, c["root"])
	s.send(late, packet(100))
	s.run(60 * second)
	if s.sent[late] < 25_000 {
		t.Errorf("the new class sent %d bytes of 60000 in a minute", s.sent[late])
	}
}

// TestContest names the rivals of a child, and says what they let leave before it.
func TestContest(t *testing.T) {
	closed := child("closed", "1")
	closed.Closed = policy.Span{From: start, Until: at(time.Hour)}
	classes := tree(root30(), withPriority(policy.LastPriority, child("worse", "1")), child("it", "1"), withWeight(2, child("equal", "1")),
		withPriority(0, child("better", "1")), child("empty", "1"), closed)
	enter(t, classes["worse"], 0, Leaves, message(1)) // so nothing else leaves at once
	for name, n := range map[string]int{"it": 5, "equal": 40, "better": 7, "worse": 9, "closed": 3} {
		for range n {
			enter(t, classes[name], 0, Waits, message(1))
		}
	}
	c := contest{start, &classes["root"].node, &classes["it"].node}
	var rivals []string
	for s := range c.rivals {
		rivals = append(rivals, s.class.name)
	}
	if slices.Sort(rivals); !slices.Equal(rivals, []string{"better", "equal"}) {
		t.Errorf("the rivals are %v, want better and equal", rivals)
	}
	if all := c.before(10); all.messages != 7+2*10 {
		t.Errorf("before 10 messages, the rivals let %d leave, want 7 of the better one and twice 10 of the equal one", all.messages)
	}
	if n := c.letting(280); n != 7+10 { // in 10 s: the child gets 28/s
		t.Errorf("before 280 messages, the rivals let %d leave, want 7 of the better one and 10 of the equal one", n)
	}
}
