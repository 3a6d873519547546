package shaper

import (
	"math"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"shaper/policy"
	"shaper/tests/trial"
	"shaper/unit"
)

// TestTreeThreeSiblings lets three greedy classes share what none of them is assured: the
// policy of tests/testdata/siblings.toml.
func TestTreeThreeSiblings(t *testing.T) {
	for _, unit := range []string{" messages/s", "B/s"} {
		for _, tickets := range []int{1, 50} {
			confs := []policy.Class{named("account", leakyClass("40"+unit))}
			for _, name := range []string{"a", "b", "c"} {
				confs = append(confs, ceiling("40"+unit, under("account", named(name, leakyClass("10"+unit)))))
			}
			classes := tree(confs...)
			s := &sim{root: classes["account"], now: start}
			for _, conf := range confs[1:] {
				s.load(classes[conf.Name], -1, tickets)
			}
			s.run(30 * second)
			for _, conf := range confs[1:] {
				if got := s.left[classes[conf.Name]]; got < 399 || got > 401 {
					t.Errorf("40%s, %d tickets: %s sent %d, want 400", unit, tickets, conf.Name, got)
				}
			}
		}
	}
}

// TestTreeSharesBeneathABurst lets a class of weight 10 share with three of weight 1. All may reach the
// rate of their parent, which counts from when an item is released. Their own gaps begin when the
// item has been written, some time later. The parent may lose a hundredth to that.
func TestTreeSharesBeneathABurst(t *testing.T) {
	for _, algorithm := range []policy.Algorithm{policy.GCRA, policy.Token} {
		for _, rate := range []int{30, 40, 59, 70} {
			for _, writing := range []time.Duration{0, time.Nanosecond, 40 * time.Microsecond, 90 * time.Microsecond} {
				for _, burst := range []int64{1, 2, 20} {
					most := strconv.Itoa(rate) + " messages/s"
					account := named("account", leakyClass(most))
					account.Algorithm, account.Burst = algorithm, policy.Burst{N: burst, Kind: unit.Messages}
					confs := []policy.Class{account}
					for i := range 4 {
						conf := ceiling(most, under("account", named(strconv.Itoa(i), leakyClass("1 messages/s"))))
						if i == 0 {
							conf.Weight = 10
						}
						confs = append(confs, conf)
					}
					left := greedyWriters(tree(confs...), writing, 100*second)
					want := 100 * (1 + float64(rate-4)*10/13)
					if got := float64(left["0"]); math.Abs(got-want) > 0.02*want {
						t.Errorf("%s of %s, burst %d, %v to write: weight 10 sent %v, want %.0f: %v", algorithm, most, burst, writing, got, want, left)
					}
				}
			}
		}
	}
}

// An account with a gap loses at most a hundredth to its patience with a class that is a little slower, whichever of its limits
// makes the gap.
func TestPatienceBeneathAGap(t *testing.T) {
	const rate = "100 messages/s"
	gap, burst := policy.Limit{Rate: rateOf(rate), Algorithm: policy.Leaky}, policy.Limit{Rate: rateOf(rate), Algorithm: policy.GCRA}
	burst.Burst = policy.Burst{N: 20, Kind: unit.Messages}
	for _, limits := range [][]policy.Limit{{gap}, {burst}, {gap, burst}, {burst, gap}, {burst, burst, gap}} {
		account := named("account", leakyClass(rate))
		account.Algorithm, account.Burst, account.Also = limits[0].Algorithm, limits[0].Burst, limits[1:]
		slower := ceiling("95 messages/s", under("account", named("slower", leakyClass("1 messages/s"))))
		slower.Weight = 10
		other := ceiling(rate, under("account", named("other", leakyClass("1 messages/s"))))
		sum := 0
		for _, left := range greedyWriters(tree(account, slower, other), 0, 100*second) {
			sum += left
		}
		if sum < 9900 {
			t.Errorf("%d left in 100 s of an account with limits by %v", sum, limits)
		}
	}
}

// A class of several limits waits for the one whose turn it is as its slowest bucket needs, whichever of them that is.
func TestTreeSharesBeneathSeveralLimits(t *testing.T) {
	slow := policy.Limit{Rate: rateOf("70 messages/s"), Algorithm: policy.GCRA, Burst: policy.Burst{N: 20, Kind: unit.Messages}}
	fast := policy.Limit{Rate: rateOf("7000 messages/s"), Algorithm: policy.GCRA, Burst: policy.Burst{N: 100, Kind: unit.Messages}}
	window := policy.Limit{Rate: rateOf("6000 messages/min"), Algorithm: policy.FixedWindow}
	for _, limits := range [][]policy.Limit{{slow, fast}, {fast, slow}, {slow, window}, {window, slow}} {
		account := named("account", leakyClass("1 messages/s"))
		account.Rate, account.Algorithm, account.Burst, account.Also = limits[0].Rate, limits[0].Algorithm, limits[0].Burst, limits[1:]
		confs := []policy.Class{account}
		for i := range 4 {
			conf := ceiling("70 messages/s", under("account", named(strconv.Itoa(i), leakyClass("1 messages/s"))))
			if i == 0 {
				conf.Weight = 10
			}
			confs = append(confs, conf)
		}
		left := greedyWriters(tree(confs...), 40*time.Microsecond, 100*second)
		const want = 100 * (1 + float64(70-4)*10/13)
		if got := float64(left["0"]); math.Abs(got-want) > 0.02*want {
			t.Errorf("%v: weight 10 sent %v, want %.0f: %v", limits, got, want, left)
		}
	}
}

