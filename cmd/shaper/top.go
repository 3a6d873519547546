package main

import (
	"fmt"
	"os"

	"github.com/urfave/cli/v2"

	"shaper/top"
)

func topCommand() *cli.Command {
	return &cli.Command{
		Name:  "top",
		Usage: "show the classes in a terminal all the time: rates, what waits, and why",
		Description: "It shows what the dashboard shows. Enter opens the class under the cursor: why it waits, its last hour,\n" +
			"all its figures. ? shows the keys. It needs a terminal; shaper classes --watch 2s prints to a file or a\n" +
			"program. It has no colours if NO_COLOR is set.",
		Action: showTop,
	}
}

func showTop(c *cli.Context) error {
	if err := arguments(c, 0, 0); err != nil {
		return err
	}
	kind := os.Getenv("TERM")
	if _, ok := sizeOf(c.App.Writer); !ok || kind == "" || kind == "dumb" {
		return usageError("top needs a terminal that can move the cursor; shaper classes --watch 2s prints the classes anywhere")
	}
	d, err := client(c)
	if err != nil {
		return err
	}
	terminal, err := os.OpenFile("/dev/tty", os.O_RDWR, 0) // our own, so that its reads can end
	if err != nil {
		return fmt.Errorf("terminal: %w", err)
	}
	defer terminal.Close()
	return top.Run(c.Context, top.Options{Source: d, Terminal: terminal, Colour: os.Getenv("NO_COLOR") == "", Facts: classFacts})
}
