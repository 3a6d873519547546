package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
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
	"shaper/tests/trial"
)

var update = flag.Bool("update", false, "write the output into testdata")

// patience bounds how long a test waits. What works takes much less.
const patience = time.Minute

// asShaper is the environment variable that makes the test binary act as shaper.
const asShaper = "SHAPER_TEST_BE_SHAPER"

func TestMain(m *testing.M) {
	if os.Getenv(asShaper) != "" {
		main()
	}
	for _, name := range []string{"SHAPER_CONFIG", "SHAPER_SOCKET", "COLUMNS"} {
		os.Unsetenv(name)
	}
	os.Unsetenv("JOURNAL_STREAM")
	os.Setenv("GORACE", "atexit_sleep_ms=0") // else a program with the race detector ends after a second
	os.Exit(m.Run())
}

const base = `[daemon]
control = "c.sock"
http = "127.0.0.1:0"
drain = "1m"
[class.slow]
rate = "64KiB/s"
[class.guest]
rate = "8KiB/s"
[listener.echo]
listen = "127.0.0.1:0"
upstream = "echo:"
class = "slow"
[[rule]]
source = "127.0.0.2"
class = "guest"
`

// do runs a command line in the test's process.
func do(args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = run(context.Background(), append([]string{"shaper"}, args...), &out, &errs)
	return code, out.String(), errs.String()
}

// want runs a command line, and checks its exit code, and that its output, both streams together,
// has these parts. It returns the standard output.
func want(t *testing.T, code int, parts []string, args ...string) (stdout string) {
	t.Helper()
	got, out, errs := do(args...)
	if got != code {
		t.Errorf("shaper %v: exit code %d, want %d\n%s%s", args, got, code, out, errs)
	}
	for _, part := range parts {
		if !strings.Contains(out+errs, part) {
			t.Errorf("shaper %v: %q is missing in:\n%s%s", args, part, out, errs)
		}
	}
	if code != 0 && errs == "" {
		t.Errorf("shaper %v fails and prints nothing", args)
	}
	return out
}

// process is `shaper run` in a process of its own.
type process struct {
	*exec.Cmd
	t      *testing.T
	path   string // of the policy file
	lines  chan string
	exited chan struct{}
}

// begin starts a daemon, and returns when its log says that the policy is in force.
func begin(t *testing.T, text string, prepare ...func(*exec.Cmd)) *process {
	t.Helper()
	p := &process{t: t, path: filepath.Join(trial.ShortDir(t), "shaper.toml"), lines: make(chan string, 1000), exited: make(chan struct{})}
	p.write(text)
	p.Cmd = exec.Command(os.Args[0], "run", "-c", p.path)
	p.Env = append(os.Environ(), asShaper+"=1")
	for _, f := range prepare {
		f(p.Cmd)
	}
	stderr, err := p.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	go p.read(stderr)
	t.Cleanup(func() {
		p.Process.Kill()
		p.exitCode()
	})
	p.awaitLine("socket=")
	return p
}

// read collects the lines of the daemon's log.
func (p *process) read(stderr io.Reader) {
	defer close(p.exited)
	defer p.Wait()
	defer close(p.lines)
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		p.lines <- lines.Text()
	}
}

// awaitLine waits for the next line of the log with this part, and returns it.
func (p *process) awaitLine(part string) string {
	p.t.Helper()
	var seen []string
	timeout := time.After(patience)
	for {
		select {
		case line, ok := <-p.lines:
			if seen = append(seen, line); !ok {
				p.t.Fatalf("the daemon has ended without %q:\n%s", part, strings.Join(seen, "\n"))
			}
			if strings.Contains(line, part) {
				return line
			}
		case <-timeout:
			p.t.Fatalf("%q is not logged:\n%s", part, strings.Join(seen, "\n"))
		}
	}
}

func (p *process) exitCode() int {
	p.t.Helper()
	select {
	case <-p.exited:
		return p.ProcessState.ExitCode()
	case <-time.After(patience):
		p.t.Fatal("the daemon does not end")
		return -1
	}
}

func (p *process) write(text string) {
	p.t.Helper()
	if err := os.WriteFile(p.path, []byte(text), 0o600); err != nil {
		p.t.Fatal(err)
	}
}

func (p *process) status() (s daemon.Status) {
	p.t.Helper()
	if err := json.Unmarshal([]byte(want(p.t, 0, nil, "status", "--json", "-c", p.path)), &s); err != nil {
		p.t.Fatal(err)
	}
	return s
}

