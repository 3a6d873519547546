package conn

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"shaper/policy"
	"shaper/stats"
)

// aging is a policy with listener "l", whose sessions end after ten seconds.
func aging(protocol string, to ...string) string {
	more := ""
	if protocol == "iso8583" {
		more = "length_prefix = \"ascii4\"\n"
	}
	rate := "1000 messages/s"
	if protocol == "tcp" || protocol == "udp" {
		rate = "8gbit"
	}
	return class("c", rate) + fmt.Sprintf("[listener.l]\nlisten = \"127.0.0.1:0\"\nprotocol = %q\nclass = \"c\"\nbalance = \"round-robin\"\nmax_session_age = \"10s\"\n%supstream = [\"%s\"]\n",
		protocol, more, strings.Join(to, `", "`))
}

// The answer to the first request that is sent when the session is old is the last one, and says
// so. The client's next connection goes to another address. A request that comes before that
// answer is not sent.
func TestOldHTTPSession(t *testing.T) {
	for _, body := range []string{"", "hello"} {
		virtually(t, func(t *testing.T) {
			one, oneConns := listen(t)
			two, twoConns := listen(t)
			r := run(t, aging("http", one, two))
			client := r.dial("l")
			server := next(t, oneConns)
			const get = "GET / HTTP/1.1\r\nHost: h\r\n\r\n"
			answer := fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
			for range 3 {
				send(t, client, get)
				expect(t, server, get)
				send(t, server, answer)
				expect(t, client, answer)
				time.Sleep(3 * time.Second)
			}
			time.Sleep(5 * time.Second) // an idle session stays
			send(t, client, get)
			expect(t, server, get)
			send(t, client, get)
			synctest.Wait()
			send(t, server, answer)
			expect(t, client, strings.Replace(answer, "OK\r\n", "OK\r\nConnection: close\r\n", 1))
			expectEnd(t, client)
			client.Close()
			r.awaitEnd(stats.Aged, 1)
			expectEnd(t, server)
			r.dial("l")
			next(t, twoConns)
		})
	}
}

// An old session of SMPP waits for the answers to what it has sent, and then says unbind to both
// sides. What the client sends meanwhile is not sent on.
func TestOldSMPPSession(t *testing.T) {
	for _, closes := range []bool{true, false} {
		virtually(t, func(t *testing.T) {
			to, conns := listen(t)
			r := run(t, aging("smpp", to))
			client := r.dial("l")
			server := next(t, conns)
			send(t, client, submitFrom("a", 1))
			expect(t, server, submitFrom("a", 1))
			time.Sleep(15 * time.Second)
			send(t, client, submitFrom("a", 2)) // it has to wait for the next session
			synctest.Wait()
			const resp = 1 << 31
			answer := pdu(submit|resp, 0, 1, "id\x00")
			send(t, server, answer)
			bye := pdu(unbind, 0, 1<<31-1, "")
			expect(t, client, answer+bye)
			expect(t, server, bye)
			send(t, server, pdu(unbind|resp, 0, 1<<31-1, ""))
			send(t, client, pdu(unbind|resp, 0, 1<<31-1, ""))
			began := time.Now()
			if closes {
				client.Close()
			}
			expectEnd(t, server)
			if want := map[bool]time.Duration{true: 0, false: lingerTimeout}[closes]; time.Since(began) != want {
				t.Errorf("it ends after %v, want %v", time.Since(began), want)
			}
			r.awaitEnd(stats.Aged, 1)
		})
	}
}

// Nobody knows which line answers which, so an old session of lines ends when nothing has moved for
// a while. It ends well, although lines have come meanwhile that do not leave.
func TestOldSessionOfLines(t *testing.T) {
	virtually(t, func(t *testing.T) {
		to, conns := listen(t)
		r := run(t, aging("lines", to))
		client := r.dial("l")
		server := next(t, conns)
		began := time.Now()
		for time.Since(began) < 9*time.Second {
			send(t, client, "x\n")
			expect(t, server, "x\n")
			time.Sleep(time.Second)
		}
		time.Sleep(time.Second) // now it is old
		for range 3 {
			time.Sleep(time.Second)
			send(t, client, "late\n")
		}
		expectEnd(t, client)
		expectEnd(t, server)
		if took := time.Since(began); took < 15*time.Second || took > 18*time.Second {
			t.Errorf("it ends after %v", took)
		}
		r.awaitEnd(stats.Aged, 1)
	})
}

