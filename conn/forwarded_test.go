package conn

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"shaper/stats"
)

// forwardedCase is a request with a URL, and its answer.
type forwardedCase struct {
	method, fields, body string // of the request; of its fields those that are for the server
	proxy                string // fields of the request that are not
	interim              string // comes before the body
	answer, want         string // what the server says, and what the client gets
	ends                 bool   // the answer ends with the connection
}

var forwardedCases = map[string]forwardedCase{
	"no body":   {method: "GET", answer: "200 OK\r\nContent-Length: 2\r\n\r\nhi", want: "200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nhi"},
	"length":    {method: "POST", fields: "Content-Length: 4\r\n", body: "body", answer: "200 OK\r\nConnection: keep-alive\r\nKeep-Alive: timeout=5\r\nContent-Length: 2\r\n\r\nhi", want: "200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nhi"},
	"empty":     {method: "POST", fields: "Content-Length: 0\r\n", answer: "204 No\r\n\r\n", want: "204 No\r\nConnection: close\r\n\r\n"},
	"chunked":   {method: "POST", fields: "Transfer-Encoding: chunked\r\n", body: "4;x=y\r\nbody\r\n0\r\nT: u\r\n\r\n", answer: "200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nT: u\r\n\r\n", want: "200 OK\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nT: u\r\n\r\n"},
	"expect":    {method: "POST", fields: "Expect: 100-continue\r\nContent-Length: 4\r\n", body: "body", interim: "HTTP/1.1 100 Continue\r\n\r\n", answer: "200 OK\r\nContent-Length: 2\r\n\r\nhi", want: "200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nhi"},
	"upgrade":   {method: "GET", proxy: "Connection: upgrade\r\nUpgrade: websocket\r\n", answer: "200 OK\r\nContent-Length: 2\r\n\r\nhi", want: "200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nhi"},
	"HEAD":      {method: "HEAD", answer: "200 OK\r\nContent-Length: 200\r\n\r\n", want: "200 OK\r\nConnection: close\r\nContent-Length: 200\r\n\r\n"},
	"until end": {method: "GET", answer: "200 OK\r\n\r\nhi", want: "200 OK\r\nConnection: close\r\n\r\nhi", ends: true},
	"large":     {method: "GET", answer: "200 OK\r\nContent-Length: 300000\r\n\r\n" + strings.Repeat("x", 300000), want: "200 OK\r\nConnection: close\r\nContent-Length: 300000\r\n\r\n" + strings.Repeat("x", 300000)},
}

// Only one request of a client reaches the server of its URL, with its body: the next one may be for
// another server, and has a login for the proxy. The client learns by the answer and by a clean end that
// it has to connect again, whatever the server says.
func TestOneForwardedRequest(t *testing.T) {
	for what, c := range forwardedCases {
		for _, inside := range []string{"tcp", "http"} {
			for _, pipelined := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s %s pipelined=%v", what, inside, pipelined), virtual(func(t *testing.T) { c.run(t, inside, pipelined) }))
			}
		}
	}
}

// It is so on sockets of the kernel, too, where most bytes go through pipes otherwise.
func TestForwardedRequestOfKernel(t *testing.T) { forwardedCases["large"].run(t, "tcp", true) }

// run plays the case at an entry. The client sends another request before the answer, if pipelined, and
// after it.
func (c forwardedCase) run(t *testing.T, inside string, pipelined bool) {
	const another = "GET http://other.example/pay HTTP/1.1\r\nCookie: secret\r\nProxy-Authorization: Basic x\r\n\r\n"
	server, conns := listen(t)
	r := run(t, entryTo("connect", `allow = "127.0.0.1"`, fmt.Sprintf("inside = %q", inside)))
	client := r.dial("l")
	said, later := c.method+" http://"+server+"/ HTTP/1.1\r\n"+c.fields+c.proxy+"\r\n", c.body
	if pipelined {
		later += another
	}
	if c.interim == "" {
		said, later = said+later, ""
	}
	send(t, client, said)
	theirs := next(t, conns)
	if c.interim != "" {
		send(t, theirs, c.interim)
		expect(t, client, c.interim)
		send(t, client, later)
	}
	expect(t, theirs, c.method+" / HTTP/1.1\r\nHost: "+server+"\r\n"+c.fields+"Via: 1.1 shaper\r\nConnection: close\r\n\r\n"+c.body)
	go func() { // which may be more than the network holds
		io.WriteString(theirs, "HTTP/1.1 "+c.answer)
		if c.ends {
			theirs.CloseWrite()
		}
	}()
	if got, err := io.ReadAll(client); err != nil || string(got) != "HTTP/1.1 "+c.want {
		t.Errorf("the client gets %q, %v", got, err)
	}
	send(t, client, another)
	client.CloseWrite()
	r.awaitEnd(stats.OK, 1)
	if got, err := io.ReadAll(theirs); err != nil || len(got) > 0 {
		t.Errorf("then the server gets %q, %v", got, err)
	}
}

