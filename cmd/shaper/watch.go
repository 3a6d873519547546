package main

import (
	"bytes"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"
)

func watchFlag() cli.Flag {
	return &cli.StringFlag{Name: "watch", Usage: "show it again after each `TIME`, such as 2s, until ctrl-C"}
}

// watched makes an action of one that shows something: with --watch it shows it again
// and again, in a terminal in the same place, else one behind the other.
func watched(show cli.ActionFunc) cli.ActionFunc {
	return func(c *cli.Context) error {
		interval, err := timeFlag(c, "watch")
		if err != nil {
			return err
		}
		if interval == 0 {
			return show(c)
		}
		ctx, stop := signal.NotifyContext(c.Context, os.Interrupt, syscall.SIGTERM)
		defer stop()
		c.Context = ctx
		out := c.App.Writer
		defer func() { c.App.Writer = out }()
		for n := 0; ; n++ {
			next := time.After(interval)
			page := &screen{terminal: out}
			c.App.Writer = page
			if err := show(c); ctx.Err() != nil {
				return nil
			} else if err != nil {
				return err
			}
			if err := page.flush(n); err != nil {
				return err
			}
			select {
			case <-ctx.Done():
				return nil
			case <-next:
			}
		}
	}
}

// screen holds a page until it is whole.
type screen struct {
	bytes.Buffer
	terminal io.Writer
}

// What a terminal is told: to go to the first line, to clear the rest of a line, and
// the rest of the screen (ECMA-48).
const (
	home      = "\x1b[H"
	clearLine = "\x1b[K"
	clearRest = "\x1b[J"
)

// flush prints page n: over the one before in a terminal, as far as that has lines for
// it, else behind it.
func (s *screen) flush(n int) error {
	size, onTerminal := sizeOf(s.terminal)
	page := s.String()
	switch {
	case onTerminal:
		lines := strings.Split(strings.TrimSuffix(page, "\n"), "\n")
		if rows := int(size.Row); rows > 1 && len(lines) >= rows {
			lines = append(lines[:rows-2], "…")
		}
		page = home + strings.Join(lines, clearLine+"\n") + clearLine + "\n" + clearRest
	case n > 0:
		page = "\n" + page
	}
	_, err := io.WriteString(s.terminal, page)
	return err
}
