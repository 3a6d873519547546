package conn

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"shaper/sock"
	"shaper/stats"
	"shaper/tests/trial"
	"shaper/upstream"
)

// across is a policy with listener "l" to several upstreams, with more lines of its section.
func across(upstreams []string, more ...string) string {
	return class("c", fast) + "[listener.l]\nlisten = \"127.0.0.1:0\"\nclass = \"c\"\nupstream = [\"" + strings.Join(upstreams, `", "`) + "\"]\n" + strings.Join(more, "\n") + "\n"
}

// addresses makes the name "test:1" mean some addresses.
func (r *rig) addresses(addrs ...string) {
	var all []netip.AddrPort
	for _, a := range addrs {
		all = append(all, netip.MustParseAddrPort(a))
	}
	r.meaning(func(context.Context) ([]netip.AddrPort, error) { return all, nil })
}

// silence makes an address of the network in memory answer nothing.
func silence(t *testing.T, addr string) string {
	memoryOf(t).Silence(netip.MustParseAddrPort(addr))
	return addr
}

// If the first address of a name does not answer, the next one is tried after 250 ms, and the
// first that answers is the upstream.
func TestAddressesRace(t *testing.T) {
	virtually(t, func(t *testing.T) {
		to, conns := listen(t)
		r := bare(t)
		r.addresses(silence(t, "192.0.2.1:1"), silence(t, "192.0.2.2:1"), to)
		r.reload(forward("test:1", fast, `connect_timeout = "10s"`))
		began := time.Now()
		client := r.dial("l")
		server := next(t, conns)
		if took := time.Since(began); took != 2*raceDelay {
			t.Errorf("it takes %v, want %v", took, 2*raceDelay)
		}
		send(t, client, "x")
		expect(t, server, "x")
		if one := r.Sessions()[0]; one.Destination != to {
			t.Errorf("the session is %+v", one)
		}
		if got := r.failures("test:1"); len(got) != 0 {
			t.Errorf("counted: %v", got)
		}
	})
}

// An address that never answers is down after as many checks as take one out, although another one of its name wins each
// race: then no session waits for it any more. One that is only slower stays up, and no check follows when sessions end.
func TestSilentAddressOfANameIsDown(t *testing.T) {
	for _, want := range []string{"down", "up"} {
		virtually(t, func(t *testing.T) {
			to, conns := listen(t)
			other, _ := listen(t)
			mute := silence(t, "192.0.2.1:1")
			var checks atomic.Int64
			r := bare(t)
			dial := r.connectFrom
			r.connectFrom = func(ctx context.Context, from sock.Local, at netip.AddrPort) (net.Conn, error) {
				if checks.Add(1); want == "up" { // slower than raceDelay
					time.Sleep(raceDelay + 50*time.Millisecond)
					at = netip.MustParseAddrPort(other)
				}
				return dial(ctx, from, at)
			}
			r.addresses(mute, to)
			r.reload(across([]string{"test:1"}, `balance = "round-robin"`))
			var waited string // of each session, whether it has waited
			for range 30 {
				began := time.Now()
				client := r.dial("l")
				next(t, conns)
				waited += map[bool]string{false: ".", true: "w"}[time.Since(began) > 0]
				synctest.Wait() // until the session knows who has won: a client that leaves before that casts no doubt
				reset(client)
				time.Sleep(time.Second)
			}
			if got := r.Upstreams()[0]; got.State != want {
				t.Errorf("it is %s after %d checks, want %s", got.State, checks.Load(), want)
			}
			if late := waited[20:]; strings.Contains(late, "w") != (want == "up") {
				t.Errorf("%s: of the sessions, these have waited: %s", want, waited)
			}
			time.Sleep(10 * time.Second)
			before := checks.Load()
			if time.Sleep(time.Minute); want == "up" && checks.Load() > before {
				t.Errorf("%d checks without a session", checks.Load()-before)
			}
		})
	}
}

// An address that answers late wins if those after it do not answer.
func TestLateAddressWins(t *testing.T) {
	late, conns := listen(t)
	r := bare(t)
	r.addresses(late, silent(t))
	r.reload(forward("test:1", fast))
	client := r.dial("l")
	send(t, client, "x")
	expect(t, next(t, conns), "x")
}