// A request that nobody can tell the end of does not reach the server, as far as it is so.
func TestUnframedForwardedRequest(t *testing.T) {
	for _, inside := range []string{"tcp", "http"} {
		t.Run(inside, virtual(func(t *testing.T) {
			server, conns := listen(t)
			r := run(t, entryTo("connect", `allow = "127.0.0.1"`, fmt.Sprintf("inside = %q", inside)))
			client := r.dial("l")
			send(t, client, "POST http://"+server+"/ HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n")
			expect(t, client, "HTTP/1.1 400 ")
			r.awaitEnd(stats.Denied, 1)
			client = r.dial("l")
			send(t, client, "POST http://"+server+"/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n")
			theirs, good := next(t, conns), "POST / HTTP/1.1\r\nHost: "+server+"\r\nTransfer-Encoding: chunked\r\nVia: 1.1 shaper\r\nConnection: close\r\n\r\n2\r\nhi\r\n"
			expect(t, theirs, good)
			send(t, client, " 0\r\n\r\nGET / HTTP/1.1\r\n\r\n")
			expectReset(t, client)
			if got, _ := io.ReadAll(theirs); len(got) > 0 {
				t.Errorf("then the server gets %q", got)
			}
			r.awaitEnd(stats.Unframed, 1)
			if log := r.log.String(); !strings.Contains(log, unframed.String()) {
				t.Errorf("the log is %s", log)
			}
		}))
	}
}

// A body that nobody can tell the end of ends the session, also if it comes together with the head: then no
// event follows.
func TestUnframedBodyWithItsHead(t *testing.T) {
	for _, inside := range []string{"tcp", "http"} {
		t.Run(inside, virtual(func(t *testing.T) {
			server, conns := listen(t)
			r := run(t, entryTo("connect", `allow = "127.0.0.1"`, fmt.Sprintf("inside = %q", inside)))
			client := r.dial("l")
			send(t, client, "POST http://"+server+"/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n 0\r\n")
			next(t, conns)
			expectReset(t, client)
			r.awaitEnd(stats.Unframed, 1)
		}))
	}
}

// An answer that is no message of HTTP passes as it is, until the server ends it. Nobody else can tell its end, so
// a client that then asks again gets a reset and not silence: the server would keep its connection open.
func TestUnframedForwardedAnswer(t *testing.T) {
	t.Run("the server ends it", virtual(func(t *testing.T) { unframedForwardedAnswer(t, false) }))
	t.Run("the client asks again", virtual(func(t *testing.T) { unframedForwardedAnswer(t, true) }))
}

func unframedForwardedAnswer(t *testing.T, asksAgain bool) {
	server, conns := listen(t)
	r := run(t, entryTo("connect", `allow = "127.0.0.1"`))
	client := r.dial("l")
	send(t, client, "GET http://"+server+"/ HTTP/1.1\r\n\r\n")
	theirs := next(t, conns)
	expect(t, theirs, "GET / HTTP/1.1\r\nHost: "+server+"\r\nVia: 1.1 shaper\r\nConnection: close\r\n\r\n")
	send(t, theirs, "<html>")
	expect(t, client, "<html>")
	send(t, theirs, "old")
	expect(t, client, "old")
	if asksAgain {
		send(t, client, "GET http://other.example/ HTTP/1.1\r\n\r\n")
		expectReset(t, client)
		r.awaitEnd(stats.Unframed, 1)
		expectReset(t, theirs)
		if n := r.service("l").stats.Unframed.Read()["bad-start"]; n != 1 || strings.Count(r.log.String(), unframed.String()) != 1 {
			t.Errorf("%d sessions count as unframed, and the log is %s", n, r.log)
		}
		return
	}
	theirs.CloseWrite()
	expectEOF(t, client)
	send(t, client, "GET http://other.example/ HTTP/1.1\r\n\r\n")
	client.CloseWrite()
	r.awaitEnd(stats.OK, 1)
	expectEOF(t, theirs)
}