func (p *process) dial() net.Conn {
	p.t.Helper()
	c, err := net.Dial("tcp", p.status().Listeners[0].Addresses[0])
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(patience))
	fmt.Fprint(c, "x")
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		p.t.Fatal(err)
	}
	return c
}

// An operator runs, asks, changes and stops a daemon.
func TestOperate(t *testing.T) {
	p := begin(t, base)
	conn := p.dial()
	want(t, 0, []string{"running, pid " + fmt.Sprint(p.Process.Pid), p.path, "1 open", "echo"}, "-c", p.path, "status")
	want(t, 0, []string{"CLASS", "slow", "64KiB/s", "guest"}, "classes", "-c", p.path)
	want(t, 0, []string{conn.LocalAddr().String(), "echo:", "slow"}, "sessions", "-c", p.path)
	want(t, 0, []string{"class guest: rule 1 (" + p.path + ":13): source 127.0.0.2 is in 127.0.0.2/32"}, "explain", "127.0.0.2", "-c", p.path)
	want(t, 0, nil, "explain", "127.0.0.2", "--expect", "guest", "-c", p.path)
	want(t, 1, []string{`the class is "guest", and "slow" is expected`}, "explain", "127.0.0.2", "--expect", "slow", "-c", p.path)
	want(t, 64, []string{`--expect: there is no class "slwo"; did you mean "slow"?`}, "explain", "127.0.0.2", "--expect", "slwo", "-c", p.path)
	_, port, _ := net.SplitHostPort(conn.RemoteAddr().String())
	want(t, 0, []string{"port " + port + ": class slow: no rule matches"}, "explain", "::1", "--listener", "echo", "--port="+port, "-c", p.path)
	want(t, 64, []string{`listener "echo" does not listen on port 99; it listens on 127.0.0.1:` + port}, "explain", "::1", "--listener", "echo", "--port=99", "-c", p.path)
	want(t, 0, []string{"~ class slow: rate 64KiB/s -> 1mbit\nuntil 20", ", or the next reload\n"}, "set", "slow", "rate=1mbit", "--for", "1h", "-c", p.path)
	want(t, 0, []string{"*1mbit", "* by shaper set"}, "classes", "-c", p.path)
	want(t, 0, []string{"set       slow: rate=1mbit, for another "}, "status", "-c", p.path)
	want(t, 0, []string{"~ class slow: rate 1mbit -> 64KiB/s\n", " is in force\n"}, "reload", "-c", p.path)
	want(t, 0, []string{"nothing has changed\n"}, "reload", "-c", p.path)
	want(t, 0, []string{"~ class slow: rate 64KiB/s -> 2mbit\nuntil the next reload\n"}, "set", "slow", "rate=2mbit", "-c", p.path)
	want(t, 65, []string{`class.slow.rate: "x" is not a rate`}, "set", "slow", "rate=x", "-c", p.path)
	want(t, 64, []string{`shaper: there is no class "slwo"; did you mean "slow"?`}, "set", "slwo", "rate=1mbit", "-c", p.path)
	want(t, 64, []string{`there is no listener "none"; listeners: echo`}, "explain", "::1", "--listener=none", "-c", p.path)
	want(t, 1, []string{"there is no session 99"}, "sessions", "close", "99", "-c", p.path)
	want(t, 0, nil, "sessions", "-c", p.path, "close", "1")
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the client of a closed session reads %v", err)
	}
	p.Process.Signal(syscall.SIGTERM)
	if code := p.exitCode(); code != 0 {
		t.Errorf("a stop ends with %d", code)
	}
	want(t, 69, []string{"the daemon is not reachable at "}, "status", "-c", p.path)
}

// A reload of a file with five mistakes prints five errors with positions and exits with 65. The
// daemon goes on, and commands find it although the file is broken.
func TestReloadWithMistakes(t *testing.T) {
	p := begin(t, base)
	hash := p.status().PolicyHash
	p.write(strings.NewReplacer(`"1m"`, `1`, "[class.slow]", "colour = 3\n[class.slow]", `"64KiB/s"`, `64`,
		`class = "slow"`, `class = "slwo"`, `"127.0.0.2"`, `"local"`).Replace(base))
	code, out, errs := do("-c", p.path, "reload")
	wantErrors := []string{":4:9: daemon.drain: ", ":5:1: daemon.colour: ", ":7:8: class.slow.rate: ", ":13:9: listener.echo.class: ", ":15:10: rule[1].source: "}
	if code != 65 || out != "" || strings.Count(errs, "\n") != len(wantErrors) {
		t.Errorf("reload: exit code %d, %q and\n%s", code, out, errs)
	}
	for i, line := range strings.Split(strings.TrimSuffix(errs, "\n"), "\n") {
		if i < len(wantErrors) && !strings.HasPrefix(line, p.path+wantErrors[i]) {
			t.Errorf("error %d is %q, want %s%s", i, line, p.path, wantErrors[i])
		}
	}
	if got := p.status(); got.PolicyHash != hash || got.Reload.OK {
		t.Errorf("the daemon has %s, %+v", got.PolicyHash, got.Reload)
	}
	want(t, 0, []string{"the LAST RELOAD FAILED", "listener.echo.class"}, "status", "-c", p.path)
	checked, _, checkErrs := do("check", p.path)
	if checked != 65 || checkErrs != errs {
		t.Errorf("check: %d\n%s", checked, cmp.Diff(errs, checkErrs))
	}
}

