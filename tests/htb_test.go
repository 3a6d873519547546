package tests

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"shaper/tests/trial"
)

// What arrives is counted in datagrams. A qdisc counts the bytes of frames and
// shaper those of payload, so a unit of rate is as many datagrams for both, each
// in the bytes that the one or the other counts.
const (
	perUnit = 50 // datagrams in a second
	onWire  = payload + 14 + 20 + 8
	payload = 958
	all     = 30                     // units: the rate of the root
	greedy  = all + all/2            // units offered: more than there is
	allowed = 0.025 * all            // units by which shares may differ
	settle  = 400 * time.Millisecond // until shares are those of the rule
	measure = 1300 * time.Millisecond
)

// node is a class below a root of 30 units. Its rates, the load that it is
// offered and what it is to get by shaper's rule are in units.
type node struct {
	name, parent     string // "": it is a child of the root
	rate, ceil       int
	priority, weight int
	load             int // 0: idle, or an inner class
	want             float64
}

// pattern is a tree under a load.
type pattern struct {
	name  string
	nodes []node
	htb   []float64 // what each gets by HTB's rule, where that is another one
}

// The children of most patterns are assured of 10 and 5 of 30 units.
var patterns = []pattern{
	{"both greedy", []node{{"a", "", 10, 30, 4, 1, greedy, 17.5}, {"b", "", 5, 30, 4, 1, greedy, 12.5}}, nil},
	{"by weight", []node{{"a", "", 10, 30, 4, 2, greedy, 20}, {"b", "", 5, 30, 4, 1, greedy, 10}}, nil},
	{"by a large weight", []node{{"a", "", 10, 30, 4, 1, greedy, 11.5}, {"b", "", 5, 30, 4, 9, greedy, 18.5}}, nil},
	{"by priority", []node{{"a", "", 10, 30, 0, 1, greedy, 25}, {"b", "", 5, 30, 4, 1, greedy, 5}}, nil},
	{"by priority, the other", []node{{"a", "", 10, 30, 4, 1, greedy, 10}, {"b", "", 5, 30, 0, 1, greedy, 20}}, nil},
	{"one idle", []node{{"a", "", 10, 30, 4, 1, greedy, 30}, {"b", "", 5, 30, 4, 1, 0, 0}}, nil},
	{"the other idle", []node{{"a", "", 10, 30, 4, 1, 0, 0}, {"b", "", 5, 30, 4, 1, greedy, 30}}, nil},
	{"one below its assured rate", []node{{"a", "", 10, 30, 4, 1, greedy, 27}, {"b", "", 5, 30, 4, 1, 3, 3}}, nil},
	{"one between assured and ceil", []node{{"a", "", 10, 30, 4, 1, greedy, 23}, {"b", "", 5, 30, 4, 1, 7, 7}}, nil},
	{"one that asks for too much", []node{{"a", "", 10, 30, 4, 1, greedy, 10}, {"b", "", 5, 30, 0, 1, 28, 20}}, nil},
	{"a ceil below the root's", []node{{"a", "", 10, 12, 4, 1, greedy, 12}, {"b", "", 5, 30, 4, 1, greedy, 18}}, nil},
	{"without a ceil", []node{{"a", "", 10, 0, 4, 1, greedy, 10}, {"b", "", 5, 30, 7, 1, greedy, 20}}, nil},
	{"three levels, by priority", []node{{"a", "", 15, 30, 0, 1, 0, 0}, {"a1", "a", 10, 30, 0, 1, greedy, 15}, {"a2", "a", 5, 30, 7, 1, greedy, 5},
		{"b", "", 10, 30, 7, 1, greedy, 10}}, nil},
	{"three levels, one greedy", []node{{"a", "", 15, 30, 4, 1, 0, 0}, {"a1", "a", 10, 30, 4, 1, greedy, 16}, {"a2", "a", 5, 30, 4, 1, 2, 2},
		{"b", "", 10, 30, 4, 1, 12, 12}}, nil},

	// HTB serves a class within its rate whatever those above it have sent, and
	// so exceeds the root's. Here no class exceeds its limit for another's sake,
	// and what is assured is kept to as long as the parent has it.
	{"more assured than there is", []node{{"a", "", 30, 30, 4, 1, greedy, 15}, {"b", "", 30, 30, 4, 1, greedy, 15}}, []float64{30, 30}},
	// HTB borrows for leaves: at the root each of the three has its turn. Here
	// those who compete are siblings, whatever is beneath them.
	{"cousins borrow", []node{{"a", "", 10, 30, 4, 1, 0, 0}, {"a1", "a", 5, 30, 4, 1, greedy, 8.75}, {"a2", "a", 5, 30, 4, 1, greedy, 8.75},
		{"b", "", 5, 30, 4, 1, greedy, 12.5}}, []float64{0, 10, 10, 10}},
	// And it has one place in the round of an inner class for all levels: what a
	// lends to a1 moves it on, and costs a1 its turn at the root. Here each level
	// has turns of its own.
	{"turns at two levels", []node{{"a", "", 15, 30, 4, 1, 0, 0}, {"a1", "a", 10, 30, 4, 1, greedy, 17.5}, {"b", "", 10, 30, 4, 1, greedy, 12.5}},
		[]float64{0, 15, 15}},
	// HTB has the priority of a leaf count at each level, and that of an inner
	// class nowhere. Here it is the place among siblings.
	{"priority among siblings", []node{{"a", "", 10, 30, 4, 1, 0, 0}, {"a1", "a", 10, 30, 0, 1, greedy, 17.5},
		{"b", "", 5, 30, 4, 1, greedy, 12.5}}, []float64{0, 25, 5}},
}

