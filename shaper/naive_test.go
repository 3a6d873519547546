package shaper

import (
	"math/big"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"shaper/leaky"
	"shaper/limit"
	"shaper/policy"
	"shaper/stats"
	"shaper/unit"
)

// naive is the rule of the tree by brute force: it looks at every class that
// there is. Whose turn it is among equals it leaves open.
type naive struct {
	classes []*Class
	leaves  int // how many of them items may enter, the last ones
	waiting map[*Class][]*Item

	entered, left, cancelled int
}

// allowed reports whether the class itself lets an item go at now.
func allowed(c *Class, now time.Time, it *Item) bool {
	return !c.allows(now, it.Cost.in(c.kind)).After(now)
}

// readyBeneath reports whether something beneath a class, or in it, might leave it
// at now, its own limit apart.
func (m *naive) readyBeneath(c *Class, now time.Time) bool {
	if len(m.waiting[c]) > 0 {
		return true
	}
	for _, child := range m.classes {
		if child.parent.Load() == c && m.mayCompete(child, now) {
			return true
		}
	}
	return false
}

// mayCompete reports whether a child may compete for its parent. All items cost
// the same, so that any head will do.
func (m *naive) mayCompete(c *Class, now time.Time) bool {
	return m.readyBeneath(c, now) && allowed(c, now, item())
}

func item() *Item { return &Item{Cost: Cost{Bytes: 100, Packets: 1, Messages: 1}, Held: 100} }

// rank is the place of a contender by the rule, the lowest first. A class with
// buckets is assured while one of them is.
func (m *naive) rank(c *Class, own bool, now time.Time) int {
	switch {
	case own:
		return 8 + 4
	case c.keys != nil:
		best := 8 + c.conf.Priority
		for _, bucket := range m.classes {
			if bucket.among == c.keys && m.mayCompete(bucket, now) && m.rank(bucket, false, now) < 8 {
				best = c.conf.Priority
			}
		}
		return best
	case c.assured == nil || !c.assured.Next().After(now):
		return c.conf.Priority
	}
	return 8 + c.conf.Priority
}

// chosen reports whether an item that waits in a class is of those that the rule
// lets leave next at now.
func (m *naive) chosen(c *Class, now time.Time) bool {
	own := true
	for x, p := c, c; p != nil; x, p = p, p.parent.Load() {
		if !own && x == p {
			break
		}
		best := 100
		if len(m.waiting[p]) > 0 {
			best = m.rank(p, true, now)
		}
		for _, child := range m.classes {
			if child.parent.Load() == p && m.mayCompete(child, now) {
				best = min(best, m.rank(child, false, now))
			}
		}
		if m.rank(x, own, now) != best || !allowed(p, now, item()) {
			return false
		}
		own = false
	}
	return true
}

// passable reports whether what enters a class may leave at once.
func (m *naive) passable(c *Class, now time.Time) bool {
	if len(m.waiting[c]) > 0 {
		return false
	}
	for ; c != nil; c = c.parent.Load() {
		if c.limits() && (m.readyBeneath(c, now) || !allowed(c, now, item())) {
			return false
		}
	}
	return true
}

// randomTree returns the policies of a tree of a few classes.
func randomTree(r *rand.Rand) []policy.Class {
	confs := []policy.Class{named("0", randomClass(r))}
	for i := 1; i < 2+r.IntN(10); i++ {
		confs = append(confs, under(strconv.Itoa(r.IntN(i)), named(strconv.Itoa(i), randomClass(r))))
	}
	for i := range confs {
		isParent := slices.ContainsFunc(confs, func(c policy.Class) bool { return c.Parent == confs[i].Name })
		switch r.IntN(6) {
		case 0:
			if !isParent {
				confs[i] = perSource(10, confs[i])
			}
		case 1:
			confs[i].Shadow = true
		}
	}
	return confs
}

// grow returns the classes of a tree that items may enter, behind those with buckets:
// of these there are three each.
func grow(confs []policy.Class) (all []*Class, leaves int) {
	var buckets []*Class
	for _, c := range NewTree(start, confs) {
		if c.keys == nil {
			buckets = append(buckets, c)
			continue
		}
		all = append(all, c)
		for n := range 3 {
			buckets = append(buckets, c.Join(start, client(n)))
		}
	}
	return append(all, buckets...), len(buckets)
}

