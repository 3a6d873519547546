package shaper_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"shaper/policy"
	"shaper/shaper"
	"shaper/tests/trial"
	"shaper/unit"
)

// The tests in this file know the rule of the tree, and not how the tree keeps it.
// Siblings within their assured rate go first, then those that borrow up to their ceil;
// among equals priority decides, then weight. Every class is greedy, so the rule has one
// answer. fluid computes it as if items could be divided at will.

// A node is a class of a tree that a test builds. Node 0 is the root. A parent comes
// before its children.
type node struct {
	parent           int // -1: none
	kind             unit.Kind
	algorithm        policy.Algorithm
	rate, ceil       int64 // units a second; hasCeil says whether there is a ceil
	hasCeil          bool
	burst            int64
	window           time.Duration
	priority, weight int
	least, most      int64 // what an item of a leaf costs
}

func (n node) limit() int64 {
	if n.hasCeil {
		return n.ceil
	}
	return n.rate
}

// A tree is the list of its nodes.
type tree []node

func (t tree) children(i int) (kids []int) {
	for k, n := range t {
		if n.parent == i {
			kids = append(kids, k)
		}
	}
	return kids
}

func (t tree) leaf(i int) bool { return len(t.children(i)) == 0 }

func (t tree) String() string {
	var b strings.Builder
	for i, n := range t {
		fmt.Fprintf(&b, "\n  %d beneath %d: %s of %d (ceil %d, %t) %s/s, burst %d, window %v, priority %d, weight %d, costs %d to %d",
			i, n.parent, n.algorithm, n.rate, n.ceil, n.hasCeil, n.kind, n.burst, n.window, n.priority, n.weight, n.least, n.most)
	}
	return b.String()
}

// policies returns the tree for NewTree. No test reaches the bounds of a queue.
func (t tree) policies() []policy.Class {
	confs := make([]policy.Class, len(t))
	for i, n := range t {
		conf := policy.DefaultClass(fmt.Sprint(i))
		conf.Rate = unit.NewRate(n.kind, n.rate, time.Second)
		conf.Algorithm = n.algorithm
		if n.parent >= 0 {
			conf.Parent = fmt.Sprint(n.parent)
			conf.Priority, conf.Weight = n.priority, n.weight
		}
		if n.hasCeil {
			conf.Ceil = unit.NewRate(n.kind, n.ceil, time.Second)
		}
		if n.algorithm.HasBurst() {
			conf.Burst = policy.Burst{N: n.burst, Kind: n.kind}
		}
		conf.Window.Length = unit.Duration(n.window)
		conf.Queue = policy.Queue{Items: unit.Count{N: 1 << 40, Kind: unit.Items}}
		confs[i] = conf
	}
	return confs
}

// demand returns how much a class and those beneath it would send each second if nothing
// above limited them. All leaves are greedy.
func (t tree) demand(i int) float64 {
	limit := float64(t[i].limit())
	if t.leaf(i) {
		return limit
	}
	sum := 0.0
	for _, k := range t.children(i) {
		sum += t.demand(k)
	}
	return min(limit, sum)
}

// fluid returns how much each class gets each second.
func (t tree) fluid() []float64 {
	got := make([]float64, len(t))
	got[0] = t.demand(0)
	for i := range t {
		remaining := got[i]
		kids := t.children(i)
		remaining -= t.pour(got, kids, remaining, func(k int) float64 { return min(float64(t[k].rate), t.demand(k)) })
		t.pour(got, kids, remaining, t.demand)
	}
	return got
}

// pour gives what remains to each priority in turn, by weight, until each class has as
// much as upTo says. It returns how much it has given.
func (t tree) pour(got []float64, kids []int, remaining float64, upTo func(int) float64) (given float64) {
	for priority := range policy.LastPriority + 1 {
		for {
			var open []int
			var weights float64
			for _, k := range kids {
				if t[k].priority == priority && upTo(k)-got[k] > 1e-9 {
					open, weights = append(open, k), weights+float64(t[k].weight)
				}
			}
			if len(open) == 0 || remaining < 1e-9 {
				break
			}
			step := remaining / weights // what a weight of one gets until the first class is full
			for _, k := range open {
				step = min(step, (upTo(k)-got[k])/float64(t[k].weight))
			}
			for _, k := range open {
				got[k] += step * float64(t[k].weight)
			}
			remaining, given = remaining-step*weights, given+step*weights
		}
	}
	return given
}

