package tests

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"shaper/tests/trial"
)

// A provider counts 20 requests a second by source address. From two addresses 40 a second reach
// it, and no gap is short on either.
func TestTwoSourceAddresses(t *testing.T) {
	t.Parallel()
	n := trial.Size(200, 2_000) // they are asked at once, and a client has patience for a minute
	trial.Judge(t, 5*time.Millisecond, func() *trial.Miss {
		const gap = 50*time.Millisecond - 100*time.Microsecond // timestamps are that exact
		rules := map[string]*spacing{"127.17.2.1": {gap: gap}, "127.17.2.2": {gap: gap}}
		_, addr := httpServer(t, func(w http.ResponseWriter, r *http.Request) {
			from, _, _ := net.SplitHostPort(r.RemoteAddr)
			if rule := rules[from]; rule == nil || !rule.accepts(exactly(r.Context().Value(connKey{}).(*watchedConn).arrived())) {
				w.WriteHeader(http.StatusTooManyRequests)
			}
		})
		d := start(t, plain(), fmt.Sprintf("[class.c]\nrate = \"20 messages/s\"\nper = \"bind\"\n[listener.l]\nlisten = \"127.0.0.1:0\"\n"+
			"protocol = \"http\"\nupstream = %q\nclass = \"c\"\nbind = [\"127.17.2.1\", \"127.17.2.2\"]\n", addr))
		began := time.Now()
		statuses := askAll(t, d.addr("l"), n)
		took := time.Since(began)
		for from, rule := range rules {
			accepted, refused, _ := rule.score()
			t.Logf("from %s: %d accepted, %d refused, gaps of at least %v", from, accepted, refused, rule.closest())
			if rule.check(t, accepted+refused); accepted == 0 {
				t.Errorf("from %s: no request is accepted", from)
			}
		}
		rate := float64(n-2) / took.Seconds()
		trial.Figure(t, "requests from two addresses of 20/s", "%.2f/s", rate)
		if statuses[http.StatusOK] != n {
			t.Errorf("the statuses are %v, want %d of 200", statuses, n)
		}
		return trial.Least(rate, 39, 26, "%d within %v: %.2f requests a second, want 40; one address alone has 20", n, took, rate)
	})
}

// inPorts is a daemon in a network namespace that has few ephemeral ports, and whose connections
// stay in TIME_WAIT for a minute. It leaves from two addresses, to one upstream.
//
// Without tcp_rfc1337 a reset ends TIME_WAIT at once. On a busy machine the upstream's FIN may be sent
// twice; then the ACK of the second one finds no connection, and is answered by a reset (RFC 1337,
// section 1).
func inPorts(t *testing.T, first, last int) (d *program, socket string) {
	t.Helper()
	tool(t, "ip", "iproute2")
	n := newNamespace(t)
	n.run("ip link set lo up")
	var upstream net.Listener
	n.do(func() (err error) {
		for name, value := range map[string]string{"ip_local_port_range": fmt.Sprintf("%d %d", first, last), "tcp_tw_reuse": "0", "tcp_rfc1337": "1"} {
			if err := os.WriteFile("/proc/sys/net/ipv4/"+name, []byte(value), 0o644); err != nil {
				return err
			}
		}
		upstream, err = net.Listen("tcp", "127.0.0.1:600")
		return err
	})
	serveOn(t, upstream, func(c *net.TCPConn) { io.Copy(c, c) }) // so the other side has ended first, and has the TIME_WAIT
	socket = filepath.Join(t.TempDir(), "x.sock")
	d = startIn(n, t, plain(), fmt.Sprintf("[daemon]\ncontrol = \"run/c.sock\"\nhttp = \"\"\ndrain = \"0s\"\n[class.c]\nrate = \"8gbit\"\n[listener.l]\nlisten = \"unix:%s\"\n"+
		"upstream = \"127.0.0.1:600\"\nclass = \"c\"\nbind = [\"127.17.2.1\", \"127.17.2.2\"]\n", socket))
	return d, socket
}

// echoes opens a session, and reports whether it reaches the upstream and ends well.
func echoes(socket string) error {
	c, err := net.DialTimeout("unix", socket, patience)
	if err != nil {
		return err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(patience))
	if _, err := c.Write([]byte("x")); err != nil {
		return err
	}
	c.(*net.UnixConn).CloseWrite()
	if got, err := io.ReadAll(c); err != nil || string(got) != "x" {
		return fmt.Errorf("the answer is %q, %v", got, err)
	}
	return nil
}

// All ports of all addresses are used before a session fails for want of one. Then the log and
// the counters say so.
func TestAllPortsAreUsed(t *testing.T) {
	t.Parallel()
	const first, last = 40_000, 40_299
	d, socket := inPorts(t, first, last)
	for i := range 2 * (last - first + 1) {
		if err := echoes(socket); err != nil {
			t.Fatalf("session %d: %v\n%s", i+1, err, d.log)
		}
	}
	if err := echoes(socket); err == nil {
		used, _ := os.ReadFile(fmt.Sprintf("/proc/%d/net/sockstat", d.pid())) // tw: those in TIME_WAIT
		t.Fatalf("one session more than there are ports ends well; of the namespace:\n%s", used)
	}
	for _, want := range []string{"no upstream could be reached", "all ports of 127.17.2.1 are in use", "all ports of 127.17.2.2 are in use"} {
		trial.Await(t, "the log says "+want, func() bool { return strings.Contains(d.log.String(), want) })
	}
	var s struct {
		Listeners []struct {
			UpstreamFailures map[string]map[string]uint64 `json:"upstream_failures"`
		} `json:"listeners"`
	}
	d.read(&s, "status")
	if n := s.Listeners[0].UpstreamFailures["127.0.0.1:600"]["ports"]; n < 2 {
		t.Errorf("status counts %v", s.Listeners)
	}
}

// 200 sessions a second from two addresses to one upstream, with some 12,000 connections in
// TIME_WAIT of 14,000 that can be: for five minutes no port is missing.
func TestPortsLast(t *testing.T) {
	if !trial.Full {
		t.Skip("it takes five minutes; FULL=1 runs it")
	}
	d, socket := inPorts(t, 40_000, 46_999)
	const each, lasts = 5 * time.Millisecond, 5 * time.Minute
	var all sync.WaitGroup
	var failed atomic.Int64
	ticker := time.NewTicker(each)
	defer ticker.Stop()
	n := 0
	for end := time.Now().Add(lasts); time.Now().Before(end); n++ {
		<-ticker.C
		all.Go(func() {
			if err := echoes(socket); err != nil && failed.Add(1) == 1 {
				t.Error(err)
			}
		})
	}
	all.Wait()
	trial.Figure(t, "sessions with TIME_WAIT: failed", "%d of %d", failed.Load(), n)
	if strings.Contains(d.log.String(), "all ports of") {
		t.Errorf("ports were missing:\n%s", d.log)
	}
}
