package conn

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"shaper/sock"
	"shaper/stats"
	"shaper/tests/trial"
)

// An end leaves as an end after the bytes, and the other direction goes on, whichever side has
// TLS.
func TestTLSHalfClose(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ client, upstream bool }{{true, false}, {false, true}, {true, true}} {
		a := newAuthority(t)
		cert := a.issue("server")
		addr, conns := listen(t)
		var lines []string
		if c.client {
			lines = append(lines, cert.terminating())
		}
		if c.upstream {
			lines = append(lines, a.originating(""))
		}
		r := run(t, forward(addr, "400kB/s", lines...))
		client, upstream := halves(r, conns, a, cert, c.client, c.upstream)
		request := strings.Repeat("request ", 10_000)
		send(t, client, request)
		client.CloseWrite()
		expect(t, upstream, request)
		expectEOF(t, upstream)
		for _, answer := range []string{"answer", strings.Repeat("more ", 100_000)} {
			go io.WriteString(upstream, answer)
			expect(t, client, answer)
		}
		upstream.CloseWrite()
		expectEOF(t, client)
		r.awaitEnd(stats.OK, 1)
	}
}

// halfCloser is a connection of either kind.
type halfCloser interface {
	net.Conn
	CloseWrite() error
}

func halves(r *rig, conns <-chan tcpConn, a *authority, cert issued, secureClient, secureUpstream bool) (client, upstream halfCloser) {
	r.t.Helper()
	client = r.dial("l")
	if secureClient {
		client.Close()
		r.awaitEnd(stats.Aborted, 1)
		client = r.dialTLS("l", a.trusting())
	}
	upstream = next(r.t, conns)
	if secureUpstream {
		c := tls.Server(upstream, serving(cert))
		if err := c.Handshake(); err != nil {
			r.t.Fatal(err)
		}
		upstream = c
	}
	return client, upstream
}

// TLS that ends without a close_notify never looks complete, but what came before arrives.
func TestTLSTruncation(t *testing.T) {
	s := runSecure(t, fast)
	client, upstream := s.ends()
	send(t, client, "a beginning")
	client.tcp.CloseWrite() // a FIN between two records
	expect(t, upstream, "a beginning")
	expectReset(t, upstream)
	s.awaitEnd(stats.ResetByPeer, 1)

	client, upstream = s.ends()
	send(t, upstream, "an answer")
	upstream.tcp.Close()
	expect(t, client, "an answer")
	expectReset(t, client)
	s.awaitEnd(stats.ResetByPeer, 2)

	client, upstream = s.ends()
	reset(upstream.tcp)
	expectReset(t, client)
	s.awaitEnd(stats.ResetByPeer, 3)
}

// If an upstream closes without a close_notify, as many do, all of its answer arrives, however
// long that takes through its class.
func TestTLSTruncationLosesNothing(t *testing.T) {
	t.Parallel()
	for name, secureClient := range map[string]bool{"to a plain client": false, "to a client over TLS": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAuthority(t)
			cert := a.issue("server")
			addr, conns := listen(t)
			lines := []string{a.originating(""), `return_class = "back"`, `idle_timeout = "2s"`}
			if secureClient {
				lines = append(lines, cert.terminating())
			}
			r := run(t, forward(addr, fast, lines...)+class("back", "250kB/s"))
			data := noise(700_000) // so that its way takes longer than the idle timeout
			var client net.Conn
			if secureClient {
				client = r.dialTLS("l", a.trusting())
			} else {
				client = r.dial("l")
			}
			upstream := nextTLS(t, conns, serving(cert))
			go func() {
				upstream.Write(data)
				upstream.tcp.Close()
			}()
			got := make([]byte, len(data))
			if n, err := io.ReadFull(client, got); err != nil || !bytes.Equal(got, data) {
				t.Errorf("%d of %d bytes arrive, %v", n, len(data), err)
			}
			expectReset(t, client)
			r.awaitEnd(stats.ResetByPeer, 1)
		})
	}
}