// slack returns by how much a class may miss its share over the whole test. That is 2 %,
// or, if longer, a turn: its own or that of a class above, which weight makes long. It may
// also miss two items, and what siblings before it take from full buckets beyond their
// ceils.
func (t tree) slack(i int, shares []float64) float64 {
	most, part, bursts := t.largest(), 0.02, 0.0
	for k := i; t[k].parent >= 0; k = t[k].parent {
		if shares[k] > 0 {
			part = max(part, float64(t[k].weight)*most/(shares[k]*greedyFor.Seconds()))
		}
		for _, other := range t.children(t[k].parent) {
			if t[other].priority < t[k].priority {
				bursts += float64(t[other].burst)
			}
		}
	}
	return part*shares[i]*greedyFor.Seconds() + 2*most + bursts
}

// largest returns the cost of the largest item of the tree.
func (t tree) largest() float64 {
	most := int64(0)
	for _, n := range t {
		most = max(most, n.most)
	}
	return float64(most)
}

const greedyFor = 300 * time.Second // virtual time

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// costOf returns the cost of n units of a kind.
func costOf(n int64, kind unit.Kind) shaper.Cost {
	switch kind {
	case unit.Bytes:
		return shaper.Cost{Bytes: n}
	case unit.Packets:
		return shaper.Cost{Packets: n}
	}
	return shaper.Cost{Messages: n}
}

// costIn returns what an item costs in the unit of a kind.
func costIn(cost shaper.Cost, kind unit.Kind) int64 {
	switch kind {
	case unit.Bytes:
		return cost.Bytes
	case unit.Packets:
		return cost.Packets
	}
	return cost.Messages
}

// greedy drives a tree whose leaves always have two items waiting. It returns what has
// left each class.
func (t tree) greedy(tb testing.TB, rng *rand.Rand) []int64 {
	classes := shaper.NewTree(epoch, t.policies())
	left := make([]int64, len(t))
	from := map[*shaper.Item]int{}
	charge := func(i int, cost int64) {
		for ; i >= 0; i = t[i].parent {
			left[i] += cost
		}
	}
	enter := func(now time.Time, it *shaper.Item, i int) {
		it.Busy = true
		for {
			cost := t[i].least + rng.Int64N(t[i].most-t[i].least+1)
			it.Cost = costOf(cost, t[i].kind)
			switch verdict := classes[i].Enter(now, it); verdict {
			case shaper.Leaves:
				charge(i, cost)
			case shaper.Waits:
				return
			default:
				tb.Fatalf("an item of class %d gets the verdict %v", i, verdict)
			}
		}
	}
	for i := range t {
		for range 2 {
			if t.leaf(i) {
				it := &shaper.Item{}
				from[it] = i
				enter(epoch, it, i)
			}
		}
	}
	end := epoch.Add(greedyFor)
	for now := classes[0].Next(epoch); now.Before(end); now = classes[0].Next(now) {
		if it := classes[0].Release(now); it != nil {
			charge(from[it], costIn(it.Cost, t[0].kind))
			enter(now, it, from[it])
		}
	}
	return left
}

// checkShares compares what left each class with what the rule gives it.
func (t tree) checkShares(tb testing.TB, rng *rand.Rand) {
	tb.Helper()
	shares, left := t.fluid(), t.greedy(tb, rng)
	wrong := false
	for i := range t {
		want := shares[i] * greedyFor.Seconds()
		if slack := t.slack(i, shares); math.Abs(float64(left[i])-want) > slack {
			wrong = true
			tb.Errorf("class %d gets %.2f a second, want %.2f (%.2f)", i,
				float64(left[i])/greedyFor.Seconds(), shares[i], slack/greedyFor.Seconds())
		}
	}
	if wrong {
		tb.Log(t)
	}
}

// checkAssured fails if a greedy class gets less than its assured rate. It may miss 2 %,
// and an item of each class beneath its parent, any of which may be ahead.
func (t tree) checkAssured(tb testing.TB, rng *rand.Rand) {
	tb.Helper()
	left := t.greedy(tb, rng)
	for i, n := range t {
		want := min(float64(n.rate), t.demand(i)) * greedyFor.Seconds()
		slack := 0.02*want + float64(1+len(t.children(n.parent)))*t.largest()
		if float64(left[i]) < want-slack {
			tb.Errorf("class %d gets %.3f a second, but is assured %d%v", i, float64(left[i])/greedyFor.Seconds(), n.rate, t)
		}
	}
}

