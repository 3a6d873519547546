package tests

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"shaper/tests/trial"
)

// A qdisc counts the bytes of frames, and shaper counts bytes of payload. So rates are in units of
// perUnit datagrams per second, which each side converts to its own bytes.
const (
	perUnit   = 50 // datagrams per second
	onWire    = payload + 14 + 20 + 8
	payload   = 958
	rootUnits = 30                      // rate of the root, in units
	greedy    = rootUnits + rootUnits/2 // load of a greedy class, in units
	tolerance = 0.025 * rootUnits       // largest deviation of a share, in units
	settle    = 400 * time.Millisecond  // time until the shares are stable
	measure   = 1300 * time.Millisecond
)

// node is a class below the root. Rate, ceil, load and want are in units.
type node struct {
	name, parent     string // parent "": the root
	rate, ceil       int
	priority, weight int
	load             int     // offered; 0: the class is idle or an inner class
	want             float64 // share by shaper's rule
}

// pattern is a tree and the load of its leaves.
type pattern struct {
	name  string
	nodes []node
	htb   []float64 // share of each node by HTB's rule; nil: the same as shaper's
}

// In most patterns the children have assured rates of 10 and 5 of the root's 30 units. Without full
// sizes, every sixth is tried.
var patterns = []pattern{
	{"both greedy", []node{{"a", "", 10, 30, 4, 1, greedy, 17.5}, {"b", "", 5, 30, 4, 1, greedy, 12.5}}, nil},
	{"by weight", []node{{"a", "", 10, 30, 4, 2, greedy, 20}, {"b", "", 5, 30, 4, 1, greedy, 10}}, nil},
	{"by a large weight", []node{{"a", "", 10, 30, 4, 1, greedy, 11.5}, {"b", "", 5, 30, 4, 9, greedy, 18.5}}, nil},
	{"by priority", []node{{"a", "", 10, 30, 0, 1, greedy, 25}, {"b", "", 5, 30, 4, 1, greedy, 5}}, nil},
	{"by priority, the other", []node{{"a", "", 10, 30, 4, 1, greedy, 10}, {"b", "", 5, 30, 0, 1, greedy, 20}}, nil},
	{"one idle", []node{{"a", "", 10, 30, 4, 1, greedy, 30}, {"b", "", 5, 30, 4, 1, 0, 0}}, nil},
	{"three alike", []node{{"a", "", 5, 30, 4, 1, greedy, 10}, {"b", "", 5, 30, 4, 1, greedy, 10}, {"c", "", 5, 30, 4, 1, greedy, 10}}, nil},
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

	// HTB serves a class within its rate whatever its ancestors have sent, so the root exceeds
	// its rate. In shaper no class exceeds its limit; children get their assured rates only as far
	// as the parent has them.
	{"more assured than there is", []node{{"a", "", 30, 30, 4, 1, greedy, 15}, {"b", "", 30, 30, 4, 1, greedy, 15}}, []float64{30, 30}},
	// In HTB leaves borrow: the three leaves take turns at the root. In shaper siblings compete,
	// whatever is below them.
	{"cousins borrow", []node{{"a", "", 10, 30, 4, 1, 0, 0}, {"a1", "a", 5, 30, 4, 1, greedy, 8.75}, {"a2", "a", 5, 30, 4, 1, greedy, 8.75},
		{"b", "", 5, 30, 4, 1, greedy, 12.5}}, []float64{0, 10, 10, 10}},
	// In HTB an inner class has one place in the round for all levels: what a lends to a1 advances
	// it, and costs a1 its turn at the root. In shaper each level has its own round.
	{"turns at two levels", []node{{"a", "", 15, 30, 4, 1, 0, 0}, {"a1", "a", 10, 30, 4, 1, greedy, 17.5}, {"b", "", 10, 30, 4, 1, greedy, 12.5}},
		[]float64{0, 15, 15}},
	// In HTB the priority of a leaf counts at each level, and that of an inner class nowhere. In
	// shaper a priority counts among siblings.
	{"priority among siblings", []node{{"a", "", 10, 30, 4, 1, 0, 0}, {"a1", "a", 10, 30, 0, 1, greedy, 17.5},
		{"b", "", 5, 30, 4, 1, greedy, 12.5}}, []float64{0, 25, 5}},
}

