package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"shaper/daemon"
	"shaper/human"
	"shaper/policy"
	"shaper/stats"
)

func fleetCommand() *cli.Command {
	return &cli.Command{
		Name:      "fleet",
		Usage:     "show the stores that shapers share, and what this one has of each shared class",
		ArgsUsage: "[NAME]",
		Description: "MODE says where the budget of a class comes from: store; share, if the store is away and this shaper\n" +
			"has its part of the rate; or stopped.",
		Flags:  []cli.Flag{jsonFlag(), watchFlag()},
		Action: watched(fleets),
	}
}

func fleets(c *cli.Context) error {
	if err := arguments(c, 0, 1); err != nil {
		return err
	}
	name := c.Args().First()
	return ask(c,
		func(d *daemon.Client, c *cli.Context) ([]daemon.Fleet, error) {
			all, err := d.Fleets(c.Context)
			if err != nil || name == "" {
				return all, err
			}
			return onlyFleet(all, name)
		},
		printFleets)
}

// onlyFleet returns only the fleet of a name.
func onlyFleet(all []daemon.Fleet, name string) ([]daemon.Fleet, error) {
	i := slices.IndexFunc(all, func(f daemon.Fleet) bool { return f.Name == name })
	if i < 0 {
		names := make([]string, len(all))
		for i, f := range all {
			names[i] = f.Name
		}
		return nil, usageError("no class uses a fleet %q; %s", name, policy.Hint(name, "fleets", names))
	}
	return all[i : i+1], nil
}

func printFleets(w io.Writer, all []daemon.Fleet) {
	if len(all) == 0 {
		fmt.Fprintln(w, "no class is shared: this process has all budgets")
	}
	for i, f := range all {
		if i > 0 {
			fmt.Fprintln(w)
		}
		printFleet(w, f)
	}
}

func printFleet(w io.Writer, f daemon.Fleet) {
	state := "up"
	if !f.Up {
		state = "AWAY"
	}
	fmt.Fprintf(w, "fleet %s  %s  %s  %s\n", f.Name, strings.Join(f.Addresses, ", "), state, human.Plural(uint64(max(f.Members, 0)), "member"))
	text := fmt.Sprintf("calls %d, of which %d failed; %s each; the clock is wrong by at most %s", f.Calls, f.Failures, short(f.CallTime), short(f.ClockError))
	if f.Headroom > 0 {
		text += fmt.Sprintf(", and a slot may be late by %s", short(f.Headroom))
	}
	if shortest, longest := f.Deadlines(); shortest < longest {
		text += fmt.Sprintf("\ndeadlines differ, from %s to %s: the shortest holds for all", short(shortest), short(longest))
	}
	writeWrapped(w, text+"\n\n")
	tableOf(sharedColumns, f.Classes, "AGE", "RETURNED", "CALLS", "LAST FAILURE", "EXPIRED", "LEASED").write(w, "")
	if len(f.Shapers) > 0 {
		fmt.Fprintln(w)
		tableOf(shaperColumns, f.Shapers, "BUDGETS").write(w, "")
	}
}

var shaperColumns = []column[stats.ShaperReading]{
	{name: "MEMBER", text: func(r stats.ShaperReading) string { return orDash(r.Name) }},
	durationColumn("AGE", func(r stats.ShaperReading) stats.Seconds { return r.Age }),
	{name: "SEEN", text: func(r stats.ShaperReading) string { return human.Duration(r.Seen) + " ago" }, by: func(r stats.ShaperReading) float64 { return float64(r.Seen) }},
	figureColumn("BUDGETS", func(r stats.ShaperReading) int { return r.Budgets }),
	{name: "SHARE", text: func(r stats.ShaperReading) string { return fmt.Sprintf("%.1f%%", 100*r.Share) }, by: func(r stats.ShaperReading) float64 { return r.Share }},
	{name: "DEADLINE", text: func(r stats.ShaperReading) string { return human.Duration(r.Deadline) }, by: func(r stats.ShaperReading) float64 { return float64(r.Deadline) },
		has: func(r stats.ShaperReading) bool { return r.Deadline > 0 }},
	{name: "STATE", text: func(r stats.ShaperReading) string { return r.State }},
}

// short prints a short time.
func short(s stats.Seconds) string { return time.Duration(s).Round(time.Microsecond).String() }

var sharedColumns = []column[stats.SharedReading]{
	{name: "CLASS", text: func(r stats.SharedReading) string { return r.Class }},
	{name: "LIMIT", text: func(r stats.SharedReading) string { return r.Limit }},
	{name: "MODE", text: func(r stats.SharedReading) string { return r.Mode }},
	figureColumn("MEMBERS", func(r stats.SharedReading) int64 { return r.Members }),
	{name: "SHARE", text: func(r stats.SharedReading) string { return fmt.Sprintf("%.1f%%", 100*r.Share) }, by: func(r stats.SharedReading) float64 { return r.Share }},
	figureColumn("LEASED", func(r stats.SharedReading) int64 { return r.Leased }),
	figureColumn("USED", func(r stats.SharedReading) uint64 { return r.Used }),
	figureColumn("EXPIRED", func(r stats.SharedReading) uint64 { return r.Expired }),
	figureColumn("RETURNED", func(r stats.SharedReading) uint64 { return r.Returned }),
	figureColumn("CALLS", func(r stats.SharedReading) uint64 { return r.Calls }),
	durationColumn("AGE", func(r stats.SharedReading) stats.Seconds { return r.Age }),
	{name: "AWAY", text: func(r stats.SharedReading) string { return human.Duration(r.Fallback) }, by: func(r stats.SharedReading) float64 { return float64(r.Fallback) },
		has: func(r stats.SharedReading) bool { return r.Fallback > 0 }},
	{name: "LAST FAILURE", text: func(r stats.SharedReading) string { return orDash(r.Error) }, has: func(r stats.SharedReading) bool { return r.Error != "" }},
}
