package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"shaper/daemon"
	"shaper/stats"
)

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
