package tests

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"shaper/tests/trial"
)

// A quota is a class of lines with a listener of its own, and the provider that receives them.
type quota struct {
	name, class string
	atOnce      int // how many lines may leave at once
	lost        int // how many of them a crash may lose
	received    atomic.Int64
	open        atomic.Int64 // connections of which the provider has not seen the end
	provider    string
}

// newQuotas returns a quota for each algorithm. Its windows are a week long, so that the tests
// seldom meet the end of one.
func newQuotas(t *testing.T) (all []*quota) {
	for _, q := range []*quota{
		{name: "fixed", class: "algorithm = \"fixed-window\"\nrate = \"1000 messages/week\"", atOnce: 1000, lost: 10},
		{name: "sliding", class: "algorithm = \"sliding-window\"\nrate = \"1000 messages/week\"", atOnce: 1000, lost: 10},
		{name: "log", class: "algorithm = \"sliding-log\"\nrate = \"1000 messages/week\"", atOnce: 1000, lost: 10},
		{name: "token", class: "algorithm = \"token\"\nrate = \"1000 messages/week\"\nburst = \"1000 messages\"", atOnce: 1000, lost: 10},
		{name: "gcra", class: "algorithm = \"gcra\"\nrate = \"1000 messages/week\"\nburst = \"1000 messages\"", atOnce: 1000, lost: 10},
		{name: "leaky", class: "rate = \"1 messages/h\"", atOnce: 1, lost: 1},
		{name: "calendar", class: "algorithm = \"fixed-window\"\nrate = \"1000 messages/month\"\nzone = \"Pacific/Auckland\"", atOnce: 1000, lost: 10},
		{name: "also", class: "rate = \"1000 messages/s\"\nalso = [\"1000 messages/week\", \"2000 messages/month\"]", atOnce: 1000, lost: 10},
		{name: "small", class: "algorithm = \"sliding-log\"\nrate = \"30 messages/h\"", atOnce: 30, lost: 1},
	} {
		q.provider = serve(t, func(c *net.TCPConn) {
			q.open.Add(1)
			defer q.open.Add(-1)
			for lines := bufio.NewScanner(c); lines.Scan(); {
				if lines.Text() == q.line() { // else it is from another test, whose server had this port before
					q.received.Add(1)
				}
			}
		})
		all = append(all, q)
	}
	return all
}

// policyOf returns a policy with quotas, and with a state file.
func policyOf(quotas []*quota, state string) string {
	var b strings.Builder
	b.WriteString(daemonSection + "state = \"" + state + "\"\n")
	for _, q := range quotas {
		fmt.Fprintf(&b, "[class.%s]\n%s\nqueue = \"5000 messages\"\n", q.name, q.class)
		fmt.Fprintf(&b, "[listener.%s]\nlisten = \"127.0.0.1:0\"\nprotocol = \"lines\"\nupstream = \"%s\"\nclass = \"%s\"\n", q.name, q.provider, q.name)
	}
	return b.String()
}

// line is what the quota sends, and nobody else.
func (q *quota) line() string { return fmt.Sprintf("%s %p", q.name, q) }

// send sends so many lines over a connection that stays open until the daemon ends.
func (q *quota) send(p *program, n int) {
	p.t.Helper()
	c, err := net.Dial("tcp", p.addr(q.name))
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { c.Close() })
	if _, err := c.Write([]byte(strings.Repeat(q.line()+"\n", n))); err != nil {
		p.t.Fatal(err)
	}
}

// exhaust sends so many lines that some wait, and waits until at least so many have arrived and
// all others wait. It returns how many have arrived. With least 0, that may be before anything could
// leave.
func (q *quota) exhaust(p *program, least int) int {
	p.t.Helper()
	before := int(q.received.Load())
	n := q.atOnce + 50
	q.send(p, n)
	trial.Await(p.t, fmt.Sprintf("%s has sent %d lines, and the others wait", q.name, least), func() bool {
		c := p.class(q.name)
		sent := int(c.Sent["upstream"].Messages)
		return sent >= least && sent+c.Backlog == n && int(q.received.Load())-before >= sent
	})
	return int(q.received.Load()) - before
}

// final returns how many lines have arrived in all, when the daemon has ended.
func (q *quota) final(t *testing.T) int {
	t.Helper()
	trial.Await(t, q.name+" has all that the daemon sent", func() bool { return q.open.Load() == 0 })
	return int(q.received.Load())
}