// If none answers, each counts as a failure, and the session goes on with the next upstream
// when connect_timeout ends.
func TestSilentAddressesFail(t *testing.T) {
	virtually(t, func(t *testing.T) {
		to, conns := listen(t)
		r := bare(t)
		r.addresses(silence(t, "192.0.2.1:1"), silence(t, "192.0.2.2:1"), silence(t, "192.0.2.3:1"))
		r.reload(across([]string{"test:1", to}, `connect_timeout = "4s"`))
		began := time.Now()
		r.dial("l")
		next(t, conns)
		if took := time.Since(began); took != 4*time.Second {
			t.Errorf("it takes %v, want 4s", took)
		}
		if got := fmt.Sprint(r.failures("test:1")); got != fmt.Sprint(map[stats.Failure]uint64{stats.NoAnswer: 3}) {
			t.Errorf("counted: %v", got)
		}
	})
}

// An address that does not answer fails even if all clients leave before connect_timeout ends, and
// is ejected. If a client leaves at once, that says nothing of the address.
func TestImpatientClients(t *testing.T) {
	virtually(t, func(t *testing.T) {
		to, conns := listen(t)
		mute := silence(t, "192.0.2.1:1")
		r := run(t, across([]string{mute, to}, `balance = "round-robin"`, `connect_timeout = "10s"`))
		leave := func(after time.Duration) {
			client := r.dial("l")
			time.Sleep(after)
			reset(client)
		}
		leave(longConnect - time.Millisecond)
		r.awaitEnd(stats.Aborted, 1)
		if got := r.failures(mute); len(got) != 0 {
			t.Errorf("a client has left at once, counted: %v", got)
		}
		r.open(conns)
		leave(longConnect + time.Millisecond)
		r.awaitEndOf(stats.Aborted, 2)
		if got := fmt.Sprint(r.failures(mute)); got != fmt.Sprint(map[stats.Failure]uint64{stats.NoAnswer: 1}) {
			t.Errorf("counted: %v", got)
		}
		for range 4 { // the other one has all of them
			r.open(conns)
		}
	})
}

// An upstream of http that takes requests and never answers is ejected when such a session ends by a timeout. If
// the client has not sent a whole request, or does not read its answer, that says nothing of the upstream.
func TestSilentUpstreamOfHTTP(t *testing.T) {
	half := "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nhello"
	for _, c := range []struct {
		what, sent, answer string
		leaves, fails      bool
	}{
		{"it does not answer", anAsk, "", false, true},
		{"nor one that has left", anAsk, "", true, true},
		{"half a request", half, "", false, false},
		{"half an answer", anAsk, anAnswer + "Content-Length: 9\r\n\r\nhello", false, false},
		{"no request", "", "", false, false},
	} {
		t.Run(c.what, virtual(func(t *testing.T) {
			addr, conns := listen(t)
			other, _ := listen(t)
			r := run(t, class("c", fast)+fmt.Sprintf("[listener.l]\nlisten = \"127.0.0.1:0\"\nprotocol = \"http\"\nupstream = [%q, %q]\nbalance = \"round-robin\"\nclass = \"c\"\n"+
				"idle_timeout = \"1m\"\nhalf_close_timeout = \"1m\"\n", addr, other))
			client := r.dial("l")
			send(t, client, c.sent)
			server := next(t, conns)
			expect(t, server, c.sent)
			send(t, server, c.answer)
			if c.leaves {
				client.CloseWrite()
			}
			r.awaitEnd(stats.TimedOut, 1)
			if ejected := strings.Contains(r.log.String(), "an upstream is ejected"); ejected != c.fails {
				t.Errorf("it is ejected: %v, want %v", ejected, c.fails)
			}
		}))
	}
}

