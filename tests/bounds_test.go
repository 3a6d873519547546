package tests

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"shaper/tests/trial"
)

// Memory is bounded, whatever clients offer: over TCP by the sockets' buffers and one piece for
// each connection, over UDP by the queue of the class.
func TestMemoryIsFlatUnderAGigabyte(t *testing.T) {
	p := start(t, plain(), `
[class.stream]
rate = "1kB/s"
[class.datagrams]
rate = "1kB/s"
[listener.tcp]
listen = "127.0.0.1:0"
upstream = "discard:"
class = "stream"
[listener.udp]
listen = "127.0.0.1:0"
protocol = "udp"
upstream = "discard:"
class = "datagrams"
`)
	offerDatagrams(t, p.addr("udp"), 4<<20) // the daemon allocates its buffers
	before := p.memory("VmRSS")
	for range 20 {
		go flood(dial(t, "", p.addr("tcp")), 64<<10)
	}
	offered := offerDatagrams(t, p.addr("udp"), 1<<30)
	c := p.class("datagrams")
	grown := p.memory("VmHWM") - before
	trial.Figure(t, "RSS growth while 1 GiB is offered to 1 kB/s", "%s", mib(grown))
	t.Logf("%s of datagrams offered, %s dropped, %d wait; 20 connections write as much as they can; RSS grows from %s by at most %s",
		mib(offered), mib(int(c.Dropped["queue_full"].Bytes)), c.Backlog, mib(before), mib(grown))
	if grown > 16<<20 {
		t.Errorf("RSS grew by %s, want at most 16 MiB", mib(grown))
	}
	if offered < 1<<30 || c.Dropped["queue_full"].Items == 0 {
		t.Errorf("%d bytes offered, want %d; %d dropped, want some", offered, 1<<30, c.Dropped["queue_full"].Bytes)
	}
}

// offerDatagrams sends at least n bytes of datagrams, as fast as the socket takes them.
func offerDatagrams(t *testing.T, to string, n int) (sent int) {
	t.Helper()
	c, err := net.Dial("udp", to)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for piece := make([]byte, 60_000); sent < n; sent += len(piece) {
		if _, err := c.Write(piece); err != nil {
			t.Fatal(err)
		}
	}
	return sent
}

const echoAt10MB = `
[class.a]
rate = "10MB/s"
[listener.a]
listen = "127.0.0.1:0"
upstream = "echo:"
class = "a"
`

// If the process has no free descriptors, accepting neither ends nor spins. It resumes within a
// second after descriptors are free.
func TestWithoutDescriptors(t *testing.T) {
	p := start(t, plain(), echoAt10MB)
	before := p.descriptors()
	addr := p.addr("a")
	echo(t, dial(t, "", addr), 10) // opens a session and its descriptors
	trial.Await(t, "the command's connection is closed", func() bool { return p.descriptors() <= before+3 })
	p.limitDescriptors(p.firstFree()) // RLIMIT_NOFILE bounds the number of a descriptor
	var waiting []net.Conn
	for range 50 { // these wait in the socket's backlog
		waiting = append(waiting, dial(t, "", addr))
	}
	trial.Await(t, "accepting fails", func() bool { return strings.Contains(p.log.String(), "accept failed") })
	load := p.load(time.Second)
	for _, c := range waiting {
		c.Close()
	}
	p.limitDescriptors(1000)
	watch, began := trial.Begin(), time.Now()
	echo(t, dial(t, "", addr), 10)
	took := time.Since(began)
	t.Logf("without descriptors: %.2f %% of a processor; accepts again after %v", 100*load, took.Round(time.Millisecond))
	if load > 0.02 {
		t.Errorf("accepting takes %.1f %% of a processor, want at most 2 %%", 100*load)
	}
	watch.Below(t, "recovering", took, time.Second)
	if p.metric(`shaper_accept_errors_total{listener="a"}`) == 0 {
		t.Error("shaper_accept_errors_total does not count the errors")
	}
}

// limitDescriptors sets the daemon's RLIMIT_NOFILE. It can raise the limit again.
func (p *program) limitDescriptors(n int) {
	p.t.Helper()
	limit := unix.Rlimit{Cur: uint64(n), Max: 20_000}
	if err := unix.Prlimit(p.pid(), unix.RLIMIT_NOFILE, nil, &limit); err == nil {
		limit.Max = max(limit.Max, limit.Cur)
	}
	limit.Cur = uint64(n)
	if err := unix.Prlimit(p.pid(), unix.RLIMIT_NOFILE, &limit, nil); err != nil {
		p.t.Fatal(err)
	}
}

// startFull starts a daemon and fills its queues: ten streams wait in a class of 1 kB/s, and
// datagrams in a class of 1 packet/s. Drain is the drain time of the policy.
func startFull(t *testing.T, drain string) *program {
	p := start(t, plain(), `
[daemon]
control = "run/c.sock"
http = "127.0.0.1:0"
drain = "`+drain+`"
[class.a]
rate = "1kB/s"
[class.b]
rate = "1 packets/s"
[listener.a]
listen = "127.0.0.1:0"
upstream = "discard:"
class = "a"
[listener.b]
listen = "127.0.0.1:0"
protocol = "udp"
upstream = "discard:"
class = "b"
`)
	for range 10 {
		go flood(dial(t, "", p.addr("a")), 64<<10)
	}
	send(t, p.addr("b"), 500)
	trial.Await(t, "the queues fill", func() bool { return p.class("a").Backlog >= 9 && p.class("b").Backlog > 400 })
	return p
}

