package frame

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

const (
	get      = "GET / HTTP/1.1\r\nHost: h\r\n\r\n"
	response = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
)

// next gives p to a scanner, and expects an event of all of p, or of no bytes.
func next(t *testing.T, s Scanner, p string, want Event) {
	t.Helper()
	n, ev, err := s.Next([]byte(p))
	if ev != want || err != nil || n != 0 && n != len(p) {
		t.Fatalf("%q: %v of %d bytes, %v; want %v", p, ev, n, err, want)
	}
}

// ask finds a request of the client and sends it.
func ask(t *testing.T, l Link, p string, want Event) {
	t.Helper()
	next(t, l.Up(), p, want)
	l.Sent(l.Up().Message(), start)
}

// A refusal waits for the answers to earlier requests. The answers to later requests wait for
// the refusal.
func TestRefusalsWaitTheirTurn(t *testing.T) {
	l := NewLink(httpSettings)
	ask(t, l, get, Whole)
	next(t, l.Up(), get, Whole)
	if l.Refuse(l.Up().Message(), true) {
		t.Fatal("the refusal would overtake a response")
	}
	ask(t, l, get, Whole)
	due := func(want bool) {
		t.Helper()
		if _, got := l.Due(); got != want {
			t.Fatalf("these are due: %v", got)
		}
	}
	due(false)
	next(t, l.Down(), response[:38], Head)
	due(false)
	next(t, l.Down(), response[38:], End)
	next(t, l.Down(), response, Hold) // the answer to the third request
	due(true)
	due(false)
	if l.InFlight() != 1 {
		t.Errorf("%d requests are in flight", l.InFlight())
	}
	next(t, l.Down(), response[:38], Head)
	next(t, l.Down(), response[38:], End)
	next(t, l.Up(), get, Whole)
	if !l.Refuse(l.Up().Message(), true) || l.InFlight() != 0 {
		t.Errorf("a refusal with nothing before it has to wait: %d requests are in flight", l.InFlight())
	}
}

// A refusal does not interrupt a response that nobody asked for.
func TestRefusalBehindTheUnasked(t *testing.T) {
	l := NewLink(httpSettings)
	next(t, l.Down(), "HTTP/1.1 408 Late\r\nContent-Length: 2\r\n\r\n", Head)
	next(t, l.Up(), get, Whole)
	if l.Refuse(l.Up().Message(), true) {
		t.Error("the refusal may be written at once, within the body of a response")
	}
	if _, due := l.Due(); due {
		t.Error("the refusal is due within the body of a response")
	}
	next(t, l.Down(), "ok", End)
	if _, due := l.Due(); !due {
		t.Error("the refusal is not due after the response")
	}
}

// After a refusal that ends the connection, no request of the client counts.
func TestNothingFollowsAClose(t *testing.T) {
	l := NewLink(httpSettings)
	ask(t, l, get, Whole)
	next(t, l.Up(), "PUT / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n", Head)
	next(t, l.Up(), "abc", Hold)
	if l.Refuse(l.Up().Message(), true) {
		t.Fatal("the refusal would overtake a response")
	}
	next(t, l.Up(), "abc", Hold)
	if n := l.Up().Opaque(); n != 0 {
		t.Errorf("%d bytes may pass without Next", n)
	}
	next(t, l.Down(), "HTTP/1.1 204 \r\n\r\n", Whole)
	if m, ok := l.Due(); !ok || !m.Close {
		t.Errorf("%+v, %v", m, ok)
	}
	next(t, l.Up(), get, Hold)
}

// The body of a refused request is read, and the next request is found after it.
func TestRefusedBodyIsFollowed(t *testing.T) {
	l := NewLink(httpSettings)
	next(t, l.Up(), "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", Head)
	if m := l.Up().Message(); !l.Refuse(m, true) || m.Close {
		t.Fatal("the refusal has to wait, or ends the connection")
	}
	next(t, l.Up(), "3\r\nab", Body)
	next(t, l.Up(), "c\r\n0\r\n", Body)
	next(t, l.Up(), "\r\n", End)
	next(t, l.Up(), get, Whole)
}

func TestWhenARefusalCloses(t *testing.T) {
	for head, want := range map[string]bool{
		"POST / HTTP/1.1\r\nContent-Length: 1048576":                            false,
		"POST / HTTP/1.1\r\nContent-Length: 1048577":                            true,
		"GET / HTTP/1.0\r\nConnection: keep-alive":                              true,
		"GET / HTTP/1.1\r\nConnection: keep-alive":                              false,
		"GET / HTTP/1.1\r\nConnection: close":                                   true,
		"GET / HTTP/1.1\r\nConnection: closed":                                  false,
		"POST / HTTP/1.1\r\nExpect: 100-continue\r\nTransfer-Encoding: chunked": true,
	} {
		l := NewLink(httpSettings)
		if _, _, err := l.Up().Next([]byte(head + "\r\n\r\n")); err != nil {
			t.Fatal(err)
		}
		if got := l.Up().Message().Close; got != want {
			t.Errorf("%q closes: %v", head, got)
		}
	}
}

