package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"shaper/policy"
	"shaper/simulate"
	"shaper/stats"
	"shaper/unit"
)

// simulatedTime is how long generated loads go on where nobody says so.
const simulatedTime = time.Minute

func simulateCommand() *cli.Command {
	return &cli.Command{
		Name:  "simulate",
		Usage: "send a workload through a policy in virtual time: waits, losses, departures",
		Description: "The workload is generated, by one --load for each client, or read with --trace. Nothing is sent, and no daemon\n" +
			"is asked. The same command always prints the same. What of a policy is not simulated, it says on stderr.\n\n" +
			"A LOAD is KEY=VALUE with commas between, such as \"pattern=poisson,rate=100 packets/s,size=1200B\":\n" +
			"rate of bytes or of items, required; size of an item (1200B); pattern: constant, poisson, bursts\n" +
			"(with on=100ms,off=900ms), or seconds (all of a second at its beginning); listener (each of the policy),\n" +
			"source (127.0.0.1) and port (the listener's), as rules see them; path, method and host, or system_id and\n" +
			"source_addr, of its messages; start (0s); count (no end).\n\n" +
			"A trace is a .csv file with a header, or a .jsonl file, with time (seconds or RFC 3339), client, bytes, and where it\n" +
			"is not clear which listener is meant, port or listener; also messages, and path, method, host, system_id, source_addr. A .pcap or .pcapng file is one, too.",
		Flags: []cli.Flag{
			jsonFlag(),
			&cli.StringSliceFlag{Name: "load", Usage: "a `LOAD` to generate; may be given several times"},
			&cli.StringFlag{Name: "trace", Usage: "the `FILE` of arrivals to read: .csv, .jsonl, .pcap or .pcapng"},
			&cli.StringFlag{Name: "for", Usage: "the `TIME` to simulate; a trace goes on until all has left", DefaultText: unit.FormatDuration(simulatedTime)},
			&cli.Uint64Flag{Name: "seed", Usage: "another `NUMBER`, another chance", Value: 1},
			&cli.StringFlag{Name: "compare", Usage: "the `FILE` of another policy, for the same workload"},
			&cli.StringFlag{Name: "departures", Usage: "write what leaves when into a CSV `FILE`"},
			&cli.StringFlag{Name: "plot", Usage: "draw arrivals, departures and backlog into an SVG `FILE`"},
		},
		Action: simulation,
	}
}

func simulation(c *cli.Context) error {
	if file := c.Args().First(); file != "" {
		return usageError("%q is one argument too many; the policy is -c FILE: shaper simulate -c %s", file, file)
	}
	w, err := workloadOf(c)
	if err != nil {
		return err
	}
	path, _ := configPath(c)
	paths := []string{path}
	if c.IsSet("compare") {
		paths = append(paths, c.String("compare"))
	}
	var reports []*simulate.Report
	for i, path := range paths {
		departures := ""
		if i == 0 {
			departures = c.String("departures")
		}
		report, err := w.through(c, path, departures)
		if err != nil {
			return err
		}
		reports = append(reports, report)
	}
	for _, report := range reports {
		for _, note := range report.Notes {
			fmt.Fprintf(c.App.ErrWriter, "note: %s: %s\n", report.Policy, note)
		}
	}
	if name := c.String("plot"); name != "" {
		if err := into(name, func(out io.Writer) error { return simulate.Plot(out, reports...) }); err != nil {
			return err
		}
	}
	return printReports(c, reports)
}

// A workload is what a command line asks to simulate.
type workload struct {
	loads  []simulate.Load
	seed   uint64
	trace  string // the file; "": the loads
	length time.Duration
	curves bool
}

func workloadOf(c *cli.Context) (w workload, err error) {
	w = workload{seed: c.Uint64("seed"), trace: c.String("trace"), curves: c.IsSet("plot")}
	if (w.trace == "") == (len(c.StringSlice("load")) == 0) {
		return w, usageError(`a workload is either --trace, or one --load or more, such as --load "rate=100 packets/s"`)
	}
	if w.trace == "" {
		w.length = simulatedTime
	}
	if c.IsSet("for") {
		length, err := unit.ParseDuration(c.String("for"))
		if w.length = time.Duration(length); err != nil {
			return w, usageError("--for: %v", err)
		}
		if length == 0 {
			return w, usageError("--for: 0s leaves no time; a time above 0s")
		}
	}
	for _, text := range c.StringSlice("load") {
		load, err := simulate.ParseLoad(text)
		if err != nil {
			return w, usageError("--load: %v", err)
		}
		w.loads = append(w.loads, load)
	}
	return w, nil
}

// through sends the workload through the policy of a file.
func (w workload) through(c *cli.Context, path, departures string) (report *simulate.Report, err error) {
	p, _, err := load(c, path)
	if err != nil {
		return nil, err
	}
	sources, closer, err := w.sources(p)
	if err != nil {
		return nil, err
	}
	defer closer.Close()
	o := simulate.Options{For: w.length, Curves: w.curves}
	if departures == "" {
		return simulate.Run(p, sources, o)
	}
	err = into(departures, func(out io.Writer) (err error) {
		if o.Departures, err = simulate.WriteDepartures(out); err != nil {
			return err
		}
		report, err = simulate.Run(p, sources, o)
		return err
	})
	return report, err
}

