package main

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"shaper/daemon"
	"shaper/policy"
	"shaper/stats"
	"shaper/tests/trial"
	"shaper/unit"
)

func TestFlagsFirst(t *testing.T) {
	app := newApp(io.Discard, io.Discard)
	app.Setup()
	for in, want := range map[string]string{
		"":                                   "",
		"status":                             "status",
		"status --json":                      "status --json",
		"--json status":                      "status --json",
		"status -c f":                        "-c f status",
		"-c f status":                        "-c f status",
		"status --config=f --json":           "--config=f status --json",
		"explain ::1 --port 7 --listener l":  "explain --port 7 --listener l -- ::1",
		"explain --port 7 ::1":               "explain --port 7 -- ::1",
		"set a rate=1mbit --for 1m":          "set --for 1m -- a rate=1mbit",
		"set --for=1m a rate=1mbit":          "set --for=1m -- a rate=1mbit",
		"sessions --json":                    "sessions --json",
		"sessions close 7 -c f":              "-c f sessions close -- 7",
		"sessions --json close 7":            "sessions --json close -- 7",
		"check -- -c":                        "check -- -c",
		"check -":                            "check -- -",
		"check --help":                       "check --help",
		"nonsense --json":                    "--json -- nonsense",
		"status --nonsense":                  "status --nonsense",
		"status -c":                          "-c status",
		"set sta --generate-bash-completion": "set sta --generate-bash-completion",
	} {
		args := append([]string{"shaper"}, strings.Fields(in)...)
		if got := strings.Join(flagsFirst(app, args)[1:], " "); got != want {
			t.Errorf("%q becomes %q, want %q", in, got, want)
		}
	}
}

// golden compares a text with a file of testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	goldenFile(t, filepath.Join("testdata", name), got)
}

// goldenFile compares a text with a file. The flag -update writes the file instead.
func goldenFile(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s differs (-want +got); -update writes it:\n%s", path, diff)
	}
}

func TestHelp(t *testing.T) {
	golden(t, "help.txt", want(t, 0, nil, "--help"))
	golden(t, "help-set.txt", want(t, 0, nil, "set", "--help"))
	if one, other := want(t, 0, nil, "help", "set"), want(t, 0, nil, "set", "-h"); one != other {
		t.Errorf("two ways to ask for the help of a command differ:\n%s", cmp.Diff(one, other))
	}
	want(t, 0, []string{"close", "--json"}, "sessions", "--help")
}

func TestUsageErrors(t *testing.T) {
	for args, says := range map[string]string{
		"":                                "COMMANDS:",
		"relod":                           `there is no command "relod"; did you mean "reload"?`,
		"turn":                            "the commands are run, check",
		"simulate x --compare y":          `"x" is one argument too many; the policy is -c FILE: shaper simulate -c x`,
		"simulate":                        "a workload is either --trace, or one --load or more",
		"simulate --trace x --load y":     "a workload is either --trace, or one --load or more",
		"simulate --load rate=5":          `--load: rate: "5" is not a rate`,
		"simulate --trace x --for 0s":     "--for: 0s leaves no time",
		"simulate --trace x --for 5":      `--for: "5" is not a duration`,
		"--nonsense":                      "-nonsense; see shaper --help",
		"-c - status":                     "status needs --socket PATH, or -c FILE with a policy file",
		"status --nonsense":               "-nonsense; see shaper status --help",
		"run my.toml":                     `"my.toml" is one argument too many; the policy is -c FILE: shaper run -c my.toml`,
		"status extra":                    `"extra" is one argument too many; usage: shaper status`,
		"sessions close":                  "usage: shaper sessions close ID",
		"sessions close x":                `"x" is not the id`,
		"explain":                         "usage: shaper explain SOURCE",
		"explain ::1 --port 70000":        `--port: "70000" is not a port; a port is from 1 to 65535`,
		"explain ::1 --port 0":            `--port: "0" is not a port`,
		"explain ::1 --port=-1":           `--port: "-1" is not a port`,
		"explain ::1 --port=":             `--port: "" is not a port`,
		"explain ::1 --port x":            `--port: "x" is not a port`,
		"set slow":                        "usage: shaper set CLASS KEY=VALUE...",
		"set slow rate":                   `"rate" is not KEY=VALUE`,
		"set slow rate=":                  `"rate=" is not KEY=VALUE`,
		"set slow rate=1mbit rate=2mbit":  "rate is given twice",
		"set slow rate=1mbit --for 0s":    "leaves no time",
		"set slow rate=1mbit --for later": "is not a duration",
		"reload --rollback-after 5":       "is not a duration",
		"run --log-format xml":            "it is text or json",
		"run --log-level loud":            "it is debug, info, warn or error",
		"completion tcsh":                 "bash, zsh and fish",
		"tc":                              "a command is missing; shaper tc plan, apply, show or clear",
		"nft":                             "a command is missing; shaper nft plan, apply or clear",
		"tc plam":                         `there is no command "tc plam"; did you mean "plan"?`,
		"tc plan a b":                     `"b" is one argument too many; usage: shaper tc plan [DEVICE]`,
		"check a b":                       `"b" is one argument too many`,
	} {
		t.Run(args, func(t *testing.T) { want(t, 64, []string{says}, strings.Fields(args)...) })
	}
}

