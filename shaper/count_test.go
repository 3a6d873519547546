package shaper

import (
	"reflect"
	"testing"
	"time"

	"shaper/policy"
	"shaper/stats"
)

// countAll counts one of everything except waiting.
func countAll(c *Class) {
	c.Tally().Sent(stats.Downstream, Cost{Bytes: 1, Packets: 2, Messages: 3, Connections: 4})
	c.Tally().Dropped(stats.Reset, 5, 6)
	c.Tally().Refused(stats.QueueFull, 7)
	c.tally.overlimit()
	c.tally.waited(time.Second)
	c.tally.throttled("429")
}

// A message that costs three counts as three messages, and as one request.
func TestRequestsAreCountedOnce(t *testing.T) {
	c := NewClass(start, named("c", leakyClass("1 messages/s")))
	for _, cost := range []Cost{{Bytes: 10, Messages: 3}, {Bytes: 10}, {Bytes: 10, Messages: 1, Tokens: 500}, {Connections: 1}, {Packets: 2}} {
		c.Tally().Sent(stats.Upstream, cost)
	}
	got := c.Stats.Read().Sent[stats.Upstream]
	if want := (stats.VolumeReading{Bytes: 30, Packets: 2, Requests: 2, Messages: 4, Connections: 1, Tokens: 500}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func readings(classes map[string]*Class, names ...string) (all []stats.ClassReading) {
	for _, name := range names {
		all = append(all, classes[name].Stats.Read())
	}
	return all
}

// The counters of a class include all beneath it, and its buckets once.
func TestCountsOfThoseBeneath(t *testing.T) {
	blocked := named("root", leakyClass("0 packets/s"))
	classes := tree(blocked, under("root", named("account", leakyClass("1 packets/s"))),
		under("account", named("child", leakyClass("1 packets/s"))), under("account", named("each", perSource(10, leakyClass("1 packets/s")))))
	alone := NewClass(start, blocked)
	for _, name := range []string{"child", "each"} {
		c := classes[name].Join(start, client(1))
		for _, c := range []*Class{c, alone} {
			countAll(c)
			enter(t, c, 0, Waits, packet(10))
		}
		want := NewClass(start, blocked)
		countAll(want)
		enter(t, want, 0, Waits, packet(10))
		if got := classes[name].Stats.Read(); !reflect.DeepEqual(got, want.Stats.Read()) {
			t.Errorf("%s has\n%+v\nwant\n%+v", name, got, want.Stats.Read())
		}
	}
	for i, got := range readings(classes, "account", "root") {
		if !reflect.DeepEqual(got, alone.Stats.Read()) {
			t.Errorf("the class %d above has\n%+v\nwant\n%+v", i+1, got, alone.Stats.Read())
		}
	}
}

// What is lost counts once in the sum over all classes, wherever reloads move the classes, and
// also after they have gone.
func TestLostCountsOnce(t *testing.T) {
	s := newShaper()
	account, child := named("account", leakyClass("1 packets/s")), named("child", leakyClass("1 packets/s"))
	lose := func(c *Class) {
		c.Tally().Dropped(stats.QueueFull, 1, 10)
		c.Tally().Refused(stats.MaxWait, 7)
	}
	var want uint64
	check := func(confs ...policy.Class) {
		t.Helper()
		s.Apply(confs)
		for _, l := range []struct {
			what  string
			loss  *stats.Loss
			bytes uint64
		}{{"dropped", &s.Lost().Dropped, 10}, {"refused", &s.Lost().Refused, 7}} {
			if items, bytes := l.loss.Items.Load(), l.loss.Bytes.Load(); items != want || bytes != want*l.bytes {
				t.Errorf("%d items and %d bytes were %s; want %d and %d", items, bytes, l.what, want, want*l.bytes)
			}
		}
	}
	check(account, under("account", child))
	lose(s.Class("child"))
	want++
	check(account, child) // both had counted it
	check(account, named("child", leakyClass("1mbit")))
	lose(s.Class("child")) // which has replaced another
	want++
	check(account, under("account", child))
	check(named("other", leakyClass("1 packets/s")))
}

// If a reload moves a class, what waits moves with it. What was counted stays where it
// was: no counter goes back.
func TestCountsStayWhenClassesMove(t *testing.T) {
	s := newShaper()
	before, after := named("before", leakyClass("0 packets/s")), named("after", leakyClass("0 packets/s"))
	child := named("child", leakyClass("1 packets/s"))
	s.Apply([]policy.Class{before, after, under("before", child)})
	c := s.Class("child")
	countAll(c)
	c.Enter(time.Now(), packet(10))
	s.Apply([]policy.Class{before, after, under("after", child)})
	countAll(c)
	for name, want := range map[string]Backlog{"before": {}, "after": {Items: 1, Bytes: 10}} {
		c := s.Class(name)
		if n, waits := c.Stats.Sent[stats.Downstream].Bytes.Load(), c.Backlog(); n != 1 || waits != want {
			t.Errorf("%s has sent %d bytes, and its backlog is %+v; want 1 and %+v", name, n, waits, want)
		}
	}

	// A class that is to count another unit is replaced by one with the same counters.
	// What waits in the old class is still beneath the same parent.
	s.Apply([]policy.Class{before, after, under("before", named("child", leakyClass("1mbit")))})
	if n := s.Class("before").Backlog().Items; n != 0 {
		t.Errorf("%d items wait beneath the parent of the new class", n)
	}
	item := c.front()
	if !c.Cancel(time.Now(), item) {
		t.Fatal("what waited in the old class does not wait any more")
	}
	for _, name := range []string{"before", "after", "child"} {
		if n := s.Class(name).Backlog().Items; n != 0 {
			t.Errorf("%d items wait in %s", n, name)
		}
	}
}
