package main

import (
	"bytes"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"shaper/daemon"
	"shaper/policy"
	"shaper/stats"
)

func checkCommand() *cli.Command {
	return &cli.Command{
		Name:        "check",
		Usage:       "validate a policy file, and print what it says",
		ArgsUsage:   "[FILE]",
		Description: "Warnings go to the standard error, and are no failure. FILE may be -, for the standard input.",
		Flags: []cli.Flag{
			jsonFlag(),
			&cli.BoolFlag{Name: "all", Usage: "print every key, also those that the file leaves at their default", DisableDefaultText: true},
			&cli.BoolFlag{Name: "strict", Usage: "take warnings for errors", DisableDefaultText: true},
		},
		Action: check,
	}
}

func check(c *cli.Context) error {
	if err := arguments(c, 0, 1); err != nil {
		return err
	}
	path, _ := configPath(c)
	if c.NArg() == 1 {
		path = c.Args().First()
	}
	name, text, err := read(c, path)
	if err != nil {
		return err
	}
	p, warnings, err := policy.LoadFrom(name, bytes.NewReader(text))
	if err != nil {
		return err
	}
	more, err := daemon.CheckFiles(p)
	if err != nil {
		return err
	}
	if warnings = append(warnings, more...); c.Bool("strict") && len(warnings) > 0 {
		return warnings
	}
	if c.Bool("json") {
		return printJSON(c, struct {
			Policy   *policy.Policy `json:"policy"`
			Warnings policy.Errors  `json:"warnings"`
		}{p, append(policy.Errors{}, warnings...)})
	}
	for _, w := range warnings {
		fmt.Fprintf(c.App.ErrWriter, "warning: %v\n", w)
	}
	if c.Bool("all") {
		return p.WriteTree(c.App.Writer)
	}
	return p.WriteWritten(c.App.Writer, policy.Written(text))
}

// show asks the daemon for something and prints it.
func show[T any](c *cli.Context, get func(*daemon.Client, *cli.Context) (T, error), print func(io.Writer, T)) error {
	d, err := client(c)
	if err != nil {
		return err
	}
	v, err := get(d, c)
	if err != nil {
		return err
	}
	if c.Bool("json") {
		return printJSON(c, v)
	}
	print(c.App.Writer, v)
	return nil
}

func statusCommand() *cli.Command {
	return &cli.Command{
		Name:  "status",
		Usage: "show the daemon: up since, policy, last reload, totals",
		Flags: []cli.Flag{jsonFlag(), watchFlag()},
		Action: watched(func(c *cli.Context) error {
			if err := arguments(c, 0, 0); err != nil {
				return err
			}
			return show(c,
				func(d *daemon.Client, c *cli.Context) (daemon.Status, error) { return d.Status(c.Context) },
				func(w io.Writer, s daemon.Status) { printStatus(w, s, time.Now()) })
		}),
	}
}

func printStatus(w io.Writer, s daemon.Status, now time.Time) {
	fmt.Fprintf(w, "shaper %s, %s, pid %d, up %s since %s\n\n", s.Version, s.State, s.PID, ago(s.Started, now), stamp(s.Started))
	fmt.Fprintf(w, "policy    %s  %s\n", s.Policy, s.PolicyHash)
	printReload(w, s, now)
	fmt.Fprintf(w, "control   %s\n", s.Control)
	if s.HTTP != "" {
		fmt.Fprintf(w, "metrics   http://%s/metrics\n", s.HTTP)
	}
	up, down := s.Totals.Sent[stats.Upstream], s.Totals.Sent[stats.Downstream]
	fmt.Fprintf(w, "sessions  %d open, %d ended\n", s.Totals.Sessions, s.Totals.Ended)
	fmt.Fprintf(w, "sent      %s to upstreams, %s to clients\n", human(up.Bytes), human(down.Bytes))
	fmt.Fprintf(w, "backlog   %s, %s\n", plural(s.Totals.BacklogItems, "item"), human(s.Totals.BacklogBytes))
	fmt.Fprintf(w, "dropped   %s, %s\n", plural(s.Totals.Dropped.Items, "item"), human(s.Totals.Dropped.Bytes))
	fmt.Fprintf(w, "refused   %s, %s\n\n", plural(s.Totals.Refused.Items, "item"), human(s.Totals.Refused.Bytes))
	t := table{header: []string{"LISTENER", "WHERE", ">OPEN", ">OK", ">FAILED"}}
	for _, l := range s.Listeners {
		ok := l.Ended[stats.OK]
		var all uint64
		for _, n := range l.Ended {
			all += n
		}
		t.add(l.Name, l.Protocol+" "+strings.Join(l.Addresses, ", "), strconv.FormatInt(l.Open, 10), fmt.Sprint(ok), fmt.Sprint(all-ok))
	}
	t.write(w, "")
}

