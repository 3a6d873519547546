// Package systemd holds the unit files of shaper, and their tests.
package systemd

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"shaper/tests/trial"
)

// run runs one of systemd's own checkers. If it is missing, the test is skipped, but fails in CI.
func run(t *testing.T, name string, args ...string) (output string, err error) {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		trial.SkipUnlessCI(t, "%s is not installed: apt-get install systemd", name)
	}
	out, err := exec.Command(path, args...).CombinedOutput()
	return string(out), err
}

// installed copies unit files into a directory, as an installation would. It replaces the program,
// which is not installed here, by /bin/true.
func installed(t *testing.T, files ...string) (paths []string) {
	t.Helper()
	dir := t.TempDir()
	for _, file := range files {
		text := strings.ReplaceAll(read(t, file), "/usr/bin/shaper", "/bin/true")
		path := filepath.Join(dir, file)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
	}
	return paths
}

func TestVerify(t *testing.T) {
	units := installed(t, "shaper.service", "shaper.socket")
	out, err := run(t, "systemd-analyze", append([]string{"verify", "--man=no"}, units...)...)
	if out != "" || err != nil {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
}

func TestSecurity(t *testing.T) {
	unit := installed(t, "shaper.service")[0]
	// 0.2 of it is for chown, which is harmless without CAP_CHOWN.
	out, err := run(t, "systemd-analyze", "security", "--offline=true", "--threshold=17", "--no-pager", unit)
	if err != nil {
		t.Errorf("systemd-analyze security: exposure above 1.7: %v\n%s", err, out)
	}
}

func TestSysusers(t *testing.T) {
	file, err := filepath.Abs("shaper.sysusers")
	if err != nil {
		t.Fatal(err)
	}
	out, err := run(t, "systemd-sysusers", "--dry-run", "--root="+t.TempDir(), file)
	if err != nil || !strings.Contains(out, "Creating user 'shaper'") || !strings.Contains(out, "Creating group 'shaper'") {
		t.Errorf("systemd-sysusers: %v\n%s", err, out)
	}
}

// The filter must allow the less common system calls of shaper.
func TestSystemCallFilter(t *testing.T) {
	out, err := run(t, "systemd-analyze", "syscall-filter", "--no-pager")
	if err != nil {
		t.Fatal(err)
	}
	allowed := syscallGroups(out).allowedBy(settings(read(t, "shaper.service"))["SystemCallFilter"])
	if !allowed["read"] || allowed["bpf"] || allowed["setuid"] || allowed["sched_setscheduler"] {
		t.Fatalf("%d calls allowed, bpf among them: %v: the test misreads the list, or the filter is too wide", len(allowed), allowed["bpf"])
	}
	for _, call := range []string{
		"accept4", "bind", "connect", "listen", "setsockopt", "shutdown", "recvmmsg", "sendmmsg", "splice", "pipe2",
		"epoll_pwait", "eventfd2", "timerfd_create", "clone", "futex", "mmap", "madvise", "prlimit64", "sched_getaffinity",
		"fchmodat", "lchown", "fchownat", "umask", "unlinkat", "pidfd_open",
	} {
		if !allowed[call] {
			t.Errorf("%s is not allowed", call)
		}
	}
}

// allowedBy returns the system calls that the lines of SystemCallFilter= allow: the first line begins a list,
// and each other one adds to it, or with "~" takes away from it (systemd.exec(5)).
func (g groups) allowedBy(lines []string) map[string]bool {
	allowed := map[string]bool{}
	for _, line := range lines {
		names, without := strings.CutPrefix(line, "~")
		for _, name := range strings.Fields(names) {
			some := map[string]bool{name: true}
			g.expand(name, some)
			for call := range some {
				allowed[call] = !without
			}
		}
	}
	return allowed
}

// groups has the members of each of systemd's groups of system calls. A member may be a group.
type groups map[string][]string

func syscallGroups(list string) groups {
	g, current := groups{}, ""
	for line := range strings.Lines(list) {
		name := strings.TrimSpace(line)
		switch {
		case name == "" || name[0] == '#':
		case line[0] == '@':
			current = name
		default:
			g[current] = append(g[current], name)
		}
	}
	return g
}

// expand adds the members of a group to into, and those of the groups among them.
func (g groups) expand(group string, into map[string]bool) {
	for _, name := range g[group] {
		into[name] = true
		if name[0] == '@' {
			g.expand(name, into)
		}
	}
}

// Other parts of shaper, and operators, rely on these lines of the unit.
func TestServiceSettings(t *testing.T) {
	got := settings(read(t, "shaper.service"))
	for key, want := range map[string]string{
		"Type":                  "notify", // systemd 252 does not have notify-reload
		"ExecStart":             "/usr/bin/shaper run",
		"ExecReload":            "/usr/bin/shaper reload",
		"User":                  "shaper",
		"RuntimeDirectory":      "shaper", // of the control socket
		"RuntimeDirectoryMode":  "0750",
		"StateDirectory":        "shaper", // of the state file
		"AmbientCapabilities":   "CAP_NET_ADMIN CAP_NET_BIND_SERVICE",
		"CapabilityBoundingSet": "CAP_NET_ADMIN CAP_NET_BIND_SERVICE",
		"ProcSubset":            "all", // "pid" cuts the listen backlog to 128
		"NoNewPrivileges":       "yes",
		"CPUWeight":             "1000", // docs/operations.md has what it gives
		"Restart":               "on-failure",
	} {
		if !slices.Equal(got[key], []string{want}) {
			t.Errorf("%s is %q, want %q", key, got[key], want)
		}
	}
	const drain, ends = 30 * time.Second, 20 * time.Second // the default of the policy, and more than shaper takes after that
	if stop, err := time.ParseDuration(got["TimeoutStopSec"][0]); err != nil || stop < drain+ends {
		t.Errorf("TimeoutStopSec is %v, %v: a drain of %v would be cut off", stop, err, drain)
	}
	if dog, err := time.ParseDuration(got["WatchdogSec"][0]); err != nil || dog <= 0 {
		t.Errorf("WatchdogSec is %v, %v: a hang would go unnoticed", dog, err)
	}
}

// settings returns the values of each key of a unit file, in the order of the file.
func settings(unit string) map[string][]string {
	values := map[string][]string{}
	for line := range strings.Lines(unit) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && key[0] != '#' {
			values[key] = append(values[key], value)
		}
	}
	return values
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
