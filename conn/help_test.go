package conn

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"shaper/policy"
	"shaper/shaper"
	"shaper/stats"
	"shaper/tests/trial"
)

func TestMain(m *testing.M) {
	if l, err := net.Listen("tcp", "127.0.0.1:0"); err == nil {
		l.Close() // the runtime's poller has its descriptors now, and tests can count
	}
	goleak.VerifyTestMain(noDescriptors{m})
}

// noDescriptors runs tests that leave no descriptor behind.
type noDescriptors struct{ *testing.M }

func (m noDescriptors) Run() int {
	before := openFiles()
	code := m.M.Run()
	for end := time.Now().Add(patience); len(openFiles()) > len(before); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			fmt.Fprintf(os.Stderr, "tests leave descriptors open; before: %v\nnow: %v\n", before, openFiles())
			return 1
		}
	}
	return code
}

// rig is a running server, on sockets of this machine.
type rig struct {
	*Server
	t      testing.TB
	shaper *shaper.Shaper
	log    *syncBuffer
	names  atomic.Pointer[func(context.Context) ([]netip.AddrPort, error)] // what the name "test:1" means
}

// meaning sets where the upstream "test:1" leads to.
func (r *rig) meaning(resolve func(context.Context) ([]netip.AddrPort, error)) {
	r.names.Store(&resolve)
}

// run starts a server of a policy.
func run(t testing.TB, text string) *rig {
	t.Helper()
	r := bare(t)
	r.reload(text)
	return r
}

// bare starts a server without a policy. At the end of the test it is stopped.
func bare(t testing.TB) *rig {
	t.Helper()
	log := new(syncBuffer)
	sh := shaper.New()
	server, err := NewServer(sh, nil, slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{Server: server, t: t, shaper: sh, log: log}
	server.lookup = func(ctx context.Context, upstream string) ([]netip.AddrPort, error) {
		if upstream == "test:1" {
			return (*r.names.Load())(ctx)
		}
		return lookup(ctx, upstream)
	}
	t.Cleanup(func() {
		r.Shutdown(expired)
		sh.Close()
		if t.Failed() {
			t.Log(log)
		}
	})
	return r
}

// reset closes a connection with a RST.
func reset(c *net.TCPConn) {
	c.SetLinger(0)
	c.Close()
}

// expired is a context that has ended.
var expired = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

func parse(t testing.TB, text string) *policy.Policy {
	t.Helper()
	p, _, err := policy.Parse("test.toml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// reload does what the daemon does with a new policy.
func (r *rig) reload(text string) {
	r.t.Helper()
	r.adopt(parse(r.t, text))
}

func (r *rig) adopt(p *policy.Policy) {
	r.t.Helper()
	change, err := r.Prepare(p)
	if err != nil {
		r.t.Fatal(err)
	}
	change.Commit(r.shaper.Apply(p.Classes))
}

// addr returns where a listener really is.
func (r *rig) addr(listener string) string {
	r.t.Helper()
	for _, l := range r.Listeners() {
		if l.Name == listener {
			return l.Addresses[0]
		}
	}
	r.t.Fatalf("no listener %q", listener)
	return ""
}

func (r *rig) service(listener string) *service {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.services[listener]
}

// awaitEnd waits until so many sessions of listener "l" have ended with a result.
func (r *rig) awaitEnd(result stats.Result, n uint64) {
	r.t.Helper()
	sv := r.service("l")
	defer func() {
		if r.t.Failed() {
			for i := range sv.stats.Ended {
				r.t.Logf("%v: %d", stats.Result(i), sv.stats.Ended[i].Load())
			}
		}
	}()
	until(r.t, fmt.Sprintf("%d sessions have ended: %v", n, result), func() bool {
		return sv.stats.Ended[result].Load() == n && sv.stats.Open.Load() == 0
	})
}

// dropped returns what a class has lost for a reason.
func (r *rig) dropped(class string, reason stats.Reason) (items, n uint64) {
	loss := &r.shaper.Class(class).Stats.Dropped[reason]
	return loss.Items.Load(), loss.Bytes.Load()
}

func (r *rig) sent(class string, dir stats.Direction) *stats.Volume {
	return &r.shaper.Class(class).Stats.Sent[dir]
}

// dial connects to a listener. The connection ends with the test.
func (r *rig) dial(listener string) *net.TCPConn {
	r.t.Helper()
	return dialTCP(r.t, r.addr(listener))
}

func dialTCP(t testing.TB, addr string) *net.TCPConn {
	t.Helper()
	c, err := trial.DialTCP("", addr, patience)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(patience))
	return c
}

// expectRefused connects to a listener that answers with a reset.
func (r *rig) expectRefused(listener string) {
	r.t.Helper()
	c := r.dial(listener)
	if _, err := io.Copy(io.Discard, c); !errors.Is(err, syscall.ECONNRESET) {
		r.t.Errorf("the connection ended with %v, want ECONNRESET", err)
	}
}

// patience is how long tests wait for what must happen, even if the machine is busy.
const patience = 4 * time.Minute

// until polls a condition that is to come true.
func until(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !cond(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Errorf("not in %v: %s", patience, what)
			return
		}
	}
}

func openDescriptors(t testing.TB) int {
	t.Helper()
	open := openFiles()
	if len(open) == 0 {
		t.Fatal("/proc/self/fd cannot be read")
	}
	return len(open)
}

// openFiles returns what is open, as proc(5) names it.
func openFiles() (open []string) {
	entries, _ := os.ReadDir("/proc/self/fd")
	for _, e := range entries {
		what, _ := os.Readlink("/proc/self/fd/" + e.Name())
		open = append(open, e.Name()+" "+what)
	}
	return open
}

// listen returns the address of an upstream that hands over its connections.
func listen(t testing.TB) (addr string, conns <-chan *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return handOver(t, l)
}

// handOver hands over the connections of an upstream.
func handOver(t testing.TB, l net.Listener) (addr string, conns <-chan *net.TCPConn) {
	t.Helper()
	accepted := make(chan *net.TCPConn, 2000)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.SetDeadline(time.Now().Add(patience))
			accepted <- c.(*net.TCPConn)
		}
	}()
	t.Cleanup(func() {
		l.Close()
		<-done
		close(accepted)
		for c := range accepted {
			c.Close()
		}
	})
	return l.Addr().String(), accepted
}

