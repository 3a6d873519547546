package conn

import (
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"shaper/sock"
	"shaper/stats"
	"shaper/tests/trial"
)

// upload is a request whose body is not sent, and early its answer: a server that refuses the body sends
// that, and closes with bytes unread, which resets the connection.
const (
	upload = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n"
	early  = "HTTP/1.1 413 Content Too Large\r\nConnection: close\r\nContent-Length: 6\r\n\r\nanswer"
)

// An answer arrives that came together with the reset of its connection, even if it is a write of the
// session that finds out about the reset.
func TestEarlyAnswer(t *testing.T) {
	for _, protocol := range []string{"tcp", "http"} {
		test := func(t *testing.T) { earlyAnswer(t, protocol) }
		t.Run(protocol, test)
		t.Run(protocol+" in memory", virtual(test))
	}
}

func earlyAnswer(t *testing.T, protocol string) {
	addr, conns := listen(t)
	r := run(t, class("c", map[string]string{"tcp": fast, "http": "1000000 messages/s"}[protocol])+listener("l", protocol, addr, "c"))
	client, upstream := r.open(conns)
	send(t, client, upload)
	expect(t, upstream, upload)
	send(t, client, "body")
	trial.Await(t, "the upstream has a part of the body", func() bool { return r.Sessions()[0].Upward == uint64(len(upload)+4) })
	r.one().do(func(s *tcpSession) { // whose lock holds up the pollers
		send(t, client, "more")
		send(t, upstream, early)
		if memoryOf(t) != nil {
			reset(upstream)
		} else {
			upstream.Close()
			awaitReset(t, s.upstream.end)
		}
		s.client.Readable = true
		s.driver.drive()
	})
	expect(t, client, early)
	expectReset(t, client)
	r.awaitEnd(stats.ResetByPeer, 1)
}

// awaitReset waits until the kernel knows that the peer of an end has reset the connection.
func awaitReset(t *testing.T, end sock.End) {
	t.Helper()
	fd := int32(end.(*sock.Socket).Descriptor)
	trial.Await(t, "the reset has arrived", func() bool {
		p := []unix.PollFd{{Fd: fd}}
		unix.Poll(p, 0)
		return p[0].Revents&unix.POLLHUP != 0
	})
}

// What was written of an answer arrives after the upstream has reset the connection, although the client
// reads late.
func TestResetSparesWhatIsUnderWay(t *testing.T) {
	for _, c := range []struct {
		name, protocol, rate string
		end                  func(r *rig, client, upstream tcpConn)
	}{
		{"a read finds out", "tcp", fast, func(_ *rig, _, upstream tcpConn) { reset(upstream) }},
		{"a read of messages finds out", "http", "1000000 messages/s", func(_ *rig, _, upstream tcpConn) { reset(upstream) }},
		{"a write finds out after the end", "tcp", fast, func(_ *rig, client, upstream tcpConn) {
			upstream.Close()
			synctest.Wait()
			send(t, client, "to nobody")
			synctest.Wait()
			send(t, client, "to a reset connection")
		}},
		{"the janitor finds out after the end", "tcp", "1B/s", func(r *rig, client, upstream tcpConn) {
			upstream.CloseWrite()
			synctest.Wait()
			send(t, client, "x")
			r.awaitWaiting(1)
			reset(upstream)
		}},
	} {
		t.Run(c.name, virtual(func(t *testing.T) {
			addr, conns := listen(t)
			r := run(t, class("c", c.rate)+class("back", fast)+listener("l", c.protocol, addr, "c", `return_class = "back"`, `idle_timeout = "50s"`))
			client, upstream := r.open(conns)
			send(t, client, upload)
			expect(t, upstream, upload)
			answer := "HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n" + strings.Repeat("x", 100_000)
			send(t, upstream, answer)
			time.Sleep(time.Second) // until it has left its class
			c.end(r, client, upstream)
			time.Sleep(cutTimeout / 2)
			got := make([]byte, len(answer))
			if n, err := io.ReadFull(client, got); string(got) != answer {
				t.Errorf("%d of %d bytes arrive, %v", n, len(answer), err)
			}
			r.awaitEnd(stats.ResetByPeer, 1)
		}))
	}
}