// If what the client has sent behind a late message cannot be framed, the session ends by that, as a younger one does.
func TestOldSessionOfWhatCannotBeFramed(t *testing.T) {
	for protocol, said := range map[string]struct{ first, then string }{
		"lines":   {"x\n", "late\n" + strings.Repeat("x", 200<<10)},
		"iso8583": {"00040200", "00040200" + "what" + "00040210"},
	} {
		virtually(t, func(t *testing.T) {
			to, conns := listen(t)
			r := run(t, aging(protocol, to))
			client := r.dial("l")
			server := next(t, conns)
			time.Sleep(8 * time.Second)
			send(t, client, said.first)
			expect(t, server, said.first)
			time.Sleep(3 * time.Second)          // now it is old
			go io.WriteString(client, said.then) // not all of it is read
			if _, err := server.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("the provider sees %v", err)
			}
			r.awaitEnd(stats.Unframed, 1)
		})
	}
}

// An old session of SMPP whose client was told of the end, and then sends what cannot be framed, ends by that too. It
// does not end well when the time of the client to leave is over.
func TestOldSessionIsCutWhileItLingers(t *testing.T) {
	virtually(t, func(t *testing.T) {
		to, conns := listen(t)
		r := run(t, aging("smpp", to))
		client, server := r.open(conns)
		server.SetReadBuffer(1) // what is sent to it takes long to arrive
		expect(t, client, pdu(unbind, 0, 1<<31-1, ""))
		began := time.Now()
		send(t, client, "\x00\x00\x00\x07nothing of SMPP")
		r.awaitEnd(stats.Unframed, 1)
		if took := time.Since(began); took < cutTimeout || took > cutTimeout+time.Second {
			t.Errorf("it ends after %v", took)
		}
		expectReset(t, client)
	})
}

// An old session of bytes ends with a reset: its end must not look clean.
func TestOldSessionOfBytes(t *testing.T) {
	virtually(t, func(t *testing.T) {
		to, conns := listen(t)
		r := run(t, aging("tcp", to))
		client := r.dial("l")
		server := next(t, conns)
		began := time.Now()
		for _, c := range []tcpConn{client, server} {
			if _, err := io.Copy(io.Discard, c); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("a peer sees %v", err)
			}
		}
		if took := time.Since(began); took < 9*time.Second || took > 10500*time.Millisecond {
			t.Errorf("it ends after %v", took)
		}
		r.awaitEnd(stats.Aged, 1)
	})
}

// Sessions end at an age of 90 to 100 % of max_session_age, and not together.
func TestSessionsAgeApart(t *testing.T) {
	l := policy.DefaultListener("l", policy.TCP)
	if isOld(&l, 7, 1000*time.Hour) {
		t.Error("a session gets old without max_session_age")
	}
	p := parse(t, aging("tcp", "127.0.0.1:9"))
	l = p.Listeners[0]
	ages := map[time.Duration]int{}
	for id := range uint64(1000) {
		age := 8 * time.Second
		for !isOld(&l, id, age) {
			age += 10 * time.Millisecond
		}
		if ages[age]++; age < 9*time.Second || age > 10*time.Second {
			t.Errorf("session %d ends at %v", id, age)
		}
	}
	for age, n := range ages {
		if n > 30 {
			t.Errorf("of 1000 sessions, %d end at %v", n, age)
		}
	}
}

// expectEnd expects that a connection ends cleanly, with nothing before.
func expectEnd(t *testing.T, c tcpConn) {
	t.Helper()
	if got, err := io.ReadAll(c); err != nil || len(got) > 0 {
		t.Errorf("%q, %v, want the end", got, err)
	}
}