// After a request to leave HTTP, nothing is read before the answer.
func TestUpgradesHold(t *testing.T) {
	for _, c := range []struct {
		name, request, body, answer string
		answerIs                    Event
		tunnels                     bool
	}{
		{"WebSocket", "GET / HTTP/1.1\r\nUpgrade: websocket\r\n\r\n", "", "HTTP/1.1 101 S\r\nUpgrade: websocket\r\n\r\n", Whole, true},
		{"not taken", "GET / HTTP/1.1\r\nUpgrade: websocket\r\n\r\n", "", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", Whole, false},
		{"with a body", "POST / HTTP/1.1\r\nUpgrade: x\r\nContent-Length: 2\r\n\r\n", "ab", "HTTP/1.1 101 S\r\n\r\n", Whole, true},
		{"CONNECT", "CONNECT h:1 HTTP/1.1\r\n\r\n", "", "HTTP/1.1 200 OK\r\n\r\n", Whole, true},
		{"CONNECT refused", "CONNECT h:1 HTTP/1.1\r\n\r\n", "", "HTTP/1.1 404 No\r\nContent-Length: 3\r\n\r\n", Head, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := NewLink(httpSettings)
			if c.body == "" {
				ask(t, l, c.request, Whole)
			} else {
				ask(t, l, c.request, Head)
				next(t, l.Up(), c.body, End)
			}
			next(t, l.Up(), get, Hold)
			next(t, l.Down(), "HTTP/1.1 100 Continue\r\n\r\n", Whole)
			next(t, l.Up(), get, Hold)
			next(t, l.Down(), c.answer, c.answerIs)
			if !c.tunnels {
				next(t, l.Up(), get, Whole)
				return
			}
			if l.Up().Opaque() != Endless || l.Down().Opaque() != Endless {
				t.Error("Opaque of a tunnel is not Endless")
			}
			next(t, l.Up(), "\x00\n", Tunnel)
			next(t, l.Down(), "\x00\n", Tunnel)
			if ev := l.Up().Skip(1 << 40); ev != Tunnel {
				t.Error(ev)
			}
			if ev, err := l.Up().End(nil); ev != More || err != nil {
				t.Error(ev, err)
			}
		})
	}
}

// The answer may come before the body of the request ends.
func TestUpgradeBeforeTheBodyEnds(t *testing.T) {
	l := NewLink(httpSettings)
	ask(t, l, "POST / HTTP/1.1\r\nUpgrade: x\r\nContent-Length: 4\r\n\r\n", Head)
	next(t, l.Up(), "ab", Body)
	next(t, l.Down(), "HTTP/1.1 101 S\r\n\r\n", Whole)
	next(t, l.Up(), "cd", End)
	next(t, l.Up(), "\x00", Tunnel)
}

// If an upgrade is refused here, the next request need not wait.
func TestRefusedUpgrade(t *testing.T) {
	l := NewLink(httpSettings)
	next(t, l.Up(), "GET / HTTP/1.1\r\nUpgrade: websocket\r\n\r\n", Whole)
	l.Refuse(l.Up().Message(), true)
	next(t, l.Up(), get, Whole)
}

func TestPipelineIsBounded(t *testing.T) {
	l := NewLink(httpSettings)
	for range maxPipelined {
		ask(t, l, get, Whole)
	}
	next(t, l.Up(), get, Hold)
	next(t, l.Down(), "HTTP/1.1 204 \r\n\r\n", Whole)
	ask(t, l, get, Whole)
	next(t, l.Up(), get, Hold)
	if l.InFlight() != maxPipelined {
		t.Errorf("%d requests are in flight", l.InFlight())
	}
}

// Opaque bytes may pass without Next, and the scanner still finds what follows them.
func TestOpaqueBytesPassBy(t *testing.T) {
	l := NewLink(httpSettings)
	up := l.Up()
	opaque := func(want int64) {
		t.Helper()
		if got := up.Opaque(); got != want {
			t.Fatalf("%d bytes are opaque, want %d", got, want)
		}
	}
	opaque(0)
	next(t, up, "POST / HTTP/1.1\r\nContent-Length: 10000000000\r\n\r\n", Head)
	opaque(0) // not before it is sent
	l.Sent(up.Message(), start)
	opaque(10000000000)
	if ev := up.Skip(4000000000); ev != Body {
		t.Error(ev)
	}
	next(t, up, "ab", Body)
	opaque(5999999998)
	if ev := up.Skip(5999999998); ev != End {
		t.Error(ev)
	}
	ask(t, l, "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", Head)
	opaque(0)
	next(t, up, "A\r\n", Body)
	opaque(10)
	if ev := up.Skip(10); ev != Body {
		t.Error(ev)
	}
	next(t, up, "\r\n0\r\n", Body)
	next(t, up, "\r\n", End)
	_, _, err := up.Next([]byte("?"))
	if got := fmt.Sprint(err); got != "http: bad-start at byte 10000000115" {
		t.Error(got)
	}
}

