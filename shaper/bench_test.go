package shaper

import (
	"strconv"
	"testing"
	"time"

	"shaper/policy"
	"shaper/unit"
)

func wantNoAllocs(t *testing.T, what string, f func()) {
	t.Helper()
	if n := testing.AllocsPerRun(200, f); n != 0 {
		t.Errorf("%s allocates %v times", what, n)
	}
}

func TestEnterAndReleaseAllocateNothing(t *testing.T) {
	for _, conf := range []policy.Class{leakyClass("1KB/s"), tokenClass("1KB/s", 2000), leakyClass("1 packets/s"), classBy(policy.SlidingLog, "1 packets/s")} {
		c, now, a, b := NewClass(start, conf), start, packet(1000), packet(1000)
		wantNoAllocs(t, conf.Rate.String(), func() {
			c.Enter(now, a)
			c.Enter(now, b)
			for c.Backlog().Items > 0 {
				now = c.Next(now)
				if it := c.Release(now); it != nil {
					it.Left(now.Add(ms))
				}
			}
		})
	}
}

func TestReleaseOfATreeAllocatesNothing(t *testing.T) {
	root, now := thousand(start), start
	wantNoAllocs(t, "Release", func() {
		now = now.Add(time.Microsecond)
		it := root.Release(now)
		it.class.Enter(now, it)
	})
}

func TestWaitAllocatesNothing(t *testing.T) {
	s := New()
	defer s.Close()
	s.Apply([]policy.Class{named("fast", tokenClass("1GB/s", 1<<30)), named("slow", leakyClass("20000 packets/s"))})
	fast, slow := NewWaiter(s.Class("fast")), NewWaiter(s.Class("slow"))
	wantNoAllocs(t, "Wait where nothing waits", func() { fast.Wait(bg, Cost{Bytes: 1000}, true) })
	before := s.Class("slow").Stats.Overlimits.Load()
	wantNoAllocs(t, "Wait that has to wait", func() { slow.Wait(bg, Cost{Packets: 1}, true) })
	none := 0
	wantNoAllocs(t, "Do", func() { slow.Do(bg, Cost{Packets: 1}, true, func() error { none++; return nil }) })
	if s.Class("slow").Stats.Overlimits.Load() == before {
		t.Error("the item did not have to wait")
	}
}

func BenchmarkEnterLeaves(b *testing.B) {
	c, it := NewClass(start, tokenClass("1GB/s", 1<<40)), packet(1000)
	for b.Loop() {
		c.Enter(start, it)
	}
}

func BenchmarkEnterAndRelease(b *testing.B) {
	c, now := NewClass(start, leakyClass("1GB/s")), start
	c.Enter(now, packet(1000))
	it := packet(1000)
	for b.Loop() {
		c.Enter(now, it)
		now = c.Next(now)
		c.Release(now)
	}
}