// Sessions that wait do not delay the stop: shaper resets and counts them at the deadline.
func TestStopEndsByTheDeadline(t *testing.T) {
	t.Parallel()
	const drain = 2 * time.Second
	p := startFull(t, "2s")
	watch, began := trial.Begin(), time.Now()
	p.signal(syscall.SIGTERM)
	p.awaitExit(drain + patience)
	took := time.Since(began)
	t.Logf("stopped after %v of %v", took.Round(time.Millisecond), drain)
	if took < drain-50*time.Millisecond {
		t.Errorf("stopped after %v, before the deadline of %v", took, drain)
	}
	watch.Below(t, "the stop", took-drain, time.Second)
	if !strings.Contains(p.log.String(), "reset=11") {
		t.Errorf("the log does not count ten streams and one datagram session as reset:\n%s", p.log)
	}
}

func TestSecondSignalStopsAtOnce(t *testing.T) {
	t.Parallel()
	p := startFull(t, "10m")
	p.signal(syscall.SIGTERM)
	trial.Await(t, "it drains", func() bool { return strings.Contains(p.log.String(), "msg=stopping") })
	if code := getCode(p, "/readyz"); code != 503 {
		t.Errorf("/readyz answers %d during the drain, want 503", code)
	}
	watch, began := trial.Begin(), time.Now()
	p.signal(syscall.SIGTERM)
	p.awaitExit(patience)
	watch.Below(t, "the stop", time.Since(began), time.Second)
}

func getCode(p *program, path string) int {
	p.t.Helper()
	_, code := p.get(path)
	return code
}

// connections is the number of connections that TestConnectionsLeaveNothing makes.
var connections = trial.Size(3_000, 100_000)

// After many connections that end in every way, the daemon has no more descriptors and
// goroutines than at the start.
func TestConnectionsLeaveNothing(t *testing.T) {
	t.Parallel()
	p := start(t, plain(), strings.ReplaceAll(`
[class.a]
rate = "1GB/s"
[listener.echo]
listen = "127.0.0.1:0"
upstream = "echo:"
class = "a"
[listener.real]
listen = "127.0.0.1:0"
upstream = "UPSTREAM"
class = "a"
[listener.idle]
listen = "127.0.0.1:0"
upstream = "UPSTREAM"
class = "a"
idle_timeout = "1s"
`, "UPSTREAM", serve(t, func(c *net.TCPConn) { io.Copy(c, c) })))
	descriptors := p.descriptors()
	goroutines := int(p.metric("go_goroutines"))
	began := time.Now()
	failed := connectInEveryWay(p.addr("idle"), p.addr("echo"), p.addr("real"))
	took := time.Since(began).Round(time.Millisecond)
	t.Logf("%d connections in %v", connections, took)
	trial.Figure(t, "connections that end in every way and leave nothing", "%d in %v", connections, took)
	failed.check(t, "connections")
	ended := map[string]uint64{}
	for _, l := range p.status().Listeners {
		for result, n := range l.Ended {
			ended[result] += n
		}
	}
	t.Logf("ended: %v", ended)
	for _, result := range []string{"ok", "reset", "timeout"} {
		if ended[result] == 0 {
			t.Errorf("no session ended as %s", result)
		}
	}
	waitForAtMost(t, "open sessions", 0, func() int { return len(p.sessions()) })
	waitForAtMost(t, "descriptors", descriptors, p.descriptors)
	waitForAtMost(t, "goroutines", goroutines, func() int { return int(p.metric("go_goroutines")) })
}

// connectInEveryWay makes the connections, 64 at a time. One of 500 goes to the address idle, and
// stays idle until it times out. The others go to addrs in turn.
func connectInEveryWay(idle string, addrs ...string) *attempts {
	var failed attempts
	var wg sync.WaitGroup
	var next atomic.Int64
	for range 64 {
		wg.Go(func() {
			for n := int(next.Add(1)); n <= connections; n = int(next.Add(1)) {
				if n%500 == 1 {
					failed.add(timeOut(idle, n))
				} else {
					failed.add(endInSomeWay(addrs[n%len(addrs)], n))
				}
			}
		})
	}
	wg.Wait()
	return &failed
}

// connectAs makes connection n.
func connectAs(n int, addr string) (*net.TCPConn, error) {
	c, err := dialFrom("127.0.0."+strconv.Itoa(1+n%20), addr)
	if err == nil {
		c.SetDeadline(time.Now().Add(patience))
	}
	return c, err
}

const hello = "hello"

// timeOut makes connection n, and leaves it idle until idle_timeout resets it. On a busy machine,
// that may be before it has written.
func timeOut(addr string, n int) error {
	c, err := connectAs(n, addr)
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err = io.WriteString(c, hello); err == nil {
		_, err = io.Copy(io.Discard, c)
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		return fmt.Errorf("a connection that times out ends with %v, want a reset", err)
	}
	return nil
}

// endInSomeWay makes connection n, and ends it with a FIN, a half-close or a RST.
func endInSomeWay(addr string, n int) error {
	c, err := connectAs(n, addr)
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := io.WriteString(c, hello); err != nil {
		return err
	}
	switch {
	case n%3 == 0:
		c.SetLinger(0) // RST
		return nil
	case n%3 == 1:
		if err := c.CloseWrite(); err != nil { // half-close: the echo still arrives
			return err
		}
		got, err := io.ReadAll(c)
		if err == nil && string(got) != hello {
			err = fmt.Errorf("the echo is %q, want %q", got, hello)
		}
		return err
	}
	_, err = io.ReadFull(c, make([]byte, len(hello)))
	return err
}
