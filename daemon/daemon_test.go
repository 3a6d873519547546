package daemon

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"shaper/policy"
	"shaper/stats"
	"shaper/tests/trial"
)

func TestStatus(t *testing.T) {
	p := begin(t, base)
	p.dial("echo")
	s := p.mustStatus()
	if s.State != Running || s.PID != os.Getpid() || s.Version != "test" || s.Policy != p.path || !s.Reload.OK {
		t.Errorf("the status is %+v", s)
	}
	if s.Totals.Sessions != 1 || s.Totals.Sent[stats.Upstream].Bytes != 1 {
		t.Errorf("the totals are %+v", s.Totals)
	}
	if len(s.Classes) != 0 || len(p.first.Classes) != 3 {
		t.Errorf("it has %d classes, and the process %d", len(s.Classes), len(p.first.Classes))
	}
	if p.first.PolicyHash != s.PolicyHash || len(s.PolicyHash) != 12 {
		t.Errorf("the hash is %q, and was %q", s.PolicyHash, p.first.PolicyHash)
	}
}

// The totals are those of the sessions: they have bytes that no class counts, and count bytes
// once that a class and its parent both count.
func TestTotalsAreThoseOfSessions(t *testing.T) {
	p := begin(t, strings.Replace(base, "[class.slow]\n", "[class.account]\nrate = \"1MiB/s\"\n[class.slow]\nparent = \"account\"\n", 1))
	p.dial("echo") // it has no return_class
	trial.Await(t, "both directions are counted", func() bool { return p.mustStatus().Totals.Sent[stats.Downstream].Bytes == 1 })
	sessions, err := p.Sessions(t.Context())
	if err != nil || len(sessions) != 1 {
		t.Fatalf("%v, %v", sessions, err)
	}
	s := p.mustStatus()
	if up, down := s.Totals.Sent[stats.Upstream].Bytes, s.Totals.Sent[stats.Downstream].Bytes; up != sessions[0].Upward || down != sessions[0].Downward || up != 1 {
		t.Errorf("the status has %d and %d bytes, the session %+v", up, down, sessions[0])
	}
	all, err := p.Classes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range all {
		if n := c.Sent[stats.Upstream].Bytes; n != 1 && (c.Name == "account" || c.Name == "slow") {
			t.Errorf("%s counts %d bytes", c.Name, n)
		}
	}
}

