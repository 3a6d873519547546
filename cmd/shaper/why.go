package main

import (
	"io"

	"github.com/urfave/cli/v2"

	"shaper/daemon"
)

func whyCommand() *cli.Command {
	return &cli.Command{
		Name:      "why",
		Usage:     "show what the next item of a class waits for, and until when",
		ArgsUsage: "CLASS",
		Description: "It shows what holds the item up in its own class and in each class above. The time is that at which the\n" +
			"item leaves if nothing else comes, and no answer and no signal of a provider either.",
		Flags:        []cli.Flag{jsonFlag(), watchFlag()},
		Action:       watched(why),
		BashComplete: completeClass,
	}
}

func why(c *cli.Context) error {
	if err := arguments(c, 1, 1); err != nil {
		return err
	}
	return ask(c,
		func(d *daemon.Client, c *cli.Context) (daemon.Why, error) {
			w, err := d.Why(c.Context, c.Args().First())
			return w, badName(err)
		},
		func(w io.Writer, why daemon.Why) { writeWrapped(w, why.String()) })
}