// TestTreeSharesEqualHTB gives each tree to the kernel's HTB and to shaper, the
// same datagrams to both at the same time, and compares what arrives.
func TestTreeSharesEqualHTB(t *testing.T) {
	tool(t, "tc", "iproute2")
	step := trial.Size(3, 1)
	for i := 0; i < len(patterns); i += step {
		p := patterns[i]
		t.Run(strings.ReplaceAll(p.name, " ", "_"), func(t *testing.T) {
			near, far := wire(t)
			kernel, user := p.throughHTB(t, near, far), p.throughShaper(t)
			time.Sleep(settle)
			trial.Judge(t, 10*time.Millisecond, func() error {
				from := time.Now()
				time.Sleep(measure)
				to := time.Now()
				return p.holds(t, units(kernel, from, to), units(user, from, to))
			})
		})
	}
}

// holds holds that both shared by their rules.
func (p pattern) holds(t *testing.T, kernel, user []float64) error {
	var wantKernel, wantUser []float64
	for _, n := range p.nodes {
		wantUser = append(wantUser, n.want)
	}
	if wantKernel = p.htb; p.htb == nil {
		wantKernel = wantUser
	}
	for i, n := range p.nodes {
		t.Logf("%-3s offered %2d units: htb %5.2f (rule %5.2f), shaper %5.2f (rule %5.2f)", n.name, n.load, kernel[i], wantKernel[i], user[i], wantUser[i])
	}
	err := errors.Join(p.near("htb", kernel, wantKernel), p.near("shaper", user, wantUser))
	if p.htb == nil {
		err = errors.Join(err, p.near("shaper beside htb", user, kernel))
	}
	return err
}

// near holds that each class got its share. All of them together may be off by
// more: they lack what the machine had no time for, or make up for it.
func (p pattern) near(what string, got, want []float64) (err error) {
	sum, wanted := 0., 0.
	for i := range got {
		sum, wanted = sum+got[i], wanted+want[i]
	}
	if math.Abs(sum-wanted) > 0.1*wanted {
		err = fmt.Errorf("%s: %.2f units, not %.2f", what, sum, wanted)
	}
	for i, n := range p.nodes {
		if share := got[i] / sum * wanted; !(math.Abs(share-want[i]) <= allowed) {
			err = errors.Join(err, fmt.Errorf("%s: of %.2f units %s gets %.2f, not %.2f", what, wanted, n.name, share, want[i]))
		}
	}
	return err
}

// units returns what arrived at each recorder in a second of a span.
func units(all []*recorder, from, to time.Time) (got []float64) {
	for _, r := range all {
		got = append(got, float64(r.between(from, to))/payload/perUnit/to.Sub(from).Seconds())
	}
	return got
}

// throughHTB makes the tree a qdisc of the near end of a wire, and offers each
// class its load there.
func (p pattern) throughHTB(t *testing.T, near, far *namespace) (got []*recorder) {
	const root = 0xff // the minor number of a class is its place in the list
	near.run("tc qdisc replace dev wire root handle 1: htb")
	t.Cleanup(func() { near.run("tc qdisc del dev wire root") })
	near.run("tc class add dev wire parent 1: classid 1:%x %s", root, node{rate: all}.htb())
	minors := map[string]int{"": root}
	for i, n := range p.nodes {
		minors[n.name] = i + 1
		near.run("tc class add dev wire parent 1:%x classid 1:%x %s", minors[n.parent], i+1, n.htb())
	}
	for i, n := range p.nodes {
		r, addr := far.record(t, farEnd)
		got = append(got, r)
		go pace(near.dialUDP(t, addr, 1<<16|i+1), payload, float64(n.load)*perUnit)
	}
	return got
}

// htb returns the class as tc(8) takes it: 15 frames may leave at once, 10 ms of
// the root, and a turn is worth one of them times the weight.
func (n node) htb() string {
	bit := func(units int) int { return units * perUnit * onWire * 8 }
	return fmt.Sprintf("htb rate %dbit ceil %dbit burst %d cburst %d prio %d quantum %d",
		bit(n.rate), bit(max(n.rate, n.ceil)), 15*onWire, 15*onWire, n.priority, max(n.weight, 1)*onWire)
}

// throughShaper starts shaper with the tree, and offers each class its load.
func (p pattern) throughShaper(t *testing.T) (got []*recorder) {
	policy := "[class.root]\n" + rateKey("rate", all)
	for _, n := range p.nodes {
		r, upstream := recordUDP(t)
		got = append(got, r)
		policy += n.policy() + fmt.Sprintf("[listener.%s]\nlisten = \"127.0.0.1:0\"\nprotocol = \"udp\"\nupstream = %q\nclass = %q\n",
			n.name, upstream, n.name)
	}
	s := start(t, plain(), policy)
	for _, n := range p.nodes {
		go pace(dialUDP(t, s.addr(n.name)), payload, float64(n.load)*perUnit)
	}
	return got
}

// policy returns the class as shaper.toml has it.
func (n node) policy() string {
	parent, ceil := n.parent, ""
	if parent == "" {
		parent = "root"
	}
	if n.ceil > 0 {
		ceil = rateKey("ceil", n.ceil)
	}
	return fmt.Sprintf("[class.%s]\nparent = %q\n%s%spriority = %d\nweight = %d\n", n.name, parent, rateKey("rate", n.rate), ceil, n.priority, n.weight)
}

func rateKey(key string, units int) string {
	return fmt.Sprintf("%s = \"%dB/s\"\n", key, units*perUnit*payload)
}
