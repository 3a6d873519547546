package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"shaper/daemon"
	"shaper/human"
)

func shadowCommand() *cli.Command {
	return &cli.Command{
		Name:      "shadow",
		Usage:     "try a policy beside the one in force, without enforcing it",
		ArgsUsage: "[FILE]",
		Description: "With FILE it starts: the classes of that policy get copies of all traffic of the daemon, and compute what they\n" +
			"would do with it. FILE may be - for the standard input. Without FILE it shows what they would have done since\n" +
			"then, beside what the classes in force have done. --stop ends it.",
		Flags: []cli.Flag{
			jsonFlag(), watchFlag(),
			&cli.BoolFlag{Name: "stop", Usage: "end it, and show what it would have done", DisableDefaultText: true},
		},
		Action: watched(shadow),
	}
}

func shadow(c *cli.Context) error {
	if err := arguments(c, 0, 1); err != nil {
		return err
	}
	get := func(d *daemon.Client, c *cli.Context) (daemon.Shadow, error) { return d.Shadow(c.Context) }
	switch file := c.Args().First(); {
	case c.IsSet("watch") && (file != "" || c.Bool("stop")):
		return usageError("--watch shows a policy that runs in the shadow; it neither starts nor stops one")
	case file != "" && c.Bool("stop"):
		return usageError("--stop takes no file; at most one policy runs in the shadow")
	case c.Bool("stop"):
		get = func(d *daemon.Client, c *cli.Context) (daemon.Shadow, error) { return d.StopShadow(c.Context) }
	case file != "":
		files, err := readPolicy(c, file)
		if err != nil {
			return err
		}
		get = func(d *daemon.Client, c *cli.Context) (daemon.Shadow, error) {
			return d.StartShadow(c.Context, daemon.PolicyText{File: files[0].Name, Text: files[0].Text, Pieces: files[1:]})
		}
	}
	return ask(c, get, func(w io.Writer, s daemon.Shadow) {
		for _, warning := range s.Warnings {
			fmt.Fprintf(c.App.ErrWriter, "warning: %v\n", warning)
		}
		for _, note := range s.Notes {
			fmt.Fprintf(c.App.ErrWriter, "note: %s\n", note)
		}
		printShadow(w, s, time.Now())
	})
}

// printShadow prints for each class of the policy in the shadow what it would have done, and beside
// it what the class of the same name in force has done.
func printShadow(w io.Writer, s daemon.Shadow, now time.Time) {
	if s.File == "" {
		fmt.Fprintln(w, "no policy runs in the shadow; shaper shadow FILE starts one")
		return
	}
	fmt.Fprintf(w, "%v  in the shadow for %s, by %s\n\n", s, human.Elapsed(s.Since, now), s.By)
	t := table{header: []string{"CLASS", ">RATE", ">WOULD DELAY", ">WOULD DROP", ">WOULD P50", ">WOULD P99", ">LIVE RATE", ">DELAYED", ">DROPPED", ">P50", ">P99"},
		spare: []string{"WOULD P50", "P50", "WOULD DELAY", "DELAYED", "LIVE RATE", "WOULD P99", "P99"}}
	for _, placed := range inTreeOrder(s.Classes, func(c daemon.Divergence) (name, parent string) { return c.Name, c.Parent }) {
		one := placed.of
		live := []string{"-", "-", "-", "-", "-"}
		if l := one.Live; l != nil {
			live = []string{l.Rate.Text, fmt.Sprint(l.Delayed), fmt.Sprint(l.Dropped), human.Duration(l.WaitP50), human.Duration(l.WaitP99)}
		}
		t.add(append([]string{strings.Repeat("  ", placed.depth) + one.Name, one.Rate.Text, fmt.Sprint(one.WouldDelay),
			fmt.Sprint(one.WouldDrop), human.Duration(one.WaitP50), human.Duration(one.WaitP99)}, live...)...)
	}
	t.write(w, "")
}
