package tests

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"shaper/daemon"
	"shaper/tests/trial"
)

// nameServer answers each question for an address of IPv4 with one address.
type nameServer struct {
	conn net.PacketConn
	addr atomic.Pointer[netip.Addr] // nil: it is silent
	ttl  uint32
}

// serveNames starts a name server on port 53 of an address of loopback.
func serveNames(t *testing.T, host string, ttl uint32) *nameServer {
	t.Helper()
	c, err := net.ListenPacket("udp", net.JoinHostPort(host, "53"))
	if err != nil {
		skipUnlessCI(t, "the test needs root, for a name server on port 53: %v", err)
	}
	s := &nameServer{conn: c, ttl: ttl}
	var wg sync.WaitGroup
	wg.Go(s.serve)
	t.Cleanup(func() {
		c.Close()
		wg.Wait()
	})
	return s
}

func (s *nameServer) means(addr netip.Addr) { s.addr.Store(&addr) }

func (s *nameServer) serve() {
	buffer := make([]byte, 1500)
	for {
		n, from, err := s.conn.ReadFrom(buffer)
		if err != nil {
			return
		}
		var m dnsmessage.Message
		addr := s.addr.Load()
		if addr == nil || m.Unpack(buffer[:n]) != nil || len(m.Questions) != 1 {
			continue
		}
		m.Response, m.Additionals = true, nil
		if q := m.Questions[0]; q.Type == dnsmessage.TypeA {
			m.Answers = []dnsmessage.Resource{{Header: dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class, TTL: s.ttl}, Body: &dnsmessage.AResource{A: addr.As4()}}}
		}
		if text, err := m.Pack(); err == nil {
			s.conn.WriteTo(text, from)
		}
	}
}

// asking returns a program that runs shaper with another resolv.conf.
func asking(t *testing.T, bin, server string) string {
	t.Helper()
	tool(t, "unshare", "util-linux")
	if out, err := exec.Command("unshare", "-m", "true").CombinedOutput(); err != nil {
		skipUnlessCI(t, "the test needs root, to replace /etc/resolv.conf for a process: %s", out)
	}
	dir, err := os.MkdirTemp(binDir, "")
	if err != nil {
		t.Fatal(err)
	}
	conf, script := filepath.Join(dir, "resolv.conf"), filepath.Join(dir, "shaper")
	text := fmt.Sprintf("#!/bin/sh\nexec unshare -m sh -c 'mount --bind %s /etc/resolv.conf && exec \"$@\"' sh %s \"$@\"\n", conf, bin)
	if err := errors.Join(os.WriteFile(conf, []byte("nameserver "+server+"\noptions timeout:1 attempts:1\n"), 0o644), os.WriteFile(script, []byte(text), 0o755)); err != nil {
		t.Fatal(err)
	}
	return script
}

// answering is an upstream that tells its name to each connection. It returns its address.
func answering(t *testing.T, addr, name string) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	serveOn(t, l, func(c *net.TCPConn) { io.WriteString(c, name) })
	return l.Addr().(*net.TCPAddr).AddrPort()
}

