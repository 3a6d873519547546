package daemon

import (
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"shaper/policy"
	"shaper/stats"
	"shaper/tests/trial"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds how long a test waits. What works takes much less.
const patience = time.Minute

// base is a policy whose ports the kernel chooses.
const base = `[daemon]
control = "c.sock"
http = "127.0.0.1:0"
drain = "1m"
[class.slow]
rate = "64KiB/s"
[class.fast]
rate = "1gbit"
[class.guest]
rate = "8KiB/s"
[listener.echo]
listen = "127.0.0.1:0"
upstream = "echo:"
class = "slow"
[listener.quick]
listen = "127.0.0.1:0"
upstream = "echo:"
class = "fast"
[[rule]]
listener = "echo"
source = "127.0.0.2"
class = "guest"
`

// process is a daemon that runs in the test's process.
type process struct {
	*Client
	t       testing.TB
	path    string // of the policy file
	log     *trial.Log
	signals chan os.Signal
	ended   chan error
	first   Status
}

// begin runs a daemon with a policy until the end of the test.
func begin(t testing.TB, text string) *process {
	t.Helper()
	dir := trial.ShortDir(t)
	p := &process{t: t, path: filepath.Join(dir, "shaper.toml"), signals: make(chan os.Signal, 4), ended: make(chan error, 1)}
	p.Client = NewClient(filepath.Join(dir, "c.sock"))
	p.write(text)
	var log *slog.Logger
	p.log, log = trial.NewLog()
	ready := make(chan Status, 1)
	options := Options{Path: p.path, Version: "test", Log: log, Signals: p.signals,
		Ready: func(s Status, _ *policy.Policy) { ready <- s }}
	go func() { p.ended <- Run(options) }()
	select {
	case p.first = <-ready:
	case err := <-p.ended:
		t.Fatalf("the daemon did not start: %v", err)
	}
	t.Cleanup(func() {
		p.signals <- syscall.SIGTERM
		p.signals <- syscall.SIGTERM
		p.await()
	})
	return p
}

func (p *process) write(text string) {
	p.t.Helper()
	if err := os.WriteFile(p.path, []byte(text), 0o600); err != nil {
		p.t.Fatal(err)
	}
}

// edit writes the base policy with replacements: pairs of old and new.
func (p *process) edit(oldNew ...string) {
	p.t.Helper()
	p.write(strings.NewReplacer(oldNew...).Replace(base))
}

// await waits for Run to return, and returns its error.
func (p *process) await() error {
	p.t.Helper()
	select {
	case err := <-p.ended:
		p.ended <- err // for the next await
		return err
	case <-time.After(patience):
		p.t.Fatal("the daemon does not end")
		return nil
	}
}

// address returns where a listener is bound.
func (p *process) address(listener string) string {
	p.t.Helper()
	for _, l := range p.mustStatus().Listeners {
		if l.Name == listener {
			return l.Addresses[0]
		}
	}
	p.t.Fatalf("there is no listener %q", listener)
	return ""
}

func (p *process) mustStatus() Status {
	p.t.Helper()
	s, err := p.Status(p.t.Context())
	if err != nil {
		p.t.Fatal(err)
	}
	return s
}

// dial connects to a listener, and sends a byte to the upstream and back.
func (p *process) dial(listener string) net.Conn {
	p.t.Helper()
	c, err := net.Dial("tcp", p.address(listener))
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { c.Close() })
	before := p.mustStatus().Totals.Sent[stats.Upstream].Bytes
	p.pass(c)
	trial.Await(p.t, "the byte is counted", func() bool { // a moment after it has departed
		return p.mustStatus().Totals.Sent[stats.Upstream].Bytes > before
	})
	return c
}

func (p *process) pass(c net.Conn) {
	p.t.Helper()
	c.SetDeadline(time.Now().Add(patience))
	if _, err := c.Write([]byte{'x'}); err != nil {
		p.t.Fatal(err)
	}
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		p.t.Fatal(err)
	}
}

// rate returns the rate of a class in force.
func (p *process) rate(class string) string {
	p.t.Helper()
	all, err := p.Classes(p.t.Context())
	if err != nil {
		p.t.Fatal(err)
	}
	for _, c := range all {
		if c.Name == class {
			return c.Rate.Text
		}
	}
	p.t.Fatalf("there is no class %q", class)
	return ""
}

// get returns the status and body of a page.
func get(t testing.TB, url string) (int, string) {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}
	response, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(body)
}

func wantLines(t testing.TB, text string, lines ...string) {
	t.Helper()
	for _, line := range lines {
		if !strings.Contains(text, line) {
			t.Errorf("%q is missing in:\n%s", line, text)
		}
	}
}