func TestNoFile(t *testing.T) {
	t.Chdir(t.TempDir())
	want(t, 66, []string{"no such file"}, "check", "none.toml")
	want(t, 66, []string{"open none.toml: no such file or directory; give --socket PATH, or -c FILE with a policy file: it says where the control socket is\n"}, "status", "-c", "none.toml")
	for _, args := range [][]string{{"check", "."}, {"run", "-c", "."}, {"status", "-c", "."}} {
		want(t, 66, []string{"is a directory"}, args...)
	}
	if _, err := os.Stat(systemConfig); err == nil {
		t.Skip(systemConfig + " exists")
	}
	want(t, 66, []string{systemConfig}, "check")
	want(t, 69, []string{"/run/shaper/control.sock"}, "status")
}

// The policy file is that of -c, else of SHAPER_CONFIG, else ./shaper.toml.
func TestConfigPath(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, name := range []string{"shaper.toml", "env.toml", "flag.toml"} {
		text := strings.Replace(base, "64KiB/s", fmt.Sprintf("%d bit", len(name)), 1)
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want(t, 0, []string{"shaper.toml  "}, "check")
	want(t, 69, []string{"at c.sock"}, "status")
	t.Setenv("SHAPER_CONFIG", "env.toml")
	want(t, 0, []string{"env.toml  "}, "check")
	want(t, 0, []string{"flag.toml  "}, "check", "-c", "flag.toml")
	want(t, 0, []string{"flag.toml  "}, "check", "flag.toml")
}

func TestCheckWarns(t *testing.T) {
	path := filepath.Join(t.TempDir(), "shaper.toml")
	os.WriteFile(path, []byte(base+"[class.unused]\nrate = \"1mbit\"\n"), 0o600)
	code, out, errs := do("check", path)
	if code != 0 || !strings.HasPrefix(errs, "warning: "+path+":16:2: class.unused: ") || !strings.Contains(out, "class unused") {
		t.Errorf("%d\n%s%s", code, out, errs)
	}
}

func TestVersion(t *testing.T) {
	want(t, 0, []string{"shaper " + version + " (go1."}, "version")
	want(t, 0, []string{version}, "--version")
}

func TestCompletion(t *testing.T) {
	for shell := range scripts {
		script := want(t, 0, []string{completing}, "completion", shell)
		path, err := exec.LookPath(shell)
		if err != nil {
			t.Logf("%s is not installed; its script is not checked", shell)
			continue
		}
		cmd := exec.Command(path, "-n")
		cmd.Stdin = strings.NewReader(script)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s -n: %v\n%s", shell, err, out)
		}
	}
}