// An upstream that answers and closes without reading all of the request resets the
// connection. All of its answer arrives, however long that takes through its class.
func TestTLSResetLosesNothing(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, rate string
		size       int
	}{
		{"the tunnel still holds the answer", "200kB/s", 100_000},
		{"the janitor comes by", "40kB/s", 100_000},
		{"only the session holds the answer", "20kB/s", 20_000},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			a := newAuthority(t)
			addr, conns := listen(t)
			r := run(t, forward(addr, fast, a.originating(""), `return_class = "back"`, `idle_timeout = "50s"`)+class("back", c.rate))
			client := r.dial("l")
			upstream := nextTLS(t, conns, serving(a.issue("server")))
			data := noise(c.size)
			send(t, upstream, string(data))
			resetWhenRead(t, r, upstream.tcp)
			for range 3 {
				send(t, client, "more of the request")
			}
			got := make([]byte, len(data))
			if n, err := io.ReadFull(client, got); err != nil || !bytes.Equal(got, data) {
				t.Errorf("%d of %d bytes arrive, %v", n, len(data), err)
			}
			expectReset(t, client)
			r.awaitEnd(stats.ResetByPeer, 1)
		})
	}
}

// resetWhenRead resets the connection of an upstream whose bytes have all arrived, and waits until
// the session knows.
func resetWhenRead(t *testing.T, r *rig, upstream tcpConn) {
	t.Helper()
	awaitArrival(t, upstream)
	reset(upstream)
	trial.Await(t, "the session knows", func() (broken bool) {
		r.sessions.all()[0].(*tcpSession).do(func(s *tcpSession) { broken = s.upstream.Broken })
		return broken
	})
}

// awaitArrival waits until the peer's kernel has all that was written.
func awaitArrival(t *testing.T, c tcpConn) {
	t.Helper()
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	trial.Await(t, "all has arrived", func() (arrived bool) {
		raw.Control(func(fd uintptr) { arrived = sock.Descriptor(fd).Unsent() == 0 })
		return arrived
	})
}

// A session whose answer waits for its class ends, though only the write of the tunnel has seen
// that the upstream is gone: it takes the error, and the poller is told none.
func TestTLSResetSeenByAWrite(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	addr, conns := listen(t)
	r := run(t, forward(addr, fast, a.originating(""), `return_class = "back"`, `idle_timeout = "5s"`)+class("back", "0B/s"))
	r.dial("l")
	upstream := nextTLS(t, conns, serving(a.issue("server")))
	send(t, upstream, string(noise(100_000)))
	awaitArrival(t, upstream.tcp)
	s := r.sessions.all()[0].(*tcpSession)
	trial.Await(t, "the answer waits", func() (waits bool) {
		s.do(func(s *tcpSession) { waits = s.down.waiting })
		return waits
	})
	s.do(func(s *tcpSession) { // whose lock holds up the poller
		s.poller.Revisit(s)
		reset(upstream.tcp)
		trial.Await(t, "a write has failed", func() bool {
			s.upstream.end.Write([]byte("x"))
			return s.upstream.end.(*tlsEnd).tunnel.writeErr.Load() != nil
		})
	})
	r.awaitEnd(stats.ResetByPeer, 1)
}

// The session learns why TLS has failed, even if not all that it has written has left.
func TestTLSAlertOfAStalledPeer(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	addr, conns := listen(t)
	r := run(t, forward(addr, fast, a.originating("")))
	client := r.dial("l")
	wire := &forged{Conn: next(t, conns)}
	upstream := tls.Server(wire, serving(a.issue("server")))
	if err := upstream.Handshake(); err != nil {
		t.Fatal(err)
	}
	unsent := func() (n int) { // of the pair
		r.sessions.all()[0].(*tcpSession).do(func(s *tcpSession) { n = s.upstream.end.(*tlsEnd).Socket.Unsent() })
		return n
	}
	for quiet := 0; quiet < 50; { // the peer stalls, and the session does not yet
		if unsent() < pairBuffer {
			quiet = 0
			client.SetWriteDeadline(time.Now().Add(100 * time.Millisecond)) // all buffers may be full, and the session late
			client.Write(make([]byte, 4<<10))
		}
		quiet++
		time.Sleep(time.Millisecond)
	}
	wire.instead = strings.NewReader("\x17\x03\x03\x00\x20" + strings.Repeat("x", 32)) // a record that nobody has encrypted
	if _, err := upstream.Read(make([]byte, 1)); err == nil {
		t.Fatal("upstream sends no alert")
	}
	r.awaitEnd(stats.TLSFailed, 1)
}

