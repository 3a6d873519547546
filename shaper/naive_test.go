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
	"shaper/tests/trial"
	"shaper/unit"
)

// naive is the rule of the tree by brute force. It looks at every class, has no rings and
// no alarms, and keeps its own account of whose turn it is, rounded as in a ring. If two
// have the same turn, it leaves open who is first.
type naive struct {
	classes []*Class
	leaves  int // how many of the classes items may enter: the last ones
	waiting map[*Class][]*Item
	turns   map[place]int64  // when the next turn of each begins
	rounds  map[place]*round // of the contenders of a class

	entered, left, cancelled int
}

// A place is where a contender stands: a class or a queue, in a band. Without these it is
// where all stand that compete for a parent in a rank.
type place struct {
	class *Class
	own   bool
	band  int
}

// A round is what all contenders of one rank share.
type round struct{ clock, last, longest, recent, epoch, floor int64 }

// A rival competes for a class, with items it may send. sure says that it has one of these
// to send.
type rival struct {
	place
	items []*Item
	sure  bool
}

// allowed reports whether the class by itself lets an item leave at now.
func allowed(c *Class, now time.Time, it *Item) bool {
	return !c.allowedAt(now, it.Cost.In(c.kind)).After(now)
}

// offers returns the items that may be the next of a class at now, apart from its own
// limit. sure says that there is one.
func (m *naive) offers(c *Class, now time.Time) (items []*Item, sure bool) {
	rivals := m.rivals(c, now)
	for _, k := range rivals {
		if !slices.ContainsFunc(rivals, func(other rival) bool { return other.sure && m.precedes(c, other, k, now) }) {
			items, sure = append(items, k.items...), sure || k.sure
		}
	}
	return items, sure
}

// rivals returns all that compete for a class.
func (m *naive) rivals(c *Class, now time.Time) (all []rival) {
	if own := m.waiting[c]; len(own) > 0 {
		all = append(all, rival{place{class: c, own: true}, own[:1], true})
	}
	for _, child := range m.classes {
		if child.Parent() != c {
			continue
		}
		items, sure := m.offers(child, now)
		free := slices.DeleteFunc(slices.Clone(items), func(it *Item) bool { return !allowed(child, now, it) })
		if len(free) > 0 {
			all = append(all, rival{place{class: child}, free, sure && len(free) == len(items)})
		}
	}
	return all
}

// precedes reports whether one rival comes before another.
func (m *naive) precedes(c *Class, a, b rival, now time.Time) bool {
	ra, rb := m.rank(a.place, now), m.rank(b.place, now)
	if ra != rb {
		return ra < rb
	}
	return m.turn(c, a.place, ra) < m.turn(c, b.place, rb)
}

// rank is the place of a contender by the rule; the lowest goes first. A class with
// buckets is assured while one of them is.
func (m *naive) rank(k place, now time.Time) int {
	c := k.class
	switch {
	case k.own:
		return 8 + 4
	case c.keys != nil:
		for _, bucket := range m.rivals(c, now) {
			if m.rank(bucket.place, now) < 8 {
				return c.conf.Priority
			}
		}
		return 8 + c.conf.Priority
	case c.assured == nil || !c.assured.Next().After(now):
		return c.conf.Priority
	}
	return 8 + c.conf.Priority
}

// round returns what the contenders of a rank beneath a class share.
func (m *naive) round(c *Class, rank int) *round {
	key := place{class: c, band: rank}
	if m.rounds[key] == nil {
		m.rounds[key] = &round{}
	}
	return m.rounds[key]
}

// turn returns when the turn of a contender begins. A contender that was away has missed
// no more than the longest.
func (m *naive) turn(c *Class, k place, rank int) int64 {
	r := m.round(c, rank)
	k.band = rank / 8
	return max(m.turns[k], r.floor)
}