// randomClass returns a policy of some ten items a second.
func randomClass(r *rand.Rand) policy.Class {
	of := []string{"00B/s", " packets/s", " messages/s"}[r.IntN(3)]
	rate := 1 + r.IntN(30)
	conf := leakyClass(strconv.Itoa(rate) + of)
	conf = withQueue(conf, 20, 0)
	conf.Priority, conf.Weight = r.IntN(8), 1+r.IntN(3)
	if r.IntN(2) == 0 {
		conf.Ceil = rateOf(strconv.Itoa(rate+r.IntN(30)) + of)
	}
	if r.IntN(4) == 0 {
		conf.Algorithm = policy.Token
		conf.Burst = policy.Burst{N: 1 + r.Int64N(5), Kind: conf.Rate.Kind()}
		if conf.Burst.Kind == unit.Bytes {
			conf.Burst.N *= 100
		}
	}
	return conf
}

// TestTreeIsNaive drives random trees by random operations, a million steps, and
// compares each with the rule by brute force.
func TestTreeIsNaive(t *testing.T) {
	trees := uint64(250)
	if testing.Short() {
		trees = 25
	}
	for seed := range trees {
		r := rand.New(rand.NewPCG(seed, 0))
		confs := randomTree(r)
		m := &naive{waiting: map[*Class][]*Item{}}
		m.classes, m.leaves = grow(confs)
		now := start
		for step := range 4000 {
			if what := m.step(r, &now); what != "" {
				t.Fatalf("tree %d, step %d, at %v: %s", seed, step, now.Sub(start), what)
			}
		}
		if what := m.sum(); what != "" {
			t.Fatalf("tree %d: %s", seed, what)
		}
	}
}

// step does something, and says what is wrong with the outcome.
func (m *naive) step(r *rand.Rand, now *time.Time) (wrong string) {
	c := m.classes[len(m.classes)-1-r.IntN(m.leaves)]
	root := c.root()
	switch op := r.IntN(100); {
	case op < 30:
		return m.enter(r, c, *now)
	case op < 35:
		passable, close := m.passable(c, *now), m.close(*now)
		if passes := c.Pass(*now, item().Cost); passes != passable && !close {
			return "Pass does not say " + strconv.FormatBool(passable)
		}
	case op < 40:
		if waiting := m.waiting[c]; len(waiting) > 0 {
			i := r.IntN(len(waiting))
			if !c.Cancel(*now, waiting[i]) {
				return "what waits cannot be cancelled"
			}
			m.waiting[c] = append(append([]*Item{}, waiting[:i]...), waiting[i+1:]...)
			m.cancelled++
		}
	case op < 43:
		c.Left(*now)
	case op < 45:
		conf := randomClass(r)
		c = m.classes[r.IntN(len(m.classes))]
		conf.Name, conf.Parent, conf.Per = c.conf.Name, c.conf.Parent, c.conf.Per
		conf.Shadow = r.IntN(4) == 0
		if conf.Rate.Kind() == c.kind {
			c.Set(*now, conf)
		}
	case op < 60:
		*now = now.Add(time.Duration(r.Int64N(int64(50 * ms))))
	case op < 75:
		if next := root.Next(*now); next != limit.Never {
			*now = later(*now, next)
		}
	default:
		return m.release(root, *now)
	}
	return ""
}

func (m *naive) enter(r *rand.Rand, c *Class, now time.Time) (wrong string) {
	it := item()
	it.Settles, it.Busy = r.IntN(3) == 0, r.IntN(2) == 0
	passable, close := m.passable(c, now), m.close(now)
	switch c.Enter(now, it) {
	case Leaves:
		if m.entered++; !passable && !close {
			return "an item leaves that has to wait"
		}
		m.left++
	case Waits:
		if m.entered++; passable && !close {
			return "an item waits although nothing holds it"
		}
		m.waiting[c] = append(m.waiting[c], it)
	}
	return ""
}

func (m *naive) release(root *Class, now time.Time) (wrong string) {
	choice, close := m.choice(now), m.close(now)
	next := root.Next(now)
	it := root.Release(now)
	if (it != nil) != !next.After(now) {
		return "Release does not do what Next says"
	}
	if it == nil {
		if len(choice) > 0 && !close {
			return "nothing leaves, but class " + choice[0].name + " might"
		}
		return ""
	}
	for _, c := range m.classes {
		if len(m.waiting[c]) > 0 && m.waiting[c][0] == it && (close || slices.Contains(choice, c)) {
			m.waiting[c] = m.waiting[c][1:]
			m.left++
			return ""
		}
	}
	return "an item of class " + it.class.name + " leaves out of its turn"
}

// close reports whether a token class may or may not have become free at now: its
// tokens are float64, and two computations of one moment differ by a nanosecond.
func (m *naive) close(now time.Time) bool {
	return slices.ContainsFunc(m.classes, func(c *Class) bool {
		if c.conf.Algorithm != policy.Token {
			return false
		}
		at := c.limiter.Next(now.Add(-time.Microsecond), 0, item().Cost.in(c.kind))
		return at.Sub(now).Abs() <= 2
	})
}

