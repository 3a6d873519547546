package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"shaper/daemon"
	"shaper/human"
	"shaper/stats"
)

func statusCommand() *cli.Command {
	return &cli.Command{
		Name:  "status",
		Usage: "show the daemon: uptime, policy, last reload, totals",
		Flags: []cli.Flag{jsonFlag(), watchFlag()},
		Action: watched(func(c *cli.Context) error {
			if err := arguments(c, 0, 0); err != nil {
				return err
			}
			return ask(c,
				func(d *daemon.Client, c *cli.Context) (daemon.Status, error) { return d.Status(c.Context) },
				func(w io.Writer, s daemon.Status) { printStatus(w, s, time.Now()) })
		}),
	}
}

func printStatus(w io.Writer, s daemon.Status, now time.Time) {
	fmt.Fprintf(w, "shaper %s, %s, pid %d, up %s since %s\n\n", s.Version, s.State, s.PID, human.Elapsed(s.Started, now), timestamp(s.Started))
	fmt.Fprintf(w, "policy    %s  %s\n", s.Policy, s.PolicyHash)
	printReload(w, s, now)
	fmt.Fprintf(w, "control   %s\n", s.Control)
	if s.HTTP != "" {
		fmt.Fprintf(w, "dashboard http://%s/\nmetrics   http://%[1]s/metrics\n", s.HTTP)
	}
	printBudgets(w, s.Budgets, now)
	if s.Kept != nil && s.Kept.Error != "" {
		fmt.Fprintf(w, "kernel    DIFFERS FROM THE POLICY: %s\n", s.Kept.Error)
	}
	carried := s.Totals.Sessions > 0 || s.Totals.Ended > 0 // also for listeners that a reload has removed
	if len(s.Listeners) == 0 {
		printNoListeners(w, s)
	}
	if len(s.Listeners) > 0 || carried {
		printTotals(w, s)
	}
	if len(s.Listeners) > 0 {
		printListeners(w, s.Listeners)
	}
}

// printTotals prints what the proxy has carried and lost since the start, and what waits.
func printTotals(w io.Writer, s daemon.Status) {
	up, down := s.Totals.Sent[stats.Upstream], s.Totals.Sent[stats.Downstream]
	fmt.Fprintf(w, "sessions  %d open, %d ended\n", s.Totals.Sessions, s.Totals.Ended)
	fmt.Fprintf(w, "sent      %s to upstreams, %s to clients\n", human.Bytes(up.Bytes), human.Bytes(down.Bytes))
	fmt.Fprintf(w, "backlog   %s, %s\n", human.Plural(s.Totals.BacklogItems, "item"), human.Bytes(s.Totals.BacklogBytes))
	fmt.Fprintf(w, "dropped   %s, %s\n", human.Plural(s.Totals.Dropped.Items, "item"), human.Bytes(s.Totals.Dropped.Bytes))
	fmt.Fprintf(w, "refused   %s, %s\n", human.Plural(s.Totals.Refused.Items, "item"), human.Bytes(s.Totals.Refused.Bytes))
	printLateness(w, s.Pacers)
}

// printListeners prints a line for each listener.
func printListeners(w io.Writer, all []stats.ListenerReading) {
	t := table{header: []string{"LISTENER", "WHERE", ">OPEN", ">OK", ">FAILED"}}
	for _, l := range all {
		ok := l.Ended[stats.OK]
		var ended uint64
		for _, n := range l.Ended {
			ended += n
		}
		t.add(l.Name, l.Protocol+" "+strings.Join(l.Addresses, ", "), strconv.FormatInt(l.Open, 10), fmt.Sprint(ok), fmt.Sprint(ended-ok))
	}
	t.write(w, "")
}

// printNoListeners says that the policy has no listeners, and which command shows the counters of what it limits in the kernel.
func printNoListeners(w io.Writer, s daemon.Status) {
	switch {
	case s.Kept == nil:
		fmt.Fprintln(w, "listeners none, and no device with apply: `shaper tc apply` puts the policy into the kernel, and `shaper tc show` has its counters")
	case s.Kept.Error == "":
		fmt.Fprintln(w, "kernel    kept equal to the policy\nlisteners none: `shaper classes` has what the kernel has counted")
	default:
		fmt.Fprintln(w, "listeners none")
	}
}

// printBudgets prints where the budgets of classes are kept over restarts.
func printBudgets(w io.Writer, r stats.StateReading, now time.Time) {
	if r.Path == "" {
		fmt.Fprintln(w, "state     kept nowhere: a restart forgets what was sent")
		return
	}
	written := "not written yet"
	if !r.Written.IsZero() {
		written = "written " + human.Elapsed(r.Written, now) + " ago"
	}
	if r.Error != "" {
		fmt.Fprintf(w, "state     %s, %s; WRITING FAILS: %s\n", r.Path, written, r.Error)
		return
	}
	fmt.Fprintf(w, "state     %s, %s\n", r.Path, written)
}

// printLateness prints how late items left that had to wait, if any had to.
func printLateness(w io.Writer, p stats.PacersReading) {
	if p.Departures > 0 {
		fmt.Fprintf(w, "late      at most %d µs for half of the items that waited, %d µs for 99 %%\n",
			microseconds(p.LateP50), microseconds(p.LateP99))
	}
	fmt.Fprintln(w)
}

// microseconds returns a bound in whole microseconds, rounded up.
func microseconds(bound stats.Seconds) int64 { return max(time.Duration(bound).Microseconds(), 1) }

// printReload prints the outcome of the last reload, the rollback that may undo it, the values
// that `shaper set` has put over those of the policy file, and how many warnings the file has.
func printReload(w io.Writer, s daemon.Status, now time.Time) {
	if s.Reload.OK {
		fmt.Fprintf(w, "loaded    %s ago, %s\n", human.Elapsed(s.Reload.Succeeded, now), timestamp(s.Reload.Succeeded))
	} else {
		fmt.Fprintf(w, "loaded    %s ago; the LAST RELOAD FAILED %s ago:\n", human.Elapsed(s.Reload.Succeeded, now), human.Elapsed(s.Reload.Time, now))
		for line := range strings.Lines(s.Reload.Error + "\n") {
			fmt.Fprintf(w, "          %s", line)
		}
	}
	if !s.Rollback.IsZero() {
		fmt.Fprintf(w, "rollback  in %s, unless `shaper confirm` comes first\n", human.Elapsed(now, s.Rollback))
	}
	for _, set := range s.Sets {
		until := "until the next reload"
		if !set.Until.IsZero() {
			until = "for another " + human.Elapsed(now, set.Until)
		}
		fmt.Fprintf(w, "set       %s: %s, %s\n", set.Class, assignments(set.Values), until)
	}
	if n := len(s.Warnings); n > 0 {
		fmt.Fprintf(w, "warnings  %d; see shaper check\n", n)
	}
}
