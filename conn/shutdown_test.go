package conn

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"shaper/policy"
	"shaper/shaper"
	"shaper/stats"
	"shaper/tests/trial"
)

func within(d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	context.AfterFunc(ctx, cancel)
	return ctx
}

// Shutdown lets open sessions go on, and accepts no new ones.
func TestShutdownWaits(t *testing.T) {
	addr, conns := listen(t)
	r := run(t, forward(addr, "100kB/s"))
	client, upstream := r.open(conns)
	at := r.addr("l")
	text := strings.Repeat("x", 30_000)
	send(t, client, text)
	client.CloseWrite()
	reset := make(chan int, 1)
	go func() { reset <- r.Shutdown(within(patience)) }()
	expect(t, upstream, text)
	expectEOF(t, upstream)
	upstream.Close()
	expectEOF(t, client)
	if n := <-reset; n != 0 {
		t.Errorf("%d sessions were reset", n)
	}
	r.awaitEnd(stats.OK, 1)
	if err := shortEcho(at); err == nil {
		t.Error("it still accepts")
	}
}

// Sessions that remain at the deadline are reset and counted: a queue at 1 kB/s, a dial
// without an answer, busy UDP sessions.
func TestShutdownResetsAtTheDeadline(t *testing.T) {
	t.Parallel()
	addr, conns := listen(t)
	up := bindUDP(t, "127.0.0.1:0")
	r := run(t, forward(addr, "1kB/s")+class("f", fast)+
		listener("mute", "tcp", silent(t), "f", `connect_timeout = "1h"`)+
		listener("u", "udp", up.LocalAddr().String(), "f"))
	client, upstream := r.open(conns)
	send(t, client, strings.Repeat("x", 50_000))
	dialling := r.dial("mute")
	datagrams := dialUDP(t, r.addr("u"))
	send(t, datagrams, "x")
	to := expectDatagram(t, up, "x")
	trial.Await(t, "all have sessions", func() bool { return len(r.Sessions()) == 3 })

	stop := make(chan struct{})
	var chatter sync.WaitGroup
	chatter.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(10 * time.Millisecond):
				up.WriteToUDPAddrPort([]byte("x"), to)
			}
		}
	})
	watch, start := trial.Begin(), time.Now()
	if n := r.Shutdown(within(2 * time.Second)); n != 3 {
		t.Errorf("%d sessions were reset, want 3", n)
	}
	took := time.Since(start)
	if took < 2*time.Second {
		t.Errorf("it took %v, want the 2 s of the deadline", took)
	}
	watch.Below(t, "the stop", took, 3*time.Second)
	close(stop)
	chatter.Wait()
	expectReset(t, client)
	expectReset(t, upstream)
	expectReset(t, dialling)
	if items, n := r.dropped("c", stats.Stopped); items != 1 || n == 0 {
		t.Errorf("%d items of %d bytes are counted as stopped", items, n)
	}
}

// UDP sessions have no end of their own: silence is enough.
func TestShutdownEndsQuietDatagramSessions(t *testing.T) {
	t.Parallel()
	r := run(t, udp(policy.Echo, fast))
	c := dialUDP(t, r.addr("l"))
	send(t, c, "x")
	expectDatagram(t, c, "x")
	watch, start := trial.Begin(), time.Now()
	if n := r.Shutdown(within(patience)); n != 0 {
		t.Errorf("%d sessions were reset", n)
	}
	watch.Below(t, "the stop", time.Since(start), 3*time.Second)
}

// Shutdown may be called several times, at the same time, and with a shorter deadline.
func TestShutdownTwice(t *testing.T) {
	addr, conns := listen(t)
	r := run(t, forward(addr, fast))
	for range 20 {
		r.open(conns)
	}
	counts := make(chan int, 3)
	go func() { counts <- r.Shutdown(context.Background()) }()
	go func() { counts <- r.Shutdown(within(50 * time.Millisecond)) }()
	go func() { counts <- r.Shutdown(within(50 * time.Millisecond)) }()
	if n := <-counts + <-counts + <-counts; n != 20 {
		t.Errorf("%d sessions were reset, want 20", n)
	}
	if n := r.Shutdown(expired); n != 0 {
		t.Errorf("%d more were reset", n)
	}
	if _, err := r.prepare(forward(addr, fast)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Prepare: %v, want net.ErrClosed", err)
	}
	if len(r.Listeners()[0].Addresses) > 0 {
		t.Error("it listens again")
	}
}

