package conn

import (
	"bufio"
	"io"
	"net/http"
	"strings"
	"testing"

	"shaper/stats"
	"shaper/tests/trial"
)

// noneInFlight checks that exactly nothing of a class is in flight.
func (r *rig) noneInFlight(class string) {
	r.t.Helper()
	if n := r.shaper.Class(class).InFlight(); n != 0 {
		r.t.Errorf("%d requests of %s are in flight", n, class)
	}
}

// The answer to a request arrives though its client sends an empty line behind the body, as old clients do, and
// then the next request or its end. Nobody gets the empty line.
func TestEmptyLineBehindABody(t *testing.T) {
	addr, conns := listen(t)
	r := run(t, exchanged("http", addr, "1000000 messages/s"))
	client, upstream := r.open(conns)
	const asked = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc"
	const answer = "HTTP/1.1 204 No Content\r\n\r\n"
	for range 2 {
		send(t, client, asked+"\r\n")
		expect(t, upstream, asked)
		send(t, upstream, answer)
		expect(t, client, answer)
	}
	send(t, client, asked+"\r\n")
	client.CloseWrite()
	expect(t, upstream, asked)
	expectEOF(t, upstream)
	send(t, upstream, answer)
	upstream.Close()
	expect(t, client, answer)
	expectEOF(t, client)
	r.awaitEnd(stats.OK, 1)
}

// If a reload removes a class, what is in flight there is answered there, and not in the new
// class.
func TestAnswersAcrossReload(t *testing.T) {
	addr, conns := listen(t)
	r := run(t, exchanged("smpp", addr, "1000 messages/s"))
	client, upstream := r.open(conns)
	send(t, client, submitFrom("a", 1))
	expect(t, upstream, submitFrom("a", 1))
	before := r.shaper.Class("c")
	r.reload(class("d", "1000 messages/s", "in_flight = 1") + listener("l", "smpp", addr, "d"))
	send(t, client, submitFrom("a", 2))
	expect(t, upstream, submitFrom("a", 2))
	if n := r.shaper.Class("d").InFlight(); n != 1 {
		t.Errorf("%d are in flight in the new class", n)
	}
	send(t, upstream, pdu(submitResp, 0, 1, "")+pdu(submitResp, 0, 2, ""))
	expect(t, client, pdu(submitResp, 0, 1, "")+pdu(submitResp, 0, 2, ""))
	r.noneInFlight("d")
	if n := before.InFlight(); n != 0 {
		t.Errorf("%d are in flight in the old class", n)
	}
}

