package main

import (
	"context"
	"io"
	"time"

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

// listed returns the action of a command without arguments that prints a table of what the daemon has, in the
// order of --sort.
func listed[T any](columns func(now time.Time) []column[T], get func(*daemon.Client, context.Context) ([]T, error),
	print func(w io.Writer, all []T, now time.Time, by order)) cli.ActionFunc {
	return func(c *cli.Context) error {
		if err := arguments(c, 0, 0); err != nil {
			return err
		}
		by := order(c.String("sort"))
		if _, err := sorted(columns(time.Now()), nil, by); err != nil {
			return err
		}
		return ask(c,
			func(d *daemon.Client, c *cli.Context) ([]T, error) { return get(d, c.Context) },
			func(w io.Writer, all []T) { print(w, all, time.Now(), by) })
	}
}
