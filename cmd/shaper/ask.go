package main

import (
	"io"

	"github.com/urfave/cli/v2"

	"shaper/daemon"
)

// ask asks the daemon for something, and prints it for a person or as JSON.
func ask[T any](c *cli.Context, get func(*daemon.Client, *cli.Context) (T, error), print func(io.Writer, T)) error {
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
