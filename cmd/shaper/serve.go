package main

import (
	"fmt"
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
	lines := newLogWriter(c.App.ErrWriter)
	defer lines.close()
	log, err := newLog(lines, isJournal(c.App.ErrWriter, os.Getenv("JOURNAL_STREAM")), c.String("log-format"), c.String("log-level"))
	if err != nil {
		return err
	}
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

// newLog returns the log of the daemon. For the journal it omits the time, which the journal adds
// itself.
func newLog(w io.Writer, journal bool, format, level string) (*slog.Logger, error) {
	var options slog.HandlerOptions
	var threshold slog.Level
	if err := threshold.UnmarshalText([]byte(level)); err != nil {
		return nil, usageError("--log-level: %q is not a level; it is debug, info, warn or error", level)
	}
	options.Level = threshold
	if journal {
		options.ReplaceAttr = withoutTime
	}
	switch format {
	case "text":
		return slog.New(slog.NewTextHandler(w, &options)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, &options)), nil
	}
	return nil, usageError("--log-format: %q is not a format; it is text or json", format)
}

// withoutTime removes the time of a log record.
func withoutTime(groups []string, a slog.Attr) slog.Attr {
	if len(groups) == 0 && a.Key == slog.TimeKey {
		return slog.Attr{}
	}
	return a
}

// isJournal reports whether w is the stream to the journal. JOURNAL_STREAM has its "device:inode"
// (systemd.exec(5)).
func isJournal(w io.Writer, stream string) bool {
	info, ok := stat(w)
	if !ok || stream == "" {
		return false
	}
	file := info.Sys().(*syscall.Stat_t)
	return stream == fmt.Sprintf("%d:%d", file.Dev, file.Ino)
}

func isTerminal(w io.Writer) bool {
	info, ok := stat(w)
	return ok && info.Mode()&os.ModeCharDevice != 0
}

func stat(w io.Writer) (os.FileInfo, bool) {
	file, ok := w.(*os.File)
	if !ok {
		return nil, false
	}
	info, err := file.Stat()
	return info, err == nil
}