func TestSkipEndsAResponse(t *testing.T) {
	l := NewLink(httpSettings)
	ask(t, l, get, Whole)
	next(t, l.Down(), response[:38], Head)
	if l.InFlight() != 1 || !l.Down().Message().Answers {
		t.Errorf("%d requests are in flight, and the message is %+v", l.InFlight(), l.Down().Message())
	}
	if ev := l.Down().Skip(2); ev != End || l.InFlight() != 0 {
		t.Errorf("%v, and %d requests are in flight", ev, l.InFlight())
	}
}

func TestResponseToTheEnd(t *testing.T) {
	l := NewLink(httpSettings)
	ask(t, l, get, Whole)
	next(t, l.Up(), get, Whole)
	l.Refuse(l.Up().Message(), true)
	next(t, l.Down(), "HTTP/1.1 200 OK\r\n\r\n", Head)
	next(t, l.Down(), "HTTP/1.1 500 No\r\n\r\n", Body)
	if ev, err := l.Down().End(nil); ev != End || err != nil || l.InFlight() != 0 {
		t.Errorf("%v, %v, and %d requests are in flight", ev, err, l.InFlight())
	}
	if _, due := l.Due(); due {
		t.Error("a refusal would be a part of the body")
	}
}

// The tag that a session gives a request comes back with its answer, or when no answer will
// come.
func TestTagsComeBack(t *testing.T) {
	tagged := func(s Scanner, tag uint16) *Message {
		m := *s.Message()
		m.Tag = tag
		return &m
	}
	dropped := func(l Link) (tags []uint16) {
		l.Drop(func(tag uint16) { tags = append(tags, tag) })
		if l.InFlight() != 0 {
			t.Errorf("%d requests are in flight", l.InFlight())
		}
		return tags
	}
	web := NewLink(httpSettings)
	for tag := range uint16(5) {
		next(t, web.Up(), get, Whole)
		if tag == 2 {
			web.Refuse(tagged(web.Up(), tag), true)
		} else {
			web.Sent(tagged(web.Up(), tag), start)
		}
	}
	for tag := range uint16(2) {
		next(t, web.Down(), "HTTP/1.1 100 Continue\r\n\r\n", Whole)
		if m := web.Down().Message(); m.Answers || m.Tag != 0 {
			t.Errorf("100 has tag %d", m.Tag)
		}
		next(t, web.Down(), "HTTP/1.1 204 \r\n\r\n", Whole)
		if m := web.Down().Message(); !m.Answers || m.Tag != tag {
			t.Errorf("the answer to %d has tag %d", tag, m.Tag)
		}
	}
	if m, ok := web.Due(); !ok || m.Tag != 2 {
		t.Errorf("due: %v, tag %d", ok, m.Tag)
	}
	next(t, web.Down(), response[:38], Head) // the connection breaks within this response
	if tags := dropped(web); !slices.Equal(tags, []uint16{3, 4}) {
		t.Errorf("the tags %d were dropped", tags)
	}

	sms := NewLink(smppSettings)
	for tag := range uint16(3) {
		next(t, sms.Up(), string(submit(uint32(100-tag), "x")), Whole)
		sms.Sent(tagged(sms.Up(), tag), start.Add(time.Duration(tag)))
	}
	if m := respond(t, sms, pdu(submitSM|responseBit, 0, 99, "")); !m.Answers || m.Tag != 1 {
		t.Errorf("%+v", m)
	}
	sms.Expire(start.Add(1), func(tag uint16) {
		if tag != 0 {
			t.Errorf("tag %d has expired", tag)
		}
	})
	if tags := dropped(sms); !slices.Equal(tags, []uint16{2}) {
		t.Errorf("the tags %d were dropped", tags)
	}
}