// The addresses of a host that does not answer leave time for the next host of an SRV record.
func TestHostsShareTheTime(t *testing.T) {
	virtually(t, func(t *testing.T) {
		to, conns := listen(t)
		r := bare(t)
		r.names.Use(func(context.Context, string, []upstream.Address) (a upstream.Answer, err error) {
			for _, at := range [][2]string{{"a", silence(t, "192.0.2.1:1")}, {"a", silence(t, "192.0.2.2:1")}, {"b", silence(t, "192.0.2.3:1")}, {"b", to}} {
				a.Addresses = append(a.Addresses, upstream.Address{Host: at[0], AddrPort: netip.MustParseAddrPort(at[1])})
			}
			a.TTL = time.Hour
			return a, nil
		})
		r.reload(across([]string{"test:1"}, `connect_timeout = "10s"`))
		began := time.Now()
		r.dial("l")
		next(t, conns)
		// The second address of "a" has a third of what its first has left, and "b" races at its end.
		if took, want := time.Since(began), raceDelay+(10*time.Second-raceDelay)/3+raceDelay; took != want {
			t.Errorf("it takes %v, want %v", took, want)
		}
		if got := fmt.Sprint(r.failures("test:1")); got != fmt.Sprint(map[stats.Failure]uint64{stats.NoAnswer: 2}) {
			t.Errorf("counted: %v", got)
		}
	})
}

// An address that accepts connections and never answers in TLS leaves time for the next one.
func TestHandshakesShareTheTime(t *testing.T) {
	a := newAuthority(t)
	hanging, hangs := listen(t)
	to, conns := listen(t)
	r := bare(t)
	r.addresses(hanging, to)
	r.reload(across([]string{"test:1"}, `connect_timeout = "4s"`, a.originating(`, server_name = "localhost"`)))
	client := r.dial("l")
	next(t, hangs)
	server := nextTLS(t, conns, serving(a.issue("server")))
	send(t, client, "x")
	expect(t, server, "x")
}

// However many addresses an upstream has, each handshake has an even share of what is left or a quarter, whichever
// is longer, and the last one all of it. With an even share those of a slow upstream would all fail, and with half a
// healthy address behind five that hang would have a sixth of a second.
func TestHandshakesOfManyAddresses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c dialClock
		c.begin(8 * time.Second)
		for _, want := range []struct {
			others int
			time   time.Duration
		}{{7, 2 * time.Second}, {6, 1500 * time.Millisecond}, {2, 1500 * time.Millisecond}, {1, 1500 * time.Millisecond}, {0, 1500 * time.Millisecond}} {
			if got := time.Until(c.share(want.others)); got != want.time {
				t.Errorf("with %d others to try, the handshake has %v, want %v", want.others, got, want.time)
			}
			time.Sleep(want.time)
		}
		for _, more := range []int{0, 1, 20} {
			c.begin(10 * time.Second)
			for hanging := 5; hanging > 0; hanging-- {
				time.Sleep(time.Until(c.share(hanging + more)))
			}
			if got := time.Until(c.share(more)); got < 500*time.Millisecond {
				t.Errorf("behind five that hang and before %d others, the handshake has %v", more, got)
			}
		}
	})
}

// A refused address makes way at once, and one that is still tried may win then.
func TestRefusedAddressMakesWay(t *testing.T) {
	virtually(t, func(t *testing.T) {
		to, conns := listen(t)
		r := bare(t)
		r.addresses("192.0.2.9:1", silence(t, "192.0.2.1:1"), "192.0.2.8:1", to)
		r.reload(forward("test:1", fast))
		began := time.Now()
		r.dial("l")
		next(t, conns)
		if took := time.Since(began); took != raceDelay {
			t.Errorf("it takes %v, want %v", took, raceDelay)
		}
		if got := fmt.Sprint(r.failures("test:1")); got != fmt.Sprint(map[stats.Failure]uint64{stats.NotServed: 2}) {
			t.Errorf("counted: %v", got)
		}
	})
}

// If the poller cannot watch an attempt beside the next one, the attempt has failed.
func TestUnwatchedAddressFails(t *testing.T) {
	virtually(t, func(t *testing.T) {
		to, conns := listen(t)
		r := bare(t)
		r.addresses(silence(t, "192.0.2.1:1"), to)
		r.reload(forward("test:1", fast))
		r.dial("l")
		r.awaitStage(connecting)
		r.look(func(t *tcpSession) {
			t.upstream.close()
			t.upstream.end = sock.NoSocket() // which the poller in memory refuses
		})
		next(t, conns)
		if got := fmt.Sprint(r.failures("test:1")); got != fmt.Sprint(map[stats.Failure]uint64{stats.Unfit: 1}) {
			t.Errorf("counted: %v", got)
		}
	})
}