// Once the upstream has reset the connection, half_close_timeout bounds how long its last bytes may stay, also
// if a write or a read of the session finds out about the reset before the poller does.
func TestResetThatThePollerMisses(t *testing.T) {
	for _, c := range []struct {
		name, protocol, rate, back, answer string
		waiting                            int64
		find                               func(s *tcpSession)
	}{
		{"a write finds out, and the client reads nothing", "tcp", fast, fast, strings.Repeat("x", 300_000), 0, func(s *tcpSession) { s.client.Readable = true }},
		{"a read finds out, and messages wait", "lines", "1 messages/s", "0 messages/s", "one\ntwo\n", 0, func(s *tcpSession) { s.upstream.Readable = true }},
	} {
		t.Run(c.name, virtual(func(t *testing.T) {
			addr, conns := listen(t)
			r := run(t, class("c", c.rate)+class("back", c.back)+listener("l", c.protocol, addr, "c", `return_class = "back"`, `half_close_timeout = "1m"`))
			client, upstream := r.open(conns)
			go io.WriteString(upstream, c.answer) // which may be more than the network holds
			time.Sleep(time.Second)
			r.one().do(func(s *tcpSession) { // whose lock holds up the pollers
				send(t, client, "more\n")
				reset(upstream)
				s.client.Readable = true
				c.find(s)
				s.driver.drive()
			})
			r.awaitEnd(stats.ResetByPeer, 1)
		}))
	}
}

// Once the connection of an upstream is dead, no message takes a turn to leave there, though what the upstream
// had sent before still waits for its own class, or for the client. Each message counts once.
func TestNoTurnsTowardsADeadUpstream(t *testing.T) {
	const n = 9
	for _, c := range []struct{ name, back, says string }{
		{"a read finds out", "1 messages/s", strings.Repeat(pdu(5, 0, 1, "x"), n)},
		{"a write finds out, and the client reads nothing", "1000000 messages/s", strings.Repeat(pdu(5, 0, 1, strings.Repeat("x", 10_000)), 30)},
	} {
		t.Run(c.name, virtual(func(t *testing.T) {
			addr, conns := listen(t)
			r := run(t, class("c", "1 messages/s", `queue = "100 messages"`)+class("back", c.back, `queue = "100 messages"`)+listener("l", "smpp", addr, "c", `return_class = "back"`))
			client, upstream := r.open(conns)
			go io.WriteString(upstream, c.says) // which may be more than the network holds
			send(t, client, strings.Repeat(pdu(4, 0, 1, "x"), n))
			time.Sleep(100 * time.Millisecond)
			reset(upstream)
			time.Sleep(2 * time.Second)
			if waits, open := r.shaper.Class("c").Backlog().Items, len(r.Sessions()); waits != 0 || open != 1 {
				t.Errorf("%d messages wait, and %d sessions are open", waits, open)
			}
			reset(client)
			r.awaitEnd(stats.ResetByPeer, 1)
			left := r.sent("c", stats.Upstream).Messages.Load()
			if dropped, _ := r.dropped("c", stats.Reset); left != 1 || left+dropped != n {
				t.Errorf("of %d messages %d have left, and %d count as dropped", n, left, dropped)
			}
		}))
	}
}

// A client that resets its connection after its FIN, while it has no answer, ends its session and gives back its
// permit soon, and not after half_close_timeout. One that stays has its answer.
func TestClientResetsAfterFIN(t *testing.T) {
	for _, c := range []struct{ protocol, rate, asks, answer string }{
		{"tcp", fast, "request", "answer"},
		{"lines", "1000000 messages/s", "request\n", "answer\n"},
		{"http", "1000000 messages/s", getShort, answerShort},
	} {
		t.Run(c.protocol, virtual(func(t *testing.T) {
			addr, conns := listen(t)
			r := run(t, class("c", c.rate, "max_connections = 2")+listener("l", c.protocol, addr, "c"))
			stays, answers := r.open(conns)
			leaves, silent := r.open(conns)
			for _, one := range []struct{ client, upstream tcpConn }{{stays, answers}, {leaves, silent}} {
				send(t, one.client, c.asks)
				one.client.CloseWrite()
				expect(t, one.upstream, c.asks)
			}
			reset(leaves)
			time.Sleep(2 * patientTurns * janitorPeriod)
			if n := r.shaper.Class("c").Sessions(); n != 1 || r.service("l").stats.Ended[stats.ResetByPeer].Load() != 1 {
				t.Errorf("%d sessions have a permit, want 1, and the other one has not ended by its reset", n)
			}
			send(t, answers, c.answer)
			answers.Close()
			expect(t, stays, c.answer)
			r.awaitEndOf(stats.OK, 1)
		}))
	}
}