// A daemon that is killed with part of a quota used goes on with the rest of it, for each
// algorithm. It may lose one lease. A clean stop, and a reload, lose nothing.
func TestQuotaOutlivesTheProcess(t *testing.T) {
	t.Parallel()
	quotas := newQuotas(t)
	p := start(t, raced(t), policyOf(quotas, "state"))
	used := map[string]int{}
	for _, q := range quotas {
		used[q.name] = max(q.atOnce*6/10, 1)
		q.send(p, used[q.name])
	}
	for _, q := range quotas {
		trial.Await(t, q.name+" has sent its lines", func() bool { return int(q.received.Load()) == used[q.name] })
	}
	p.kill()
	p.run()
	p.must("reload")
	for _, q := range quotas {
		rest := q.atOnce - used[q.name]
		if got := q.exhaust(p, max(rest-q.lost, 0)); got > rest {
			t.Errorf("%s: after a kill with %d of %d used, %d left", q.name, used[q.name], q.atOnce, got)
		}
	}
	p.stop()
	p.run()
	for _, q := range quotas {
		before := q.received.Load()
		q.exhaust(p, 0)
		if before < int64(q.atOnce-q.lost) {
			t.Errorf("%s: %d have left of %d before a clean stop", q.name, before, q.atOnce)
		}
	}
	text := p.must("status")
	if !strings.Contains(text, "state     ") || !strings.Contains(text, "/state, written ") {
		t.Errorf("the status does not show the state file:\n%s", text)
	}
	p.stop()
	for _, q := range quotas {
		if all := q.final(t); all > q.atOnce {
			t.Errorf("%s: %d have left of %d", q.name, all, q.atOnce)
		}
	}
}

// A clean stop is exact.
func TestCleanStopLosesNothing(t *testing.T) {
	t.Parallel()
	quotas := newQuotas(t)
	p := start(t, plain(), policyOf(quotas, "state"))
	for _, q := range quotas {
		q.send(p, q.atOnce/2)
	}
	for _, q := range quotas {
		trial.Await(t, q.name+" has sent its lines", func() bool { return int(q.received.Load()) == q.atOnce/2 })
	}
	p.stop()
	p.run()
	for _, q := range quotas {
		q.exhaust(p, q.atOnce-q.atOnce/2)
	}
	p.stop()
	for _, q := range quotas {
		if got := q.final(t); got != q.atOnce {
			t.Errorf("%s: %d have left in all, want %d", q.name, got, q.atOnce)
		}
	}
}

// A state file that was cut is not trusted: nothing leaves of a quota, the log says so, and the
// file is kept under another name.
func TestDamagedStateFile(t *testing.T) {
	t.Parallel()
	quotas := newQuotas(t)
	p := start(t, plain(), policyOf(quotas, "state"))
	p.stop()
	state := filepath.Join(filepath.Dir(p.config), "state")
	data, err := os.ReadFile(state)
	if err != nil {
		t.Fatal(err)
	}
	damaged := data[:len(data)-1]
	if err := os.WriteFile(state, damaged, 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 { // a kill after that forgets nothing either
		p.run()
		for _, q := range quotas {
			q.exhaust(p, 0)
		}
		if strings.Contains(p.log.String(), "the state file is damaged") == (data == nil) {
			t.Errorf("the log is\n%s", p.log)
		}
		trial.Await(t, "the file is written anew", func() bool { // before that, the next process finds it damaged, too
			now, err := os.ReadFile(state)
			return err == nil && !bytes.Equal(now, damaged)
		})
		data = nil
		p.kill()
		for _, q := range quotas {
			if got := q.final(t); got > 0 {
				t.Errorf("%s: %d left", q.name, got)
			}
		}
	}
	if aside, _ := filepath.Glob(state + ".damaged-*"); len(aside) != 1 {
		t.Errorf("set aside: %v", aside)
	}
	p.run()
}

// While the state file cannot be written, traffic goes on, and status and metrics say so.
func TestStateFileThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	quotas := newQuotas(t)[:1]
	p := start(t, plain(), policyOf(quotas, "state"))
	trial.Await(t, "the file is written", func() bool { return p.metric("shaper_state_last_write_timestamp_seconds") > 0 })
	state := filepath.Join(filepath.Dir(p.config), "state")
	if err := os.Mkdir(state+".new", 0o700); err != nil { // in the way of the next file
		t.Fatal(err)
	}
	if got := quotas[0].exhaust(p, 1000); got != 1000 {
		t.Errorf("%d left, want the whole quota", got)
	}
	if text := p.must("status"); !strings.Contains(text, "WRITING FAILS: open ") {
		t.Errorf("the status is\n%s", text)
	}
	if n := p.metric("shaper_state_write_failures_total"); n < 1 {
		t.Errorf("%v failures are counted", n)
	}
	if n := strings.Count(p.log.String(), "cannot write the state file"); n != 1 {
		t.Errorf("the log says so %d times:\n%s", n, p.log)
	}
	if err := os.Remove(state + ".new"); err != nil {
		t.Fatal(err)
	}
	trial.Await(t, "the file is written again", func() bool { return strings.Contains(p.log.String(), "the state file is written again") })
	p.kill()
	p.run()
	quotas[0].exhaust(p, 0)
	p.stop()
	if got := quotas[0].final(t); got != 1000 {
		t.Errorf("%d left in all, want the whole quota", got)
	}
}