// The program answers what the completion scripts ask. It runs in a process of its own, since
// urfave/cli reads os.Args.
func TestCompletions(t *testing.T) {
	p := begin(t, base)
	devices := filepath.Join(t.TempDir(), "devices.toml")
	if err := os.WriteFile(devices, []byte("[class.a]\nrate = \"1mbit\"\n[tc.eth0]\nclass = \"a\"\n[tc.lo]\nclass = \"a\"\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	for args, lines := range map[string]string{
		"":                           "run\ncheck\nreload\n",
		"-c " + p.path + " set":      "guest\nslow\n",
		"-c " + p.path + " set slow": "rate=\nburst=\n",
		"completion":                 "bash\nzsh\nfish\n",
		"sessions":                   "close\n",
		"tc":                         "plan\napply\nshow\nclear\n",
		"nft":                        "plan\napply\nclear\n",
		"-c " + devices + " tc show": "eth0\nlo\n",
		"status --j":                 "--json\n",
	} {
		cmd := exec.Command(os.Args[0], append(strings.Fields(args), completing)...)
		cmd.Env = append(os.Environ(), asShaper+"=1")
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), lines) {
			t.Errorf("%s: %v\n%s", args, err, out)
		}
	}
}

// Completion works in bash, with the script and a shaper on the PATH.
func TestBashCompletes(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		trial.SkipUnlessCI(t, "bash is not installed: apt-get install bash")
	}
	dir := t.TempDir()
	os.Symlink(os.Args[0], filepath.Join(dir, "shaper"))
	cmd := exec.Command(bash, "-c", `source <(shaper completion bash)
compopt() { echo compopt "$@"; }
COMP_WORDS=(shaper set a ra); COMP_CWORD=3; _shaper; echo "${COMPREPLY[@]}"
COMP_WORDS=(shaper set a b); COMP_CWORD=3; _shaper; echo "${COMPREPLY[@]}"
COMP_WORDS=(shaper sta); COMP_CWORD=1; _shaper; echo "${COMPREPLY[@]}"
COMP_WORDS=(shaper status --j); COMP_CWORD=2; _shaper; echo "${COMPREPLY[@]}"
COMP_WORDS=(shaper reload --); COMP_CWORD=2; _shaper; echo "${COMPREPLY[@]}"
COMP_WORDS=(shaper classes --s); COMP_CWORD=2; _shaper; echo "${COMPREPLY[@]}"
COMP_WORDS=(shaper set a rate=1mbit --); COMP_CWORD=4; _shaper; echo "${COMPREPLY[@]}"
COMP_WORDS=(shaper tc apply --j); COMP_CWORD=3; _shaper; echo "${COMPREPLY[@]}"
COMP_WORDS=(shaper -c ""); COMP_CWORD=2; _shaper; echo "${COMPREPLY[@]}"
COMP_WORDS=(shaper --config = s); COMP_CWORD=3; _shaper; echo "${COMPREPLY[@]}"
COMP_WORDS=(shaper -c x sta); COMP_CWORD=3; _shaper; echo "${COMPREPLY[@]}"`)
	cmd.Env = append(os.Environ(), asShaper+"=1", "PATH="+dir+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	const want = "compopt -o nospace\nrate=\ncompopt -o nospace\nburst=\nstatus\n--json\n--json --rollback-after --help\n--sort\n--json --for --help\n--json\n\n\nstatus\n"
	if err != nil || string(out) != want {
		t.Errorf("%v, %q", err, out)
	}
}