// siblings returns greedy classes beneath one root.
func siblings(root node, kids ...node) tree {
	root.parent = -1
	return append(tree{root}, kids...)
}

// TestRuleShares holds shares that can be computed by hand.
func TestRuleShares(t *testing.T) {
	leaf := func(rate, ceil int64, priority, weight int, cost int64) node {
		return node{kind: unit.Messages, algorithm: policy.Leaky, rate: rate, ceil: ceil, hasCeil: true,
			priority: priority, weight: weight, least: cost, most: cost}
	}
	account := node{kind: unit.Messages, algorithm: policy.Leaky, rate: 40}
	inBytes := func(t tree) tree {
		for i := range t {
			t[i].kind = unit.Bytes
			t[i].rate, t[i].ceil = t[i].rate*1000, t[i].ceil*1000
			t[i].least, t[i].most = 1460, 1460
		}
		return t
	}
	three := func() tree {
		return siblings(account, leaf(10, 40, 4, 1, 1), leaf(10, 40, 4, 1, 1), leaf(10, 40, 4, 1, 1))
	}
	weighted := func(n int) tree {
		tree := siblings(account, leaf(2, 40, 4, 10, 1))
		for range n {
			tree = append(tree, leaf(2, 40, 4, 1, 1))
		}
		return tree
	}
	third := 40.0 / 3
	for _, c := range []struct {
		name string
		tree tree
		want []float64
	}{
		{"two alike", siblings(account, leaf(10, 40, 4, 1, 1), leaf(10, 40, 4, 1, 1)), []float64{40, 20, 20}},
		{"three alike", three(), []float64{40, third, third, third}},
		{"three alike in bytes", inBytes(three()), []float64{40_000, 1000 * third, 1000 * third, 1000 * third}},
		{"three alike of different costs", siblings(account, leaf(10, 40, 4, 1, 1), leaf(10, 40, 4, 1, 3), leaf(10, 40, 4, 1, 7)),
			[]float64{40, third, third, third}},
		{"weight 10 among two of 1", weighted(2), []float64{40, 2 + 34*10/12.0, 2 + 34/12.0, 2 + 34/12.0}},
		{"weight 10 among five of 1", weighted(5), []float64{40, 2 + 28*10/15.0, 2 + 28/15.0, 2 + 28/15.0, 2 + 28/15.0, 2 + 28/15.0, 2 + 28/15.0}},
		{"weight 10 among four of 1", siblings(account, leaf(10, 40, 4, 10, 1), leaf(5, 40, 4, 1, 1), leaf(5, 40, 4, 1, 1), leaf(5, 40, 4, 1, 1), leaf(5, 40, 4, 1, 1)),
			[]float64{40, 10 + 10*10/14.0, 5 + 10/14.0, 5 + 10/14.0, 5 + 10/14.0, 5 + 10/14.0}},
		{"priorities", siblings(account, leaf(10, 40, 0, 1, 1), leaf(5, 40, 1, 1, 1), leaf(5, 40, 1, 9, 1)), []float64{40, 30, 5, 5}},
		{"a ceil hands on", siblings(account, leaf(5, 10, 0, 1, 1), leaf(5, 40, 1, 1, 1), leaf(5, 40, 1, 4, 1)), []float64{40, 10, 9, 21}},
		{"all that there is is assured", siblings(account, leaf(10, 40, 4, 1, 1), leaf(25, 40, 7, 1, 1), leaf(5, 40, 4, 20, 1)),
			[]float64{40, 10, 25, 5}},
		{"nothing is assured", siblings(account, leaf(0, 40, 4, 1, 1), leaf(0, 40, 4, 2, 1), leaf(0, 40, 4, 5, 1)), []float64{40, 5, 10, 25}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for i, share := range c.tree.fluid() {
				if math.Abs(share-c.want[i]) > 1e-6*c.want[0] {
					t.Errorf("fluid gives class %d %.3f, want %.3f", i, share, c.want[i])
				}
			}
			c.tree.checkShares(t, rand.New(rand.NewPCG(1, 1)))
		})
	}
}

// A grower makes random trees.
type grower struct {
	*rand.Rand
	kind       unit.Kind
	most       int64 // cost of the largest item
	weights    int   // the largest weight
	priorities bool
	full       bool // children may be assured all that their parent is assured
}