// Readers of the JSON find lists, also where there is nothing in them: no listener, and none that is bound.
func TestReadingOfNoListener(t *testing.T) {
	r := bare(t)
	reads := func(want string) {
		t.Helper()
		if text, err := json.Marshal(r.Listeners()); err != nil || !strings.Contains(string(text), want) {
			t.Errorf("the listeners are %s, %v; they lack %s", text, err, want)
		}
	}
	reads(`[]`)
	r.reload(forward(policy.Echo, fast))
	r.Shutdown(expired)
	reads(`"addresses":[]`)
}

// A change that was prepared before Shutdown has no effect.
func TestCommitAfterShutdown(t *testing.T) {
	r := run(t, forward(policy.Echo, fast))
	change, err := r.prepare(class("c", fast) + listener("m", "tcp", policy.Echo, "c"))
	if err != nil {
		t.Fatal(err)
	}
	r.Shutdown(expired)
	change.Commit(nil)
	if len(r.Listeners()[0].Addresses) > 0 {
		t.Error("it listens again")
	}
}

// Many sessions end in all ways while the server stops.
func TestShutdownUnderLoad(t *testing.T) {
	r := run(t, forward(policy.Echo, fast))
	at := r.addr("l")
	var clients sync.WaitGroup
	for range 8 {
		clients.Go(func() {
			for shortEcho(at) == nil {
			}
		})
	}
	trial.Await(t, "there is load", func() bool { return r.service("l").stats.Ended[stats.OK].Load() > 50 })
	r.Shutdown(within(100 * time.Millisecond))
	clients.Wait()
	if n := r.service("l").stats.Open.Load(); n != 0 {
		t.Errorf("%d sessions are open", n)
	}
}

// A lookup without an answer does not delay Shutdown.
func TestShutdownDuringLookup(t *testing.T) {
	r := run(t, udp("host.invalid:53", fast))
	send(t, dialUDP(t, r.addr("l")), "x")
	trial.Await(t, "there is no session for it", func() bool { n, _ := r.dropped("c", stats.NoSession); return n == 1 })
	watch, start := trial.Begin(), time.Now()
	r.Shutdown(expired)
	watch.Below(t, "the stop", time.Since(start), 2*time.Second)
}