// If the address of a name changes in the DNS, new sessions go to the new one at the latest a
// second after the TTL, and none of them fails. While the name server hangs, sessions go on.
func TestNameMovesInDNS(t *testing.T) {
	t.Parallel()
	const ttl = 2 * time.Second
	dns := serveNames(t, "127.53.17.1", uint32(ttl.Seconds()))
	near := answering(t, "127.53.17.2:0", "near")
	far := answering(t, fmt.Sprintf("127.53.17.3:%d", near.Port()), "far")
	dns.means(near.Addr())
	p := start(t, asking(t, plain(), "127.53.17.1"), fmt.Sprintf("[class.c]\nrate = \"8gbit\"\n[listener.l]\nlisten = \"127.0.0.1:0\"\nupstream = \"moving.example:%d\"\nclass = \"c\"\n", near.Port()))
	at := p.addr("l")
	watch := trial.Begin()
	var took []time.Duration
	session := func() string {
		began := time.Now()
		c, err := net.Dial("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(patience))
		name, err := io.ReadAll(c)
		if err != nil || len(name) == 0 {
			t.Fatalf("session %d: %q, %v", len(took), name, err)
		}
		took = append(took, time.Since(began))
		return string(name)
	}
	sessions := func(n int, want string) {
		t.Helper()
		for range n {
			if got := session(); got != want {
				t.Fatalf("session %d goes to %s, want %s", len(took), got, want)
			}
		}
	}
	n := trial.Size(300, 3_000)
	sessions(n, "near")
	dns.means(far.Addr())
	moved := time.Now()
	trial.Begin().Judge(t, 500*time.Millisecond, func() *trial.Miss {
		for session() != "far" {
			time.Sleep(time.Millisecond)
		}
		late := time.Since(moved) - ttl - time.Second
		return trial.Most(late, 0, 5*time.Second, "sessions go to the old address for %v longer than the TTL and a second", late)
	}())
	trial.Figure(t, "after the change", "%.2fs", time.Since(moved).Seconds())
	sessions(n, "far")
	before := slices.Clone(took)
	dns.addr.Store(nil)
	for end := time.Now().Add(trial.Size(2*ttl+time.Second, time.Minute)); time.Now().Before(end); {
		sessions(20, "far")
		time.Sleep(20 * time.Millisecond)
	}
	sessions(trial.Size(100, 4_000), "far")
	slices.Sort(before)
	hanging := took[len(before):]
	slices.Sort(hanging)
	usual, then := before[len(before)*99/100], hanging[len(hanging)*99/100]
	trial.Figure(t, "p99 of a session", "%v, and %v while the name server hangs", usual, then)
	// A session that waited for the name server would take a second.
	watch.Judge(t, 5*time.Millisecond, trial.Most(then, 2*usual+5*time.Millisecond, 2*usual+time.Second/2,
		"while the name server hangs, one of a hundred sessions takes %v, and %v before", then, usual))

	var all []daemon.Upstream
	if err := json.Unmarshal([]byte(p.must("upstreams", "--json")), &all); err != nil || len(all) != 1 || all[0].Address != far.String() || all[0].Error == "" || all[0].TTL == nil {
		t.Errorf("shaper upstreams: %v, %+v", err, all)
	}
}

// A dead upstream among three costs at most one failed connection and no session, and comes back
// by itself.
func TestDeadUpstreamOfThree(t *testing.T) {
	t.Parallel()
	var addrs []string
	var listeners []net.Listener
	var arrived [3]atomic.Int64
	serve := func(i int, at string) {
		l, err := net.Listen("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		listeners, addrs = append(listeners, l), append(addrs, l.Addr().String())
		serveOn(t, l, func(c *net.TCPConn) {
			if n, _ := io.Copy(io.Discard, c); n > 0 { // a check sends nothing
				arrived[i].Add(1)
				io.WriteString(c, "x")
			}
		})
	}
	for i, host := range []string{"127.17.1.1", "127.17.1.2", "127.17.1.3"} {
		serve(i, host+":0")
	}
	p := start(t, plain(), fmt.Sprintf("[class.c]\nrate = \"8gbit\"\n[listener.l]\nlisten = \"127.0.0.1:0\"\nclass = \"c\"\nbalance = \"round-robin\"\n"+
		"upstream = [%q, %q, %q]\nhealth = { every = \"500ms\", timeout = \"500ms\", rise = 1 }\n", addrs[0], addrs[1], addrs[2]))
	at := p.addr("l")
	sessions := func(n int) {
		t.Helper()
		for i := range n {
			c, err := net.Dial("tcp", at)
			if err != nil {
				t.Fatal(err)
			}
			c.SetDeadline(time.Now().Add(patience))
			io.WriteString(c, "x")
			c.(*net.TCPConn).CloseWrite()
			if got, err := io.ReadAll(c); err != nil || string(got) != "x" {
				t.Errorf("session %d gets %q, %v", i, got, err)
			}
			c.Close()
		}
	}
	failed := func() (n uint64) {
		var s struct {
			Listeners []struct {
				UpstreamFailures map[string]map[string]uint64 `json:"upstream_failures"`
			} `json:"listeners"`
		}
		p.read(&s, "status")
		for _, reasons := range s.Listeners[0].UpstreamFailures {
			for _, more := range reasons {
				n += more
			}
		}
		return n
	}
	sessions(30)
	listeners[0].Close()
	trial.Await(t, "the kernel takes no connection any more", func() bool { // Close may return before that
		c, err := net.Dial("tcp", addrs[0])
		if err == nil {
			c.Close()
		}
		return err != nil
	})
	sessions(trial.Size(300, 3_000))
	if n := failed(); n > 1 {
		t.Errorf("%d connections have failed, want at most 1", n)
	}
	before := arrived[0].Load()
	serve(0, addrs[0])
	trial.Await(t, "the upstream is back", func() bool {
		sessions(10)
		return arrived[0].Load() > before
	})
}

// Old sessions of HTTP move to the other upstream, and no request of a client that keeps its
// connection fails.
func TestOldSessionsMove(t *testing.T) {
	t.Parallel()
	var arrived [2]atomic.Int64
	var addrs [2]string
	for i := range addrs {
		_, addrs[i] = httpServer(t, func(w http.ResponseWriter, _ *http.Request) { arrived[i].Add(1) })
	}
	p := start(t, plain(), fmt.Sprintf("[class.c]\nrate = \"8gbit\"\n[listener.l]\nlisten = \"127.0.0.1:0\"\nprotocol = \"http\"\nclass = \"c\"\n"+
		"balance = \"round-robin\"\nupstream = [%q, %q]\nmax_session_age = \"500ms\"\n", addrs[0], addrs[1]))
	client := &http.Client{Timeout: patience, Transport: &http.Transport{MaxConnsPerHost: 1}}
	defer client.CloseIdleConnections()
	url := "http://" + p.addr("l") + "/"
	trial.Await(t, "both upstreams have had requests in turn", func() bool {
		for range 10 {
			resp, err := client.Post(url, "text/plain", strings.NewReader("x")) // net/http never repeats a POST
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != http.StatusOK {
				t.Errorf("a request is answered %s", resp.Status)
			}
		}
		return arrived[0].Load() > 0 && arrived[1].Load() > 0 && p.listener("l").Ended["max_age"] > 1
	})
}
