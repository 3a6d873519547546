package main

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"

	"shaper/daemon"
	"shaper/policy"
	"shaper/stats"
)

// welcome says at the start what listens where, and what to try. Command asks this daemon.
type welcome struct{ command string }

// write writes it for a person in a terminal.
func (w welcome) write(out io.Writer, s daemon.Status, p *policy.Policy) {
	fmt.Fprintf(out, "\nshaper %s, policy %s (%s)\n\n", s.Version, p.Path, p.Hash)
	t := table{header: []string{"LISTENER", "WHERE", "UPSTREAM", "CLASS", "RATE"}}
	for _, l := range s.Listeners {
		conf, _ := p.Listener(l.Name)
		class, _ := p.Class(conf.Class)
		t.add(l.Name, l.Protocol+" "+strings.Join(l.Addresses, ", "), conf.LeadsTo(), class.Name, class.Rate.String())
	}
	t.write(out, "  ")
	fmt.Fprintf(out, "\n  control    %s\n", s.Control)
	if s.HTTP != "" {
		fmt.Fprintf(out, "  dashboard  http://%s/\n  metrics    http://%[1]s/metrics\n", s.HTTP)
	}
	fmt.Fprintf(out, "\nTry in a second terminal:\n%s  %s classes\n", tryListener(s, p), w.command)
	fmt.Fprintf(out, "  %s explain 127.0.0.1\n\nCtrl-C stops.\n\n", w.command)
}

// tryListener returns a line with a command that measures the first TCP echo listener; "" if there
// is none.
func tryListener(s daemon.Status, p *policy.Policy) string {
	for _, l := range s.Listeners {
		conf, _ := p.Listener(l.Name)
		if conf.Mode != policy.Forward || conf.Upstream[0] != policy.Echo || conf.Protocol != policy.TCP || len(l.Addresses) == 0 {
			continue
		}
		if host, port, err := net.SplitHostPort(l.Addresses[0]); err == nil {
			return fmt.Sprintf("  bash -c 'exec 3<>/dev/tcp/%s/%s; head -c 400K /dev/zero >&3 & time head -c 400K <&3 | wc -c'\n", host, port)
		}
	}
	return ""
}

// log writes it to a log.
func (w welcome) log(log *slog.Logger, s daemon.Status, p *policy.Policy) {
	for _, l := range s.Listeners {
		conf, _ := p.Listener(l.Name)
		log.Info("listening", listenerAttrs(l, conf)...)
	}
	log.Info("control", "socket", s.Control, "http", s.HTTP)
}

func listenerAttrs(l stats.ListenerReading, conf policy.Listener) []any {
	return []any{"listener", l.Name, "protocol", l.Protocol, "addresses", strings.Join(l.Addresses, ","),
		"upstream", strings.ReplaceAll(conf.LeadsTo(), ", ", ","), "class", conf.Class}
}

// adviceFor returns a command that asks this daemon from any directory: a program that the shell
// finds there, and the policy file unless that is the default.
func adviceFor(path string, named bool) string {
	command := ownCommand()
	if !named && path == systemConfig {
		return command
	}
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	return command + " -c " + shellQuoted(path)
}

// ownCommand returns what to type to run this program. For a program that `go run` has built, which
// is in a temporary directory, that is `go run` again.
func ownCommand() string {
	path, err := os.Executable()
	if err != nil {
		return "shaper"
	}
	if found, err := exec.LookPath("shaper"); err == nil && sameFile(found, path) {
		return "shaper"
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Path != "command-line-arguments" && isGoRun() {
		if dir, err := os.Getwd(); err == nil {
			return "go -C " + shellQuoted(dir) + " run " + info.Path
		}
	}
	return shellQuoted(path)
}

// isGoRun reports whether `go run` has started the program and waits for it.
func isGoRun() bool {
	parent, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", os.Getppid()))
	words := strings.Split(string(parent), "\x00")
	return err == nil && filepath.Base(words[0]) == "go" && slices.Contains(words, "run")
}

func sameFile(a, b string) bool {
	one, err1 := os.Stat(a)
	other, err2 := os.Stat(b)
	return err1 == nil && err2 == nil && os.SameFile(one, other)
}

// plainWord matches words that a shell takes as they are.
var plainWord = regexp.MustCompile(`^[\w@%+=:,./-]+$`)

// shellQuoted returns a word quoted for a shell, if it needs that.
func shellQuoted(word string) string {
	if plainWord.MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
