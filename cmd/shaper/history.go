package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"shaper/daemon"
	"shaper/human"
	"shaper/policy"
)

func historyCommand() *cli.Command {
	return &cli.Command{
		Name:      "history",
		Usage:     "show what has changed since the daemon started: when, by whom, before and after",
		ArgsUsage: "[NAME]",
		Description: "With NAME it shows only what has changed in the class, listener, fleet or device of that name, and changes\n" +
			"with more than 100 parts, which may be about it. The daemon keeps the latest changes, and its log has all of\n" +
			"them. Neither has more than 100 parts of one change.",
		Flags:        []cli.Flag{jsonFlag(), watchFlag()},
		Action:       watched(history),
		BashComplete: completeClass,
	}
}

func history(c *cli.Context) error {
	if err := arguments(c, 0, 1); err != nil {
		return err
	}
	return ask(c,
		func(d *daemon.Client, c *cli.Context) (daemon.History, error) {
			all, err := d.History(c.Context)
			if name := c.Args().First(); err == nil && name != "" {
				if all = about(all, name); len(all) == 0 {
					return all, inForce(c, d, name)
				}
			}
			return all, err
		},
		printHistory)
}

// inForce returns an error if the policy in force has no class, listener, fleet or device of a name.
func inForce(c *cli.Context, d *daemon.Client, name string) error {
	p, err := d.Policy(c.Context)
	if err != nil {
		return err
	}
	names := namesIn(&p)
	if slices.Contains(names, name) {
		return nil
	}
	return usageError("there is no class, listener, fleet or device %q, now or in the history; %s", name, policy.Hint(name, "names", names))
}

// namesIn returns the names of a policy's classes, listeners, fleets and devices.
func namesIn(p *policy.Policy) (names []string) {
	for _, class := range p.Classes {
		names = append(names, class.Name)
	}
	for _, l := range p.Listeners {
		names = append(names, l.Name)
	}
	for _, f := range p.Fleets {
		names = append(names, f.Name)
	}
	for _, t := range p.TC {
		names = append(names, t.Device)
	}
	return names
}

// about returns only the changes of something with a name, and those with parts that the history does not
// have: these may be about it.
func about(all daemon.History, name string) daemon.History {
	some := daemon.History{}
	for _, r := range all {
		r.Changes = slices.DeleteFunc(r.Changes, func(c policy.Change) bool { return c.Name != name })
		if len(r.Changes) > 0 || r.More > 0 {
			some = append(some, r)
		}
	}
	return some
}

func printHistory(w io.Writer, all daemon.History) {
	if len(all) == 0 {
		fmt.Fprintln(w, "nothing has changed")
	}
	for _, r := range all {
		fmt.Fprintf(w, "%d  %s  %s by %s", r.Number, timestamp(r.Time), r.What, r.By)
		if r.Before != r.After {
			fmt.Fprintf(w, "  %s -> %s", orDash(r.Before), r.After)
		}
		if !r.Until.IsZero() {
			fmt.Fprintf(w, "  until %s", timestamp(r.Until))
		}
		fmt.Fprintln(w)
		for _, change := range r.Changes {
			writeWrapped(w, "   "+human.Clean(change.String())+"\n") // any caller of the daemon may have written it
		}
		if r.More > 0 {
			fmt.Fprintf(w, "   and %d more, which neither the history nor the log has\n", r.More)
		}
		for line := range strings.Lines(r.Error) {
			writeWrapped(w, "   "+human.Clean(strings.TrimSuffix(line, "\n"))+"\n")
		}
	}
}

func diffCommand() *cli.Command {
	return &cli.Command{
		Name:      "diff",
		Usage:     "show what a reload of a policy file would change, without doing it",
		ArgsUsage: "[FILE]",
		Description: "It compares FILE, as if it were in the place of the policy file, with what is in force, with all that\n" +
			"shaper set has changed. FILE may be - for the standard input.",
		Flags:  []cli.Flag{jsonFlag()},
		Action: diff,
	}
}

func diff(c *cli.Context) error {
	if err := arguments(c, 0, 1); err != nil {
		return err
	}
	path, _ := configPath(c)
	if file := c.Args().First(); file != "" {
		path = file
	}
	files, err := readPolicy(c, path)
	if err != nil {
		return err
	}
	return ask(c,
		func(d *daemon.Client, c *cli.Context) (daemon.Compared, error) {
			return d.Diff(c.Context, daemon.PolicyText{File: files[0].Name, Text: files[0].Text, Pieces: files[1:]})
		},
		func(w io.Writer, done daemon.Compared) {
			for _, warning := range done.Warnings {
				fmt.Fprintf(c.App.ErrWriter, "warning: %v\n", warning)
			}
			printChanges(w, done.Changes)
		})
}