// An attempt that wins has the mark of its class, also if a reload has changed that while another attempt was the present one.
func TestMarkOfALateAddress(t *testing.T) {
	virtually(t, func(t *testing.T) {
		r := bare(t)
		r.addresses(silence(t, "192.0.2.1:1"), silence(t, "192.0.2.2:1"))
		r.reload(forward("test:1", fast))
		r.dial("l")
		time.Sleep(raceDelay + time.Millisecond)
		r.marks.byClass.Store(&map[string]uint32{"c": 9})
		r.sessions.remark()
		r.look(func(t *tcpSession) { t.dialling.race.first.answered() })
		r.look(func(one *tcpSession) {
			if got := one.upstream.end.Get(sock.Mark); one.course.destination.Addr().String() != "192.0.2.1" || got != 9 {
				t.Errorf("the mark towards %v is %d, want 9", one.course.destination, got)
			}
		})
	})
}

// If two attempts of a race fail at once, both ask for the next address. The session tries it once.
func TestNextAddressIsTriedOnce(t *testing.T) {
	virtually(t, func(t *testing.T) {
		r := bare(t)
		r.addresses(silence(t, "192.0.2.1:1"), silence(t, "192.0.2.2:1"))
		r.reload(forward("test:1", fast))
		r.dial("l")
		r.awaitStage(connecting)
		r.look(func(t *tcpSession) {
			t.dialling.attemptFailed(unix.ECONNREFUSED)
			t.dialling.tryAddress() // as a rival does that fails now
		})
		synctest.Wait()
		if len(r.Sessions()) != 1 {
			t.Error("the session has ended")
		}
	})
}

// A client that leaves during the race leaves nothing behind, nor does a server that stops.
func TestRaceLeavesNothing(t *testing.T) {
	for _, how := range []string{"client", "shutdown"} {
		virtually(t, func(t *testing.T) {
			r := bare(t)
			r.addresses(silence(t, "192.0.2.1:1"), silence(t, "192.0.2.2:1"), silence(t, "192.0.2.3:1"))
			r.reload(forward("test:1", fast))
			client := r.dial("l")
			time.Sleep(2*raceDelay + time.Millisecond)
			synctest.Wait()
			if how == "client" {
				reset(client)
				r.awaitEnd(stats.Aborted, 1)
			} else if n := r.Shutdown(expired); n != 1 {
				t.Errorf("%d sessions are reset", n)
			}
			for _, u := range r.Upstreams() {
				if u.Sessions != 0 {
					t.Errorf("%s: %+v", how, u)
				}
			}
		})
	}
}

// If rules ask for the destination, addresses are tried one after the other: each may have a
// class of its own, and only that of the one that is reached is charged.
func TestNoRaceBetweenClasses(t *testing.T) {
	virtually(t, func(t *testing.T) {
		m := memoryOf(t)
		l, err := m.Listen("tcp", second+":7")
		if err != nil {
			t.Fatal(err)
		}
		to, conns := handOver(t, memoryAccepts{l.(*sock.MemoryListener)})
		r := bare(t)
		r.addresses(silence(t, "192.0.2.1:1"), to)
		r.reload(pair("tcp", []string{"test:1"}, class("first", fast), class("second", fast), `connect_timeout = "4s"`))
		began := time.Now()
		client := r.dial("l")
		server := next(t, conns)
		if took := time.Since(began); took != 2*time.Second {
			t.Errorf("it takes %v, want half of connect_timeout", took)
		}
		send(t, client, "x")
		expect(t, server, "x")
		synctest.Wait() // the session counts what it has written
		if first, second := r.sent("first", stats.Upstream).Bytes.Load(), r.sent("second", stats.Upstream).Bytes.Load(); first != 0 || second != 1 {
			t.Errorf("the classes have sent %d and %d bytes", first, second)
		}
	})
}