// forged is a connection whose reads may return something else.
type forged struct {
	net.Conn
	instead io.Reader
}

func (f *forged) Read(p []byte) (int, error) {
	if f.instead != nil {
		return f.instead.Read(p)
	}
	return f.Conn.Read(p)
}

// A client that resets while its bytes wait is noticed, although nobody reads from it.
func TestTLSResetWhileWaiting(t *testing.T) {
	s := runSecure(t, "0B/s", `idle_timeout = "1s"`)
	client, upstream := s.ends()
	go client.Write(make([]byte, 4<<20))
	trial.Await(t, "bytes wait", func() bool { all := s.Sessions(); return len(all) == 1 && all[0].Waiting > 0 })
	reset(client.tcp)
	expectReset(t, upstream)
	s.awaitEnd(stats.ResetByPeer, 1)
}

// If TLS is cut on both sides while both directions hold bytes, neither direction reads that the
// other's peer is gone. The session ends all the same.
func TestTLSIsCutOnBothSides(t *testing.T) {
	s := runSecure(t, fast)
	s.ends()
	one, cut := s.one(), &tunnelFailure{err: io.ErrUnexpectedEOF, result: stats.ResetByPeer}
	one.mu.Lock()
	one.up.unwritten(cut)
	one.down.unwritten(cut)
	one.mu.Unlock()
	s.awaitEnd(stats.ResetByPeer, 1)
}

// A session ends soon after both of its peers have gone, although bytes for each of them wait in it, so
// that neither direction reads: the client has cut TLS by a FIN, and then the upstream resets its connection.
func TestTLSIsCutWhileBytesWait(t *testing.T) {
	t.Parallel()
	s := runSecure(t, "0B/s")
	client, upstream := s.ends()
	send(t, client, "x")
	s.awaitWaiting(1)
	client.tcp.CloseWrite()
	s.awaitTunnels(1)
	send(t, upstream, "an answer")
	trial.Await(t, "the client takes nothing more", func() (shut bool) {
		s.one().do(func(t *tcpSession) { shut = t.down.shut })
		return shut
	})
	reset(upstream.tcp)
	s.awaitEnd(stats.ResetByPeer, 1)
}

// askOverTLS lets a client ask a server of HTTP, over TLS on the side of the client.
func askOverTLS(t *testing.T) (r *rig, client secured, server tcpConn) {
	t.Helper()
	a := newAuthority(t)
	to, conns := listen(t)
	r = run(t, class("c", "1000 messages/s")+listener("l", "http", to, "c", a.issue("server").terminating()))
	client, server = r.dialTLS("l", a.trusting()), next(t, conns)
	send(t, client, anAsk)
	expect(t, server, anAsk)
	return r, client, server
}

// A stop ends an idle connection of HTTP, though a request has just come that the session has not read. The client is
// told of the end, and the tunnel ends, although the client waits for its answer and stays.
func TestTLSDrainBeforeAllIsRead(t *testing.T) {
	t.Parallel()
	r, client, server := askOverTLS(t)
	answer := anAnswer + "Content-Length: 5\r\n\r\nhello"
	send(t, server, answer)
	expect(t, client, answer)
	r.one().do(func(s *tcpSession) { // whose lock holds up the poller
		send(t, client, anAsk)
		trial.Await(t, "the request has arrived", func() bool {
			n, _ := s.client.end.Peek(make([]byte, 1))
			return n > 0
		})
		s.relay.drain(time.Now(), true)
	})
	r.awaitEnd(stats.Aged, 1)
	expectEOF(t, client)
	expectEOF(t, client.tcp)
	r.awaitTunnels(0)
}

