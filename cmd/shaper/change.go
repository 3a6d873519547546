package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"shaper/daemon"
	"shaper/policy"
)

func reloadCommand() *cli.Command {
	return &cli.Command{
		Name:  "reload",
		Usage: "make the daemon read its policy file again",
		Description: "Prints what has changed once the new policy is in force. If the policy has mistakes, all of them are\n" +
			"printed and the old policy stays. A reload ends what `shaper set` has changed.",
		Flags: []cli.Flag{
			jsonFlag(),
			&cli.StringFlag{Name: "rollback-after", Usage: "undo the reload after this `TIME`, unless `shaper confirm` comes first"},
		},
		Action: reload,
	}
}

func reload(c *cli.Context) error {
	if err := arguments(c, 0, 0); err != nil {
		return err
	}
	rollback, err := durationFlag(c, "rollback-after")
	if err != nil {
		return err
	}
	return ask(c,
		func(d *daemon.Client, c *cli.Context) (daemon.Reloaded, error) { return d.Reload(c.Context, rollback) },
		func(w io.Writer, done daemon.Reloaded) {
			printWarnings(c, done.Warnings)
			printChanges(w, done.Changes)
			fmt.Fprintf(w, "policy %s is in force\n", done.Hash)
			if !done.Rollback.IsZero() {
				fmt.Fprintf(w, "the reload is undone at %s, unless `shaper confirm` comes first\n", timestamp(done.Rollback))
			}
		})
}

func printWarnings(c *cli.Context, warnings policy.Errors) {
	for _, warning := range warnings {
		fmt.Fprintf(c.App.ErrWriter, "warning: %v\n", warning)
	}
}

func printChanges(w io.Writer, changes []policy.Change) {
	for _, change := range changes {
		fmt.Fprintln(w, change)
	}
	if len(changes) == 0 {
		fmt.Fprintln(w, "nothing has changed")
	}
}

func confirmCommand() *cli.Command {
	return &cli.Command{
		Name:  "confirm",
		Usage: "keep what `reload --rollback-after` has put in force",
		Flags: []cli.Flag{jsonFlag()},
		Action: func(c *cli.Context) error {
			if err := arguments(c, 0, 0); err != nil {
				return err
			}
			return ask(c,
				func(d *daemon.Client, c *cli.Context) (daemon.Confirmed, error) { return d.Confirm(c.Context) },
				func(w io.Writer, done daemon.Confirmed) {
					fmt.Fprintf(w, "policy %s is confirmed and stays in force\n", done.Hash)
				})
		},
	}
}

func setCommand() *cli.Command {
	return &cli.Command{
		Name:      "set",
		Usage:     "change a live class, until the next reload or for a time",
		ArgsUsage: "CLASS KEY=VALUE...",
		Description: "KEY is rate, burst or another key of a class. VALUE is written as in the policy file:\n" +
			"shaper set acme rate=20mbit --for 10m",
		Flags: []cli.Flag{
			jsonFlag(),
			&cli.StringFlag{Name: "for", Usage: "change it back after this `TIME`"},
		},
		Action:       set,
		BashComplete: completeClasses,
	}
}

func set(c *cli.Context) error {
	if err := arguments(c, 2, 100); err != nil {
		return err
	}
	values, err := parseAssignments(c.Args().Tail())
	if err != nil {
		return err
	}
	lasts, err := durationFlag(c, "for")
	if err != nil {
		return err
	}
	return ask(c,
		func(d *daemon.Client, c *cli.Context) (daemon.Changed, error) {
			done, err := d.Set(c.Context, c.Args().First(), values, lasts)
			return done, badName(err)
		},
		func(w io.Writer, done daemon.Changed) {
			printWarnings(c, done.Warnings)
			printChanges(w, done.Changes)
			if done.Until.IsZero() {
				fmt.Fprintln(w, "until the next reload")
			} else {
				fmt.Fprintf(w, "until %s, or the next reload\n", timestamp(done.Until))
			}
		})
}

// parseAssignments reads arguments such as "rate=20mbit".
func parseAssignments(args []string) (map[string]string, error) {
	values := map[string]string{}
	for _, arg := range args {
		key, value, ok := strings.Cut(arg, "=")
		if !ok || key == "" || value == "" {
			return nil, usageError("%q is not KEY=VALUE, such as rate=20mbit", arg)
		}
		if _, twice := values[key]; twice {
			return nil, usageError("%s is given twice", key)
		}
		values[key] = value
	}
	return values, nil
}

// assignments is the inverse of parseAssignments. It sorts by key.
func assignments(values map[string]string) string {
	var all []string
	for _, key := range slices.Sorted(maps.Keys(values)) {
		all = append(all, key+"="+values[key])
	}
	return strings.Join(all, " ")
}