// choice returns the classes whose item may be the next.
func (m *naive) choice(now time.Time) (all []*Class) {
	for _, c := range m.classes {
		if len(m.waiting[c]) > 0 && m.chosen(c, now) {
			all = append(all, c)
		}
	}
	return all
}

// sum compares the counters with what waits.
func (m *naive) sum() (wrong string) {
	waiting, backlog := 0, map[*stats.Class]int64{}
	for _, c := range m.classes {
		waiting += len(m.waiting[c])
		backlog[c.Stats] += int64(len(m.waiting[c]))
	}
	for _, c := range m.classes {
		if c.Stats.BacklogItems.Load() != backlog[c.Stats] {
			return "class " + c.name + " counts another backlog"
		}
	}
	if m.left+m.cancelled+waiting != m.entered {
		return "sent + cancelled + waiting is not what entered"
	}
	if got := m.classes[0].root().beneath.Packets; got != int64(waiting) {
		return "the root counts another backlog beneath it"
	}
	return ""
}

// TestTreeNeverAboveALimit lets random items leave random trees, and holds what
// left each class against its limit, over every window, in exact fractions.
func TestTreeNeverAboveALimit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		classes, leaves := grow(randomTree(r))
		root, now := classes[0].root(), start
		trace := map[*Class][]departure{}
		depart := func(c *Class, it *Item) {
			for ; c != nil; c = c.parent.Load() {
				if n := it.Cost.in(c.kind); n > 0 && c.limits() {
					trace[c] = append(trace[c], departure{now.Sub(start), n})
				}
			}
		}
		for range 600 {
			c := classes[len(classes)-1-r.IntN(leaves)]
			it := &Item{Cost: Cost{Bytes: 1 + r.Int64N(400), Packets: r.Int64N(3), Messages: r.Int64N(2)}, Busy: r.IntN(2) == 0}
			if c.Enter(now, it) == Leaves {
				depart(c, it)
			}
			if next := root.Next(now); r.IntN(3) > 0 && next != limit.Never {
				now = later(now, next)
			}
			switch r.IntN(30) {
			case 0: // late, and on time for some while
				now = now.Add(time.Duration(r.Int64N(int64(2 * second))))
			case 1, 2, 3:
				now = now.Add(time.Duration(r.Int64N(int64(100 * ms))))
			}
			if it := root.Release(now); it != nil {
				depart(it.class, it)
			}
		}
		for c, departures := range trace {
			checkWindows(t, c, departures)
		}
	})
}

type departure struct {
	at time.Duration
	n  int64
}

// checkWindows fails unless between any two departures at most as much left as
// the algorithm of the class promises.
func checkWindows(t *rapid.T, c *Class, trace []departure) {
	for _, p := range promises(c) {
		level, last := new(big.Rat), trace[0].at // of a bucket that drains at the promised rate
		for _, d := range trace {
			level.Sub(level, new(big.Rat).Mul(p.perNano, big.NewRat(int64(d.at-last), 1)))
			if level.Sign() < 0 {
				level.SetInt64(0)
			}
			before := new(big.Rat).Set(level)
			level.Add(level, big.NewRat(d.n, 1))
			if p.lastIsFree && before.Cmp(p.ahead) > 0 || !p.lastIsFree && level.Cmp(p.ahead) > 0 {
				t.Fatalf("class %s of %s %v: at %v there left %s, more than %s", c.name, c.conf.Algorithm, c.Rate(), d.at, level.FloatString(3), p.ahead.FloatString(3))
			}
			last = d.at
		}
	}
}

// windows is a promise about every window t: at most ahead + perNano*t leaves in it. The
// item that leaves last may come on top, where it is paid by those behind it.
type windows struct {
	perNano, ahead *big.Rat
	lastIsFree     bool
}

// promises returns what the algorithm of a class promises.
func promises(c *Class) []windows {
	units, ns := c.Rate().Exact()
	perNano := big.NewRat(units, ns)
	switch {
	case c.conf.Algorithm == policy.Token: // to within a nanosecond; an item may be larger than the bucket
		return []windows{{perNano, big.NewRat(max(c.conf.Burst.N, 400)+1, 1), false}}
	case c.kind != unit.Bytes:
		return []windows{{perNano, new(big.Rat), true}}
	}
	// leaky.Bucket makes up for lateness: by a fifteenth more, and for 50 ms at most.
	piece := big.NewRat(leaky.Piece(c.Rate()), 1)
	behind := new(big.Rat).Mul(perNano, big.NewRat(int64(50*ms), 1))
	return []windows{
		{new(big.Rat).Mul(perNano, big.NewRat(16, 15)), piece, true},
		{perNano, behind.Add(behind, piece), true},
	}
}