// The 429 says what it should, and net/http reads it.
func TestHTTPRefusal(t *testing.T) {
	for _, c := range []struct {
		r     Refusal
		close bool
		want  string
	}{
		{Refusal{}, false, "Retry-After: 1"},
		{Refusal{Wait: 1}, false, "Retry-After: 1"},
		{Refusal{Wait: 2*time.Second + 1}, false, "Retry-After: 3"},
		{Refusal{Wait: 1<<63 - 2}, true, "Retry-After: 9223372037"},
		{Refusal{Wait: 1<<63 - 1, Position: 1, Expected: 1<<63 - 1}, true, "X-Queue-Position: 1"}, // it never ends
		{Refusal{Wait: 1<<63 - 1, Policy: "acme", Quota: 30, Window: time.Second}, false,
			"RateLimit-Policy: \"acme\";q=30;w=1\r\nRateLimit: \"acme\";r=0\r\nX-RateLimit-Limit: 30\r\nX-RateLimit-Remaining: 0"},
		{Refusal{Wait: 3 * time.Second, Policy: "acme", Quota: 30, Window: time.Second}, false,
			"Retry-After: 3\r\nRateLimit-Policy: \"acme\";q=30;w=1\r\nRateLimit: \"acme\";r=0;t=3" +
				"\r\nX-RateLimit-Limit: 30\r\nX-RateLimit-Remaining: 0\r\nX-RateLimit-Reset: 3"},
		{Refusal{Wait: 3 * time.Second, Policy: "llm", Quota: 500, Tokens: true, Window: time.Minute}, false,
			"Retry-After: 3\r\nRateLimit-Policy: \"llm\";q=500;w=60;qu=\"tokens\"\r\nRateLimit: \"llm\";r=0;t=3" +
				"\r\nX-RateLimit-Limit: 500\r\nX-RateLimit-Remaining: 0\r\nX-RateLimit-Reset: 3"},
		{Refusal{Wait: 3 * time.Second, Position: 501, Expected: 25*time.Second + 1}, false, "Retry-After: 3\r\nX-Queue-Position: 501\r\nX-Queue-Wait: 26"},
		{Refusal{Wait: 3 * time.Second, Position: 1, Expected: 1<<63 - 1}, false, "Retry-After: 3\r\nX-Queue-Position: 1"},
		{Refusal{Wait: 3 * time.Second, Policy: "a\"\\ä\n", Quota: 20000, Window: 15 * time.Minute}, true,
			"Retry-After: 3\r\nRateLimit-Policy: \"a\\\"\\\\???\";q=20000;w=900\r\nRateLimit: \"a\\\"\\\\???\";r=0;t=3" +
				"\r\nX-RateLimit-Limit: 20000\r\nX-RateLimit-Remaining: 0\r\nX-RateLimit-Reset: 3"},
		{Refusal{Now: time.Date(2026, 11, 6, 9, 49, 37, 5, time.FixedZone("", 3600))}, false,
			"Retry-After: 1\r\nDate: Fri, 06 Nov 2026 08:49:37 GMT"},
	} {
		want := "HTTP/1.1 429 Too Many Requests\r\n" + c.want + "\r\nContent-Length: 0\r\n"
		if c.close {
			want += "Connection: close\r\n"
		}
		got := string(NewLink(httpSettings).AppendRefusal([]byte("before"), &Message{Close: c.close}, c.r))
		if got != "before"+want+"\r\n" {
			t.Errorf("%+v:\n%q\n%q", c.r, got, want)
		}
		for _, method := range []string{"GET", "HEAD"} {
			r, err := http.ReadResponse(bufio.NewReader(strings.NewReader(got[6:]+"rest")), &http.Request{Method: method})
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(r.Body)
			if r.StatusCode != 429 || r.Close != c.close || len(body) != 0 || err != nil {
				t.Errorf("net/http reads %v, close %v, %q, %v", r.Status, r.Close, body, err)
			}
		}
	}
}

// Requests of each size and shape, in any order, are found as they were made.
func TestHTTPStreams(t *testing.T) {
	var stream []byte
	var want []string
	add := func(head, body string) {
		stream = append(stream, head...)
		ev := "whole"
		if body != "" {
			ev = "head"
		}
		want = append(want, fmt.Sprintf("%s@%d counted 1 refusable method=POST path=/x", ev, len(stream)))
		if stream = append(stream, body...); body != "" {
			want = append(want, fmt.Sprintf("end@%d ", len(stream)))
		}
	}
	for i := range 20 {
		text := strings.Repeat("\r\n0\r\n\r\nGET / HTTP/1.1\r\n\r\n", i)
		add(fmt.Sprintf("POST /x HTTP/1.1\r\nContent-Length: %d\r\n\r\n", len(text)), text)
		var chunks bytes.Buffer
		for len(text) > 0 {
			n := min(1+i*7, len(text))
			fmt.Fprintf(&chunks, "%x\r\n%s\r\n", n, text[:n])
			text = text[n:]
		}
		add("POST /x HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", chunks.String()+"0\r\n\r\n")
	}
	r := everyCut(t, httpSettings, up, stream)
	expectRecords(t, r, want...)
}
