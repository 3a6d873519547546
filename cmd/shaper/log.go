package main

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"syscall"
)

// newLog returns a log. For the journal it omits the time, which the journal adds
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