// greedyWriters lets two messages wait in each class beneath the account all the time. It takes a while to
// write what leaves. It returns how many have left each class.
func greedyWriters(classes map[string]*Class, writing, runs time.Duration) map[string]int {
	root, now, left := classes["account"], start, map[string]int{}
	enter := func(it *Item, c *Class) {
		for it.Busy = true; c.Enter(now, it) == Leaves; {
			left[c.Name()]++
			now = now.Add(writing)
			lastLeft(c, now)
		}
	}
	for _, c := range classes {
		for range 2 {
			if c != root {
				enter(message(1), c)
			}
		}
	}
	for now.Before(at(runs)) {
		now = later(now, root.Next(now))
		if it := root.Release(now); it != nil {
			c := it.class
			left[c.Name()]++
			now = now.Add(writing)
			it.Left(now)
			enter(it, c)
		}
	}
	return left
}

// TestTreeUrgentBeneathALargeItem makes a small urgent item ready, at each depth, while a
// large item of a sibling waits for the tokens of the root.
func TestTreeUrgentBeneathALargeItem(t *testing.T) {
	for depth := range 8 {
		confs := []policy.Class{named("0", tokenClass("1 messages/s", 10))}
		for i := range depth {
			confs = append(confs, under(strconv.Itoa(i), named(strconv.Itoa(i+1), leakyClass("1000 messages/s"))))
		}
		parent := strconv.Itoa(depth)
		c := tree(append(confs, under(parent, named("urgent", withPriority(0, leakyClass("1 messages/s")))),
			under(parent, named("low", withPriority(7, leakyClass("1000 messages/s")))))...)
		enter(t, c["low"], 0, Leaves, costly(9))
		enter(t, c["urgent"], 10*ms, Leaves, costly(1))
		large, small := costly(10), costly(1)
		enter(t, c["low"], 20*ms, Waits, large)
		enter(t, c["urgent"], 20*ms, Waits, small)
		if next := c["0"].Next(at(20 * ms)); !next.Equal(at(1010 * ms)) {
			t.Errorf("%d levels down the next item leaves at %v, want 1.01s", depth+1, next.Sub(start))
		}
		released(t, c["0"], 1010*ms, small)
		released(t, c["0"], 11*second-1)
		released(t, c["0"], 11*second, large)
	}
}

// TestTreeFreeBeneathALargeItem makes an item ready that costs the root nothing, while the
// root allows nothing that costs anything.
func TestTreeFreeBeneathALargeItem(t *testing.T) {
	c := tree(named("root", leakyClass("1KB/s")), under("root", named("mid", leakyClass("1MB/s"))),
		under("mid", named("conns", withPriority(0, leakyClass("1 connections/s")))), under("mid", named("low", leakyClass("1MB/s"))))
	enter(t, c["low"], 0, Leaves, packet(10_000))
	enter(t, c["conns"], 500*ms, Leaves, &Item{Cost: Cost{Connections: 1}})
	conn, low := &Item{Cost: Cost{Connections: 1}}, packet(100)
	enter(t, c["low"], 500*ms, Waits, low)
	enter(t, c["conns"], 500*ms, Waits, conn)
	released(t, c["root"], 1500*ms-1)
	if next := c["root"].Next(at(1500*ms - 1)); !next.Equal(at(1500 * ms)) {
		t.Errorf("the next item leaves at %v, want 1.5s", next.Sub(start))
	}
	released(t, c["root"], 1500*ms, conn)
	released(t, c["root"], 10*second, low)
}

// costly returns an item that costs n messages.
func costly(n int64) *Item {
	return &Item{Cost: Cost{Bytes: 100 * n, Packets: n, Messages: n}, Held: 100}
}

// A sharer is a class of a random tree in which all leaves are greedy. Its rate and its
// share are in the unit of the root.
type sharer struct {
	conf     policy.Class
	rate     float64
	items    []*Item // of a leaf
	children []*sharer
}

