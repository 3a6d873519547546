package daemon

import (
	"testing"
	"testing/synctest"
	"time"

	"shaper/policy"
	"shaper/shaper"
	"shaper/stats"
	"shaper/unit"
)

func TestMeter(t *testing.T) {
	now := time.Now()
	conf := policy.DefaultClass("a")
	conf.Rate = unit.BytesPerSecond(1000)
	class := shaper.NewClass(now, conf)
	m := &meter{classes: func() []*shaper.Class { return []*shaper.Class{class} }}
	send := func(bytes, packets uint64) {
		class.Stats.Sent[stats.Upstream].Bytes.Add(bytes)
		class.Stats.Sent[stats.Downstream].Bytes.Add(bytes)
		class.Stats.Sent[stats.Upstream].Packets.Add(packets)
	}
	want := func(rate float64) {
		t.Helper()
		if got := m.rate(class); got != rate {
			t.Errorf("the rate is %v, want %v", got, rate)
		}
	}
	send(1e6, 9)
	m.measure(now)
	want(0) // the first measure knows no rate
	send(500, 9)
	m.measure(now.Add(time.Second))
	want(1000)
	send(500, 9)
	m.measure(now.Add(3 * time.Second)) // a late tick does not raise the rate
	want(500)
	m.measure(now.Add(4 * time.Second))
	want(0)

	conf.Rate = unit.NewRate(unit.Packets, 5, time.Second)
	class.Set(now, conf)
	m.measure(now.Add(5 * time.Second))
	want(0) // bytes and packets cannot be compared
	send(500, 9)
	m.measure(now.Add(6 * time.Second))
	want(9)
}

// measure forgets classes that are gone.
func TestMeterForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conf := policy.DefaultClass("a")
		conf.Rate = unit.BytesPerSecond(1000)
		all := []*shaper.Class{shaper.NewClass(time.Now(), conf)}
		m := &meter{classes: func() []*shaper.Class { return all }}
		m.measure(time.Now())
		all = nil
		m.measure(time.Now())
		if len(m.seen) != 0 {
			t.Errorf("%d classes are remembered", len(m.seen))
		}
	})
}

// What a class sends also counts for its parents, in their units, from when it came under them.
func TestMeterOfATree(t *testing.T) {
	class := func(name, parent string, rate unit.Rate) policy.Class {
		conf := policy.DefaultClass(name)
		conf.Parent, conf.Rate = parent, rate
		return conf
	}
	now := time.Now()
	classes := shaper.NewTree(now, []policy.Class{
		class("root", "", unit.BytesPerSecond(1000)),
		class("a", "root", unit.NewRate(unit.Packets, 5, time.Second)), class("b", "root", unit.BytesPerSecond(10)),
	})
	m := &meter{classes: func() []*shaper.Class { return classes }}
	classes[1].Tally().Sent(stats.Upstream, shaper.Cost{Bytes: 1e6})
	m.measure(now)
	for i, n := range []int64{100, 20, 3} {
		classes[i].Tally().Sent(stats.Upstream, shaper.Cost{Bytes: n})
		classes[i].Tally().Sent(stats.Downstream, shaper.Cost{Packets: 1})
	}
	m.measure(now.Add(time.Second))
	for i, want := range []float64{123, 1, 3} {
		if got := m.rate(classes[i]); got != want {
			t.Errorf("the rate of %s is %v, want %v", classes[i].Name(), got, want)
		}
	}
}

// A measure takes no memory, however many classes there are: it is made every second.
func TestMeasuresDoNotAllocate(t *testing.T) {
	var all []*shaper.Class
	for range 100 {
		all = append(all, shaper.NewClass(time.Now(), policy.DefaultClass("a")))
	}
	m := &meter{classes: func() []*shaper.Class { return all }}
	m.measure(time.Now())
	m.measure(time.Now())
	if n := testing.AllocsPerRun(10, func() { m.measure(time.Now()) }); n > 0 {
		t.Errorf("a measure takes %v allocations", n)
	}
}