// pay charges an item to the turns of the contenders on its path. ranks are the ranks that
// they had.
func (m *naive) pay(it *Item, ranks map[place]int) {
	for _, k := range path(it.class) {
		c, weight, rank := k.class, 1, ranks[k]
		if !k.own {
			c, weight = c.Parent(), c.conf.Weight
		}
		r, begins := m.round(c, rank), m.turn(c, k, rank)
		takes := max(it.Cost.In(c.kind), 1) * ticksPerUnit / int64(weight)
		r.clock, r.longest, r.recent = max(r.clock, begins), max(r.longest, takes), max(r.recent, takes)
		if r.clock-r.epoch > r.longest {
			r.longest, r.recent, r.epoch = r.recent, takes, r.clock
		}
		r.floor = max(r.floor, r.clock-r.longest)
		k.band = rank / 8
		m.turns[k], r.last = begins+takes, max(r.last, begins+takes)
	}
}

// ranks returns the ranks of all contenders at now.
func (m *naive) ranks(now time.Time) map[place]int {
	all := map[place]int{}
	for _, c := range m.classes {
		for _, k := range path(c) {
			all[k] = m.rank(k, now)
		}
	}
	return all
}

// path returns the contenders that an item needs to leave from a class.
func path(c *Class) (all []place) {
	if c.feed != nil {
		all = append(all, place{class: c, own: true})
	}
	for ; c.Parent() != nil; c = c.Parent() {
		all = append(all, place{class: c})
	}
	return all
}

// choice returns the items that may be the next to leave a tree at now. sure says that one
// of them must be.
func (m *naive) choice(root *Class, now time.Time) (items []*Item, sure bool) {
	items, sure = m.offers(root, now)
	free := slices.DeleteFunc(slices.Clone(items), func(it *Item) bool { return !allowed(root, now, it) })
	return free, sure && len(free) == len(items) && len(free) > 0
}

// passable reports whether an item that enters a class may leave at once. sure says that
// this is certain.
func (m *naive) passable(c *Class, it *Item, now time.Time) (passable, sure bool) {
	if !c.charges(&it.Cost) {
		return true, true
	}
	if len(m.waiting[c]) > 0 {
		return false, true
	}
	var ready []rival
	for ; c != nil; c = c.Parent() {
		ready = append(ready, m.rivals(c, now)...)
		if it.Cost.In(c.kind) > 0 && !c.passive && (len(ready) > 0 || !allowed(c, now, it)) {
			certain := slices.ContainsFunc(ready, func(k rival) bool { return k.sure })
			return false, certain || !allowed(c, now, it)
		}
	}
	return true, true
}

// randomTree returns the policies of a tree of a few classes.
func randomTree(r *rand.Rand) []policy.Class {
	confs := []policy.Class{named("0", randomClass(r))}
	for i := 1; i < 2+r.IntN(10); i++ {
		parent := i - 1 // half of the time, so that some trees are deep
		if r.IntN(2) == 0 {
			parent = r.IntN(i)
		}
		confs = append(confs, under(strconv.Itoa(parent), named(strconv.Itoa(i), randomClass(r))))
	}
	for i := range confs {
		switch r.IntN(6) {
		case 0:
			confs[i] = perSource(10, confs[i])
		case 1:
			confs[i].Shadow = true
		}
		if i > 0 && confs[slices.IndexFunc(confs, func(c policy.Class) bool { return c.Name == confs[i].Parent })].Per != (policy.Per{}) {
			confs[i] = perSource(10, confs[i]) // it has the buckets of its parent
		}
	}
	return confs
}

// grow returns the classes of a tree. Classes with buckets come first. Behind them are
// those that items may enter, so many as leaves says: the other classes, and three buckets
// of each class that has buckets.
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
	conf.Priority, conf.Weight = r.IntN(3), []int{1, 1, 2, 3, 10}[r.IntN(5)]
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