// CloseSession, and the end of a drain, reset both peers, even during a handshake.
func TestTLSIsClosed(t *testing.T) {
	s := runSecure(t, fast)
	client, upstream := s.ends()
	send(t, client, "x")
	expect(t, upstream, "x")
	if _, closed := s.CloseSession(s.Sessions()[0].ID); !closed {
		t.Error("it is not closed")
	}
	expectReset(t, client)
	expectReset(t, upstream)
	s.awaitEnd(stats.ByOperator, 1)

	mute := s.dial("l")
	client, upstream = s.ends()
	trial.Await(t, "both sessions are there", func() bool { return len(s.Sessions()) == 2 })
	if n := s.Shutdown(expired); n != 2 {
		t.Errorf("%d sessions are reset, want 2", n)
	}
	expectReset(t, mute)
	expectReset(t, client)
	expectReset(t, upstream)
}

// What a session has sent before its end still leaves while shaper drains, even if the peer
// reads slowly.
func TestTLSDrainsWhatIsLeft(t *testing.T) {
	s := runSecure(t, fast)
	client, upstream := s.ends()
	client.CloseWrite()
	expectEOF(t, upstream)
	data := noise(8 << 20)
	go func() {
		upstream.Write(data)
		upstream.CloseWrite()
	}()
	got := make([]byte, len(data))
	if _, err := io.ReadFull(client, got[:1<<20]); err != nil {
		t.Fatal(err)
	}
	drained := make(chan int)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		drained <- s.Shutdown(ctx)
	}()
	if _, err := io.ReadFull(client, got[1<<20:]); err != nil || !bytes.Equal(got, data) {
		t.Errorf("other bytes arrive: %v", err)
	}
	expectEOF(t, client)
	if n := <-drained; n != 0 {
		t.Errorf("%d sessions are reset", n)
	}
}

// If a tunnel has taken all bytes of a session and its peer does not read, the end of a drain
// cuts it off and counts it.
func TestTLSDrainEnds(t *testing.T) {
	s := runSecure(t, fast)
	client, upstream := s.ends()
	client.tcp.SetReadBuffer(16 << 10)
	client.CloseWrite()
	expectEOF(t, upstream)
	go upstream.Write(make([]byte, 64<<20))
	trial.Await(t, "bytes are on the way", func() bool { all := s.Sessions(); return len(all) == 1 && all[0].Downward > 1<<20 })
	upstream.SetWriteDeadline(time.Unix(1, 0)) // it writes no more
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	if n := s.Shutdown(ctx); n != 1 {
		t.Errorf("%d sessions are reset, want 1", n)
	}
	expectReset(t, client)
}

// A client of an entry that has been refused, and stays, keeps nothing: the session, which counted it, has
// ended. The end comes in time also if the client is silent, and it is no reset.
func TestTLSOfARefusedClientEnds(t *testing.T) {
	t.Parallel()
	for name, said := range map[string]string{
		"says something else":     "no request\r\n\r\n",
		"is denied":               dialects["connect"].ask("10.0.0.1", 1),
		"goes where nobody is":    dialects["connect"].ask("127.0.0.1", 9),
		"says nothing in a while": "",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAuthority(t)
			r := run(t, entryTo("connect", `allow = "127.0.0.1:9"`, `connect_timeout = "1s"`, a.issue("server").terminating()))
			client := r.dialTLS("l", a.trusting())
			send(t, client, said)
			if _, err := io.Copy(io.Discard, client); err != nil {
				t.Errorf("the client reads %v", err)
			}
			expectEOF(t, client.tcp)
			r.awaitTunnels(0)
		})
	}
}

