package tests

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"shaper/tests/trial"
)

// patience is how long a test waits for anything. What works takes far less, even on a busy
// machine.
const patience = time.Minute

// program is a daemon that a test has started.
type program struct {
	t      *testing.T
	bin    string
	config string // path of the policy file
	cmd    *exec.Cmd
	log    *trial.Log
	exited chan struct{}
	in     *namespace // where it runs; nil: in the namespace of the tests
}

// daemonSection is the [daemon] section that write adds to policies without one.
const daemonSection = `[daemon]
control = "run/c.sock"
http = "127.0.0.1:0"
drain = "0s"
`

// start runs the daemon with a policy until the test ends. Bin is plain or raced. Listeners of
// port 0 get a port from the kernel; see addr.
func start(t *testing.T, bin, policy string) *program {
	t.Helper()
	return startIn(nil, t, bin, policy)
}

// startIn is start in a namespace. Commands reach the daemon's control socket from outside too.
func startIn(n *namespace, t *testing.T, bin, policy string) *program {
	t.Helper()
	dir, err := os.MkdirTemp(binDir, "")
	if err != nil {
		t.Fatal(err)
	}
	p := &program{t: t, bin: bin, config: filepath.Join(dir, "shaper.toml"), in: n}
	p.write(policy)
	p.run()
	t.Cleanup(p.stop)
	return p
}

// write replaces the policy file by renaming a new one, as editors do.
func (p *program) write(policy string) {
	p.t.Helper()
	if !strings.Contains(policy, "[daemon]") {
		policy = daemonSection + policy
	}
	fresh := p.config + ".new"
	if err := os.WriteFile(fresh, []byte(policy), 0o644); err != nil {
		p.t.Fatal(err)
	}
	if err := os.Rename(fresh, p.config); err != nil {
		p.t.Fatal(err)
	}
}

// run starts the daemon and waits until it is ready.
func (p *program) run(args ...string) {
	p.t.Helper()
	p.log, p.exited = new(trial.Log), make(chan struct{})
	p.cmd = exec.Command(p.bin, append([]string{"-c", p.config, "run"}, args...)...)
	p.cmd.Stderr = p.log
	if p.in != nil {
		p.in.do(p.cmd.Start)
	} else if err := p.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	go func() {
		p.cmd.Wait()
		close(p.exited)
	}()
	trial.Await(p.t, "the daemon is ready", func() bool {
		if p.hasExited() {
			p.t.Fatalf("the daemon exited while starting:\n%s", p.log)
		}
		return strings.Contains(p.log.String(), "msg=control")
	})
}

func (p *program) pid() int { return p.cmd.Process.Pid }

func (p *program) hasExited() bool {
	select {
	case <-p.exited:
		return true
	default:
		return false
	}
}

func (p *program) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// stop ends the daemon with SIGTERM if it still runs. It checks the exit code and the log.
func (p *program) stop() {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Error(err)
	}
	p.awaitExit(patience)
	if code := p.cmd.ProcessState.ExitCode(); code != 0 {
		p.t.Errorf("the daemon exited with %v, want 0:\n%s", p.cmd.ProcessState, p.log)
	}
	p.checkLog()
}

// kill ends the daemon with SIGKILL.
func (p *program) kill() {
	p.t.Helper()
	p.signal(syscall.SIGKILL)
	p.awaitExit(patience)
}

// awaitExit waits until the daemon has exited. If that takes too long, it kills the daemon and
// fails the test.
func (p *program) awaitExit(within time.Duration) {
	p.t.Helper()
	select {
	case <-p.exited:
	case <-time.After(within):
		p.cmd.Process.Kill()
		p.t.Fatalf("the daemon has not exited within %v:\n%s", within, p.log)
	}
}

// checkLog fails the test if a session has panicked, or if the race detector has found a race.
func (p *program) checkLog() {
	for _, bad := range []string{"DATA RACE", "panicked", "fatal error"} {
		if strings.Contains(p.log.String(), bad) {
			p.t.Errorf("the log contains %q:\n%s", bad, p.log)
		}
	}
}