func newGrower(seed uint64) grower {
	g := grower{Rand: rand.New(rand.NewPCG(seed, 12)), weights: 20}
	g.kind = []unit.Kind{unit.Messages, unit.Packets, unit.Bytes}[g.IntN(3)]
	g.most = 1 + g.Int64N(8)
	if g.kind == unit.Bytes {
		g.most = 500 + g.Int64N(960) // at most 1460, a piece of a leaky class of bytes
	}
	return g
}

// root returns the root of a tree, for about a hundred items a second.
func (g grower) root() node {
	root := node{parent: -1, kind: g.kind, algorithm: policy.Leaky, rate: g.most * (40 + g.Int64N(40))}
	if g.IntN(2) == 0 {
		root.algorithm, root.burst = policy.Token, 2*g.most
	}
	return root
}

// beneath returns n classes that share what their parent, node i, is assured and may
// reach. Their buckets hold half a second, so no class loses what it may reach while
// others have their turns.
func (g grower) beneath(i int, parent node, n int) []node {
	kids := make([]node, n)
	assured := parent.rate
	if !g.full {
		assured = parent.rate * int64(g.IntN(90)) / 100
	}
	parts, sum := make([]int64, n), int64(0)
	for k := range parts {
		parts[k] = g.Int64N(10)
		sum += parts[k]
	}
	for k := range kids {
		kid := node{parent: i, kind: g.kind, algorithm: policy.Token, priority: policy.LastPriority / 2, weight: 1 + g.IntN(g.weights), hasCeil: true}
		if sum > 0 {
			kid.rate = assured * parts[k] / sum
		}
		if g.priorities {
			kid.priority = g.IntN(policy.LastPriority + 1)
		}
		if g.IntN(2) == 0 {
			kid.algorithm = policy.GCRA
		}
		kid.ceil = parent.limit()
		if g.IntN(3) == 0 {
			kid.ceil = kid.rate + g.Int64N(parent.limit()-kid.rate+1)
		}
		kid.ceil = max(kid.ceil, g.most)
		kid.burst = kid.ceil/2 + g.most
		kid.most = g.most - g.Int64N((g.most+1)/2)
		kid.least = 1 + (g.most-1)/8
		kid.least += g.Int64N(kid.most - kid.least + 1)
		kids[k] = kid
	}
	return kids
}

// grow returns a tree of so many levels beneath the root.
func (g grower) grow(levels, least, most int) tree {
	t := tree{g.root()}
	for from := 0; levels > 0; levels-- {
		to := len(t)
		for i := from; i < to; i++ {
			if i == 0 || g.IntN(2) == 0 {
				t = append(t, g.beneath(i, t[i], least+g.IntN(most-least+1))...)
			}
		}
		from = to
	}
	return t
}

// eachSeed runs a property for as many seeds as the test has time for.
func eachSeed(t *testing.T, property func(t *testing.T, g grower)) {
	for seed := range trial.Size[uint64](4, 200) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { property(t, newGrower(seed)) })
	}
}

// TestRuleSharesOfSiblings takes two to twelve greedy siblings of one priority. Each gets
// what it is assured, and its share of the rest by weight.
func TestRuleSharesOfSiblings(t *testing.T) {
	eachSeed(t, func(t *testing.T, g grower) { g.grow(1, 2, 12).checkShares(t, g.Rand) })
}

// TestRuleSharesByPriority holds that the class of the better priority gets what remains
// first, up to its ceil.
func TestRuleSharesByPriority(t *testing.T) {
	eachSeed(t, func(t *testing.T, g grower) {
		g.priorities = true
		g.grow(1, 2, 8).checkShares(t, g.Rand)
	})
}

// TestRuleSharesOfTrees holds the same rule at each level.
func TestRuleSharesOfTrees(t *testing.T) {
	eachSeed(t, func(t *testing.T, g grower) {
		g.weights, g.priorities = 5, g.IntN(2) == 0
		g.grow(2+g.IntN(2), 2, 4).checkShares(t, g.Rand)
	})
}

// TestRuleStarvesNobody holds that a greedy class has what it is assured, whatever the
// weights, priorities and costs, even if its parent has nothing beyond what it assures.
func TestRuleStarvesNobody(t *testing.T) {
	eachSeed(t, func(t *testing.T, g grower) {
		g.weights, g.priorities, g.full = 10_000, true, true
		g.grow(1+g.IntN(3), 2, 4).checkAssured(t, g.Rand)
	})
}
