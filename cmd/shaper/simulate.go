package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"shaper/human"
	"shaper/simulate"
	"shaper/stats"
	"shaper/unit"
)

func simulateCommand() *cli.Command {
	return &cli.Command{
		Name:  "simulate",
		Usage: "run a workload through a policy in virtual time, and print waits and losses",
		Description: "The workload is generated, one --load for each client, or read with --trace. Nothing is sent, and no daemon\n" +
			"is asked. The same command always prints the same. Notes on stderr say what of the policy is not simulated.\n\n" +
			"A LOAD is KEY=VALUE pairs separated by commas, such as \"pattern=poisson,rate=100 packets/s,size=1200B\":\n" +
			"rate of bytes or of items (required); size of an item (1200B); pattern: constant, poisson, bursts\n" +
			"(with on=100ms,off=900ms), or seconds (all items of a second at its beginning); listener (each of the policy),\n" +
			"source (127.0.0.1) and port (the listener's), as rules see them; path, method, host and header:NAME, or\n" +
			"system_id, source_addr, recipient, data_coding and esm_class, of its messages; start (0s); count (no end).\n\n" +
			"A trace is a .csv file with a header, a .jsonl file, or a capture (.pcap, .pcapng). A .csv or .jsonl file has time\n" +
			"(seconds or RFC 3339), client and bytes; port or listener, if the policy has several listeners that may be meant;\n" +
			"and optionally messages, and what rules see of them, by the names above.\n\n" +
			"--members simulates a fleet: so many shapers with this policy share what it says is shared. The items of a load\n" +
			"go to the members in turn; in a trace, each client (address and port) belongs to one of them, in turn.",
		Flags: []cli.Flag{
			jsonFlag(),
			&cli.StringSliceFlag{Name: "load", Usage: "a `LOAD` to generate; may be repeated"},
			&cli.StringFlag{Name: "trace", Usage: "the `FILE` of arrivals to read: .csv, .jsonl, .pcap or .pcapng"},
			&cli.StringFlag{Name: "for", Usage: "the `TIME` to simulate; a trace goes on until everything has left", DefaultText: unit.FormatDuration(simulate.DefaultFor)},
			&cli.Uint64Flag{Name: "seed", Usage: "the `NUMBER` that starts the random generator", Value: 1},
			&cli.StringFlag{Name: "compare", Usage: "run the workload through the policy in this `FILE` too, and print both"},
			&cli.StringFlag{Name: "departures", Usage: "write when each item leaves to a CSV `FILE`"},
			&cli.IntFlag{Name: "members", Usage: "simulate a fleet of so `MANY` shapers"},
			&cli.StringFlag{Name: "store-delay", Usage: "the `TIME` until the store of the fleet answers", DefaultText: unit.FormatDuration(simulate.DefaultStoreDelay)},
			&cli.StringFlag{Name: "plot", Usage: "draw arrivals, departures and backlog to an SVG `FILE`"},
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
		report, err := runWorkload(c, w, path, departures)
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
		if err := replaceFile(name, func(out io.Writer) error { return simulate.Plot(out, reports...) }); err != nil {
			return err
		}
	}
	return printReports(c, reports)
}

// workloadOf reads the workload of a command line.
func workloadOf(c *cli.Context) (*simulate.Workload, error) {
	words := simulate.Words{Loads: c.StringSlice("load"), Trace: c.String("trace"), Seed: c.Uint64("seed"),
		For: given(c, "for", c.String), Members: given(c, "members", c.Int), StoreDelay: given(c, "store-delay", c.String)}
	w, err := words.Workload()
	if err != nil {
		return nil, usageError("%w", err)
	}
	return w, nil
}

// given returns the value of a flag; nil if the command line does not have it.
func given[T any](c *cli.Context, flag string, value func(string) T) *T {
	if !c.IsSet(flag) {
		return nil
	}
	v := value(flag)
	return &v
}

// runWorkload simulates the workload with the policy of a file. It writes the departures to a file
// unless departures is "".
func runWorkload(c *cli.Context, w *simulate.Workload, path, departures string) (report *simulate.Report, err error) {
	p, _, err := loadPolicy(c, path)
	if err != nil {
		return nil, err
	}
	o := simulate.Options{Curves: c.IsSet("plot")}
	run := func() (err error) {
		report, err = w.Run(p, o, func(name string) (io.ReadCloser, error) { return os.Open(name) })
		if bad := (simulate.BadLoad{}); errors.As(err, &bad) {
			return usageError("%w", bad)
		}
		return err
	}
	if departures == "" {
		err = run()
		return report, err
	}
	err = replaceFile(departures, func(out io.Writer) (err error) {
		if o.Departures, err = simulate.WriteDepartures(out, w.IsFleet()); err != nil {
			return err
		}
		return run()
	})
	return report, err
}

func printReports(c *cli.Context, reports []*simulate.Report) error {
	switch {
	case len(reports) == 1 && c.Bool("json"):
		return printJSON(c, reports[0])
	case c.Bool("json"):
		return printJSON(c, comparison{reports[0], reports[1]})
	case len(reports) == 1 && len(reports[0].Members) > 0:
		printFleetReport(c.App.Writer, reports[0])
	case len(reports) == 1:
		printReport(c.App.Writer, reports[0])
	default:
		printComparison(c.App.Writer, comparison{reports[0], reports[1]})
	}
	return nil
}

// printReport prints each class under its parent.
func printReport(w io.Writer, r *simulate.Report) {
	fmt.Fprintf(w, "%s  %s, %s\n\n", r.Policy, r.Hash, human.Duration(r.Period))
	t := table{header: []string{"CLASS", ">LIMIT", ">OFFERED", ">LEFT", ">DROPPED", ">REFUSED", ">WAITING", ">P50", ">P99", ">MAX", ">REACHED", ">USED", ">MOST"},
		spare: []string{"MOST", "REACHED", "P50", "MAX", "WAITING", "LIMIT", "OFFERED", "P99"}}
	for _, c := range inTreeOrder(r.Classes, func(c simulate.Class) (name, parent string) { return c.Name, c.Parent }) {
		t.add(strings.Repeat("  ", c.depth)+c.of.Name, c.of.Limit.Text, itemsText(c.of.Offered), itemsText(c.of.Left), lossesText(c.of.Dropped), lossesText(c.of.Refused), itemsText(c.of.Waiting),
			human.Duration(c.of.WaitP50), human.Duration(c.of.WaitP99), human.Duration(c.of.WaitMax), c.of.Reached.Text, percent(c.of.Utilisation), itemsText(c.of.MostWaiting))
	}
	t.write(w, "")
}

// printFleetReport prints each class, and under it what each member did with it. USED is of the limit: of a shared
// class, of the whole fleet's.
func printFleetReport(w io.Writer, r *simulate.Report) {
	fmt.Fprintf(w, "%s  %s, %s, %s, store %s away\n\n", r.Policy, r.Hash, human.Duration(r.Period), human.Plural(uint64(len(r.Members)), "member"), human.Duration(r.StoreDelay))
	t := table{header: []string{"CLASS", ">LIMIT", ">OFFERED", ">LEFT", ">DROPPED", ">REFUSED", ">WAITING", ">P50", ">P99", ">MAX", ">USED", ">GAP", ">CALLS/S"},
		spare: []string{"P50", "MAX", "DROPPED", "REFUSED", "LIMIT"}}
	add := func(name, limit string, c simulate.Class) {
		gap, calls := "-", "-"
		if c.Shared != nil {
			if calls = fmt.Sprintf("%.1f", c.Shared.CallsPerSecond); c.Shared.Gap != nil {
				gap = human.Duration(*c.Shared.Gap)
			}
		}
		t.add(name, limit, itemsText(c.Offered), itemsText(c.Left), lossesText(c.Dropped), lossesText(c.Refused), itemsText(c.Waiting),
			human.Duration(c.WaitP50), human.Duration(c.WaitP99), human.Duration(c.WaitMax), percent(c.Utilisation), gap, calls)
	}
	for _, c := range inTreeOrder(r.Classes, func(c simulate.Class) (name, parent string) { return c.Name, c.Parent }) {
		indent := strings.Repeat("  ", c.depth)
		add(indent+c.of.Name, c.of.Limit.Text, c.of)
		for i, m := range r.Members {
			own, _ := m.Class(c.of.Name)
			add(fmt.Sprintf("%s  member %d", indent, i+1), "", own)
		}
	}
	t.write(w, "")
}

// itemsText returns how many items an amount has.
func itemsText(a simulate.Amount) string { return strconv.FormatUint(a.Items, 10) }

// lossesText returns how many items were lost, by reason: "10 queue_full"; "0" if none was.
func lossesText(by map[stats.Reason]stats.LossReading) string {
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