// A stopped server does not touch the files that have its old descriptors now.
func TestShutdownAgainWritesNowhere(t *testing.T) {
	sh := shaper.New()
	defer sh.Close()
	server, err := NewServer(sh, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	server.Shutdown(expired)
	dir := t.TempDir()
	var files []*os.File // with the descriptors that were the server's
	for i := range 200 {
		f, err := os.Create(filepath.Join(dir, strconv.Itoa(i)))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		files = append(files, f)
	}
	server.Shutdown(expired)
	for _, p := range server.pollers {
		p.Revisit(&tcpSocket{}) // as a timer may
	}
	for _, f := range files {
		if info, err := f.Stat(); err != nil || info.Size() > 0 {
			t.Errorf("%s: %v, %v", f.Name(), info.Size(), err)
		}
	}
}

const (
	getShort    = "GET / HTTP/1.1\r\nHost: h\r\n\r\n"
	answerShort = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"
)

// passShort passes a short request of HTTP, and its answer.
func passShort(t *testing.T, client, server tcpConn) {
	t.Helper()
	send(t, client, getShort)
	expect(t, server, getShort)
	send(t, server, answerShort)
	expect(t, client, answerShort)
}

// A stop ends idle sessions of messages at once, and well: those of HTTP by an end, those of SMPP by an
// unbind. A client of HTTP that has just connected has time for its first request.
func TestShutdownEndsIdleSessions(t *testing.T) {
	for _, c := range []struct {
		name, protocol, asks, answer string
		bye                          string // what both get
		most                         time.Duration
	}{
		{"http", "http", getShort, answerShort, "", janitorPeriod},
		{"http without a request", "http", "", "", "", quietTime + janitorPeriod},
		{"smpp", "smpp", pdu(enquire, 0, 1, ""), pdu(enquireResp, 0, 1, ""), pdu(unbind, 0, 1<<31-1, ""), janitorPeriod + lingerTimeout},
	} {
		t.Run(c.name, virtual(func(t *testing.T) {
			to, conns := listen(t)
			r := run(t, class("c", "1000 messages/s")+listener("l", c.protocol, to, "c"))
			client, server := r.open(conns)
			send(t, client, c.asks)
			expect(t, server, c.asks)
			send(t, server, c.answer)
			expect(t, client, c.answer)
			synctest.Wait()
			began := time.Now()
			if n := r.Shutdown(within(30 * time.Second)); n != 0 {
				t.Errorf("%d sessions were reset", n)
			}
			if took := time.Since(began); took > c.most {
				t.Errorf("it took %v, want %v at most", took, c.most)
			}
			for _, end := range []tcpConn{client, server} {
				expect(t, end, c.bye)
				expectEnd(t, end)
			}
			r.awaitEnd(stats.Aged, 1)
		}))
	}
}

// A stop without a drain resets idle sessions too, even if the janitor comes to one before its reset.
func TestShutdownResetsIdleSessions(t *testing.T) {
	to, conns := listen(t)
	r := run(t, class("c", "1000 messages/s")+listener("l", "http", to, "c"))
	client, server := r.open(conns)
	passShort(t, client, server)
	r.open(conns)
	all := r.sessions.all()
	idle, youngest := all[0].(*tcpSession), all[1].(*tcpSession)
	reset := make(chan int, 1)
	youngest.mu.Lock() // the reset of all waits at its first session
	go func() { reset <- r.Shutdown(expired) }()
	trial.Await(t, "it stops", r.stopping.Load)
	idle.tend(time.Now())
	youngest.mu.Unlock()
	if n := <-reset; n != 2 {
		t.Errorf("%d sessions were reset, want 2", n)
	}
	expectReset(t, client)
	expectReset(t, server)
}

// A stop lets requests end that have begun: the last answer says that it is the last.
func TestShutdownEndsRequests(t *testing.T) {
	const post = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nbody"
	last := strings.Replace(answerShort, "OK\r\n", "OK\r\nConnection: close\r\n", 1)
	for _, n := range []int{1, 10, len(post) - 4, len(post) - 1, len(post)} { // bytes before the stop
		virtually(t, func(t *testing.T) {
			to, conns := listen(t)
			r := run(t, class("c", "1000 messages/s")+listener("l", "http", to, "c"))
			client, server := r.open(conns)
			passShort(t, client, server)
			send(t, client, post[:n])
			synctest.Wait()
			reset := make(chan int, 1)
			go func() { reset <- r.Shutdown(within(30 * time.Second)) }()
			time.Sleep(10 * time.Second)
			send(t, client, post[n:])
			expect(t, server, post)
			time.Sleep(10 * time.Second)
			send(t, server, answerShort)
			expect(t, client, last)
			expectEnd(t, client)
			client.Close()
			if n := <-reset; n != 0 {
				t.Errorf("%d sessions were reset", n)
			}
			expectEnd(t, server)
		})
	}
}

// A stop does not end what has no boundary, or none that shaper knows.
func TestShutdownWaitsForStreams(t *testing.T) {
	const upgrade = "GET / HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n"
	const upgraded = "HTTP/1.1 101 Yes\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n"
	for protocol, said := range map[string][2]string{"tcp": {"x", "y"}, "lines": {"x\n", "y\n"}, "http": {upgrade, upgraded}} {
		virtually(t, func(t *testing.T) {
			to, conns := listen(t)
			r := run(t, class("c", map[bool]string{true: fast, false: "1000 messages/s"}[protocol == "tcp"])+listener("l", protocol, to, "c"))
			client, server := r.open(conns)
			send(t, client, said[0])
			expect(t, server, said[0])
			send(t, server, said[1])
			expect(t, client, said[1])
			reset := make(chan int, 1)
			go func() { reset <- r.Shutdown(within(30 * time.Second)) }()
			time.Sleep(20 * time.Second)
			send(t, client, "z\n")
			expect(t, server, "z\n")
			if n := <-reset; n != 1 {
				t.Errorf("%s: %d sessions were reset, want 1", protocol, n)
			}
		})
	}
}