// cli runs a command with the daemon's policy file. It runs the plain program, because the race
// detector delays every exit by a second.
func (p *program) cli(args ...string) (stdout, stderr string, code int) {
	p.t.Helper()
	var out, errs bytes.Buffer
	cmd := exec.Command(plain(), append([]string{"-c", p.config}, args...)...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.Env = append(os.Environ(), "COLUMNS=200") // narrower tables cut names
	if err := cmd.Run(); err != nil && !errors.As(err, new(*exec.ExitError)) {
		p.t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// must runs a command that has to succeed, and returns its output.
func (p *program) must(args ...string) (stdout string) {
	p.t.Helper()
	stdout, stderr, code := p.cli(args...)
	if code != 0 {
		p.t.Fatalf("shaper %s: exit %d: %s%s", strings.Join(args, " "), code, stdout, stderr)
	}
	return stdout
}

// read runs a command with --json, and decodes its output.
func (p *program) read(into any, args ...string) {
	p.t.Helper()
	text := p.must(append(args, "--json")...)
	if err := json.Unmarshal([]byte(text), into); err != nil {
		p.t.Fatalf("shaper %s --json: %v\n%s", strings.Join(args, " "), err, text)
	}
}

// ask reads a page of the control socket, which has what the command of that name prints with
// --json. Tests ask again and again, and a command for each would take all of the processors.
func (p *program) ask(into any, page string) {
	p.t.Helper()
	dialer := net.Dialer{}
	client := http.Client{Timeout: patience, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", p.socket())
		},
	}}
	response, err := client.Get("http://shaper/v1/" + page)
	if err != nil {
		p.t.Fatal(err)
	}
	defer response.Body.Close()
	if err := json.NewDecoder(response.Body).Decode(into); err != nil || response.StatusCode != http.StatusOK {
		p.t.Fatalf("/v1/%s: %s, %v", page, response.Status, err)
	}
}

// The parts of the commands' JSON output that tests read.
type (
	status struct {
		PID        int        `json:"pid"`
		State      string     `json:"state"`
		PolicyHash string     `json:"policy_hash"`
		HTTP       string     `json:"http"`
		Listeners  []listener `json:"listeners"`
	}
	listener struct {
		Name      string            `json:"name"`
		Addresses []string          `json:"addresses"`
		Open      int               `json:"open"`
		Ended     map[string]uint64 `json:"ended"`
	}
	class struct {
		Name    string            `json:"name"`
		Rate    rate              `json:"rate"`
		Sent    map[string]volume `json:"sent"`
		Dropped map[string]loss   `json:"dropped"`
		Backlog int               `json:"backlog_items"`
	}
	rate struct {
		Text      string  `json:"text"`
		PerSecond float64 `json:"per_second"`
	}
	volume  struct{ Bytes, Packets, Connections, Messages uint64 }
	loss    struct{ Items, Bytes uint64 }
	session struct {
		Client string `json:"client"`
		Class  string `json:"class"`
		Upward uint64 `json:"bytes_upstream"`
	}
)

func (p *program) status() (s status) {
	p.t.Helper()
	p.ask(&s, "status")
	return s
}

func (p *program) sessions() (all []session) {
	p.t.Helper()
	p.ask(&all, "sessions")
	return all
}

func (p *program) class(name string) class {
	p.t.Helper()
	var all []class
	p.ask(&all, "classes")
	for _, c := range all {
		if c.Name == name {
			return c
		}
	}
	p.t.Fatalf("shaper classes does not show %s", name)
	return class{}
}

func (p *program) listener(name string) listener {
	p.t.Helper()
	for _, l := range p.status().Listeners {
		if l.Name == name {
			return l
		}
	}
	p.t.Fatalf("shaper status does not show listener %s", name)
	return listener{}
}

// addr returns the first address of a listener.
func (p *program) addr(name string) string {
	p.t.Helper()
	return p.listener(name).Addresses[0]
}

// get fetches a page of the daemon's HTTP endpoint over a new connection.
func (p *program) get(path string) (body string, code int) {
	p.t.Helper()
	return fetch(p.t, "http://"+p.status().HTTP+path)
}

func fetch(t *testing.T, url string) (body string, code int) {
	t.Helper()
	client := http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text), response.StatusCode
}

// metric returns the value of a series. Series has its name and labels as /metrics writes them.
func (p *program) metric(series string) float64 {
	p.t.Helper()
	text, _ := p.get("/metrics")
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), series+" "); ok {
			v, err := strconv.ParseFloat(value, 64)
			if err != nil {
				p.t.Fatal(err)
			}
			return v
		}
	}
	p.t.Fatalf("/metrics does not show %s", series)
	return 0
}
