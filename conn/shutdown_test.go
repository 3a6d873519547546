package conn

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
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
	until(t, "all have sessions", func() bool { return len(r.Sessions()) == 3 })

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
	if _, err := r.Prepare(parse(t, forward(addr, fast))); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Prepare: %v, want net.ErrClosed", err)
	}
	if len(r.Listeners()[0].Addresses) > 0 {
		t.Error("it listens again")
	}
}

// A change that was prepared before Shutdown has no effect.
func TestCommitAfterShutdown(t *testing.T) {
	r := run(t, forward(policy.Echo, fast))
	change, err := r.Prepare(parse(t, class("c", fast)+listener("m", "tcp", policy.Echo, "c")))
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
	until(t, "there is load", func() bool { return r.service("l").stats.Ended[stats.OK].Load() > 50 })
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
	until(t, "there is no session for it", func() bool { n, _ := r.dropped("c", stats.NoSession); return n == 1 })
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