// When the address of a name changes, sessions go to the new one at the latest a second after
// the TTL, and none fails. While the resolver hangs for a minute, sessions go on at once.
func TestSessionsFollowTheName(t *testing.T) {
	virtually(t, func(t *testing.T) {
		near, nearConns := listen(t)
		far, farConns := listen(t)
		r := bare(t)
		r.ttl.Store(int64(20 * time.Second))
		r.addresses(near)
		r.reload(forward("test:1", fast))
		var arrived [2]atomic.Int64
		for i, conns := range []<-chan tcpConn{nearConns, farConns} {
			go func() {
				for c := range conns {
					arrived[i].Add(1)
					c.Close()
				}
			}()
		}
		count := 0
		sessions := func(during time.Duration) {
			for end := time.Now().Add(during); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
				began := time.Now()
				if err := discard(r.dial("l")); err != nil || time.Since(began) > 0 {
					t.Fatalf("a session: %v after %v", err, time.Since(began))
				}
				count++
			}
		}
		sessions(30 * time.Second)
		moved := arrived[0].Load()
		r.addresses(far)
		sessions(21 * time.Second)
		last := arrived[0].Load()
		r.meaning(hang)
		sessions(time.Minute)
		synctest.Wait()
		if arrived[0].Load() != last || last == moved || int(arrived[0].Load()+arrived[1].Load()) != count {
			t.Errorf("of %d sessions %d came to the old address, %d of them after the TTL, and %d to the new one",
				count, arrived[0].Load(), arrived[0].Load()-last, arrived[1].Load())
		}
		if got := r.failures("test:1"); len(got) != 0 {
			t.Errorf("counted: %v", got)
		}
	})
}

// discard ends a session and returns the error that its client sees.
func discard(c tcpConn) error {
	var b [1]byte
	_, err := c.Read(b[:])
	c.Close()
	if errors.Is(err, net.ErrClosed) || err == nil {
		return fmt.Errorf("unexpected: %v", err)
	}
	if err.Error() == "EOF" {
		return nil
	}
	return err
}

// A dead upstream among three costs one failed connection, and comes back by itself.
func TestDeadUpstreamComesBack(t *testing.T) {
	for _, lines := range []string{`balance = "round-robin"`, `balance = "least-connections"`, `health = {}`} {
		virtually(t, func(t *testing.T) {
			m := memoryOf(t)
			var arrived [3]atomic.Int64
			var addrs []string
			var listeners []sock.Listener
			serve := func(i int, at string) {
				l, err := m.Listen("tcp", at)
				if err != nil {
					t.Fatal(err)
				}
				listeners = append(listeners, l)
				addrs = append(addrs, l.Addr().String())
				go func() {
					for {
						c, err := l.(*sock.MemoryListener).Next()
						if err != nil {
							return
						}
						arrived[i].Add(1)
						c.Close()
					}
				}()
			}
			for i := range 3 {
				serve(i, "127.0.0.1:0")
			}
			r := run(t, across(addrs, lines))
			failed := func() (n uint64) {
				for _, u := range addrs[:3] {
					for _, more := range r.failures(u) {
						n += more
					}
				}
				return n
			}
			sessions := func(n int) {
				for range n {
					if err := discard(r.dial("l")); err != nil {
						t.Fatal(err)
					}
					time.Sleep(50 * time.Millisecond)
				}
			}
			sessions(30)
			listeners[0].Close()
			sessions(300)
			if n := failed(); n > 1 {
				t.Errorf("%s: %d connections have failed", lines, n)
			}
			serve(0, addrs[0])
			time.Sleep(time.Minute)
			before := arrived[0].Load() // with the checks
			sessions(30)
			synctest.Wait()
			if got := arrived[0].Load() - before; got < 9 {
				t.Errorf("%s: it is back, and gets %d of 30 sessions", lines, got)
			}
			for _, l := range listeners {
				l.Close()
			}
		})
	}
}

