package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"
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
	fmt.Fprintf(w, "fleet %s  %s  %s  %s\n", f.Name, strings.Join(f.Addresses, ", "), state, plural(uint64(max(f.Members, 0)), "member"))
	text := fmt.Sprintf("calls %d, of which %d failed; %s each; the clock is wrong by at most %s", f.Calls, f.Failures, short(f.CallTime), short(f.ClockError))
	if f.Headroom > 0 {
		text += fmt.Sprintf(", and a slot may be late by %s", short(f.Headroom))
	}
	if shortest, longest := deadlinesOf(f); shortest < longest {
		text += fmt.Sprintf("\ndeadlines differ, from %s to %s: the shortest holds for all", short(shortest), short(longest))
	}
	writeWrapped(w, text+"\n\n")
	tableOf(sharedColumns, f.Classes, "AGE", "RETURNED", "CALLS", "LAST FAILURE", "EXPIRED", "LEASED").write(w, "")
	if all := peersOf(f); len(all) > 0 {
		fmt.Fprintln(w)
		tableOf(peerColumns, all, "BUDGETS").write(w, "")
	}
}

// deadlinesOf returns the deadlines of the members of the class whose members differ most.
func deadlinesOf(f daemon.Fleet) (shortest, longest stats.Seconds) {
	for _, c := range f.Classes {
		if c.Longest-c.Shortest >= longest-shortest {
			shortest, longest = c.Shortest, c.Longest
		}
	}
	return shortest, longest
}

// A peer is a shaper in a fleet. It is a member once for each budget: for each limit of each class.
type peer struct {
	name      string
	age, seen stats.Seconds // of the budget that it has had for longest, and that it has asked for last
	budgets   int
	share     float64 // of the budget of which it has least
	silent    bool    // in one of them
	this      bool
	deadline  stats.Seconds // of its policy; 0: it is that of all, or not known
}

// peersOf returns the members of a fleet, in the order of their names. Those whose names the store
// has forgotten come last.
func peersOf(f daemon.Fleet) (all []peer) {
	shortest, longest := deadlinesOf(f)
	for _, c := range f.Classes {
		this := peerName(c.Member)
		for _, p := range c.Peers {
			name := peerName(p.Name)
			i := slices.IndexFunc(all, func(o peer) bool { return o.name == name })
			if i < 0 {
				i = len(all)
				all = append(all, peer{name: name, seen: p.Seen, share: p.Share, this: name == this})
			}
			of := &all[i]
			of.age, of.seen, of.share = max(of.age, p.Age), min(of.seen, p.Seen), min(of.share, p.Share)
			if shortest < longest {
				of.deadline = p.Deadline
			}
			of.budgets, of.silent = of.budgets+1, of.silent || p.Silent
		}
	}
	slices.SortFunc(all, func(a, b peer) int {
		if (a.name == "") != (b.name == "") {
			return strings.Compare(b.name, a.name)
		}
		return strings.Compare(a.name, b.name)
	})
	return all
}

// peerName returns the name of a member without the number that tells its budgets apart.
func peerName(member string) string {
	if end := strings.LastIndexByte(member, '-'); end > 0 {
		if _, err := strconv.ParseUint(member[end+1:], 10, 64); err == nil {
			return member[:end]
		}
	}
	return member
}

// state says whether a shaper is there.
func (p peer) state() string {
	switch {
	case p.name == "":
		return "gone: their shares are held back"
	case p.silent:
		return "silent"
	case p.this:
		return "this shaper"
	}
	return "here"
}

var peerColumns = []column[peer]{
	{name: "MEMBER", text: func(p peer) string { return orDash(p.name) }},
	{name: "AGE", text: func(p peer) string { return human.Duration(p.age) }, by: func(p peer) float64 { return float64(p.age) }},
	{name: "SEEN", text: func(p peer) string { return human.Duration(p.seen) + " ago" }, by: func(p peer) float64 { return float64(p.seen) }},
	{name: "BUDGETS", text: func(p peer) string { return strconv.Itoa(p.budgets) }, by: func(p peer) float64 { return float64(p.budgets) }},
	{name: "SHARE", text: func(p peer) string { return fmt.Sprintf("%.1f%%", 100*p.share) }, by: func(p peer) float64 { return p.share }},
	{name: "DEADLINE", text: func(p peer) string { return human.Duration(p.deadline) }, by: func(p peer) float64 { return float64(p.deadline) },
		has: func(p peer) bool { return p.deadline > 0 }},
	{name: "STATE", text: peer.state},
}

// short prints a short time.
func short(s stats.Seconds) string { return time.Duration(s).Round(time.Microsecond).String() }

var sharedColumns = []column[stats.SharedReading]{
	{name: "CLASS", text: func(r stats.SharedReading) string { return r.Class }},
	{name: "LIMIT", text: func(r stats.SharedReading) string { return r.Limit }},
	{name: "MODE", text: func(r stats.SharedReading) string { return r.Mode }},
	count("MEMBERS", func(r stats.SharedReading) int64 { return r.Members }),
	{name: "SHARE", text: func(r stats.SharedReading) string { return fmt.Sprintf("%.1f%%", 100*r.Share) }, by: func(r stats.SharedReading) float64 { return r.Share }},
	count("LEASED", func(r stats.SharedReading) int64 { return r.Leased }),
	count("USED", func(r stats.SharedReading) int64 { return int64(r.Used) }),
	count("EXPIRED", func(r stats.SharedReading) int64 { return int64(r.Expired) }),
	count("RETURNED", func(r stats.SharedReading) int64 { return int64(r.Returned) }),
	count("CALLS", func(r stats.SharedReading) int64 { return int64(r.Calls) }),
	{name: "AGE", text: func(r stats.SharedReading) string { return human.Duration(r.Age) }, by: func(r stats.SharedReading) float64 { return float64(r.Age) }},
	{name: "AWAY", text: func(r stats.SharedReading) string { return human.Duration(r.Fallback) }, by: func(r stats.SharedReading) float64 { return float64(r.Fallback) },
		has: func(r stats.SharedReading) bool { return r.Fallback > 0 }},
	{name: "LAST FAILURE", text: func(r stats.SharedReading) string { return orDash(r.Error) }, has: func(r stats.SharedReading) bool { return r.Error != "" }},
}

// count returns a column of whole numbers.
func count(name string, of func(stats.SharedReading) int64) column[stats.SharedReading] {
	return column[stats.SharedReading]{name: name,
		text: func(r stats.SharedReading) string { return strconv.FormatInt(of(r), 10) }, by: func(r stats.SharedReading) float64 { return float64(of(r)) }}
}
