package conn

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"shaper/policy"
	"shaper/shaper"
	"shaper/sock"
	"shaper/stats"
	"shaper/tests/trial"
	"shaper/upstream"
)

func TestMain(m *testing.M) {
	if l, err := net.Listen("tcp", "127.0.0.1:0"); err == nil {
		l.Close() // now the runtime's poller has its descriptors, so tests can count them
	}
	goleak.VerifyTestMain(noDescriptors{m})
}

// noDescriptors runs the tests, and checks that they leave no descriptor behind.
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

// tcpConn is what tests use of a *net.TCPConn. A *sock.MemoryConn has it, too.
type tcpConn interface {
	net.Conn
	CloseWrite() error
	SetLinger(seconds int) error
	SetReadBuffer(bytes int) error
}

// virtually runs a test in virtual time (testing/synctest), on a network in memory. Nothing
// waits for the clock of this machine.
func virtually(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		memories.Store(testing.TB(t), new(sock.Memory))
		defer memories.Delete(testing.TB(t))
		test(t)
	})
}

// virtual returns a test that runs in virtual time.
func virtual(test func(t *testing.T)) func(t *testing.T) {
	return func(t *testing.T) { virtually(t, test) }
}

// memories holds the networks of the tests that run in virtual time.
var memories sync.Map

// memoryOf returns the network of a test; nil if that is the kernel's.
func memoryOf(t testing.TB) *sock.Memory {
	m, _ := memories.Load(t)
	memory, _ := m.(*sock.Memory)
	return memory
}

// rig is a running server, on sockets of this machine or, in virtual time, in memory.
type rig struct {
	*Server
	t      testing.TB
	shaper *shaper.Shaper
	log    *trial.Log
	// The addresses of the name "test:1", and how long they hold.
	meanings atomic.Pointer[func(context.Context) ([]netip.AddrPort, error)]
	ttl      atomic.Int64
}

// meaning sets the addresses of the upstream "test:1".
func (r *rig) meaning(resolve func(context.Context) ([]netip.AddrPort, error)) {
	r.meanings.Store(&resolve)
}

// lookup is an upstream.Lookup. Clients of an entry mean the whole name "test.".
func (r *rig) lookup(ctx context.Context, name string, known []upstream.Address) (upstream.Answer, error) {
	if name != "test:1" && name != "test.:1" {
		return upstream.System().Lookup(ctx, name, known)
	}
	addrs, err := (*r.meanings.Load())(ctx)
	answer := upstream.Answer{TTL: cmp.Or(time.Duration(r.ttl.Load()), time.Hour)}
	for _, at := range addrs {
		answer.Addresses = append(answer.Addresses, upstream.Address{AddrPort: at})
	}
	return answer, err
}

// run starts a server with a policy.
func run(t testing.TB, text string) *rig {
	t.Helper()
	r := bare(t)
	r.reload(text)
	return r
}