// A reload puts `punctual` in force, and what had to wait is counted.
func TestPunctual(t *testing.T) {
	p := begin(t, base)
	if !p.mustStatus().Pacers.Punctual {
		t.Error("shaper is not punctual although nothing is said of it")
	}
	p.edit(`drain = "1m"`, "punctual = false", `"64KiB/s"`, `"2 connections/s"`)
	mustReload(p)
	if p.mustStatus().Pacers.Punctual {
		t.Error("shaper is punctual although the policy says otherwise")
	}
	trial.Await(t, "a connection has waited, and is counted", func() bool {
		c, err := net.Dial("tcp", p.address("echo"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return p.mustStatus().Pacers.Departures > 0
	})
}

func TestClasses(t *testing.T) {
	p := begin(t, strings.Replace(base, `rate = "8KiB/s"`, "rate = \"10 connections/s\"\nalgorithm = \"token\"\nburst = \"3 connections\"", 1))
	p.dial("echo")
	all, err := p.Classes(t.Context())
	if err != nil || len(all) != 3 {
		t.Fatalf("%d classes, %v", len(all), err)
	}
	guest, slow := all[1], all[2]
	if guest.Name != "guest" || guest.Burst != "3 connections" || guest.Rate.Unit != "connections" || guest.Rate.PerSecond != 10 {
		t.Errorf("guest is %+v", guest)
	}
	if slow.Algorithm != "leaky" || slow.Burst != "" || slow.Sent[stats.Upstream].Bytes != 1 || slow.Set || slow.Drain != 0 {
		t.Errorf("slow is %+v", slow)
	}
}

// `set` changes the algorithm of a class in use. The class then shows the keys of its algorithm.
func TestSetAlgorithm(t *testing.T) {
	p := begin(t, base)
	p.dial("echo")
	for _, c := range []struct {
		values        map[string]string
		burst, window string
	}{
		{map[string]string{"algorithm": "gcra", "burst": "64KiB"}, "64KiB", ""},
		{map[string]string{"algorithm": "fixed-window", "rate": "4MB/min"}, "", "1min"},
		{map[string]string{"algorithm": "sliding-log", "window": "10s"}, "", "10s"},
		{map[string]string{"algorithm": "sliding-window"}, "", "1s"},
	} {
		if _, err := p.Reload(t.Context(), 0); err != nil { // it ends the set before
			t.Fatal(err)
		}
		if _, err := p.Set(t.Context(), "slow", c.values, 0); err != nil {
			t.Errorf("set %v: %v", c.values, err)
			continue
		}
		all, err := p.Classes(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if slow := all[2]; slow.Algorithm != c.values["algorithm"] || slow.Burst != c.burst || slow.Window != c.window {
			t.Errorf("after %v it is %s, burst %q, window %q", c.values, slow.Algorithm, slow.Burst, slow.Window)
		}
	}
}

// Classes show their parents, and a reload moves a class to another parent while a session goes on.
func TestClassesOfATree(t *testing.T) {
	tree := strings.Replace(base, "[class.slow]", "[class.slow]\nparent = \"uplink\"\nceil = \"1MiB/s\"\npriority = 2\nweight = 3", 1) +
		"[class.uplink]\nrate = \"2MiB/s\"\n"
	p := begin(t, tree)
	c := p.dial("echo")
	all, err := p.Classes(t.Context())
	if err != nil || len(all) != 4 {
		t.Fatalf("%d classes, %v", len(all), err)
	}
	if slow := all[2]; slow.Parent != "uplink" || slow.Priority != 2 || slow.Weight != 3 || slow.Ceil == nil || slow.Ceil.Text != "1MiB/s" {
		t.Errorf("slow is %+v", slow)
	}
	if uplink := all[3]; uplink.Parent != "" || uplink.Ceil != nil {
		t.Errorf("uplink is %+v", uplink)
	}
	p.write(base)
	if _, err := p.Reload(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	p.pass(c)
	if all, err = p.Classes(t.Context()); err != nil || len(all) != 3 || all[2].Parent != "" || all[2].Ceil != nil {
		t.Errorf("after the reload there are %+v, %v", all, err)
	}
}

// A class of rate 0 never drains, and JSON can express that.
func TestBlockedClass(t *testing.T) {
	p := begin(t, strings.Replace(base, `"64KiB/s"`, `"0B/s"`, 1))
	c, err := net.Dial("tcp", p.address("echo"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.Write([]byte("waits"))
	trial.Await(t, "a backlog that never drains", func() bool {
		all, err := p.Classes(t.Context())
		return err == nil && all[2].BacklogBytes == 5 && all[2].Drain == stats.Never
	})
}

func TestSessions(t *testing.T) {
	p := begin(t, base)
	if all, err := p.Sessions(t.Context()); err != nil || all == nil || len(all) != 0 {
		t.Errorf("without a session: %v, %v", all, err)
	}
	c := p.dial("echo")
	all, err := p.Sessions(t.Context())
	if err != nil || len(all) != 1 {
		t.Fatalf("%d sessions, %v", len(all), err)
	}
	if s := all[0]; s.Client != c.LocalAddr().String() || s.Class != "slow" || s.Upward != 1 {
		t.Errorf("the session is %+v", s)
	}
	if err := p.CloseSession(t.Context(), all[0].ID); err != nil {
		t.Error(err)
	}
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the client of a closed session reads %v", err)
	}
	if err := p.CloseSession(t.Context(), 999); CodeOf(err) != CodeNotFound {
		t.Errorf("closing what is not there: %v", err)
	}
	p.wantRecord("session closed", "- session 1: client "+c.LocalAddr().String()+", listener echo, class slow, upstream echo:")
}

// A file with five mistakes gives five errors with positions, and the old policy stays.
func TestReloadWithMistakes(t *testing.T) {
	p := begin(t, base)
	c := p.dial("echo")
	p.edit(`drain = "1m"`, "drain = 3\ncolour = 7", `"64KiB/s"`, `"fast"`, `class = "slow"`, `class = "slwo"`, `"127.0.0.2"`, `"127.0.0.2/8"`)
	_, err := p.Reload(t.Context(), 0)
	var refused *Error
	if !errors.As(err, &refused) || refused.Code != CodePolicy || len(refused.Errors) != 5 {
		t.Fatalf("the reload answers %v", err)
	}
	for _, m := range refused.Errors {
		if !strings.HasPrefix(m.Error(), fmt.Sprintf("%s:%d:%d: ", p.path, m.Line, m.Column)) || m.Line == 0 || m.Allowed == "" {
			t.Errorf("a mistake has no position: %v", m)
		}
	}
	p.pass(c)
	if s := p.mustStatus(); s.Reload.OK || s.PolicyHash != p.first.PolicyHash {
		t.Errorf("after the reload %+v", s)
	}
	if p.write(base); !mustReload(p).OK {
		t.Error("after a reload without mistakes the status still has an error")
	}
}

func mustReload(p *process) stats.ReloadReading {
	p.t.Helper()
	if _, err := p.Reload(p.t.Context(), 0); err != nil {
		p.t.Fatal(err)
	}
	return p.mustStatus().Reload
}

// A reload that needs a port in use changes nothing.
func TestReloadPortTaken(t *testing.T) {
	p := begin(t, base)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	dir := filepath.Dir(p.path)
	p.write(strings.NewReplacer(`"c.sock"`, `"d.sock"`, `"64KiB/s"`, `"1mbit"`).Replace(base) +
		fmt.Sprintf("[listener.more]\nlisten = %q\nupstream = \"echo:\"\nclass = \"slow\"\n", taken.Addr()))
	_, err = p.Reload(t.Context(), 0)
	if CodeOf(err) != CodeFailed || !strings.HasPrefix(err.Error(), p.path+":24:10: listener.more.listen: ") || !strings.HasSuffix(err.Error(), "; "+portTaken) {
		t.Errorf("the reload answers %v", err)
	}
	var refused *Error
	if !errors.As(err, &refused) || len(refused.Errors) != 1 || refused.Errors[0].Line != 24 {
		t.Errorf("the reload answers %+v", refused)
	}
	wantLines(t, p.log.String(), "reload rejected; the old policy stays", "shaper.toml:24:10: listener.more.listen: ")
	if got := p.rate("slow"); got != "64KiB/s" {
		t.Errorf("the rate is %s", got)
	}
	if _, err := os.Lstat(filepath.Join(dir, "d.sock")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the new control socket is still there: %v", err)
	}
}

// A reload moves the endpoints to other addresses, and still answers the request for it.
func TestReloadMovesEndpoints(t *testing.T) {
	p := begin(t, base)
	old := p.first.HTTP
	p.edit(`"c.sock"`, `"new/d.sock"`, `"127.0.0.1:0"`+"\ndrain", `"127.0.0.2:0"`+"\ndrain")
	if _, err := p.Reload(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	moved := NewClient(filepath.Join(filepath.Dir(p.path), "new/d.sock"))
	s, err := moved.Status(t.Context())
	if err != nil || s.HTTP == old || !strings.HasPrefix(s.HTTP, "127.0.0.2:") {
		t.Fatalf("the new endpoint is %q, %v", s.HTTP, err)
	}
	if code, _ := get(t, "http://"+s.HTTP+"/readyz"); code != 200 {
		t.Errorf("readyz is %d", code)
	}
	trial.Await(t, "the old endpoints are closed", func() bool {
		_, err := p.Status(t.Context())
		_, errHTTP := net.Dial("tcp", old)
		return errors.Is(err, ErrUnreachable) && errHTTP != nil
	})
	p.edit(`"c.sock"`, `"new/d.sock"`, `"127.0.0.1:0"`+"\ndrain", `""`+"\ndrain")
	if _, err := moved.Reload(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	if s, err := moved.Status(t.Context()); err != nil || s.HTTP != "" {
		t.Errorf("turned off, the endpoint is %q, %v", s.HTTP, err)
	}
}

func TestHangup(t *testing.T) {
	p := begin(t, base)
	p.edit(`"64KiB/s"`, `"1mbit"`)
	p.signals <- syscall.SIGHUP
	trial.Await(t, "the new rate", func() bool { return p.rate("slow") == "1mbit" })
	trial.Await(t, "the log says who", func() bool { return strings.Contains(p.log.String(), "msg=reload by=signal") })
}

// A hang-up brings the control socket back if somebody has removed its file.
func TestHangupBringsTheControlSocketBack(t *testing.T) {
	p := begin(t, base)
	s, err := p.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(s.Control); err != nil {
		t.Fatal(err)
	}
	p.signals <- syscall.SIGHUP
	trial.Await(t, "the control socket", func() bool {
		_, err := p.Status(t.Context())
		return err == nil
	})
}

// `set` of a rate reaches an open connection that waits.
func TestSetReachesOpenConnection(t *testing.T) {
	p := begin(t, base)
	c := p.dial("echo")
	c.SetDeadline(time.Now().Add(patience))
	const size = 4 << 20 // a minute at 64KiB/s
	go c.Write(make([]byte, size))
	done, err := p.Set(t.Context(), "slow", map[string]string{"rate": "1gbit"}, time.Hour)
	if err != nil || len(done.Changes) != 1 || done.Changes[0].New != "1gbit" {
		t.Fatalf("set answers %v, %v", done, err)
	}
	if _, err := io.CopyN(io.Discard, c, size); err != nil {
		t.Error(err)
	}
	s := p.mustStatus()
	if len(s.Sets) != 1 || s.Sets[0].Class != "slow" || time.Until(s.Sets[0].Until) > time.Hour || !s.Sets[0].Until.Equal(done.Until) {
		t.Errorf("the status has %+v", s.Sets)
	}
	if mustReload(p); p.rate("slow") != "64KiB/s" {
		t.Errorf("after a reload of the same file the rate is %s", p.rate("slow"))
	}
}

// A set bounds also the wait of a session that waits for a permit already.
func TestSetBoundsTheWaitForAPermit(t *testing.T) {
	p := begin(t, strings.Replace(base, "[class.slow]", "[class.slow]\nmax_connections = 1", 1))
	p.dial("echo")
	c, err := net.Dial("tcp", p.address("echo"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(patience))
	trial.Await(t, "it waits", func() bool {
		all, _ := p.Sessions(t.Context())
		return len(all) == 2
	})
	if _, err := p.Set(t.Context(), "slow", map[string]string{"max_wait": "1ms"}, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("it reads %v", err)
	}
}

func TestSetErrors(t *testing.T) {
	p := begin(t, base)
	for _, c := range []struct {
		class, key, value string
		want              Code
	}{
		{"slow", "rate", "quick", CodePolicy},
		{"slwo", "rate", "1mbit", CodeNotFound},
		{"slow", "for", "1m", CodeUsage},
		{"slow", "for", "0s", CodeUsage},
	} {
		if _, err := p.Set(t.Context(), c.class, map[string]string{c.key: c.value}, 0); CodeOf(err) != c.want {
			t.Errorf("set %s %s=%s: %v", c.class, c.key, c.value, err)
		}
	}
}

func TestRollbackOverTheSocket(t *testing.T) {
	p := begin(t, base)
	if _, err := p.Confirm(t.Context()); CodeOf(err) != CodeState {
		t.Errorf("confirming nothing: %v", err)
	}
	p.edit(`"64KiB/s"`, `"1mbit"`)
	if done, err := p.Reload(t.Context(), time.Hour); err != nil || done.Rollback.IsZero() || !p.mustStatus().Rollback.Equal(done.Rollback) {
		t.Errorf("the reload answers %+v, %v", done, err)
	}
	if _, err := p.Confirm(t.Context()); err != nil || !p.mustStatus().Rollback.IsZero() {
		t.Errorf("confirming: %v", err)
	}
	p.edit(`"64KiB/s"`, `"2mbit"`)
	if _, err := p.Reload(t.Context(), 50*time.Millisecond); err != nil {
		t.Error(err)
	}
	trial.Await(t, "the rollback", func() bool { return p.rate("slow") == "1mbit" })
}

func TestExplain(t *testing.T) {
	p := begin(t, base)
	all, err := p.Explain(t.Context(), ExplainRequest{Source: "127.0.0.2"})
	if err != nil || len(all) != 2 || all[0].Class != "guest" || all[0].Rule != 1 || all[1].Class != "fast" {
		t.Errorf("all ways in: %+v, %v", all, err)
	}
	port := portOf(p.address("echo"))
	all, err = p.Explain(t.Context(), ExplainRequest{Source: "[::1]:99", Listener: "echo", Port: port})
	if err != nil || len(all) != 1 || all[0].Class != "slow" || all[0].Conn.Port != port || all[0].Conn.Source.Port() != 99 {
		t.Errorf("one way in: %+v, %v", all, err)
	}
	for _, bad := range []ExplainRequest{{Source: "somewhere"}, {Source: "::1", Listener: "ecco"}, {Source: "::1", Port: 1}, {Source: "::1", Listener: "echo", Port: 1}} {
		if _, err := p.Explain(t.Context(), bad); CodeOf(err) != CodeUsage {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}

func TestHTTP(t *testing.T) {
	p := begin(t, base)
	p.dial("echo")
	for path, want := range map[string]string{
		"/metrics": `shaper_class_sent_bytes_total{class="slow",direction="upstream"} 1`,
		"/healthz": "ok\n",
		"/readyz":  "ready\n",
		"/":        `<a href="/metrics">`,
	} {
		if code, body := get(t, "http://"+p.first.HTTP+path); code != 200 || !strings.Contains(body, want) {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
	if code, _ := get(t, "http://"+p.first.HTTP+"/v1/status"); code != 404 {
		t.Errorf("the control API over HTTP: %d", code)
	}
}

// While the daemon drains, open sessions go on, it refuses connections and changes, and readyz
// says so.
func TestDrain(t *testing.T) {
	p := begin(t, base)
	c, echo := p.dial("echo"), p.address("echo")
	if _, err := p.Reload(t.Context(), time.Hour); err != nil {
		t.Fatal(err)
	}
	p.signals <- syscall.SIGTERM
	trial.Await(t, "draining", func() bool { return p.mustStatus().State == Draining })
	if at := p.mustStatus().Rollback; !at.IsZero() {
		t.Errorf("the status says that the reload is undone at %v", at)
	}
	if code, body := get(t, "http://"+p.first.HTTP+"/readyz"); code != 503 || body != "draining\n" {
		t.Errorf("readyz is %d %s", code, body)
	}
	trial.Await(t, "the listener is closed", func() bool {
		c, err := net.Dial("tcp", echo)
		if err == nil {
			c.Close() // else its session goes on until the garbage collector comes
		}
		return err != nil
	})
	if _, err := p.Reload(t.Context(), 0); CodeOf(err) != CodeState {
		t.Errorf("a reload meanwhile: %v", err)
	}
	p.pass(c)
	c.Close()
	if err := p.await(); err != nil {
		t.Error(err)
	}
	wantLines(t, p.log.String(), "msg=stopped reset=0")
	if _, err := os.Lstat(filepath.Join(filepath.Dir(p.path), "c.sock")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the control socket is still there: %v", err)
	}
}

// A queue that would take hours does not delay the stop beyond the drain time.
func TestDrainDeadline(t *testing.T) {
	p := begin(t, strings.NewReplacer(`"1m"`, `"100ms"`, `"64KiB/s"`, `"1KiB/s"`).Replace(base))
	c := p.dial("echo")
	c.SetDeadline(time.Now().Add(patience))
	c.Write(make([]byte, 256<<10))
	watch, began := trial.Begin(), time.Now()
	p.signals <- syscall.SIGTERM
	if err := p.await(); err != nil {
		t.Error(err)
	}
	watch.Below(t, "the stop", time.Since(began), 2*time.Second)
	wantLines(t, p.log.String(), "msg=stopped reset=1")
	if _, err := io.Copy(io.Discard, c); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the end of a truncated stream reads as %v, want a reset", err)
	}
}

func TestSecondSignal(t *testing.T) {
	p := begin(t, base) // its drain time is a minute
	p.dial("echo")
	p.signals <- syscall.SIGTERM
	trial.Await(t, "draining", func() bool { return p.mustStatus().State == Draining })
	p.signals <- syscall.SIGHUP // not a second signal
	p.signals <- syscall.SIGINT
	if err := p.await(); err != nil {
		t.Error(err)
	}
	wantLines(t, p.log.String(), "stopping at once", "reset=1")
}

func TestStartErrors(t *testing.T) {
	running := begin(t, base)
	taken := running.address("echo")
	dir := trial.ShortDir(t)
	file := filepath.Join(dir, "shaper.toml")
	for _, c := range []struct {
		what, text string
		want       Code
		says       string
	}{
		{"no file", "", CodeNoFile, "no such file"},
		{"mistakes", strings.Replace(base, "64KiB/s", "x", 1), CodePolicy, "class.slow.rate"},
		{"a port that is taken", strings.Replace(base, `"127.0.0.1:0"`+"\nupstream", fmt.Sprintf("%q\nupstream", taken), 1), CodeFailed, file + ":12:10: listener.echo.listen: listen tcp4 "},
		{"an HTTP port that is taken", strings.Replace(base, `"127.0.0.1:0"`, fmt.Sprintf("%q", taken), 1), CodeFailed, file + ":3:8: daemon.http: listen tcp"},
		{"another daemon", strings.Replace(base, "c.sock", filepath.Join(filepath.Dir(running.path), "c.sock"), 1), CodeFailed, "another shaper is running"},
	} {
		if c.text != "" {
			if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		_, log := trial.NewLog()
		err := Run(Options{Path: file, Log: log})
		if CodeOf(err) != c.want || err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", c.what, err)
		}
		if _, err := os.Lstat(filepath.Join(dir, "c.sock")); err == nil {
			t.Errorf("%s: the control socket remains", c.what)
		}
	}
}

func TestPublicHTTPWarns(t *testing.T) {
	p := begin(t, strings.Replace(base, `http = "127.0.0.1:0"`, `http = "0.0.0.0:0"`, 1))
	wantLines(t, p.log.String(), "metrics are open to other machines")
	if quiet := begin(t, base); strings.Contains(quiet.log.String(), "metrics are open") {
		t.Error("a loopback address causes a warning")
	}
}

func TestDescriptors(t *testing.T) {
	l := policy.Listener{Protocol: policy.TCP, Upstream: []string{"a:1"}, Listen: []string{":1", ":2"}, MaxSessions: 1000}
	udp, echo := l, l
	udp.Protocol = policy.UDP
	echo.Upstream = []string{policy.Echo}
	secure := l
	secure.TLS, secure.UpstreamTLS = new(policy.ServerTLS), new(policy.ClientTLS)
	if got := descriptorsFor(&policy.Policy{Listeners: []policy.Listener{l, udp, echo, secure}}); got != spareDescriptors+8+2000+1000+3000+6000 {
		t.Errorf("the listeners need %d descriptors", got)
	}
	udp.MaxSessions = 100_000
	socks := udp
	socks.Mode, socks.MaxSessions = policy.SOCKS5, 10_000
	if got := descriptorsFor(&policy.Policy{Listeners: []policy.Listener{l, udp, socks}}); got != 2*(100_000+2*10_000) {
		t.Errorf("with many UDP sessions, which hold at most half, the listeners need %d descriptors", got)
	}
}

// The warning of too few descriptors comes once, and again when the numbers change.
func TestDescriptorsWarning(t *testing.T) {
	sessions := func(max string) string {
		return strings.ReplaceAll(base, `upstream = "echo:"`, "upstream = \"echo:\"\nmax_sessions = "+max)
	}
	p := begin(t, sessions("2147483647"))
	for _, c := range []struct {
		text  string
		count int
	}{
		{sessions("2147483647") + "# a comment\n", 1},
		{sessions("2147483646"), 2},
		{sessions("1"), 2},
		{sessions("2147483646"), 3},
	} {
		p.write(c.text)
		mustReload(p)
		if n := strings.Count(p.log.String(), "TOO FEW DESCRIPTORS"); n != c.count {
			t.Errorf("the warning came %d times, want %d", n, c.count)
		}
	}
}

// A policy file that cannot be opened for long, as on a file system that hangs, delays its reload and
// nothing else. Here a lease holds it up: fcntl(2), F_SETLEASE.
func TestAStopDoesNotWaitForAReload(t *testing.T) {
	p := begin(t, base)
	opens := make(chan os.Signal, 1)
	signal.Notify(opens, syscall.SIGIO)
	defer signal.Stop(opens)
	held, err := os.OpenFile(p.path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close() // it ends the reload
	if _, err := unix.FcntlInt(held.Fd(), unix.F_SETLEASE, unix.F_WRLCK); err != nil {
		t.Skipf("the file system has no leases: %v", err)
	}
	p.signals <- syscall.SIGHUP
	<-opens
	if _, err := p.Set(t.Context(), "slow", map[string]string{"rate": "1mbit"}, 0); err != nil {
		t.Errorf("set meanwhile: %v", err)
	}
	p.signals <- syscall.SIGTERM
	if err := p.await(); err != nil {
		t.Errorf("Run: %v", err)
	}
}

// A policy file that has become a pipe is an error. Nothing waits for somebody to write to it.
func TestReloadOfAPipe(t *testing.T) {
	p := begin(t, base)
	if err := errors.Join(os.Remove(p.path), syscall.Mkfifo(p.path, 0o600)); err != nil {
		t.Fatal(err)
	}
	_, err := p.Reload(t.Context(), 0)
	if want := "open " + p.path + ": it is not a regular file"; CodeOf(err) != CodeNoFile || err.Error() != want {
		t.Errorf("code %v: %v, want %s", CodeOf(err), err, want)
	}
}