// A client that has sent all, and closes before it has read what the upstream says, resets its connection by that. The upstream gets
// all the same what has left for it, however late it reads.
func TestSenderThatHasGone(t *testing.T) {
	addr, conns := listen(t)
	r := run(t, class("c", fast)+listener("l", "tcp", addr, "c"))
	client, upstream := r.open(conns)
	text := strings.Repeat("x", 400_000)
	go func() {
		client.Write([]byte(text)) // it waits for room
		client.CloseWrite()
	}()
	trial.Await(t, "all has left, and the FIN has been read", func() (left bool) { // a reset before that ends the session at once
		r.one().do(func(t *tcpSession) { left = t.up.ended })
		return left && r.Sessions()[0].Upward == uint64(len(text))
	})
	reset(client)
	var left bool
	trial.Await(t, "the janitor has looked", func() bool {
		if all := r.sessions.all(); len(all) == 1 {
			all[0].tend(time.Now())
			all[0].(*tcpSession).do(func(t *tcpSession) { left = t.client.Broken && !t.up.active })
		}
		return left || len(r.Sessions()) == 0
	})
	for _, one := range r.sessions.all() {
		one.tend(time.Now())
	}
	expect(t, upstream, text)
	expectEOF(t, upstream)
}

// What a session that is cut off drops leaves its class at once, which charges nothing for it, though the session
// goes on until the client has read what was written.
func TestCutSessionLeavesItsClass(t *testing.T) {
	virtually(t, func(t *testing.T) {
		addr, conns := listen(t)
		r := run(t, class("c", "1B/s")+class("back", fast)+listener("l", "tcp", addr, "c", `return_class = "back"`))
		client, upstream := r.open(conns)
		send(t, upstream, strings.Repeat("x", 100_000))
		send(t, client, "x")
		expect(t, upstream, "x")
		send(t, client, "y")
		r.awaitWaiting(1)
		reset(upstream)
		time.Sleep(100 * time.Millisecond)
		if waits, open := r.shaper.Class("c").Backlog().Items, len(r.Sessions()); waits != 0 || open != 1 {
			t.Errorf("%d items wait, and %d sessions are open", waits, open)
		}
		if n, bytes := r.dropped("c", stats.Reset); n != 1 || bytes != 1 {
			t.Errorf("%d items of %d bytes count as dropped", n, bytes)
		}
		r.awaitEnd(stats.ResetByPeer, 1)
	})
}

// looked is an end that counts how often a session asks whether what it has written has arrived.
type looked struct {
	sock.End
	times atomic.Int64
}

func (l *looked) Unsent() int {
	l.times.Add(1)
	return l.End.Unsent()
}

// A session that is cut off looks seldom whether its client has read what was written: thousands may wait at once.
func TestCutSessionLooksSeldom(t *testing.T) {
	virtually(t, func(t *testing.T) {
		addr, conns := listen(t)
		r := run(t, forward(addr, fast, fmt.Sprintf("return_class = %q", "c")))
		_, upstream := r.open(conns)
		send(t, upstream, strings.Repeat("x", 100_000))
		time.Sleep(time.Second) // until it has left its class
		client := new(looked)
		r.one().do(func(s *tcpSession) { client.End, s.client.end = s.client.end, client })
		began := time.Now()
		reset(upstream)
		r.awaitEnd(stats.ResetByPeer, 1)
		if took := time.Since(began).Truncate(time.Second); took != cutTimeout {
			t.Errorf("it waits %v, want %v", took, cutTimeout)
		}
		if n := client.times.Load(); n < 5 || n > 30 {
			t.Errorf("it looks %d times", n)
		}
	})
}