func TestRollback(t *testing.T) {
	p := begin(t, base)
	want(t, 1, []string{"nothing to confirm"}, "confirm", "-c", p.path)
	p.write(strings.Replace(base, "64KiB/s", "1mbit", 1))
	want(t, 0, []string{"the reload is undone at "}, "reload", "--rollback-after", "5m", "-c", p.path)
	want(t, 0, []string{"rollback  in 5m,"}, "status", "-c", p.path)
	want(t, 0, []string{"policy " + p.status().PolicyHash + " is confirmed"}, "confirm", "-c", p.path)
	want(t, 1, nil, "confirm", "-c", p.path)
}

// What --json prints decodes into the types of package daemon.
func TestJSON(t *testing.T) {
	p := begin(t, base)
	p.dial()
	for _, c := range []struct {
		into any
		args []string
	}{
		{new(daemon.Status), []string{"status"}},
		{new([]daemon.Class), []string{"classes"}},
		{new([]daemon.Session), []string{"sessions"}},
		{new([]policy.Explanation), []string{"explain", "127.0.0.2"}},
		{new(daemon.Shadow), []string{"shadow", p.path}},
		{new(daemon.Shadow), []string{"shadow"}},
		{new(daemon.Shadow), []string{"shadow", "--stop"}},
		{new(daemon.Reloaded), []string{"reload"}},
		{new(daemon.Changed), []string{"set", "slow", "rate=1mbit"}},
		{new(daemon.Reloaded), []string{"reload", "--rollback-after", "1h"}},
		{new(daemon.Confirmed), []string{"confirm"}},
		{new(versionReading), []string{"version"}},
		{new(struct {
			Policy   policy.Policy
			Warnings policy.Errors
		}), []string{"check"}},
	} {
		out := want(t, 0, nil, append(c.args, "--json", "-c", p.path)...)
		in := json.NewDecoder(strings.NewReader(out))
		in.DisallowUnknownFields()
		if err := in.Decode(c.into); err != nil {
			t.Errorf("%v: %v\n%s", c.args, err, out)
		}
		if strings.Contains(out, "null") {
			t.Errorf("%v prints a null:\n%s", c.args, out)
		}
	}
}

// A set says on the standard error what it does not stop.
func TestSetWarns(t *testing.T) {
	p := begin(t, strings.Replace(base, "\"64KiB/s\"", "\"1KiB/s\"\nparent = \"guest\"\nceil = \"8KiB/s\"", 1))
	want(t, 0, []string{"warning: class.slow.rate: ", "borrows up to its ceil \"8KiB/s\"", "~ class slow: rate 1KiB/s -> "}, "set", "slow", "rate=0B/s", "-c", p.path)
}

func TestHangup(t *testing.T) {
	p := begin(t, base)
	p.write(strings.Replace(base, "64KiB/s", "1mbit", 1))
	p.Process.Signal(syscall.SIGHUP)
	p.awaitLine("msg=reload by=signal")
	want(t, 0, []string{"1mbit"}, "classes", "-c", p.path)
}

// A listener uses a socket that systemd passes, by its name.
func TestSocketActivation(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	file, err := l.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	p := begin(t, strings.Replace(base, `"127.0.0.1:0"`+"\nupstream", "\"systemd:web\"\nupstream", 1), func(cmd *exec.Cmd) {
		// Only the process itself knows its LISTEN_PID.
		cmd.Args = append([]string{"sh", "-c", `LISTEN_PID=$$ exec "$0" "$@"`}, cmd.Args...)
		cmd.Path = "/bin/sh"
		cmd.Env = append(cmd.Env, "LISTEN_FDS=1", "LISTEN_FDNAMES=web")
		cmd.ExtraFiles = []*os.File{file}
	})
	if got := p.status().Listeners[0].Addresses[0]; got != l.Addr().String() {
		t.Errorf("shaper listens on %s, and systemd has passed %v", got, l.Addr())
	}
	p.dial()
}

