// Command bench compares shaper with HAProxy, nginx, Kannel and tc's HTB. It sends the same work from a source to a
// sink directly and through each proxy in turn, and writes a report.
//
// It needs root. All traffic stays in a network namespace of its own. The proxy runs on one
// processor, source and sink on another.
//
// Files call downwards only:
//
//	main      flags, the namespace, and the run from start to report
//	measure   which kinds of work go which ways, and in which order
//	against   the comparison with an earlier revision
//	machine   what the report says of the machine
//	report    the tables
//	plot      the plot
//	text      the words around the tables
//	idle      work: sessions that stay open and carry nothing
//	rtt       work: round trips
//	conns     work: connections that open and close
//	sms       work: short messages limited by number; and how Kannel limits and sends them
//	request   work: HTTP requests limited by number
//	short     work: the same where the processor is short
//	gap       work: datagrams limited by number, and the gaps between them
//	udp       work: the highest rate of datagrams
//	rate      work: one connection at a set rate
//	bulk      work: as many bytes as possible
//	kind      what describes a kind of work, and what was measured of it
//	talk      both ends of connections that carry messages
//	load      source and sink: their sockets, their loop, and the time they take
//	peers     the ways to the sink, and the configuration of each proxy
//	kannel    Kannel, which limits itself
//	htb       the limit of tc's HTB on the link
//	proxy     a proxy that runs
//	tools     the programs: how they are built and fetched
//	netns     the namespace and the processors
//	setting   what a proxy is to limit
//	stats     sums, medians, percentiles and fairness
//	format    numbers and messages as the report shows them
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

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
	flag.IntVar(&o.rounds, "rounds", 5, "how often to measure each way; the tables show medians")
	flag.StringVar(&o.only, "only", "", "measure only these kinds or groups of work, separated by commas: "+strings.Join(names(), ", "))
	flag.StringVar(&o.ways, "ways", "", "measure only these ways, separated by commas: direct, haproxy, kannel, nginx, shaper, tc htb")
	flag.StringVar(&o.out, "out", "", "write the report to this file, and the plot beside it (default docs/benchmarks.md; with -only, -ways or -against, none)")
	flag.StringVar(&o.against, "against", "", "compare shaper only with this revision of the repository, and list what is worse")
	flag.Float64Var(&o.seconds, "seconds", 0, "length of one measurement (default: that of its kind of work)")
	flag.IntVar(&o.proxyCPU, "proxy-cpu", 0, "processor for the proxy")
	flag.IntVar(&o.loadCPU, "load-cpu", 1, "processor for source and sink")
	flag.Parse()
	if err := run(o); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// run prepares the programs, which needs the machine's network, and starts the program again
// in a network namespace. There it measures.
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
		return err // before an hour of measuring, not after it
	}
	if inside() {
		return measureAll(chosen, o)
	}
	if os.Geteuid() != 0 {
		return errors.New("must run as root: it makes a network namespace and sets CPU affinity")
	}
	t, err := prepare(func(peer string) bool { return goesBy(chosen, peer) }, o.against)
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
	machine, others := describe(tools, o), watchOthers()
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
