package shaper

import (
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"shaper/policy"
	"shaper/unit"
)

// fittingTree returns a tree of three levels, in which nobody is assured more than the classes above have, and its leaves.
// Some things wait there.
func fittingTree(r *rand.Rand) (s *sim, leaves []*Class) {
	upTo := func(most time.Duration) time.Duration { return time.Duration(r.Int64N(int64(most))) }
	var confs []policy.Class
	add := func(name, parent string, rate int64) {
		conf := named(name, classBy(algorithms[r.IntN(len(algorithms))], "1 messages/s"))
		per := []time.Duration{time.Minute, 10 * time.Minute}[r.IntN(2)]
		conf.Rate = unit.NewRate(unit.Messages, rate*int64(per/time.Minute), per)
		if conf.Algorithm.HasBurst() {
			conf.Burst = policy.Burst{N: 1 + r.Int64N(5), Kind: unit.Messages}
		}
		conf.OnThrottle = policy.OnThrottle{Pause: unit.Duration(second), Max: unit.Duration(time.Hour)}
		if r.IntN(8) == 0 {
			from := upTo(5*time.Minute) * time.Duration(r.IntN(2))
			conf.Closed = policy.Span{From: at(from), Until: at(from + time.Minute*time.Duration(1+r.IntN(10)))}
		}
		if conf.Parent = parent; parent != "" {
			conf.Priority, conf.Weight = r.IntN(4), 1+r.IntN(3)
			if r.IntN(2) == 0 {
				conf.Ceil = unit.NewRate(unit.Messages, conf.Rate.Units(per)*(1+r.Int64N(3)), per)
			}
		}
		confs = append(confs, withQueue(conf, 10000, 0))
	}
	rate := 60 * (1 + r.Int64N(20))
	add("root", "", rate)
	var names []string
	for i, mids := 0, 1+r.IntN(3); i < mids; i++ {
		mid, own := "mid"+strconv.Itoa(i), max(rate/int64(mids)/(1+r.Int64N(2)), 6)
		add(mid, "root", own)
		for j, n := 0, 1+r.IntN(3); j < n; j++ {
			names = append(names, mid+"-"+strconv.Itoa(j))
			add(names[len(names)-1], mid, max(own/int64(n)/(1+r.Int64N(2)), 1))
		}
	}
	classes := tree(confs...)
	s = &sim{root: classes["root"], now: start}
	for _, name := range names {
		leaves = append(leaves, classes[name])
	}
	load := func() {
		for _, leaf := range leaves {
			for range r.IntN(60) * r.IntN(2) {
				leaf.Enter(s.now, message(1))
			}
		}
	}
	load()
	s.run(upTo(time.Minute))
	for _, conf := range confs {
		if r.IntN(8) == 0 {
			classes[conf.Name].Provider().Throttled(s.now, 1+upTo(time.Minute), "429")
		}
	}
	s.run(upTo(20 * second))
	load()
	return s, leaves
}

// drain lets leave all that waits, and returns when the last of it has left.
func (s *sim) drain() time.Time {
	for s.root.Backlog().Items > 0 {
		s.now = later(s.now, s.root.Next(s.now))
		s.root.Release(s.now)
	}
	return s.now
}

// In any tree, an estimate is not earlier than what waits in its own class leaves alone, and not later than all has left. If nobody is
// assured more than the classes above have, nearly all estimates are what happens. If limits hold items up in turn, or windows let
// more leave at once than the classes above do, they are early.
func TestForecastOfARandomTree(t *testing.T) {
	const trees = 1000
	before, early, late := 0, 0, 0
	for seed := range uint64(trees) {
		r := rand.New(rand.NewPCG(seed, 11))
		s, leaves := fittingTree(r)
		i := r.IntN(len(leaves))
		_, said := leaves[i].Estimate().Place(s.now, message(1).Cost)
		said = max(said, 0)
		began := s.now
		left := s.wait(leaves[i], message(1))
		if drained := s.drain().Sub(began); said > max(drained, left)+ms {
			t.Errorf("seed %d: the estimate is %v, and all has left after %v", seed, said, drained)
		}
		s, leaves = fittingTree(rand.New(rand.NewPCG(seed, 11)))
		for j, leaf := range leaves {
			if j != i {
				leaf.Evict(s.now, func(*Item) bool { return true })
			}
		}
		if alone := s.wait(leaves[i], message(1)); said < alone*2/3-second {
			before++
		}
		switch {
		case said < left*2/3-second:
			early++
		case said > left*4/3+second:
			late++
		}
	}
	t.Logf("of %d estimates, %d are earlier than alone by a third; %d are too early by a third, and %d too late", trees, before, early, late)
	if before > trees/200 || early > trees*3/100 || late > trees*3/100 {
		t.Errorf("of %d estimates, %d are earlier than alone by a third; %d are too early by a third, and %d too late", trees, before, early, late)
	}
}
