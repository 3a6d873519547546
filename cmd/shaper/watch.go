package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"
)

func watchFlag() cli.Flag {
	return &cli.StringFlag{Name: "watch", Usage: "show it again every `TIME`, such as 2s, until ctrl-C"}
}

// watched returns an action that, with --watch, repeats show until a signal ends it. If the first
// time succeeds, it shows later errors and goes on, since a daemon that restarts comes back.
func watched(show cli.ActionFunc) cli.ActionFunc {
	return func(c *cli.Context) error {
		interval, err := durationFlag(c, "watch")
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
			page := &screen{terminal: out, stream: c.Bool("json")}
			c.App.Writer = page
			err := show(c)
			switch {
			case ctx.Err() != nil:
				return nil
			case err != nil && n == 0:
				return err
			case err != nil:
				err = page.fail(err, c.App.ErrWriter)
			default:
				err = page.flush(n)
			}
			if err != nil {
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

// screen collects a page, and then prints it at once.
type screen struct {
	bytes.Buffer
	terminal io.Writer
	stream   bool // pages follow each other even in a terminal, for programs
}

// Control sequences of terminals (ECMA-48): go to the first line, clear the rest of the line, and
// clear the rest of the screen.
const (
	home      = "\x1b[H"
	clearLine = "\x1b[K"
	clearRest = "\x1b[J"
)

// rows returns how many lines the terminal has; ok is false if pages follow each other.
func (s *screen) rows() (rows int, ok bool) {
	if size, ok := sizeOf(s.terminal); ok && !s.stream {
		return int(size.Row), true
	}
	return 0, false
}

// flush prints page n, from 0. In a terminal it covers the page before, and is cut to the lines of
// the terminal. Otherwise it follows the page before.
func (s *screen) flush(n int) error {
	rows, inPlace := s.rows()
	page := s.String()
	switch {
	case inPlace:
		lines := strings.Split(strings.TrimSuffix(page, "\n"), "\n")
		if rows > 1 && len(lines) >= rows {
			lines = append(lines[:rows-2], "…")
		}
		page = home + strings.Join(lines, clearLine+"\n") + clearLine + "\n" + clearRest
	case n > 0 && !s.stream:
		page = "\n" + page
	}
	_, err := io.WriteString(s.terminal, page)
	return err
}

// fail shows an error instead of the page: in its place in a terminal, else on the standard error.
func (s *screen) fail(err error, stderr io.Writer) error {
	if _, inPlace := s.rows(); !inPlace {
		_, err = fmt.Fprintln(stderr, err)
		return err
	}
	s.Reset()
	writeWrapped(s, err.Error()+"\n")
	return s.flush(0)
}
