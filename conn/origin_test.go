package conn

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"shaper/stats"
	"shaper/tests/trial"
)

// overHTTP is a policy: http listener "l" to the name "test:1", with more lines in its
// section.
func overHTTP(rate string, more ...string) string {
	return class("c", rate) + listener("l", "http", "test:1", "c", more...)
}

// asking runs such a policy. It returns a channel of the connections to that name.
func asking(t *testing.T, rate string, more ...string) (*rig, <-chan tcpConn) {
	t.Helper()
	addr, conns := listen(t)
	r := run(t, forward("echo:", fast))
	r.meaning(func(context.Context) ([]netip.AddrPort, error) {
		return []netip.AddrPort{netip.MustParseAddrPort(addr)}, nil
	})
	r.reload(overHTTP(rate, more...))
	return r, conns
}

// Every request of a connection names the upstream, and nothing else of it changes. It may be
// pipelined, have a body, and wait for its class or not.
func TestRequestsAskForTheUpstream(t *testing.T) {
	for _, rate := range []string{"100000 messages/s", "100 messages/s"} {
		r, conns := asking(t, rate, `host = "upstream"`)
		client := r.dial("l")
		const asked = "GET /1 HTTP/1.1\r\nX: y\r\nhost:  127.0.0.1:8080\r\n\r\n" +
			"POST /2 HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nHost: a\r\n" +
			"POST http://a/3 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n" +
			"GET /4 HTTP/1.0\r\n\r\n"
		want := strings.NewReplacer("127.0.0.1:8080", "test:1", "Host: a\r\nC", "Host: test:1\r\nC", "Host: a\r\nT", "Host: test:1\r\nT", "http://a/", "http://test:1/",
			"/4 HTTP/1.0\r\n", "/4 HTTP/1.0\r\nHost: test:1\r\n").Replace(asked)
		send(t, client, asked)
		expect(t, next(t, conns), want)
		trial.Await(t, "what left is counted", func() bool { return r.sent("c", stats.Upstream).Messages.Load() == 4 })
		if n := r.sent("c", stats.Upstream).Bytes.Load(); n != uint64(len(want)) {
			t.Errorf("%d bytes are counted, want %d", n, len(want))
		}
	}
}

// What must not change does not.
func TestRequestsAskAsTheClient(t *testing.T) {
	for _, c := range []struct{ host, request string }{
		{`host = "client"`, "GET / HTTP/1.1\r\nHost: a\r\n\r\n"},
		{``, "GET / HTTP/1.0\r\n\r\n"},
		{`host = "other.example"`, "CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n"},
		{`host = "other.example"`, "GET / HTTP/1.1\r\nX: y\r\n\r\n"},
	} {
		r, conns := asking(t, fast, c.host)
		send(t, r.dial("l"), c.request)
		expect(t, next(t, conns), c.request)
	}
	r, conns := asking(t, fast, `host = "other.example"`)
	client := r.dial("l")
	next(t, conns)
	send(t, client, "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n")
	expectReset(t, client)
	r.awaitEnd(stats.Unframed, 1)
}

// A request to leave HTTP names the upstream, too. What follows passes as it comes.
func TestUpgradeAsksForTheHost(t *testing.T) {
	r, conns := asking(t, fast, `host = "other.example:81"`)
	client := r.dial("l")
	send(t, client, "GET /chat HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	server := next(t, conns)
	expect(t, server, "GET /chat HTTP/1.1\r\nHost: other.example:81\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	const granted = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n"
	io.WriteString(server, granted)
	expect(t, client, granted)
	send(t, client, "Host: a\r\n\r\n")
	expect(t, server, "Host: a\r\n\r\n")
}

// A rule by host sees the host that the client has sent.
func TestRuleByHostSeesTheClient(t *testing.T) {
	r, conns := asking(t, fast)
	r.reload(overHTTP(fast, `host = "other.example"`) + class("named", fast) + "[[rule]]\nhost = \"mine.example\"\nclass = \"named\"\n")
	send(t, r.dial("l"), "GET / HTTP/1.1\r\nHost: mine.example\r\n\r\n")
	expect(t, next(t, conns), "GET / HTTP/1.1\r\nHost: other.example\r\n\r\n")
	trial.Await(t, "it is counted in that class", func() bool { return r.sent("named", stats.Upstream).Messages.Load() == 1 })
}

// Redirects to the upstream lead back to shaper. Nothing else of an answer changes.
func TestRedirectsLeadBack(t *testing.T) {
	for _, back := range []string{"", `return_class = "c"`} {
		r, conns := asking(t, fast, `host = "upstream"`, back)
		client := r.dial("l")
		in := "HTTP/1.1 301 Moved\r\nServer: x\r\nLocation: http://TEST:1/there\r\nContent-Length: 17\r\n\r\nhttp://test:1/foo" +
			"HTTP/1.1 302 Found\r\nLocation: http://other.example/\r\nContent-Length: 0\r\n\r\n" +
			"HTTP/1.1 200 OK\r\nLocation: http://test:1/\r\nContent-Length: 0\r\n\r\n"
		send(t, client, strings.Repeat("GET / HTTP/1.1\r\nHost: a\r\n\r\n", 3))
		server := next(t, conns)
		expect(t, server, strings.Repeat("GET / HTTP/1.1\r\nHost: test:1\r\n\r\n", 3))
		io.WriteString(server, in)
		expect(t, client, strings.Replace(in, "http://TEST:1/there", "/there", 1))
	}
}

// A session that has failed over names the upstream that it has reached.
func TestFailOverAsksForTheOther(t *testing.T) {
	addr, conns := listen(t)
	r := run(t, forward("echo:", fast))
	r.meaning(func(context.Context) ([]netip.AddrPort, error) { return nil, errors.New("no such host") })
	to := strings.Replace(addr, "127.0.0.1", "localhost", 1)
	r.reload(strings.Replace(overHTTP(fast, `host = "upstream"`), `upstream = "test:1"`, `upstream = ["test:1", "`+to+`"]`, 1))
	client := r.dial("l")
	send(t, client, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	request, err := http.ReadRequest(bufio.NewReader(next(t, conns)))
	if err != nil || request.Host != to {
		t.Errorf("the second is asked for %v, %v", request, err)
	}
}