// TestTreeSharesOfMany holds that each class of random trees gets its assured rate, and
// its share of the rest by weight, within 2 %, with any number of siblings, weights, costs
// and units.
func TestTreeSharesOfMany(t *testing.T) {
	const span = 300
	for seed := range trial.Size[uint64](15, 1500) {
		r := rand.New(rand.NewPCG(seed, 12))
		kind := []unit.Kind{unit.Bytes, unit.Messages, unit.Packets}[r.IntN(3)]
		root, largest := &sharer{rate: float64(30 * (1 + r.IntN(3))), conf: policy.DefaultClass("0")}, 4.
		if kind == unit.Bytes {
			root.rate, largest = root.rate*100, 400
		}
		root.conf.Rate = rateIn(kind, root.rate)
		n := 1
		root.grow(r, root.conf.Rate, 1+r.IntN(3), &n)
		var confs []policy.Class
		root.each(func(s *sharer) { confs = append(confs, s.conf) })
		classes := tree(confs...)
		sim := &sim{root: classes["0"], now: start}
		root.each(func(s *sharer) {
			for _, it := range s.items {
				sim.send(classes[s.conf.Name], it)
			}
		})
		sim.run(span * second)
		root.divide(root.rate, func(s *sharer, want float64) {
			got := float64(sim.sent[classes[s.conf.Name]]) / span
			if math.Abs(got-want) > 0.02*want+3*largest/span {
				t.Errorf("tree %d of %v: %s (%v, weight %d, priority %d) sent %.3f/s, want %.3f", seed, root.conf.Rate, s.conf.Name,
					s.conf.Rate, s.conf.Weight, s.conf.Priority, got, want)
			}
		})
	}
}

// rateIn returns a rate of so many units a second.
func rateIn(kind unit.Kind, rate float64) unit.Rate {
	of := map[unit.Kind]string{unit.Bytes: "B/s", unit.Messages: " messages/s", unit.Packets: " packets/s"}[kind]
	return rateOf(strconv.Itoa(int(rate)) + of)
}

// grow gives a class children. Each of them may have all that the root has.
func (s *sharer) grow(r *rand.Rand, all unit.Rate, depth int, n *int) {
	kind := all.Kind()
	children := 2 + r.IntN(4)
	for range children {
		conf := under(s.conf.Name, policy.DefaultClass(strconv.Itoa(*n)))
		*n++
		child := &sharer{rate: math.Floor(s.rate * r.Float64() * 1.2 / float64(children))}
		if r.IntN(3) == 0 {
			conf.Priority = r.IntN(2)
		}
		conf.Weight = []int{1, 1, 2, 3, 10, 100}[r.IntN(6)]
		conf.Rate, conf.Ceil = rateIn(kind, child.rate), all
		if child.conf = conf; depth > 1 && r.IntN(3) == 0 {
			child.grow(r, all, depth-1, n)
		} else {
			child.load(r, all)
		}
		s.children = append(s.children, child)
	}
}

// load gives a leaf what it sends: items of one cost or of several, a few or many at a
// time. If all have one size, the leaf may count messages beneath a root of bytes.
func (s *sharer) load(r *rand.Rand, all unit.Rate) {
	size, uneven := int64(1+r.IntN(4)), r.IntN(2) == 0
	for range []int{1, 2, 20}[r.IntN(3)] {
		if uneven {
			size = 1 + r.Int64N(4)
		}
		s.items = append(s.items, costly(size))
	}
	if all.Kind() == unit.Bytes && r.IntN(3) == 0 {
		for _, it := range s.items {
			it.Cost = Cost{Bytes: 100 * size, Messages: 1}
		}
		s.rate = math.Floor(s.rate / float64(100*size))
		s.conf.Rate, s.conf.Ceil = rateIn(unit.Messages, s.rate), rateIn(unit.Messages, 1000)
		s.rate *= float64(100 * size)
	}
}

func (s *sharer) each(do func(*sharer)) {
	do(s)
	for _, child := range s.children {
		child.each(do)
	}
}

// divide computes what each leaf gets of what its parent gets.
func (s *sharer) divide(capacity float64, want func(*sharer, float64)) {
	if s.children == nil {
		want(s, capacity)
		return
	}
	got := map[*sharer]float64{}
	capacity = s.fill(capacity, got, func(child *sharer) float64 { return child.rate })
	s.fill(capacity, got, func(*sharer) float64 { return math.Inf(1) })
	for _, child := range s.children {
		child.divide(got[child], want)
	}
}

// fill gives each child up to its limit, by priority and weight. It returns what remains.
func (s *sharer) fill(capacity float64, got map[*sharer]float64, limit func(*sharer) float64) float64 {
	for priority := range policy.LastPriority + 1 {
		for capacity > 1e-9 {
			var hungry []*sharer
			weights, per := 0., math.Inf(1) // per is what a weight of one gets until one child is full
			for _, child := range s.children {
				if room := limit(child) - got[child]; child.conf.Priority == priority && room > 1e-9 {
					hungry = append(hungry, child)
					weights += float64(child.conf.Weight)
					per = min(per, room/float64(child.conf.Weight))
				}
			}
			if hungry == nil {
				break
			}
			per = min(per, capacity/weights)
			for _, child := range hungry {
				got[child] += per * float64(child.conf.Weight)
			}
			capacity -= per * weights
		}
	}
	return capacity
}
