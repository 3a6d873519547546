package shaper_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"shaper/policy"
	"shaper/shaper"
	"shaper/unit"
)

// The model in this file tells which items may be the next to leave a tree, from the rule
// and from what has left each class. It does not know the order of turns, nor whether a
// class with both a rate and a ceil is within its rate. So it finds all items that could
// be next. Two things follow. What leaves is one of them. And if all of them may leave,
// one does: no more time passes than patience while the tree has something to send.

// doubt is how far the model's times may be from those of the tree.
const doubt = time.Microsecond

// patience is how long a class with a burst may keep its turn for a contender that may send in a moment, at most.
const patience = time.Millisecond

const forever = time.Duration(1 << 62)

// A gate tells when one class by itself allows an item. Times count from epoch.
type gate struct {
	node
	clear  time.Duration // leaky: when the gap is over; token, gcra: when the bucket is full
	inside time.Duration // when the class is within its assured rate without doubt
	window time.Duration // fixed-window: when the last window began in which something left
	used   int64         // fixed-window: how much left in that window
	log    []departure   // sliding-log
}

// A departure is what left a class at a time.
type departure struct {
	at    time.Duration
	units int64
}

// holds returns how much may leave in a window.
func (g *gate) holds() int64 { return g.limit() * int64(g.node.window/time.Second) }

// takes returns how long n units take at a rate.
func takes(n, rate int64) time.Duration {
	if rate == 0 {
		return forever
	}
	return time.Duration((n*int64(time.Second) + rate - 1) / rate)
}

// opens returns when the gate allows n units, and whether it certainly does not before.
func (g *gate) opens(now time.Duration, n int64) (at time.Duration, closed bool) {
	switch g.algorithm {
	case policy.Token, policy.GCRA:
		if n > g.burst {
			return g.clear, true // when the bucket is full
		}
		return g.clear - takes(g.burst, g.limit()) + takes(n, g.limit()), true
	case policy.FixedWindow:
		begin := now.Truncate(g.node.window)
		if begin == g.window && g.used+n > g.holds() {
			return begin + g.node.window, true
		}
		return begin, true
	case policy.SlidingLog:
		for _, d := range slices.Backward(g.log) {
			if n += d.units; n > g.holds() {
				return d.at + g.node.window, true
			}
		}
		return 0, true
	}
	return g.clear, g.kind != unit.Bytes // bytes may catch up
}

// take charges n units that leave.
func (g *gate) take(now time.Duration, n int64) {
	if begin := now.Truncate(g.node.window); begin != g.window {
		g.window, g.used = begin, 0
	}
	g.used += n
	g.log = append(g.log, departure{now, n})
	g.clear = max(g.clear, now) + takes(n, g.limit())
	g.inside = max(g.inside, now+takes(n, g.rate))
}

// A model is a tree, and what waits in it.
type model struct {
	tree
	kids  [][]int
	gates []gate
	queue [][]*shaper.Item
}

func newModel(t tree) *model {
	m := &model{tree: t, kids: make([][]int, len(t)), gates: make([]gate, len(t)), queue: make([][]*shaper.Item, len(t))}
	for i, n := range t {
		m.gates[i] = gate{node: n, window: -1}
		m.kids[i] = t.children(i)
	}
	return m
}

// offers are the items that a class may offer to the one above it. It offers one of them,
// or, if none is set, perhaps nothing.
type offers struct {
	items []*shaper.Item
	none  bool
}

// rank returns the best and the worst place that a class may have among its siblings at
// now.
func (g *gate) rank(now time.Duration) (best, worst int) {
	borrows := policy.LastPriority + 1 // those that borrow come behind all others
	switch {
	case !g.hasCeil, g.rate > 0 && g.inside+doubt <= now:
		return g.priority, g.priority
	case g.rate == 0:
		return borrows + g.priority, borrows + g.priority
	}
	return g.priority, borrows + g.priority
}

// next returns what the class i may offer at now.
func (m *model) next(i int, now time.Duration) offers {
	type rival struct {
		offers
		best, worst int
	}
	var rivals []rival
	if len(m.queue[i]) > 0 { // the own queue of an inner class is assured of nothing
		place := policy.LastPriority + 1 + policy.DefaultClass("").Priority
		rivals = append(rivals, rival{offers{items: m.queue[i][:1]}, place, place})
	}
	keepsTurn := false
	for _, k := range m.kids[i] {
		best, worst := m.gates[k].rank(now)
		rivals = append(rivals, rival{m.next(k, now), best, worst})
		keepsTurn = keepsTurn || m.tree[i].kind != unit.Bytes && m.opensSoon(k, now)
	}
	bar, none := 1<<30, true // nobody passes a contender that certainly has something and a better place
	for _, r := range rivals {
		if !r.none {
			bar, none = min(bar, r.worst), false
		}
	}
	out := offers{none: none || keepsTurn}
	for _, r := range rivals {
		if r.best > bar {
			continue
		}
		for _, it := range r.items {
			at, closed := m.gates[i].opens(now, costIn(it.Cost, m.tree[i].kind))
			open := at+doubt <= now
			if !open {
				out.none = true
			}
			if open || !closed || at-doubt <= now {
				out.items = append(out.items, it)
			}
		}
	}
	return out
}