// The program offers nothing as the value of a flag, so the shell offers files. bash makes a word of a "=".
func TestCompletingAValue(t *testing.T) {
	for _, args := range []string{"-c", "-c -", "--config", "--config =", "status --socket", "simulate --trace", "explain --policy -", "-c x classes --sort", "set a rate ="} {
		cmd := exec.Command(os.Args[0], append(strings.Fields(args), completing)...)
		cmd.Env = append(os.Environ(), asShaper+"=1")
		if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("%s: %v, %q", args, err, out)
		}
	}
}

// A shell that asks what may follow "--" does not run the command.
func TestCompletingRunsNothing(t *testing.T) {
	for _, args := range []string{"version --", "fmt -- -", "man --", "explain --policy x --"} {
		if out := want(t, 0, nil, append(strings.Fields(args), completing)...); out != "" {
			t.Errorf("%s: %q", args, out)
		}
	}
}

func TestMan(t *testing.T) {
	page := want(t, 0, []string{".TH SHAPER 1", ".SH JSON", ".SH EXIT STATUS", "SHAPER_CONFIG", "SHAPER_SOCKET", "NO_COLOR", "COLUMNS", "STATE_DIRECTORY", ".BR shaper.toml (5)"}, "man")
	for _, c := range newApp(io.Discard, io.Discard).Commands {
		if !strings.Contains(page, `.SS "shaper `+c.Name) {
			t.Errorf("the manual page has no command %s", c.Name)
		}
	}
	man, err := exec.LookPath("man")
	if err != nil {
		trial.SkipUnlessCI(t, "man is not installed, so the page is not rendered: apt-get install man-db")
	}
	file := filepath.Join(t.TempDir(), "shaper.1")
	os.WriteFile(file, []byte(page), 0o600)
	cmd := exec.Command(man, "--warnings=all", "-l", file)
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	if err != nil || complaints.Len() > 0 || len(out) < 2000 {
		t.Errorf("man: %v, %d bytes\n%s", err, len(out), &complaints)
	}
}

func TestRoff(t *testing.T) {
	for in, want := range map[string]string{
		".so /etc/passwd": `\&.so /etc/passwd`,
		"'quoted'":        `\&'quoted'`,
		`a\b --c "d"`:     `a\eb \-\-c \(dqd\(dq`,
		"one\n\n.two":     "one\n.PP\n\\&.two",
	} {
		if got := roff(in); got != want {
			t.Errorf("%q becomes %q, want %q", in, got, want)
		}
	}
}

// The golden file shows a status with everything that it can have.
func TestPrintStatus(t *testing.T) {
	began := time.Date(2026, 1, 2, 3, 4, 5, 0, time.Local)
	s := daemon.Status{PID: 7, State: daemon.Draining, Control: "/run/c.sock", HTTP: "127.0.0.1:9780",
		Rollback: began.Add(2 * time.Hour), Warnings: make(policy.Errors, 2),
		Sets: []daemon.Set{
			{Class: "a", Values: map[string]string{"rate": "1mbit", "burst": "9KiB"}, Until: began.Add(90 * time.Minute)},
			{Class: "b", Values: map[string]string{"rate": "2mbit"}},
		}}
	s.Version, s.Started, s.Policy, s.PolicyHash = "1.2.3", began, "/etc/shaper/shaper.toml", "0123456789ab"
	s.Reload = stats.ReloadReading{Time: began.Add(50 * time.Minute), Succeeded: began, Error: "one mistake\nanother"}
	s.Pacers = stats.PacersReading{Departures: 5, LateP50: stats.Seconds(4 * time.Microsecond), LateP99: stats.Seconds(61 * time.Microsecond)}
	s.Totals = stats.Totals{Sessions: 3, Ended: 9, BacklogItems: 1, BacklogBytes: 2048}
	s.Listeners = []stats.ListenerReading{{Name: "web", Protocol: "tcp", Addresses: []string{"127.0.0.1:80", "[::1]:80"}, Open: 3,
		Ended: map[stats.Result]uint64{stats.OK: 7, stats.DialFailed: 2}}}
	s.Budgets = stats.StateReading{Path: "/var/lib/shaper/state", Written: began.Add(59 * time.Minute)}
	s.Kept = &stats.KeptReading{Error: "tc.eth0: operation not permitted"}
	var out bytes.Buffer
	printStatus(&out, s, began.Add(time.Hour))
	golden(t, "status.txt", out.String())
}

