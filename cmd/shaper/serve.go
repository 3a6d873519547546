package main

import (
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/urfave/cli/v2"

	"shaper/daemon"
	"shaper/policy"
)

func runCommand() *cli.Command {
	return &cli.Command{
		Name:  "run",
		Usage: "run the daemon, in the foreground",
		Description: "SIGHUP makes it read the policy again. After SIGTERM or SIGINT it accepts nothing new, and open sessions\n" +
			"may go on for the drain time of the policy. A second signal stops it at once.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "log-format", Value: "text", Usage: "text or json"},
			&cli.StringFlag{Name: "log-level", Value: "info", Usage: "debug, info, warn or error"},
		},
		Action: serve,
	}
}

func serve(c *cli.Context) error {
	if err := arguments(c, 0, 0); err != nil {
		return err
	}
	logTo := func(w io.Writer) (*slog.Logger, error) {
		return newLog(w, isJournal(c.App.ErrWriter, os.Getenv("JOURNAL_STREAM")), c.String("log-format"), c.String("log-level"))
	}
	direct, err := logTo(c.App.ErrWriter)
	if err != nil {
		return err
	}
	lines := newLogWriter(c.App.ErrWriter, direct.Handler())
	defer lines.close()
	log, _ := logTo(lines)              // the flags are right
	signals := make(chan os.Signal, 16) // room for signals that come while the daemon is busy
	signal.Notify(signals, syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM)
	defer signal.Stop(signals)
	path, named := configPath(c)
	if path == "-" {
		return usageError("run takes no policy from the standard input: each reload reads the file again")
	}
	say := welcome{command: adviceFor(path, named)}
	return daemon.Run(daemon.Options{
		Path: path, Version: version, Log: log, Signals: signals,
		Ready: func(s daemon.Status, p *policy.Policy) {
			if isTerminal(c.App.ErrWriter) {
				say.write(lines, s, p)
				return
			}
			say.log(log, s, p)
		},
	})
}