func (w workload) sources(p *policy.Policy) ([]simulate.Source, io.Closer, error) {
	if w.trace == "" {
		sources, err := simulate.Sources(p, w.loads, w.seed)
		if err != nil {
			return nil, nil, usageError("--load: %v", err)
		}
		return sources, io.NopCloser(nil), nil
	}
	file, err := os.Open(w.trace)
	if err != nil {
		return nil, nil, err
	}
	source, err := simulate.ReadTrace(p, w.trace, file)
	if err != nil {
		file.Close()
		return nil, nil, err
	}
	return []simulate.Source{source}, file, nil
}

// into writes a file. What cannot be written whole is an error.
func into(name string, write func(io.Writer) error) error {
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	out := bufio.NewWriterSize(file, 64<<10)
	return errors.Join(write(out), out.Flush(), file.Close())
}

func printReports(c *cli.Context, reports []*simulate.Report) error {
	switch {
	case len(reports) == 1 && c.Bool("json"):
		return printJSON(c, reports[0])
	case c.Bool("json"):
		return printJSON(c, comparison{reports[0], reports[1]})
	case len(reports) == 1:
		printReport(c.App.Writer, reports[0])
	default:
		printComparison(c.App.Writer, comparison{reports[0], reports[1]})
	}
	return nil
}

// printReport prints each class under its parent.
func printReport(w io.Writer, r *simulate.Report) {
	fmt.Fprintf(w, "%s  %s, %s\n\n", r.Policy, r.Hash, duration(r.Period))
	t := table{header: []string{"CLASS", ">LIMIT", ">OFFERED", ">LEFT", ">DROPPED", ">REFUSED", ">WAITING", ">P50", ">P99", ">MAX", ">REACHED", ">USED", ">MOST"},
		spare: []string{"MOST", "REACHED", "P50", "MAX", "WAITING", "LIMIT", "OFFERED"}}
	for _, c := range asTree(r.Classes, func(c simulate.Class) (name, parent string) { return c.Name, c.Parent }) {
		t.add(strings.Repeat("  ", c.depth)+c.of.Name, c.of.Limit.Text, count(c.of.Offered), count(c.of.Left), losses(c.of.Dropped), losses(c.of.Refused), count(c.of.Waiting),
			duration(c.of.WaitP50), duration(c.of.WaitP99), duration(c.of.WaitMax), c.of.Reached.Text, percent(c.of.Utilisation), count(c.of.MostWaiting))
	}
	t.write(w, "")
}

func count(a simulate.Amount) string { return strconv.FormatUint(a.Items, 10) }

func percent(share float64) string { return fmt.Sprintf("%.1f%%", share*100) }

// losses prints how many items were lost, by reason: "10 queue_full".
func losses(by map[stats.Reason]stats.LossReading) string {
	var parts []string
	for reason := range stats.Reasons() {
		if n := by[reason].Items; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %v", n, reason))
		}
	}
	if len(parts) == 0 {
		return "0"
	}
	return strings.Join(parts, ", ")
}

// comparison is the same workload through two policies.
type comparison struct {
	Policy *simulate.Report `json:"policy"`
	Other  *simulate.Report `json:"other"`
}

// figures are what is compared of a class: how each is printed, and its value.
var figures = []struct {
	name  string
	print func(float64) string
	value func(simulate.Class) float64
}{
	{"offered", whole, func(c simulate.Class) float64 { return float64(c.Offered.Items) }},
	{"left", whole, func(c simulate.Class) float64 { return float64(c.Left.Items) }},
	{"dropped", whole, func(c simulate.Class) float64 { return float64(allLost(c.Dropped)) }},
	{"refused", whole, func(c simulate.Class) float64 { return float64(allLost(c.Refused)) }},
	{"waiting", whole, func(c simulate.Class) float64 { return float64(c.Waiting.Items) }},
	{"p50", seconds, func(c simulate.Class) float64 { return float64(c.WaitP50) }},
	{"p99", seconds, func(c simulate.Class) float64 { return float64(c.WaitP99) }},
	{"max", seconds, func(c simulate.Class) float64 { return float64(c.WaitMax) }},
	{"used", percent, func(c simulate.Class) float64 { return c.Utilisation }},
	{"most", whole, func(c simulate.Class) float64 { return float64(c.MostWaiting.Items) }},
}

func whole(v float64) string   { return fmt.Sprintf("%.0f", v) }
func seconds(v float64) string { return duration(stats.Seconds(v)) }

// printComparison prints the figures of each class side by side. A class that
// only one policy has has no difference.
func printComparison(w io.Writer, both comparison) {
	t := table{header: []string{"CLASS", "", ">" + both.Policy.Policy, ">" + both.Other.Policy, ">DIFFERENCE"}}
	for _, name := range classesOf(both) {
		a, inPolicy := both.Policy.Class(name)
		b, inOther := both.Other.Class(name)
		for _, f := range figures {
			row := []string{name, f.name, "-", "-", "-"}
			if inPolicy {
				row[2] = f.print(f.value(a))
			}
			if inOther {
				row[3] = f.print(f.value(b))
			}
			if inPolicy && inOther {
				row[4] = difference(f.value(b)-f.value(a), f.print)
			}
			t.add(row...)
			name = ""
		}
	}
	t.write(w, "")
}

func difference(d float64, print func(float64) string) string {
	switch {
	case d > 0:
		return "+" + print(d)
	case d < 0:
		return "-" + print(-d)
	}
	return "0"
}

// classesOf returns the names of all classes, those of the policy first.
func classesOf(both comparison) (names []string) {
	for _, c := range slices.Concat(both.Policy.Classes, both.Other.Classes) {
		if !slices.Contains(names, c.Name) {
			names = append(names, c.Name)
		}
	}
	return names
}