func BenchmarkWaitUncontended(b *testing.B) {
	s := New()
	defer s.Close()
	s.Apply([]policy.Class{tokenClass("8TiB/s", 1<<40)})
	f := NewWaiter(s.Class("test"))
	for b.Loop() {
		if err := f.Wait(bg, Cost{Bytes: 100}, true); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkWaitThroughPacer makes every item wait for its departure time. There are 20,000
// a second, so whatever an item takes above 50 us is lateness.
func BenchmarkWaitThroughPacer(b *testing.B) {
	s := New()
	defer s.Close()
	s.Apply([]policy.Class{leakyClass("20000 packets/s")})
	f := NewWaiter(s.Class("test"))
	for b.Loop() {
		if err := f.Wait(bg, Cost{Packets: 1}, true); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkPacer moves one of a thousand alarms.
func BenchmarkPacer(b *testing.B) {
	p, alarms := stillPacer(&stillTimer{}), alarmsOfRoots(1000)
	for i, a := range alarms {
		p.set(a, start, at(time.Duration(i)*ms), false)
	}
	for i := 0; b.Loop(); i++ {
		p.set(alarms[i%1000], start, at(time.Duration(i*7919%1000)*ms), false)
	}
}

// BenchmarkThousandClasses makes a thousand classes want a wake-up every 100 us each, more
// than there can be. One operation is one wake-up.
func BenchmarkThousandClasses(b *testing.B) {
	s := New()
	defer s.Close()
	var confs []policy.Class
	for i := range 1000 {
		confs = append(confs, named(strconv.Itoa(i), leakyClass("10000 packets/s")))
	}
	s.Apply(confs)
	left := make(chan struct{}, 1000)
	for _, c := range s.Classes() {
		c.Enter(time.Now(), packet(1))
		it := packet(1)
		it.Owner = comesBack{c, it, left}
		c.Enter(time.Now(), it)
	}
	for b.Loop() {
		<-left
	}
}

// comesBack enters its item again when that has left, and says so.
type comesBack struct {
	class *Class
	it    *Item
	left  chan<- struct{}
}

func (o comesBack) Leave(now time.Time) {
	o.class.Enter(now, o.it)
	select {
	case o.left <- struct{}{}:
	default:
	}
}

// thousand returns a tree of a thousand leaves on three levels. Items wait in all of them.
func thousand(now time.Time) (root *Class) {
	confs := []policy.Class{named("root", leakyClass("1GB/s"))}
	for i := range 10 {
		parent := under("root", named("p"+strconv.Itoa(i), leakyClass("60MB/s")))
		parent.Ceil = rateOf("1GB/s")
		confs = append(confs, parent)
		for j := range 100 {
			leaf := under(parent.Name, named(parent.Name+"-"+strconv.Itoa(j), leakyClass("500KB/s")))
			leaf.Ceil, leaf.Priority, leaf.Weight = rateOf("1GB/s"), j%3, 1+j%2
			confs = append(confs, leaf)
		}
	}
	classes := NewTree(now, confs)
	for _, c := range classes {
		if c.feed == nil {
			c.Enter(now, packet(1000))
			c.Enter(now, packet(1000))
		}
	}
	return classes[0]
}

// BenchmarkReleaseOfThousand enters each item again when it has left.
func BenchmarkReleaseOfThousand(b *testing.B) {
	now := start
	root := thousand(now)
	b.ReportAllocs()
	for b.Loop() {
		now = now.Add(time.Microsecond) // how long an item takes
		it := root.Release(now)
		it.class.Enter(now, it)
	}
}

// BenchmarkNextOfThousand asks for the next departure of a thousand classes.
func BenchmarkNextOfThousand(b *testing.B) {
	root := thousand(start)
	for b.Loop() {
		root.Next(start)
	}
}

// BenchmarkEnterBlocked makes an item enter and give up in a class of a thousand.
func BenchmarkEnterBlocked(b *testing.B) {
	root := thousand(start)
	root.Next(start)
	c, it := root.asChild.head.class, packet(1000)
	b.ReportAllocs()
	for b.Loop() {
		c.Enter(start, it)
		c.Cancel(start, it)
	}
}

// deep returns classes at the bottom of eight levels: one with a queue, and one with a hundred buckets. On each level, some siblings and
// such buckets borrow, too.
func deep(siblings int) (c, keys *Class) {
	confs := []policy.Class{named("0", withQueue(classBy(policy.GCRA, "100 messages/s"), 10_000, 0))}
	for level := 1; level < 8; level++ {
		borrows := func(name string) policy.Class {
			conf := withQueue(classBy(policy.GCRA, "1 messages/min"), 10_000, 0)
			return ceiling("100 messages/s", under(strconv.Itoa(level-1), named(name, conf)))
		}
		name := strconv.Itoa(level)
		confs = append(confs, borrows(name), perSource(101, borrows("keys"+name)))
		for i := range siblings {
			confs = append(confs, borrows(name+"-"+strconv.Itoa(i)))
		}
	}
	for _, one := range NewTree(start, confs) {
		switch {
		case one.keys != nil:
			keys = one
			fill(keys, 100)
		case one.feed == nil:
			c = one
			for range 100 {
				c.Enter(start, message(1))
			}
		}
	}
	return c, keys
}

// BenchmarkEstimateInADeepTree asks for what borrows while the tree is locked: of few siblings in all, a forecast looks at each.
func BenchmarkEstimateInADeepTree(b *testing.B) {
	for _, siblings := range []int{2, 50} {
		name := strconv.Itoa(siblings)
		c, keys := deep(siblings)
		c.conf.MaxWait = unit.Duration(second)
		it := message(1)
		b.Run(name+"/Enter", func(b *testing.B) {
			for b.Loop() {
				c.Enter(start, it)
			}
		})
		b.Run(name+"/Retry", func(b *testing.B) {
			for b.Loop() {
				c.Estimate().Retry(start, it.Cost)
			}
		})
		b.Run(name+"/Drain", func(b *testing.B) {
			for b.Loop() {
				keys.Estimate().Drain(start)
			}
		})
	}
}