// next returns the next connection that an upstream gets.
func next(t testing.TB, conns <-chan *net.TCPConn) *net.TCPConn {
	t.Helper()
	select {
	case c := <-conns:
		t.Cleanup(func() { c.Close() })
		return c
	case <-time.After(patience):
		t.Fatal("the upstream gets no connection")
		return nil
	}
}

func send(t testing.TB, c net.Conn, data string) {
	t.Helper()
	if _, err := io.WriteString(c, data); err != nil {
		t.Fatal(err)
	}
}

// expect reads exactly so much.
func expect(t testing.TB, c io.Reader, want string) {
	t.Helper()
	got := make([]byte, len(want))
	if n, err := io.ReadFull(c, got); err != nil || string(got) != want {
		t.Fatalf("read %q, %v, want %q", got[:n], err, want)
	}
}

func expectEOF(t testing.TB, c net.Conn) {
	t.Helper()
	if n, err := io.Copy(io.Discard, c); err != nil || n > 0 {
		t.Errorf("%d bytes and %v where a clean end was to come", n, err)
	}
}

// expectReset reads until the connection ends, which must be by a reset.
func expectReset(t testing.TB, c net.Conn) {
	t.Helper()
	if _, err := io.Copy(io.Discard, c); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the connection ended with %v, want ECONNRESET", err)
	}
}

// open returns a session of listener "l" from end to end. The upstream may have accepted
// before the session knows: a client that leaves then is counted as one that left during the
// dial.
func (r *rig) open(conns <-chan *net.TCPConn) (client, upstream *net.TCPConn) {
	r.t.Helper()
	client = r.dial("l")
	upstream = next(r.t, conns)
	until(r.t, "the session has its upstream", func() bool {
		return slices.ContainsFunc(r.Sessions(), func(s Session) bool {
			return s.Client == client.LocalAddr().String() && s.Upstream != ""
		})
	})
	return client, upstream
}

// forward returns a policy of listener "l" to an upstream, with more lines of
// its section, through class "c" of a rate.
func forward(upstream, rate string, more ...string) string {
	return class("c", rate) + listener("l", "tcp", upstream, "c", more...)
}

func class(name, rate string, more ...string) string {
	return fmt.Sprintf("[class.%s]\nrate = %q\n%s\n", name, rate, strings.Join(more, "\n"))
}

func listener(name, protocol, upstream, class string, more ...string) string {
	return fmt.Sprintf("[listener.%s]\nprotocol = %q\nupstream = %q\nclass = %q\n%s\n", name, protocol, upstream, class,
		strings.Join(append(more, withListen(more)), "\n"))
}

func withListen(lines []string) string {
	for _, line := range lines {
		if strings.HasPrefix(line, "listen ") {
			return ""
		}
	}
	return `listen = "127.0.0.1:0"`
}

const fast = "8gbit"

// syncBuffer is a log that may be read while it is written.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// leakyClass returns the configuration of a leaky class.
func leakyClass(name, rate string) policy.Class {
	c := policy.DefaultClass(name)
	if err := c.Rate.UnmarshalText([]byte(rate)); err != nil {
		panic(err)
	}
	return c
}