// bare starts a server without a policy. It stops at the end of the test.
func bare(t testing.TB) *rig {
	t.Helper()
	log := new(trial.Log)
	start, network := shaper.New, sock.Network(sock.Kernel{})
	if m := memoryOf(t); m != nil {
		start, network = shaper.NewOnRuntimeTimer, m
	}
	sh := start()
	server, err := newServer(sh, nil, slog.New(slog.NewTextHandler(log, nil)), network)
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{Server: server, t: t, shaper: sh, log: log}
	server.names.Use(r.lookup)
	if m := memoryOf(t); m != nil {
		server.connectFrom = func(ctx context.Context, _ sock.Local, to netip.AddrPort) (net.Conn, error) {
			return m.DialConn(ctx, "", to.String())
		}
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

// endTurns waits until the pacers hold no turn any more. One of a session that has ended may be under way, and its class
// is in use until the session's lock has let that in.
func (r *rig) endTurns() { r.shaper.Close() }

// reset closes a connection with a reset.
func reset(c tcpConn) {
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

// reload puts a policy in force, as the daemon does.
func (r *rig) reload(text string) {
	r.t.Helper()
	r.adopt(parse(r.t, text))
}

func (r *rig) adopt(p *policy.Policy) {
	r.t.Helper()
	change, err := r.Prepare(p, ReadFiles(p))
	if err != nil {
		r.t.Fatal(err)
	}
	change.Commit(r.shaper.Apply(p.Classes))
}

// prepare reads the files of a policy, and prepares it.
func (r *rig) prepare(text string) (*Change, error) {
	r.t.Helper()
	p := parse(r.t, text)
	return r.Prepare(p, ReadFiles(p))
}

// addr returns where a listener is really bound.
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

// awaitEnd waits until n sessions of listener "l" have ended with a result.
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
	trial.Await(r.t, fmt.Sprintf("%d sessions have ended: %v", n, result), func() bool {
		return sv.stats.Ended[result].Load() == n && sv.stats.Open.Load() == 0
	})
}

// dropped returns what a class has dropped for a reason.
func (r *rig) dropped(class string, reason stats.Reason) (items, n uint64) {
	loss := &r.shaper.Class(class).Stats.Dropped[reason]
	return loss.Items.Load(), loss.Bytes.Load()
}

func (r *rig) sent(class string, dir stats.Direction) *stats.Volume {
	return &r.shaper.Class(class).Stats.Sent[dir]
}

// dial connects to a listener. The connection ends with the test.
func (r *rig) dial(listener string) tcpConn {
	r.t.Helper()
	return dialTCP(r.t, r.addr(listener))
}

func dialTCP(t testing.TB, addr string) tcpConn {
	t.Helper()
	return dialFrom(t, "", addr)
}

// dialFrom connects from an address of this host, "" for any. The connection ends with the
// test.
func dialFrom(t testing.TB, source, addr string) tcpConn {
	t.Helper()
	var c tcpConn
	var err error
	if m := memoryOf(t); m != nil {
		c, err = m.DialConn(t.Context(), source, addr)
	} else {
		c, err = trial.DialTCP(source, addr, patience)
	}
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
	if _, err := io.Copy(io.Discard, r.dial(listener)); !errors.Is(err, syscall.ECONNRESET) {
		r.t.Errorf("the connection ended with %v, want ECONNRESET", err)
	}
}

// patience is how long tests wait for what must happen, even on a busy machine.
const patience = 4 * time.Minute

func openDescriptors(t testing.TB) int {
	t.Helper()
	open := openFiles()
	if len(open) == 0 {
		t.Fatal("/proc/self/fd cannot be read")
	}
	return len(open)
}

// openFiles returns the names of the open files (proc(5)).
func openFiles() (open []string) {
	entries, _ := os.ReadDir("/proc/self/fd")
	for _, e := range entries {
		what, _ := os.Readlink("/proc/self/fd/" + e.Name())
		open = append(open, e.Name()+" "+what)
	}
	return open
}

// listen returns the address of an upstream, and a channel of its connections.
func listen(t testing.TB) (addr string, conns <-chan tcpConn) {
	t.Helper()
	if m := memoryOf(t); m != nil {
		return handOver(t, listenIn(t, m))
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return handOver(t, l)
}

func listenIn(t testing.TB, m *sock.Memory) net.Listener {
	t.Helper()
	l, err := m.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return memoryAccepts{l.(*sock.MemoryListener)}
}

// memoryAccepts is a net.Listener in memory.
type memoryAccepts struct{ *sock.MemoryListener }

func (l memoryAccepts) Accept() (net.Conn, error) { return l.Next() }

// handOver sends the connections of an upstream to a channel.
func handOver(t testing.TB, l net.Listener) (addr string, conns <-chan tcpConn) {
	t.Helper()
	accepted := make(chan tcpConn, 2000)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if errors.Is(err, syscall.EMFILE) { // the test has taken all descriptors away
				time.Sleep(time.Millisecond)
				continue
			}
			if err != nil {
				return
			}
			c.SetDeadline(time.Now().Add(patience))
			accepted <- c.(tcpConn)
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
func next(t testing.TB, conns <-chan tcpConn) tcpConn {
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

func noise(n int) []byte {
	data := make([]byte, n)
	for i := range data {
		data[i] = byte(rand.Uint32())
	}
	return data
}

func send(t testing.TB, c net.Conn, data string) {
	t.Helper()
	if _, err := io.WriteString(c, data); err != nil {
		t.Fatal(err)
	}
}

// expect reads exactly the bytes of want.
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
		t.Errorf("%d bytes and %v, want a clean end", n, err)
	}
}

// expectReset reads until the connection ends, which must be a reset: with TLS, one beneath it.
func expectReset(t testing.TB, c net.Conn) {
	t.Helper()
	if _, err := io.Copy(io.Discard, c); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the connection ended with %v, want ECONNRESET", err)
	}
}

// open returns both peers of a session of listener "l". It waits until the session has its
// upstream: a client that leaves before that counts as one that left during the dial.
func (r *rig) open(conns <-chan tcpConn) (client, upstream tcpConn) {
	r.t.Helper()
	client = r.dial("l")
	upstream = next(r.t, conns)
	trial.Await(r.t, "the session has its upstream", func() bool {
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

// leakyClass returns the configuration of a leaky class.
func leakyClass(name, rate string) policy.Class {
	c := policy.DefaultClass(name)
	if err := c.Rate.UnmarshalText([]byte(rate)); err != nil {
		panic(err)
	}
	return c
}