// Without listeners the proxy has nothing to show, and status says where the figures of the kernel are.
func TestPrintStatusOfDevices(t *testing.T) {
	for want, kept := range map[string]*stats.KeptReading{
		"\nlisteners none, and no device with apply: `shaper tc apply` puts the policy into the kernel, and `shaper tc show` has its counters\n": nil,
		"\nkernel    kept equal to the policy\nlisteners none: `shaper classes` has what the kernel has counted\n":                               {},
		"\nkernel    DIFFERS FROM THE POLICY: no such device\nlisteners none\n":                                                                  {Error: "no such device"},
	} {
		var s daemon.Status
		s.Kept = kept
		var out bytes.Buffer
		printStatus(&out, s, time.Now())
		if got := out.String(); !strings.HasSuffix(got, want) || strings.Contains(got, "LISTENER") || strings.Contains(got, "sessions") {
			t.Errorf("%s\ndoes not end with %s", got, want)
		}
	}
}

// Sessions go on after a reload has removed the last listener, and status goes on to count them.
func TestPrintStatusOfRemovedListeners(t *testing.T) {
	var s daemon.Status
	s.Totals = stats.Totals{Sessions: 3, Ended: 9, BacklogItems: 1, BacklogBytes: 2048}
	var out bytes.Buffer
	printStatus(&out, s, time.Now())
	for _, want := range []string{"\nlisteners none", "\nsessions  3 open, 9 ended\n", "\nbacklog   1 item, 2.0KiB\n"} {
		if got := out.String(); !strings.Contains(got, want) || strings.Contains(got, "LISTENER") {
			t.Errorf("%s\ndoes not have %s", got, want)
		}
	}
}

func TestPrintBudgets(t *testing.T) {
	now := time.Now()
	for want, r := range map[string]stats.StateReading{
		"state     kept nowhere: a restart forgets what was sent\n":                            {},
		"state     /s, not written yet\n":                                                      {Path: "/s"},
		"state     /s, written 3s ago; WRITING FAILS: write /s.new: no space left on device\n": {Path: "/s", Written: now.Add(-3 * time.Second), Error: "write /s.new: no space left on device"},
	} {
		var out bytes.Buffer
		if printBudgets(&out, r, now); out.String() != want {
			t.Errorf("%q, want %q", out.String(), want)
		}
	}
}

// treeOfClasses returns the classes of a tree, sorted by name as the daemon returns them.
func treeOfClasses() []daemon.Class {
	one := func(name, parent, ceil string, priority int) (c daemon.Class) {
		c.Name, c.Parent, c.Priority, c.Weight = name, parent, priority, 1
		if c.Rate.Text, c.Now.Text = "10mbit", "8.5mbit"; ceil != "" {
			c.Ceil = &stats.RateReading{Text: ceil}
		}
		return c
	}
	return []daemon.Class{one("acme", "uplink", "", 4), one("bulk", "acme", "10mbit", 7), one("otp", "acme", "10mbit", 0),
		one("side", "", "", 4), one("uplink", "", "", 4)}
}