// printReload prints how the last reload went, and what is not as in the file.
func printReload(w io.Writer, s daemon.Status, now time.Time) {
	if s.Reload.OK {
		fmt.Fprintf(w, "loaded    %s ago, %s\n", ago(s.Reload.Succeeded, now), stamp(s.Reload.Succeeded))
	} else {
		fmt.Fprintf(w, "loaded    %s ago; the LAST RELOAD FAILED %s ago:\n", ago(s.Reload.Succeeded, now), ago(s.Reload.Time, now))
		for line := range strings.Lines(s.Reload.Error + "\n") {
			fmt.Fprintf(w, "          %s", line)
		}
	}
	if !s.Rollback.IsZero() {
		fmt.Fprintf(w, "rollback  in %s, unless `shaper confirm` comes first\n", ago(now, s.Rollback))
	}
	for _, set := range s.Sets {
		until := "until the next reload"
		if !set.Until.IsZero() {
			until = "for another " + ago(now, set.Until)
		}
		fmt.Fprintf(w, "set       %s: %s, %s\n", set.Class, assignments(set.Values), until)
	}
	if n := len(s.Warnings); n > 0 {
		fmt.Fprintf(w, "warnings  %d; see shaper check\n", n)
	}
}

// ago prints how long a is before b.
func ago(a, b time.Time) string {
	d := max(b.Sub(a), 0)
	if days := int(d / (24 * time.Hour)); days > 0 {
		return fmt.Sprintf("%dd%dh", days, int(d/time.Hour)%24)
	}
	return withoutZeroSeconds(d.Round(time.Second).String())
}

func stamp(t time.Time) string { return t.Local().Format("2006-01-02 15:04:05") }

func explainCommand() *cli.Command {
	return &cli.Command{
		Name:      "explain",
		Usage:     "say which rule and class a client gets, and why",
		ArgsUsage: "SOURCE",
		Description: "SOURCE is an address, or address:port. Without --listener and --port each way in is explained, with the\n" +
			"policy that is in force.",
		Flags: []cli.Flag{
			jsonFlag(),
			&cli.StringFlag{Name: "listener", Usage: "the `LISTENER` it connects to"},
			&cli.StringFlag{Name: "port", Usage: "the `PORT` it connects to", DefaultText: "those of the listener"},
		},
		Action: explain,
	}
}

// portFlag reads --port; 0 if it is not given.
func portFlag(c *cli.Context) (uint16, error) {
	if !c.IsSet("port") {
		return 0, nil
	}
	port, err := strconv.ParseUint(c.String("port"), 10, 16)
	if err != nil || port == 0 {
		return 0, usageError("--port: %q is not a port; a port is from 1 to 65535", c.String("port"))
	}
	return uint16(port), nil
}

func explain(c *cli.Context) error {
	if err := arguments(c, 1, 1); err != nil {
		return err
	}
	port, err := portFlag(c)
	if err != nil {
		return err
	}
	ask := daemon.ExplainRequest{Source: c.Args().First(), Listener: c.String("listener"), Port: port}
	return show(c,
		func(d *daemon.Client, c *cli.Context) ([]policy.Explanation, error) { return d.Explain(c.Context, ask) },
		func(w io.Writer, all []policy.Explanation) {
			for _, e := range all {
				writeWrapped(w, fmt.Sprintf("listener %s, port %d: %v", e.Conn.Listener, e.Conn.Port, e))
			}
		})
}