// opensSoon reports whether a class may offer something in a moment that it does not offer now: the class above may keep its turn
// for that, and others leave meanwhile that compete with the class above.
func (m *model) opensSoon(k int, now time.Duration) bool {
	has := m.next(k, now).items
	return slices.ContainsFunc(m.next(k, now+patience+doubt).items, func(it *shaper.Item) bool { return !slices.Contains(has, it) })
}

// left charges an item that has left.
func (m *model) left(now time.Duration, it *shaper.Item) {
	for i := range m.queue {
		if len(m.queue[i]) > 0 && m.queue[i][0] == it {
			m.queue[i] = m.queue[i][1:]
			for ; i >= 0; i = m.tree[i].parent {
				m.gates[i].take(now, costIn(it.Cost, m.tree[i].kind))
			}
			return
		}
	}
}

// moments returns the times, from one time to another, at which the model may change its
// answer.
func (m *model) moments(from, to time.Duration) []time.Duration {
	at := []time.Duration{from}
	for i, items := range m.queue {
		for k := i; k >= 0 && len(items) > 0; k = m.tree[k].parent {
			opens, _ := m.gates[k].opens(from, costIn(items[0].Cost, m.tree[k].kind))
			at = append(at, opens, m.gates[k].inside)
		}
	}
	at = slices.DeleteFunc(at, func(t time.Duration) bool { return t < from || t+patience+2*doubt >= to })
	slices.Sort(at)
	return slices.Compact(at)
}

// An arrival is an item that enters a class some time after the item before.
type arrival struct {
	after time.Duration
	class int
	cost  shaper.Cost
}

func (a arrival) String() string {
	return fmt.Sprintf("\n  after %v into %d: %d messages, %d packets, %d bytes", a.after, a.class, a.cost.Messages, a.cost.Packets, a.cost.Bytes)
}

// A history compares a tree that is driven as the pacer drives it with the model.
type history struct {
	model   *model
	classes []*shaper.Class
	now     time.Duration
	log     string
}

func newHistory(t tree) *history {
	return &history{model: newModel(t), classes: shaper.NewTree(epoch, t.policies())}
}

// departs tells the model that an item leaves. It returns an error if another item was
// before it.
func (tr *history) departs(it *shaper.Item) error {
	may := tr.model.next(0, tr.now).items
	owner := slices.IndexFunc(tr.model.queue, func(q []*shaper.Item) bool { return len(q) > 0 && q[0] == it })
	tr.log += fmt.Sprintf("\n  at %v an item of %d leaves", tr.now, owner)
	if !slices.Contains(may, it) {
		return fmt.Errorf("at %v an item of class %d leaves out of turn or too early", tr.now, owner)
	}
	tr.model.left(tr.now, it)
	return nil
}

// enter offers an item now.
func (tr *history) enter(a arrival) error {
	it := &shaper.Item{Cost: a.cost}
	tr.model.queue[a.class] = append(tr.model.queue[a.class], it)
	tr.log += fmt.Sprintf("\n  at %v an item enters %d", tr.now, a.class)
	switch verdict := tr.classes[a.class].Enter(epoch.Add(tr.now), it); verdict {
	case shaper.Leaves:
		return tr.departs(it)
	case shaper.Waits:
		return nil
	default:
		return fmt.Errorf("at %v an item gets the verdict %v", tr.now, verdict)
	}
}

// run lets time pass. It wakes the tree when Next says so, and at no other time.
func (tr *history) run(to time.Duration) error {
	idle := 0
	for {
		next := max(tr.now, min(to, tr.classes[0].Next(epoch.Add(tr.now)).Sub(epoch)))
		for _, at := range tr.model.moments(tr.now, next) {
			if !tr.model.next(0, at+doubt).none {
				return fmt.Errorf("nothing leaves at %v, although everything that may be next is allowed to leave; Next is %v", at, next)
			}
		}
		if tr.now = next; next >= to {
			return nil
		}
		it := tr.classes[0].Release(epoch.Add(tr.now))
		if it == nil {
			if idle++; idle == 10 {
				return fmt.Errorf("at %v Next says that something leaves, but nothing does", tr.now)
			}
			continue
		}
		idle = 0
		if err := tr.departs(it); err != nil {
			return err
		}
	}
}

// try returns the first fault of a tree; nil if it has none.
func (tr *history) try(arrivals []arrival) error {
	for _, a := range arrivals {
		if err := tr.run(tr.now + a.after); err != nil {
			return err
		}
		if err := tr.enter(a); err != nil {
			return err
		}
	}
	if err := tr.run(tr.now + time.Hour); err != nil {
		return err
	}
	for i, items := range tr.model.queue {
		if len(items) > 0 {
			return fmt.Errorf("%d items of class %d never leave", len(items), i)
		}
	}
	return nil
}