// Sessions go where the fewest requests have no answer.
func TestLeastInFlight(t *testing.T) {
	virtually(t, func(t *testing.T) {
		one, oneConns := listen(t)
		two, twoConns := listen(t)
		r := run(t, class("c", "1000 messages/s")+"[listener.l]\nlisten = \"127.0.0.1:0\"\nprotocol = \"http\"\nbalance = \"least-in-flight\"\nclass = \"c\"\nupstream = [\""+one+"\", \""+two+"\"]\n")
		ask := func(conns <-chan tcpConn) (client, server tcpConn) {
			client = r.dial("l")
			server = next(t, conns)
			send(t, client, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
			expect(t, server, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
			synctest.Wait() // the session has counted it
			return client, server
		}
		client, server := ask(oneConns)
		ask(twoConns)
		const answer = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
		send(t, server, answer)
		expect(t, client, answer)
		synctest.Wait()
		ask(oneConns)
		for _, u := range r.Upstreams() {
			if u.InFlight != 1 || u.State != "up" {
				t.Errorf("%+v", u)
			}
		}
	})
}

// A check goes to no listener of ours, and speaks TLS as sessions do.
func TestCheckDialsAsSessionsDo(t *testing.T) {
	a := newAuthority(t)
	cert := a.issue("server")
	to, conns := listen(t)
	handshakes := make(chan error, 10)
	go func() {
		for c := range conns {
			server := tls.Server(c, serving(cert))
			handshakes <- server.Handshake()
			server.Close()
		}
	}()
	for name, c := range map[string]struct {
		by *authority
		ok bool
	}{"trusted": {a, true}, "another": {newAuthority(t), false}} {
		r := run(t, forward(to, fast, c.by.originating(`, server_name = "localhost"`)))
		over, err := r.dialCheck(t.Context(), r.service("l").terms.Load(), to, netip.MustParseAddrPort(to))
		if (err == nil) != c.ok || !c.ok && upstream.FailureOf(err) != stats.NoTLS {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil {
			over.Close()
		}
		if err := <-handshakes; (err == nil) != c.ok {
			t.Errorf("%s: the server says %v", name, err)
		}
		own := netip.MustParseAddrPort(r.addr("l"))
		if _, err := r.dialCheck(t.Context(), r.service("l").terms.Load(), to, own); err != upstream.ErrLoop {
			t.Errorf("a check of our own listener: %v", err)
		}
	}
}

// A check connects to a unix socket, tells it no client in the PROXY header, and goes to none of
// ours.
func TestCheckOfUnixSocket(t *testing.T) {
	dir := trial.ShortDir(t)
	to, conns := listenUnix(t, filepath.Join(dir, "back"))
	for version, header := range map[string]string{"v1": "PROXY UNKNOWN\r\n", "v2": "\r\n\r\n\x00\r\nQUIT\n\x21\x00\x00\x00"} {
		front := "unix:" + filepath.Join(dir, version)
		r := run(t, forward(to, fast, listenAt(front), fmt.Sprintf("send_proxy = %q", version)))
		terms := r.service("l").terms.Load()
		c, err := r.dialCheck(t.Context(), terms, to, netip.AddrPort{})
		if err != nil {
			t.Fatal(err)
		}
		expect(t, next(t, conns), header)
		c.Close()
		if _, err := r.dialCheck(t.Context(), terms, front, netip.AddrPort{}); err != upstream.ErrLoop {
			t.Errorf("a check of our own listener: %v", err)
		}
	}
}

// The unix socket of an upstream is checked, and is down if it has no file.
func TestMissingUnixSocketIsDown(t *testing.T) {
	missing := "unix:" + filepath.Join(trial.ShortDir(t), "missing")
	virtually(t, func(t *testing.T) {
		r := bare(t)
		r.reload(across([]string{missing}, `health = { every = "1s", timeout = "1s", tcp = true, fall = 2 }`))
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if all := r.Upstreams(); len(all) != 1 || all[0].State != "down" || all[0].Failures < 2 {
			t.Errorf("the upstreams are %+v", all)
		}
		if want := "an upstream is down"; !strings.Contains(r.log.String(), want) || !strings.Contains(r.log.String(), "address="+missing) {
			t.Errorf("the log is %s", r.log.String())
		}
	})
}
