package shaper

import (
	"strconv"
	"testing"
	"time"

	"shaper/policy"
	"shaper/tests/trial"
)

// BenchmarkGrowth shows what an item costs as the tree grows around it, and what its parts take.
func BenchmarkGrowth(b *testing.B) {
	trial.Grow(b, "item of busy classes/classes", 1, 10_000, func(_ *testing.B, n int) trial.Grown { return itemOf(2, n, n) })
	trial.Grow(b, "item of one busy class/classes", 1, 10_000, func(_ *testing.B, n int) trial.Grown { return itemOf(2, n, 1) })
	trial.Grow(b, "item of a tree 8 deep/leaves", 1, 1000, func(_ *testing.B, n int) trial.Grown { return itemOf(8, n, n) })
	trial.Grow(b, "item of a key/keys", 1, 1_000_000, itemOfKeys)
	trial.Grow(b, "look at waiting keys/keys", 1, 100_000, lookAtKeys)
	trial.Grow(b, "new rate of a class/classes", 1, 10_000, applyClasses)
}

// itemOf takes an item through a tree of that depth with so many leaves, some of them busy. Each
// item enters again when it has left.
func itemOf(depth, leaves, busy int) trial.Grown {
	now, before := start, trial.Heap()
	confs := []policy.Class{named("0", leakyClass("1GB/s"))}
	for d := 1; d < depth-1; d++ {
		confs = append(confs, under(strconv.Itoa(d-1), named(strconv.Itoa(d), leakyClass("1GB/s"))))
	}
	for i := range leaves {
		leaf := under(strconv.Itoa(depth-2), named("leaf"+strconv.Itoa(i), leakyClass("500KB/s")))
		leaf.Ceil = rateOf("1GB/s")
		confs = append(confs, leaf)
	}
	classes := NewTree(now, confs)
	each := (trial.Heap() - before) / float64(len(classes))
	root := classes[0]
	for _, c := range classes[depth-1:][:busy] {
		c.Enter(now, packet(1000))
		c.Enter(now, packet(1000))
	}
	return trial.Grown{Each: each, Op: func(int) {
		now = now.Add(time.Microsecond) // how long an item takes
		it := root.Release(now)
		for ; it == nil; it = root.Release(now) {
			now = root.Next(now)
		}
		it.class.Enter(now, it)
	}}
}

// itemOfKeys takes a session of one datagram through a class in which so many clients are known.
func itemOfKeys(_ *testing.B, n int) trial.Grown {
	before := trial.Heap()
	c := NewClass(start, perSource(n, classBy(policy.GCRA, "1 packets/h")))
	take := func(i int) {
		now := at(time.Duration(i))
		bucket := c.Join(now, client(i%n))
		bucket.Pass(now, Cost{Packets: 1})
		bucket.Quit(now)
	}
	for i := range n {
		take(i)
	}
	each := (trial.Heap() - before) / float64(n)
	return trial.Grown{Each: each, Op: func(i int) { take(n + i*7919) }}
}

// lookAtKeys reads what `status`, a scrape and the dashboard read of a class in which so many
// clients wait.
func lookAtKeys(_ *testing.B, n int) trial.Grown {
	c := NewClass(start, withQueue(perSource(n, leakyClass("1 packets/h")), int64(2*n), 1<<40))
	for i := range n {
		bucket := c.Join(start, client(i))
		bucket.Enter(start, packet(1))
		bucket.Enter(start, packet(1))
	}
	return trial.Grown{Op: func(i int) {
		c.Status().Waits(at(time.Duration(i)))
		c.Estimate().Drain(at(time.Duration(i)))
		c.Status().Oldest()
	}}
}

// applyClasses puts a policy in force in which one class has another rate.
func applyClasses(b *testing.B, n int) trial.Grown {
	s := New()
	b.Cleanup(s.Close)
	var confs []policy.Class
	for i := range n {
		confs = append(confs, named(strconv.Itoa(i), leakyClass("1MB/s")))
	}
	s.Apply(confs)
	rates := []string{"2MB/s", "1MB/s"}
	return trial.Grown{Op: func(i int) {
		confs[n/2].Rate = rateOf(rates[i%2])
		s.Apply(confs)
	}}
}