// Two daemons do not share a state file; and without a directory for it none starts.
func TestStateFileInUse(t *testing.T) {
	t.Parallel()
	quotas := newQuotas(t)[:1]
	first := start(t, plain(), policyOf(quotas, "state"))
	for state, want := range map[string]string{
		filepath.Join(filepath.Dir(first.config), "state"): "another process keeps its state there; each shaper needs a file of its own",
		"none/state": "no such file or directory; make its directory",
	} {
		second := &program{t: t, bin: plain(), config: filepath.Join(t.TempDir(), "shaper.toml")}
		second.write(strings.Replace(policyOf(quotas, state), "run/c.sock", "c.sock", 1))
		_, stderr, code := second.cli("run")
		if code == 0 || !strings.Contains(stderr, "shaper.toml:5:9: daemon.state: ") || !strings.Contains(stderr, want) {
			t.Errorf("exit code %d:\n%s", code, stderr)
		}
	}
	first.signal(syscall.SIGTERM)
}

// A reload may turn the state file on, move it, and turn it off.
func TestReloadMovesTheStateFile(t *testing.T) {
	t.Parallel()
	q := newQuotas(t)[0]
	p := start(t, plain(), policyOf([]*quota{q}, ""))
	q.send(p, 600)
	trial.Await(t, "600 lines have left", func() bool { return q.received.Load() == 600 })
	for _, state := range []string{"a", "b", "", "b"} {
		p.write(policyOf([]*quota{q}, state))
		p.must("reload")
	}
	p.kill()
	p.run()
	q.exhaust(p, 390)
	p.stop()
	if got := q.final(t); got > 1000 {
		t.Errorf("%d left, want at most 1000", got)
	}
}

// What was sent for a key of messages outlives the process, although the file has only a hash of
// the key.
func TestQuotaOfAKeyOutlivesTheProcess(t *testing.T) {
	t.Parallel()
	api := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(api.Close)
	p := start(t, plain(), daemonSection+`state = "state"
[class.customer]
algorithm = "gcra"
rate      = "2 messages/week"
burst     = "2 messages"
per       = "header:X-Key"
max_wait  = "1min"
[listener.api]
listen   = "127.0.0.1:0"
protocol = "http"
upstream = "`+api.Listener.Addr().String()+`"
class    = "customer"
`)
	expect := func(key string, want ...int) {
		t.Helper()
		for i, status := range want {
			r, err := http.NewRequest("GET", "http://"+p.addr("api")+"/", nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("X-Key", key)
			r.Close = true
			answer, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			if answer.Body.Close(); answer.StatusCode != status {
				t.Errorf("request %d of %s: status %d, want %d", i, key, answer.StatusCode, status)
			}
		}
	}
	expect("first", 200, 200, 429)
	p.kill()
	p.run()
	expect("first", 429)
	expect("second", 200)
	p.stop()
	p.run()
	expect("first", 429)
	expect("second", 200, 429)
	if data, err := os.ReadFile(filepath.Join(filepath.Dir(p.config), "state")); err != nil || strings.Contains(string(data), "first") {
		t.Errorf("the file has the text of a key, or %v", err)
	}
}