// awaitTunnels waits until there are so many tunnels.
func (r *rig) awaitTunnels(n int) {
	r.t.Helper()
	trial.Await(r.t, fmt.Sprintf("there are %d tunnels", n), func() bool { return len(r.sessions.openTunnels()) == n })
}

// A stop does not wait for a client that was told of the end of its session, and does not close. What the
// client has not read yet still arrives.
func TestTLSDrainOfASilentClient(t *testing.T) {
	t.Parallel()
	r, client, server := askOverTLS(t)
	answer := "HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n" + strings.Repeat("x", 100_000)
	send(t, server, answer)
	trial.Await(t, "the answer has left", func() bool { return r.Sessions()[0].Downward == uint64(len(answer)) })
	if n := r.Shutdown(within(lingerTime)); n != 0 {
		t.Errorf("%d sessions are reset", n)
	}
	expect(t, client, answer)
	expectEOF(t, client)
	expectEOF(t, client.tcp)
}

// Very many sessions that end in all ways, at any moment, leave nothing behind. As every test,
// this one checks descriptors and goroutines. On a busy machine, few have the time to end well, so there may be more.
func TestTLSEndsInEveryWay(t *testing.T) {
	t.Parallel()
	const sessions, at = 224, 16
	s := runSecure(t, "400MB/s", `return_class = "c"`)
	stop := make(chan struct{})
	var upstreams sync.WaitGroup
	upstreams.Go(func() {
		for n := 0; ; n++ {
			select {
			case <-stop:
				return
			case tcp := <-s.conns:
				upstreams.Go(func() { endInSomeWay(tls.Server(tcp, serving(s.cert)), tcp, n) })
			}
		}
	})
	wanted := []stats.Result{stats.OK, stats.ResetByPeer, stats.Aborted, stats.TLSFailed}
	lacks := func(result stats.Result) bool { return s.service("l").stats.Ended[result].Load() == 0 }
	var clients sync.WaitGroup
	for i := range at {
		clients.Go(func() {
			for n := i; n < sessions || n < 10*sessions && slices.ContainsFunc(wanted, lacks); n += at {
				c, err := net.Dial("tcp", s.rig.addr("l"))
				if errors.Is(err, syscall.ECONNRESET) { // the operator has closed it before connect has returned
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				c.SetDeadline(time.Now().Add(patience))
				endInSomeWay(tls.Client(c, s.trusting()), c.(tcpConn), n/at+i)
				if n%50 == 7 {
					if all := s.Sessions(); len(all) > 0 {
						s.CloseSession(all[0].ID)
					}
				}
			}
		})
	}
	clients.Wait()
	trial.Await(t, "all sessions have ended", func() bool {
		return len(s.sessions.all()) == 0 && len(s.sessions.openTunnels()) == 0
	})
	close(stop)
	upstreams.Wait()
	for _, result := range wanted {
		if lacks(result) {
			t.Errorf("none ended as %v", result)
		}
	}
	if n := s.service("l").stats.Ended[stats.Panicked].Load(); n > 0 {
		t.Errorf("%d sessions panicked", n)
	}
}

// endInSomeWay writes and reads for a while, and then ends one of two connections.
func endInSomeWay(c *tls.Conn, tcp tcpConn, n int) {
	defer tcp.Close()
	switch n % 7 {
	case 0: // before it says anything
		return
	case 1: // amid a handshake
		tcp.Write([]byte("\x16\x03\x01\x02\x00\x01\x00"))
		reset(tcp)
		return
	}
	if c.Handshake() != nil {
		return
	}
	tcp.SetDeadline(time.Now().Add(500 * time.Millisecond)) // not before: a handshake may take long on a busy machine
	go c.Write(make([]byte, n%5*40_000+1))
	io.CopyN(io.Discard, c, int64(n%3*50_000))
	switch n % 7 {
	case 2:
		reset(tcp)
	case 3:
		tcp.Close()
	case 4:
		tcp.CloseWrite()
		io.Copy(io.Discard, c)
	default:
		c.CloseWrite()
		io.Copy(io.Discard, c)
	}
}
