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

// welcome says at the start what listens where, and what to try.
type welcome struct{ command string }

// write tells it to a person.
func (w welcome) write(out io.Writer, s daemon.Status, p *policy.Policy) {
	fmt.Fprintf(out, "\nshaper %s, policy %s (%s)\n\n", s.Version, p.Path, p.Hash)
	t := table{header: []string{"LISTENER", "WHERE", "UPSTREAM", "CLASS", "RATE"}}
	for _, l := range s.Listeners {
		conf, _ := p.Listener(l.Name)
		class, _ := p.Class(conf.Class)
		t.add(l.Name, l.Protocol+" "+strings.Join(l.Addresses, ", "), strings.Join(conf.Upstream, ", "), class.Name, class.Rate.String())
	}
	t.write(out, "  ")
	fmt.Fprintf(out, "\n  control  %s\n", s.Control)
	if s.HTTP != "" {
		fmt.Fprintf(out, "  metrics  http://%s/metrics\n", s.HTTP)
	}
	fmt.Fprintf(out, "\nTry in a second terminal:\n%s  %s classes\n", tryListener(s, p), w.command)
	fmt.Fprintf(out, "  %s explain 127.0.0.1\n\nCtrl-C stops.\n\n", w.command)
}

// tryListener returns a command that sees the first echo listener shape, if
// there is one.
func tryListener(s daemon.Status, p *policy.Policy) string {
	for _, l := range s.Listeners {
		conf, _ := p.Listener(l.Name)
		if conf.Upstream[0] != policy.Echo || conf.Protocol != policy.TCP || len(l.Addresses) == 0 {
			continue
		}
		if host, port, err := net.SplitHostPort(l.Addresses[0]); err == nil {
			return fmt.Sprintf("  bash -c 'exec 3<>/dev/tcp/%s/%s; head -c 400K /dev/zero >&3 & time head -c 400K <&3 | wc -c'\n", host, port)
		}
	}
	return ""
}

// log tells it to a log.
func (w welcome) log(log *slog.Logger, s daemon.Status, p *policy.Policy) {
	for _, l := range s.Listeners {
		conf, _ := p.Listener(l.Name)
		log.Info("listening", about(l, conf)...)
	}
	log.Info("control", "socket", s.Control, "http", s.HTTP)
}

func about(l stats.ListenerReading, conf policy.Listener) []any {
	return []any{"listener", l.Name, "protocol", l.Protocol, "addresses", strings.Join(l.Addresses, ","),
		"upstream", strings.Join(conf.Upstream, ","), "class", conf.Class}
}

// advised returns how to ask this daemon from another terminal, in whatever directory
// that is: by a command that can be found there, and the policy file.
func advised(path string, named bool) string {
	command := ownCommand()
	if !named && path == systemConfig {
		return command
	}
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	return command + " -c " + quoted(path)
}

// ownCommand returns what to type for this program. The one that `go run` has made is
// nowhere that people look; its package is found from the directory of go run.
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
			return "go -C " + quoted(dir) + " run " + info.Path
		}
	}
	return quoted(path)
}

// isGoRun reports whether `go run` has started the program, and waits for it.
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

// plainWord matches what no shell takes for anything else.
var plainWord = regexp.MustCompile(`^[\w@%+=:,./-]+$`)

// quoted returns a word as a shell reads it.
func quoted(word string) string {
	if plainWord.MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