func TestPrintClassesAndSessions(t *testing.T) {
	slow := daemon.Class{Set: true}
	slow.Name, slow.Rate.Text, slow.Now.Text = "slow", "64KiB/s", "63.9KiB/s"
	slow.BacklogBytes, slow.BacklogItems, slow.Oldest, slow.Overlimits = 70000, 12, stats.Seconds(63000*time.Second), 345
	slow.WaitP50, slow.WaitP99, slow.Drain = stats.Seconds(24*time.Millisecond), stats.Seconds(1500*time.Millisecond), stats.Never
	slow.Dropped = map[stats.Reason]stats.LossReading{stats.QueueFull: {Items: 3}, stats.MaxWait: {Items: 4}}
	var out bytes.Buffer
	printClasses(&out, []daemon.Class{slow}, time.Now(), "")
	fmt.Fprintln(&out)
	printClasses(&out, treeOfClasses(), time.Now(), "")
	now := time.Now()
	printSessions(&out, []daemon.Session{
		{ID: 9, Listener: "web", Client: "[::1]:5", Class: "slow", Started: now.Add(-time.Minute)},
		{ID: 10, Listener: "web", Client: "10.0.0.1:50000", Upstream: "a:1", Class: "slow", ReturnClass: "back",
			Started: now, Upward: 5000, Downward: 1 << 21, Waiting: 7},
	}, now, "")
	fmt.Fprintln(&out)
	printSessions(&out, []daemon.Session{
		{ID: 11, Listener: "web", Client: "10.0.0.1:50001", Class: "slow", Started: now, ClientTLS: "1.2"},
		{ID: 12, Listener: "web", Client: "10.0.0.1:50002", Upstream: "a:1", Class: "slow", Started: now, UpstreamNumber: 1, ClientTLS: "1.3", UpstreamTLS: "1.2"},
		{ID: 13, Listener: "web", Client: "10.0.0.1:50003", Upstream: "b:1", UpstreamNumber: 2, Class: "slow", Started: now},
	}, now, "")
	golden(t, "tables.txt", out.String())
}

func TestWelcome(t *testing.T) {
	p, _, err := policy.Parse("shaper.toml", []byte(base))
	if err != nil {
		t.Fatal(err)
	}
	p.Hash = "0123456789ab"
	s := daemon.Status{Control: "/x/c.sock", HTTP: "127.0.0.1:9780"}
	s.Version = "1.2.3"
	s.Listeners = []stats.ListenerReading{{Name: "echo", Protocol: "tcp", Addresses: []string{"127.0.0.1:7007"}}}
	var out bytes.Buffer
	say := welcome{"shaper -c f"}
	say.write(&out, s, p)
	golden(t, "welcome.txt", out.String())

	out.Reset()
	say.log(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{ReplaceAttr: withoutTime})), s, p)
	if want := "level=INFO msg=listening listener=echo protocol=tcp addresses=127.0.0.1:7007 upstream=echo: class=slow\n" +
		"level=INFO msg=control socket=/x/c.sock http=127.0.0.1:9780\n"; out.String() != want {
		t.Errorf("the log has\n%swant\n%s", &out, want)
	}
}

// Only a log to the journal omits the time.
func TestLog(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		t.Fatal(err)
	}
	stream := fmt.Sprintf("%d:%d", info.Sys().(*syscall.Stat_t).Dev, info.Sys().(*syscall.Stat_t).Ino)
	for _, c := range []struct {
		stream, format string
		time           bool
	}{{stream, "text", false}, {stream, "json", false}, {"1:1", "text", true}, {"", "json", true}} {
		t.Setenv("JOURNAL_STREAM", c.stream)
		file.Truncate(0)
		file.Seek(0, io.SeekStart)
		log, err := newLog(file, isJournal(file, os.Getenv("JOURNAL_STREAM")), c.format, "warn")
		if err != nil {
			t.Fatal(err)
		}
		log.Info("quiet")
		log.Warn("loud", "rate", unit.BytesPerSecond(5))
		text, _ := os.ReadFile(file.Name())
		if got := strings.Contains(string(text), "time"); got != c.time {
			t.Errorf("%+v: %s", c, text)
		}
		if strings.Contains(string(text), "quiet") || !strings.Contains(string(text), "loud") || (text[0] == '{') != (c.format == "json") {
			t.Errorf("%+v: %s", c, text)
		}
	}
}