// drawTree draws a tree up to eight deep, in which each class has its own
// algorithm and may have its own unit.
func drawTree(t *rapid.T) tree {
	mixed := rapid.Bool().Draw(t, "mixed units")
	var tr tree
	var depth []int
	for i := range rapid.IntRange(2, 10).Draw(t, "classes") {
		n := node{parent: i - 1, kind: unit.Messages, weight: rapid.IntRange(1, 10).Draw(t, "weight")}
		for i > 0 && (depth[n.parent] == 8 || n.parent > 0 && rapid.Bool().Draw(t, "up")) {
			n.parent--
		}
		depth = append(depth, 1)
		if i > 0 {
			depth[i] += depth[n.parent]
			n.priority = rapid.IntRange(0, policy.LastPriority).Draw(t, "priority")
		}
		if mixed {
			n.kind = rapid.SampledFrom([]unit.Kind{unit.Messages, unit.Packets, unit.Bytes}).Draw(t, "unit")
		}
		n.algorithm = rapid.SampledFrom([]policy.Algorithm{policy.Leaky, policy.Token, policy.GCRA, policy.FixedWindow, policy.SlidingLog}).Draw(t, "algorithm")
		drawLimit(t, &n)
		tr = append(tr, n)
	}
	return tr
}

// largest is the cost of the largest item that a test draws, by unit.
var largest = map[unit.Kind]int64{unit.Messages: 10, unit.Packets: 3, unit.Bytes: 4000}

// drawLimit draws what a class limits, in its unit.
func drawLimit(t *rapid.T, n *node) {
	unitOf := int64(1)
	if n.kind == unit.Bytes {
		unitOf = 200
	}
	n.rate = unitOf * rapid.Int64Range(1, 20).Draw(t, "rate")
	if n.parent >= 0 && rapid.Bool().Draw(t, "borrows") {
		n.hasCeil, n.ceil = true, n.rate+unitOf*rapid.Int64Range(1, 20).Draw(t, "more")
		n.rate *= rapid.Int64Range(0, 1).Draw(t, "assured")
	}
	switch {
	case n.algorithm.HasBurst():
		n.burst = unitOf * rapid.Int64Range(1, 20).Draw(t, "burst")
	case n.algorithm.HasWindow(): // a window that holds the largest item
		n.window = 20 * time.Second
	}
}

func drawArrivals(t *rapid.T, classes int) []arrival {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) arrival {
		return arrival{
			after: time.Duration(rapid.IntRange(0, 8).Draw(t, "eighths")) * time.Second / 8 * time.Duration(rapid.IntRange(0, 3).Draw(t, "times")),
			class: rapid.IntRange(0, classes-1).Draw(t, "class"),
			cost: shaper.Cost{
				Messages: rapid.Int64Range(1, largest[unit.Messages]).Draw(t, "messages"),
				Packets:  rapid.Int64Range(1, largest[unit.Packets]).Draw(t, "packets"),
				Bytes:    rapid.Int64Range(1, largest[unit.Bytes]).Draw(t, "bytes"),
			},
		}
	}), 1, 60).Draw(t, "arrivals")
}

// TestRuleWastesNoTime drives random trees. No time passes at which every class on the
// path allows an item, nothing that comes before it by the rule waits, and nothing leaves.
// What leaves is next by the rule, and every class allows it.
func TestRuleWastesNoTime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tree := drawTree(t)
		for range 16 {
			arrivals := drawArrivals(t, len(tree))
			tr := newHistory(tree)
			if err := tr.try(arrivals); err != nil {
				t.Fatalf("%v%v%v%s", err, tree, arrivals, tr.log)
			}
		}
	})
}

// TestRuleWakesTheUrgent lets a large item wait for the bucket of the root. Two levels
// below, an urgent item waits for a gap of its own. It leaves when that is over.
func TestRuleWakesTheUrgent(t *testing.T) {
	tree := tree{
		{parent: -1, kind: unit.Messages, algorithm: policy.Token, rate: 1, burst: 10},
		{parent: 0, kind: unit.Messages, algorithm: policy.Token, rate: 100, burst: 20, priority: 4, weight: 1},
		{parent: 1, kind: unit.Messages, algorithm: policy.Leaky, rate: 1, priority: 0, weight: 1},
		{parent: 1, kind: unit.Messages, algorithm: policy.Token, rate: 100, burst: 20, priority: 7, weight: 1},
	}
	const urgent, low = 2, 3
	tr := newHistory(tree)
	err := tr.try([]arrival{
		{class: low, cost: costOf(9, unit.Messages)},
		{class: urgent, cost: costOf(1, unit.Messages)}, // the bucket is empty
		{class: low, cost: costOf(10, unit.Messages)},   // waits for a full one
		{class: urgent, cost: costOf(1, unit.Messages)}, // waits for its gap
	})
	if err != nil {
		t.Fatalf("%v%s", err, tr.log)
	}
}