// Shaper and the kernel's HTB get the same trees and the same datagrams at the same time. The
// test compares the shares that arrive.
func TestTreeSharesEqualHTB(t *testing.T) {
	tool(t, "tc", "iproute2")
	step := trial.Size(6, 1)
	for i := 0; i < len(patterns); i += step {
		p := patterns[i]
		t.Run(strings.ReplaceAll(p.name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			near, far := wire(t)
			kernel, user := p.throughHTB(t, near, far), p.throughShaper(t)
			time.Sleep(settle)
			trial.Judge(t, 10*time.Millisecond, func() *trial.Miss {
				from := time.Now()
				time.Sleep(measure)
				to := time.Now()
				return p.check(t, units(kernel, from, to), units(user, from, to))
			})
		})
	}
}

// check compares the shares of both with their rules, and with each other if the rules agree.
func (p pattern) check(t *testing.T, kernel, user []float64) *trial.Miss {
	var wantKernel, wantUser []float64
	for _, n := range p.nodes {
		wantUser = append(wantUser, n.want)
	}
	if wantKernel = p.htb; p.htb == nil {
		wantKernel = wantUser
	}
	for i, n := range p.nodes {
		t.Logf("%-3s load %2d units: htb %5.2f (rule %5.2f), shaper %5.2f (rule %5.2f)", n.name, n.load, kernel[i], wantKernel[i], user[i], wantUser[i])
	}
	wrong := trial.Join(p.compare("htb", kernel, wantKernel), p.compare("shaper", user, wantUser))
	if p.htb == nil {
		wrong = trial.Join(wrong, p.compare("shaper beside htb", user, kernel))
	}
	return wrong
}

// compare returns a Miss if a class's share of the whole is off by more than tolerance. The
// whole may be off by 10 %: the machine may be late, and shaper makes up for it. On a busy machine
// the whole may be off by two thirds, and a share by a fifth of the whole.
func (p pattern) compare(what string, got, want []float64) (wrong *trial.Miss) {
	sum, wanted := 0., 0.
	for i := range got {
		sum, wanted = sum+got[i], wanted+want[i]
	}
	wrong = trial.Most(math.Abs(sum-wanted), 0.1*wanted, 0.67*wanted, "%s: all classes get %.2f units, want %.2f", what, sum, wanted)
	for i, n := range p.nodes {
		share := got[i] / sum * wanted
		wrong = trial.Join(wrong, trial.Most(math.Abs(share-want[i]), tolerance, 0.2*wanted, "%s: of %.2f units, %s gets %.2f, want %.2f", what, wanted, n.name, share, want[i]))
	}
	return wrong
}

// units returns the rate at which datagrams arrived at each recorder in a span, in units.
func units(all []*recorder, from, to time.Time) (got []float64) {
	for _, r := range all {
		got = append(got, float64(r.between(from, to))/payload/perUnit/to.Sub(from).Seconds())
	}
	return got
}

// throughHTB installs the tree at the near end of a wire, and offers each class its load there. It
// returns a recorder for each node.
func (p pattern) throughHTB(t *testing.T, near, far *namespace) (got []*recorder) {
	const root = 0xff // the minor number of a class is its place in the list
	near.run("tc qdisc replace dev wire root handle 1: htb")
	t.Cleanup(func() { near.run("tc qdisc del dev wire root") })
	near.run("tc class add dev wire parent 1: classid 1:%x %s", root, node{rate: rootUnits}.htb())
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

// htb returns the class as arguments of tc(8). Its burst is 15 frames, which is 10 ms of the root's
// rate. Its quantum is one frame times the weight.
func (n node) htb() string {
	bit := func(units int) int { return units * perUnit * onWire * 8 }
	return fmt.Sprintf("htb rate %dbit ceil %dbit burst %d cburst %d prio %d quantum %d",
		bit(n.rate), bit(max(n.rate, n.ceil)), 15*onWire, 15*onWire, n.priority, max(n.weight, 1)*onWire)
}

// throughShaper starts shaper with the tree, and offers each class its load. It returns a recorder
// for each node.
func (p pattern) throughShaper(t *testing.T) (got []*recorder) {
	policy := "[class.root]\n" + rateKey("rate", rootUnits)
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

// policy returns the class as a section of shaper.toml.
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