func TestRunErrors(t *testing.T) {
	running := begin(t, base)
	dir := t.TempDir()
	file := filepath.Join(dir, "shaper.toml")
	os.WriteFile(file, []byte(strings.Replace(base, `"8KiB/s"`, `8`, 1)), 0o600)
	want(t, 65, []string{file + ":8:8: class.guest.rate: "}, "run", "-c", file)
	want(t, 66, []string{"no such file"}, "run", "-c", file+"x")
	want(t, 1, []string{fmt.Sprintf("another shaper is running (pid %d", running.Process.Pid)}, "run", "-c", running.path)
}

// Without the capability for a port below 1024, shaper exits with 77, after which systemd does not
// start it again. It runs in a new network namespace, where such ports need that even if they do not on this
// machine (ip_unprivileged_port_start).
func TestRunWithoutCapability(t *testing.T) {
	if os.Geteuid() != 0 {
		trial.SkipUnlessCI(t, "only root can give up capabilities")
	}
	dir, err := os.MkdirTemp("", "shaper")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	binary, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	for path, data := range map[string][]byte{
		"shaper":      binary,
		"shaper.toml": []byte(strings.Replace(base, `"127.0.0.1:0"`+"\nupstream", "\"0.0.0.0:81\"\nupstream", 1)), // there is no 127.0.0.1 there yet
	} {
		if err := os.WriteFile(filepath.Join(dir, path), data, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Chmod(dir, 0o755), os.Chown(dir, 65534, 65534)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(dir, "shaper"), "run")
	cmd.Dir, cmd.Env = dir, []string{asShaper + "=1"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}, Cloneflags: syscall.CLONE_NEWNET}
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		trial.SkipUnlessCI(t, "a program cannot start in a new network namespace here: %v", err)
	}
	if code := cmd.ProcessState.ExitCode(); code != 77 || !strings.Contains(string(out), "shaper.toml:10:10: listener.echo.listen: ") || !strings.Contains(string(out), "CAP_NET_BIND_SERVICE") {
		t.Errorf("exit code %d:\n%s", code, out)
	}
}

// The endpoint of metrics answers as soon as the log names it.
func TestMetrics(t *testing.T) {
	p := begin(t, base)
	response, err := http.Get("http://" + p.status().HTTP + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil || !strings.Contains(string(body), `shaper_build_info{goversion="`) {
		t.Errorf("%v\n%s", err, body)
	}
}

func TestExitCodes(t *testing.T) {
	for _, c := range []struct {
		err  error
		want int
	}{
		{errors.New("anything"), 1},
		{usageError("no"), 64},
		{errSilent, 64},
		{policy.Errors{{Key: "syntax"}}, 65},
		{&daemon.Error{Code: daemon.CodePolicy}, 65},
		{&fs.PathError{Op: "open", Err: fs.ErrNotExist}, 66},
		{&daemon.Error{Code: daemon.CodeNoFile}, 66},
		{fmt.Errorf("%w at c.sock", daemon.ErrUnreachable), 69},
		{fmt.Errorf("control socket: %w", fs.ErrPermission), 77},
		{&daemon.Error{Code: daemon.CodeForbidden}, 77},
		{&daemon.Error{Code: daemon.CodePermission}, 77},
		{&daemon.Error{Code: daemon.CodeNotFound}, 1},
		{daemon.ErrRunning, 1},
	} {
		if got := exitCode(c.err); got != c.want {
			t.Errorf("%v: exit code %d, want %d", c.err, got, c.want)
		}
	}
}

// full is a file on a full disk.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

// TestOutputIsLost requires that a command fails if nobody gets what it prints.
func TestOutputIsLost(t *testing.T) {
	p := begin(t, base)
	for _, line := range []string{"status", "classes", "classes slow", "why slow", "sessions", "upstreams", "fleet", "history",
		"explain 127.0.0.1", "diff", "reload", "set slow rate=32KiB/s", "check", "check --explain", "status --json", "help", "status --help", "version"} {
		var errs bytes.Buffer
		args := append([]string{"shaper", "-c", p.path}, strings.Fields(line)...)
		if code := run(context.Background(), args, full{}, &errs); code != exitFailed || !strings.Contains(errs.String(), "no space left on device") {
			t.Errorf("shaper %s on a full disk: exit code %d, want %d; it says %q", line, code, exitFailed, errs.String())
		}
	}
}
