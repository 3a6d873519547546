// Command bench sends the same work to its end directly, through HAProxy,
// through nginx and through shaper, in turn, and writes down how they compare.
//
// It needs root: all traffic stays in a network namespace of its own, with the
// proxy on one processor and the load on another.
package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// options are the flags.
type options struct {
	rounds   int
	only     string
	ways     string
	out      string
	against  string
	seconds  float64
	proxyCPU int
	loadCPU  int
}

func main() {
	var o options
	flag.IntVar(&o.rounds, "rounds", 5, "how often each is measured; the tables show medians")
	flag.StringVar(&o.only, "only", "", "kinds of work, or groups of them, separated by commas: "+strings.Join(names(), ", "))
	flag.StringVar(&o.ways, "ways", "", "ways, separated by commas: direct, haproxy, nginx, shaper")
	flag.StringVar(&o.out, "out", "", "write the report here, and the plot beside it (default docs/benchmarks.md; with -only, -ways or -against, nothing)")
	flag.StringVar(&o.against, "against", "", "compare with a revision of this repository, and with nothing else; say what is worse")
	flag.Float64Var(&o.seconds, "seconds", 0, "how long one measurement takes (default: as suits its kind)")
	flag.IntVar(&o.proxyCPU, "proxy-cpu", 0, "processor of the proxy")
	flag.IntVar(&o.loadCPU, "load-cpu", 1, "processor of the load: source and sink")
	flag.Parse()
	if err := run(o); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// run prepares what needs the network of the machine, and does the rest in a
// namespace where there is no other traffic.
func run(o options) error {
	chosen, err := choose(o.only, o.ways)
	if err != nil {
		return err
	}
	if o.against != "" {
		chosen = against(chosen)
	}
	if o.out == "" && o.only == "" && o.ways == "" && o.against == "" {
		o.out = filepath.Join("docs", "benchmarks.md")
	}
	if _, err := os.Stat(filepath.Dir(o.out)); err != nil {
		return err // now, and not when all has been measured
	}
	if inside() {
		return measureAll(chosen, o)
	}
	if os.Geteuid() != 0 {
		return errors.New("must run as root: it makes a network namespace and chooses processors")
	}
	t, err := prepare(o.against)
	defer os.RemoveAll(t.Dir)
	if err != nil {
		return err
	}
	return enter(t, o.loadCPU)
}

func measureAll(chosen []kind, o options) error {
	tools, err := prepared()
	if err != nil {
		return err
	}
	defer os.RemoveAll(tools.Dir)
	removeWhenInterrupted(tools.Dir)
	if err := allowDescriptors(); err != nil {
		return err
	}
	machine, others := describe(tools, o), listenForOthers()
	var results []result
	for _, k := range chosen {
		results = append(results, measure(k, tools, o))
	}
	machine += others.String()
	fmt.Print(tables(results), "\n", machine)
	if o.against != "" {
		fmt.Print(losses(results))
	}
	if o.out == "" {
		return nil
	}
	return write(o.out, machine, results)
}

// kind is a kind of work.
type kind struct {
	name    string
	group   string // kinds of a group share a table
	label   string // of this kind, in the table of its group
	columns []column
	ways    []way
	setting setting
	seconds float64 // of one measurement
	measure func(t *trial) ([]float64, error)
}

// column is one of the numbers that a measurement comes to.
type column struct {
	name    string
	format  string
	lower   bool // less is better
	ratio   bool // compared with that of shaper
	plotted bool // the one that the plot shows
}

// trial is one measurement: what a kind's measure works with.
type trial struct {
	kind
	proxy *proxy // nil where the way is direct
	port  int    // that the load goes to
}

func kinds() []kind {
	return slices.Concat(bulkKinds(), rttKinds(), connsKinds(), idleKinds(), udpKinds(), rateKinds(), gapKinds())
}

func names() (all []string) {
	for _, k := range kinds() {
		all = append(all, k.name)
	}
	return all
}

// choose returns the kinds of a list of names of kinds and groups, with the
// ways of a list of peers; all for "".
func choose(only, peers string) (chosen []kind, err error) {
	if only == "" {
		only = strings.Join(names(), ",")
	}
	for name := range strings.SplitSeq(only, ",") {
		known := false
		for _, k := range kinds() {
			if k.name != name && k.group != name {
				continue
			}
			known = true
			if k.ways = chooseWays(k.ways, peers); len(k.ways) > 0 {
				chosen = append(chosen, k)
			}
		}
		if !known {
			return nil, fmt.Errorf("-only: no kind of work is called %q; there are %s", name, strings.Join(names(), ", "))
		}
	}
	if len(chosen) == 0 {
		return nil, fmt.Errorf("-ways: nothing goes by %q", peers)
	}
	return chosen, nil
}

func chooseWays(ways []way, peers string) (chosen []way) {
	for _, w := range ways {
		peer, _, _ := strings.Cut(w.name, ",")
		if peers == "" || slices.Contains(strings.Split(peers, ","), peer) {
			chosen = append(chosen, w)
		}
	}
	return chosen
}

// result is what was measured of a kind of work.
type result struct {
	kind
	rows []row // one for each way
}

type row struct {
	way    way
	rounds [][]float64 // of each round the values of all columns
	failed error       // why there are none
}

// measure goes through all ways in each round, so that what changes on the
// machine meanwhile changes for all of them; to and fro, so that none is always the
// first.
func measure(k kind, tools tools, o options) result {
	r := result{kind: k}
	r.seconds = cmp.Or(o.seconds, k.seconds)
	for _, w := range k.ways {
		r.rows = append(r.rows, row{way: w})
	}
	for round := range o.rounds {
		for i := range r.rows {
			if round%2 == 1 {
				i = len(r.rows) - 1 - i
			}
			row := &r.rows[i]
			if row.failed != nil {
				continue
			}
			values, err := once(r.kind, row.way, tools, o)
			if err != nil {
				row.failed = fmt.Errorf("round %d: %w", round+1, err)
				fmt.Fprintf(os.Stderr, "%-9s %d %-28s %v\n", k.name, round+1, row.way.name, err)
				continue
			}
			row.rounds = append(row.rounds, values)
			fmt.Fprintf(os.Stderr, "%-9s %d %-28s %s\n", k.name, round+1, row.way.name, oneLine(k.columns, values))
		}
	}
	return r
}

// once measures one way, through a proxy of its own.
func once(k kind, w way, tools tools, o options) ([]float64, error) {
	if w.config == nil {
		return k.measure(&trial{kind: k, port: sinkPort})
	}
	p, err := startProxy(w, k.setting, tools, o.proxyCPU)
	if err != nil {
		return nil, err
	}
	defer p.stop()
	values, err := k.measure(&trial{kind: k, proxy: p, port: proxyPort})
	if err != nil && p.hasExited() {
		return nil, fmt.Errorf("%w; the proxy has ended: %s", err, p.log)
	}
	return values, err
}

// length is how long one measurement takes.
func (t *trial) length() time.Duration { return time.Duration(t.seconds * float64(time.Second)) }