// A session that ends while the last piece of an answer waits for the downstream class has had
// its answer.
func TestEndsInAnswer(t *testing.T) {
	addr, conns := listen(t)
	r := run(t, class("c", "1000 messages/s")+class("back", "8bit")+listener("l", "http", addr, "c", `return_class = "back"`))
	client, upstream := r.open(conns)
	send(t, client, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	expect(t, upstream, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	const head = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n"
	send(t, upstream, head+"abc")
	trial.Await(t, "the answer waits", func() bool { return r.shaper.Class("back").Backlog().Items == 1 })
	reset(client)
	r.awaitEnd(stats.ResetByPeer, 1)
	r.noneInFlight("c")
}

// A class that counts connections has nothing in flight.
func TestConnectionsAreNotAnswered(t *testing.T) {
	addr, conns := listen(t)
	r := run(t, exchanged("smpp", addr, "1000 connections/s"))
	client, upstream := r.open(conns)
	send(t, client, submitFrom("a", 1))
	expect(t, upstream, submitFrom("a", 1))
	send(t, upstream, pdu(submitResp, 0, 1, ""))
	expect(t, client, pdu(submitResp, 0, 1, ""))
	r.noneInFlight("c")
}

// The body of a request that was refused late is not sent, either.
func TestReloadRefusesBody(t *testing.T) {
	addr, conns := listen(t)
	r := run(t, exchanged("http", addr, "0 messages/s", `overflow = "refuse"`))
	client, upstream := r.open(conns)
	send(t, client, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc")
	trial.Await(t, "it waits", func() bool { return r.shaper.Class("c").Backlog().Items == 1 })
	r.reload(class("d", "0 messages/s", `max_wait = "1ms"`, `overflow = "refuse"`) + listener("l", "http", addr, "d"))
	send(t, client, "GET /next HTTP/1.1\r\nHost: x\r\n\r\n")
	in := bufio.NewReader(client)
	for range 2 {
		if answer, err := http.ReadResponse(in, nil); err != nil || answer.StatusCode != 429 {
			t.Fatalf("%v, %v", answer, err)
		}
	}
	client.CloseWrite()
	expectEOF(t, upstream)
}

// The body of a request in flight does not wait behind requests that wait for its answer.
func TestBodyOfWhatIsInFlight(t *testing.T) {
	addr, conns := listen(t)
	r := run(t, class("link", "100mbit")+exchanged("http", addr, "1000 messages/s", `parent = "link"`, "in_flight = 1"))
	a, toA := r.open(conns)
	b, toB := r.open(conns)
	const head, next = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\n", "GET / HTTP/1.1\r\nHost: x\r\n\r\n"
	send(t, a, head)
	expect(t, toA, head)
	send(t, b, next)
	trial.Await(t, "the next one waits", func() bool { return r.shaper.Class("c").Backlog().Items == 1 })
	send(t, a, "abc")
	expect(t, toA, "abc")
	const answer = "HTTP/1.1 204 No Content\r\n\r\n"
	send(t, toA, answer)
	expect(t, a, answer)
	expect(t, toB, next)
}

// The session does not read more from the provider than the downstream class takes: it could
// not refuse it.
func TestDeliveriesWait(t *testing.T) {
	addr, conns := listen(t)
	r := run(t, class("c", "1000 messages/s")+class("back", "100 messages/s", `queue = "2 messages"`)+
		listener("l", "smpp", addr, "c", `return_class = "back"`))
	client, upstream := r.open(conns)
	var all string
	for n := range uint32(10) {
		all += pdu(deliver, 0, n, "")
	}
	send(t, upstream, all)
	expect(t, client, all)
}

// A policy in the shadow is offered all bytes, even if the class in force counts none.
func TestShadowOfBodies(t *testing.T) {
	addr, conns := listen(t)
	r := run(t, exchanged("http", addr, "1000 messages/s"))
	client, upstream := r.open(conns)
	classes := r.shade(class("c", "1B/h", `algorithm = "token"`, `burst = "500B"`) + class("back", "1B/h", `algorithm = "token"`, `burst = "500B"`) +
		listener("l", "http", addr, "c", `return_class = "back"`))
	body := strings.Repeat("x", 1000)
	ask := "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n"
	send(t, client, ask+body)
	expect(t, upstream, ask+body)
	answer := "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n" + body
	send(t, upstream, answer)
	expect(t, client, answer)
	for name, c := range classes {
		if n := c.Stats.Overlimits.Load(); n == 0 {
			t.Errorf("1000 bytes would pass a bound of 500 in %s", name)
		}
	}
}

// A client that has sent all it wants to send reads the refusal, and then an end.
func TestRefusalAfterHalfClose(t *testing.T) {
	addr := httpServer(t, func(w http.ResponseWriter, r *http.Request) {})
	r := run(t, exchanged("http", addr, "0 messages/s", `max_wait = "1ms"`))
	for range 20 {
		client := r.dial("l")
		send(t, client, "GET / HTTP/1.0\r\nHost: x\r\n\r\n")
		client.CloseWrite()
		answer, err := io.ReadAll(client)
		if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 429 ") {
			t.Fatalf("%.40q, %v", answer, err)
		}
	}
}

// If the write of a message ends the session, the class counts the message once.
func TestMessageOfAFailedWriteCountsOnce(t *testing.T) {
	for _, rate := range []string{"1000 messages/s", fast} {
		t.Run(rate, virtual(func(t *testing.T) {
			addr, conns := listen(t)
			r := run(t, class("c", rate)+class("back", fast)+listener("l", "lines", addr, "c", `return_class = "back"`))
			client, upstream := r.open(conns)
			r.sessions.all()[0].(*tcpSession).do(func(*tcpSession) {
				send(t, client, "line\n")
				reset(upstream)
			})
			r.awaitEnd(stats.ResetByPeer, 1)
			_, dropped := r.dropped("c", stats.Reset)
			if sent := r.sent("c", stats.Upstream).Bytes.Load(); sent+dropped != 5 {
				t.Errorf("of 5 bytes %d are sent and %d dropped", sent, dropped)
			}
		}))
	}
}