// TestTreeIsNaive drives random trees by random operations, 4,000 steps each. It compares
// each step with the rule by brute force: what leaves, and that nothing could have left
// before.
func TestTreeIsNaive(t *testing.T) {
	for seed := range trial.Size[uint64](12, 1000) {
		r := rand.New(rand.NewPCG(seed, 0))
		confs := randomTree(r)
		m := &naive{waiting: map[*Class][]*Item{}, turns: map[place]int64{}, rounds: map[place]*round{}}
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

// step does something at random, and returns what is wrong with the outcome.
func (m *naive) step(r *rand.Rand, now *time.Time) (wrong string) {
	c := m.classes[len(m.classes)-1-r.IntN(m.leaves)]
	root := c.root().class
	switch op := r.IntN(100); {
	case op < 30:
		return m.enter(r, c, *now)
	case op < 35:
		it := randomItem(r)
		passable, sure := m.passable(c, it, *now)
		sure = sure && !m.close(*now, it)
		if passes := c.Pass(*now, it.Cost); sure && passes != passable {
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
		lastLeft(c, *now)
	case op < 45:
		conf := randomClass(r)
		c = m.classes[r.IntN(len(m.classes))]
		conf.Name, conf.Parent, conf.Per = c.conf.Name, c.conf.Parent, c.conf.Per
		conf.Shadow = r.IntN(4) == 0
		if conf.Rate.Kind() == c.kind {
			m.set(*now, c, conf)
		}
	case op < 55:
		*now = now.Add(time.Duration(r.Int64N(int64(50 * ms))))
	case op < 70:
		if next := root.Next(*now); next != limit.Never {
			if wrong = m.missed(root, *now, next); wrong != "" {
				return wrong
			}
			*now = later(*now, next)
		}
	default:
		return m.release(root, *now)
	}
	return ""
}

// set is Set. A contender that gets another priority goes to the end. One that gets
// another weight waits for what its last item takes at that weight.
func (m *naive) set(now time.Time, c *Class, conf policy.Class) {
	old := map[*Class]policy.Class{}
	for _, c := range m.classes {
		old[c] = c.conf
	}
	c.Set(now, conf)
	for _, c := range m.classes {
		p := c.Parent()
		if p == nil {
			continue
		}
		for band := range bands {
			k, r := place{class: c, band: band}, m.round(p, 8*band+c.conf.Priority)
			if c.conf.Priority != old[c].Priority {
				m.turns[k] = r.last
			} else if before, next := int64(old[c].Weight), int64(c.conf.Weight); before != next && m.turns[k] > r.clock {
				m.turns[k] = r.clock + min((m.turns[k]-r.clock)/next, (r.last-r.clock)/before)*before
			}
		}
	}
}

// missed returns what could leave between now and the time of Next.
func (m *naive) missed(root *Class, now, next time.Time) (wrong string) {
	for _, c := range m.classes {
		moments := []time.Time{c.leavingSince.Add(leavePatience), c.throttle.until}
		if c.assured != nil {
			moments = append(moments, c.assured.Next())
		}
		for _, other := range m.classes {
			for _, it := range m.waiting[other][:min(len(m.waiting[other]), 1)] {
				moments = append(moments, c.limiter.Next(now, 0, it.Cost.In(c.kind)))
			}
		}
		for _, at := range moments {
			if !at.After(now) || !at.Before(next) || m.close(at) || m.soon(at) {
				continue
			}
			if items, sure := m.choice(root, at); sure {
				return "class " + items[0].class.name + " may send at " + at.Sub(start).String() + ", and Next says " + next.Sub(start).String()
			}
		}
	}
	return ""
}

// randomItem returns an item that costs something or nothing in each unit.
func randomItem(r *rand.Rand) *Item {
	n := 1 + r.Int64N(400)
	return &Item{Cost: Cost{Bytes: n, Packets: 1, Messages: r.Int64N(4)}, Held: n}
}

func (m *naive) enter(r *rand.Rand, c *Class, now time.Time) (wrong string) {
	it := randomItem(r)
	it.Settles, it.Busy = r.IntN(3) == 0, r.IntN(2) == 0
	passable, sure := m.passable(c, it, now)
	sure = sure && !m.close(now, it)
	switch c.Enter(now, it) {
	case Leaves:
		if m.entered++; !passable && sure {
			return "an item leaves that has to wait"
		}
		m.left++
	case Waits:
		if m.entered++; passable && sure {
			return "an item waits although nothing holds it"
		}
		m.waiting[c] = append(m.waiting[c], it)
	}
	return ""
}

func (m *naive) release(root *Class, now time.Time) (wrong string) {
	choice, sure := m.choice(root, now)
	ranks, close := m.ranks(now), m.close(now) || m.soon(now)
	next := root.Next(now)
	it := root.Release(now)
	if (it != nil) != !next.After(now) {
		return "Release does not do what Next says"
	}
	if it == nil {
		if sure && !close {
			return "nothing leaves, but class " + choice[0].class.name + " might"
		}
		return ""
	}
	if waiting := m.waiting[it.class]; len(waiting) == 0 || waiting[0] != it || !close && !slices.Contains(choice, it) {
		return "an item of class " + it.class.name + " leaves out of its turn"
	}
	m.pay(it, ranks)
	m.waiting[it.class] = m.waiting[it.class][1:]
	m.left++
	return ""
}

// close reports whether it is uncertain that a token class allows at now what waits, or
// what is to enter. Its tokens are float64, and two computations of one moment may differ
// by a nanosecond.
func (m *naive) close(now time.Time, entering ...*Item) bool {
	return slices.ContainsFunc(m.classes, func(c *Class) bool {
		if c.conf.Algorithm != policy.Token {
			return false
		}
		near := func(it *Item) bool {
			at := c.limiter.Next(now.Add(-time.Microsecond), 0, it.Cost.In(c.kind))
			return at.Sub(now).Abs() <= 2
		}
		return slices.ContainsFunc(entering, near) ||
			slices.ContainsFunc(m.classes, func(c *Class) bool { return slices.ContainsFunc(m.waiting[c][:min(len(m.waiting[c]), 1)], near) })
	})
}

// soon reports whether a class will allow in a moment what it does not allow now. The class above may
// have patience with it, and others leave meanwhile that compete with that one.
func (m *naive) soon(now time.Time) bool {
	return slices.ContainsFunc(m.classes, func(c *Class) bool {
		return slices.ContainsFunc(m.classes, func(of *Class) bool {
			return slices.ContainsFunc(m.waiting[of][:min(len(m.waiting[of]), 1)], func(it *Item) bool {
				wait := c.allowedAt(now, it.Cost.In(c.kind)).Sub(now)
				return wait > 0 && wait <= time.Millisecond
			})
		})
	})
}

// sum compares the counters with what waits.
func (m *naive) sum() (wrong string) {
	waiting, backlog := 0, map[*Class]int64{}
	for _, c := range m.classes {
		waiting += len(m.waiting[c])
		for p := c; p != nil; p = p.Parent() {
			if backlog[p] += int64(len(m.waiting[c])); p.Named() != p && p.Named() != p.Parent() { // a bucket beneath a bucket
				backlog[p.Named()] += int64(len(m.waiting[c]))
			}
		}
	}
	for _, c := range m.classes {
		if c.Backlog().Items != backlog[c] {
			return "class " + c.name + " counts another backlog"
		}
	}
	if m.left+m.cancelled+waiting != m.entered {
		return "sent + cancelled + waiting is not what entered"
	}
	if got := m.classes[0].root().class.waitingCost.packets; got != int64(waiting) {
		return "the root counts another backlog beneath it"
	}
	return ""
}

// TestTreeNeverAboveALimit lets random items leave random trees. It holds what left each
// class against its limit, over every window, in exact fractions.
func TestTreeNeverAboveALimit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		classes, leaves := grow(randomTree(r))
		root, now := classes[0].root().class, start
		trace := map[*Class][]exit{}
		depart := func(c *Class, it *Item) {
			for ; c != nil; c = c.Parent() {
				if n := it.Cost.In(c.kind); n > 0 && !c.passive {
					trace[c] = append(trace[c], exit{now.Sub(start), n})
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
			case 0: // late once, then on time for a while
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

type exit struct {
	at time.Duration
	n  int64
}

// checkWindows fails if more left between any two departures than the algorithm of the
// class promises.
func checkWindows(t *rapid.T, c *Class, trace []exit) {
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
				t.Fatalf("class %s of %s %v: until %v %s left, more than %s", c.name, c.conf.Algorithm, c.Rate(), d.at, level.FloatString(3), p.ahead.FloatString(3))
			}
			last = d.at
		}
	}
}

// windows is a promise about every window t: at most ahead + perNano*t leaves in it. If
// later items pay for an item, the last one may come on top.
type windows struct {
	perNano, ahead *big.Rat
	lastIsFree     bool
}

// promises returns the promise of the algorithm of a class.
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
