package frame

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

var httpSettings = Settings{Protocol: HTTP}

func TestHTTPRequests(t *testing.T) {
	const counted = "counted 1 refusable "
	for _, c := range []struct {
		name, stream string
		want         []string
	}{
		{"pipelined", "GET /a?b=c HTTP/1.1\r\nHost: h:80\r\n\r\nHEAD / HTTP/1.1\r\nhOST:\t[::1]:8 \r\n\r\n",
			[]string{"whole@35 " + counted + "method=GET path=/a host=h", "whole@70 " + counted + "method=HEAD path=/ host=[::1]"}},
		{"with a length", "POST /p HTTP/1.1\r\nContent-Length: 5\r\n\r\nhelloGET / HTTP/1.1\r\n\r\n",
			[]string{"head@39 " + counted + "method=POST path=/p", "end@44 ", "whole@62 " + counted + "method=GET path=/"}},
		{"the same length twice", "PUT /p HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
			[]string{"head@57 " + counted + "method=PUT path=/p", "end@62 "}},
		{"an empty body", "POST /p HTTP/1.1\r\nContent-Length: 0\r\n\r\n", []string{"whole@39 " + counted + "method=POST path=/p"}},
		{"in chunks", "POST /p HTTP/1.1\r\nTransfer-Encoding: Chunked\r\n\r\n5\r\nhello\r\n00A;x=\"y\"\r\n0123456789\r\n0\r\n\r\nGET / HTTP/1.1\r\n\r\n",
			[]string{"head@48 " + counted + "method=POST path=/p", "end@86 ", "whole@104 " + counted + "method=GET path=/"}},
		{"with a trailer", "POST /p HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n000\r\nDigest: y\r\nA:\r\n\r\n",
			[]string{"head@48 " + counted + "method=POST path=/p", "end@76 "}},
		{"an absolute target", "GET http://u:p@Api.Example:81/x/y?z HTTP/1.1\r\nHost: other\r\n\r\n",
			[]string{"whole@61 " + counted + "method=GET path=/x/y host=Api.Example"}},
		{"an absolute target without path", "GET http://api?q=http://z HTTP/1.1\r\nHost: o\r\n\r\n",
			[]string{"whole@47 " + counted + "method=GET path=/ host=api"}},
		{"a target with a target", "GET /http://x HTTP/1.1\r\nHost: o\r\n\r\n",
			[]string{"whole@35 " + counted + "method=GET path=/http://x host=o"}},
		{"IPv6 without port", "GET / HTTP/1.1\r\nHost: [::1]\r\n\r\n", []string{"whole@31 " + counted + "method=GET path=/ host=[::1]"}},
		{"the server", "OPTIONS * HTTP/1.1\r\nHost: o\r\n\r\n", []string{"whole@31 " + counted + "method=OPTIONS path=* host=o"}},
		{"HTTP/1.0", "GET / HTTP/1.0\r\n\r\n", []string{"whole@18 " + counted + "close method=GET path=/"}},
		{"to be closed", "GET / HTTP/1.1\r\nConnection: x, CLOSE\r\n\r\n", []string{"whole@40 " + counted + "close method=GET path=/"}},
		{"that waits for 100", "PUT / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\nx",
			[]string{"head@59 " + counted + "close method=PUT path=/", "end@60 "}},
		{"that expects without a body", "GET / HTTP/1.1\r\nExpect: 100-continue\r\n\r\n", []string{"whole@40 " + counted + "method=GET path=/"}},
		{"after empty lines", "\r\nGET / HTTP/1.1\r\n\r\nPOST /p HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello\r\n\r\nGET / HTTP/1.1\r\n\r\n\r\n",
			[]string{"blank@2 ", "whole@20 " + counted + "method=GET path=/", "head@59 " + counted + "method=POST path=/p", "end@64 ",
				"blank@66 ", "blank@68 ", "whole@86 " + counted + "method=GET path=/", "blank@88 "}},
		{"CONNECT refused", "CONNECT h:443 HTTP/1.1\r\nHost: other\r\n\r\nGET / HTTP/1.1\r\n\r\n",
			[]string{"whole@39 " + counted + "method=CONNECT host=h", "whole@57 " + counted + "method=GET path=/"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := everyCut(t, httpSettings, up, []byte(c.stream))
			expectRecords(t, r, c.want...)
			if r.err != nil {
				t.Error(r.err)
			}
		})
	}
}

// These are requests of curl 7.88.1, with the body cut short: an upload of unknown length, and
// a request with --http2.
func TestHTTPFromTheWire(t *testing.T) {
	upload := "POST /upload?x=1 HTTP/1.1\r\nHost: 127.0.0.1:48985\r\nUser-Agent: curl/7.88.1\r\nAccept: */*\r\n" +
		"Transfer-Encoding: chunked\r\nExpect: 100-continue\r\nContent-Type: application/x-www-form-urlencoded\r\n\r\n"
	body := "4e\r\n" + strings.Repeat("x", 0x4e) + "\r\n0\r\n\r\n"
	get := "GET / HTTP/1.1\r\nHost: 127.0.0.1:58245\r\nUser-Agent: curl/7.88.1\r\nAccept: */*\r\n" +
		"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA\r\n\r\n"
	expectRecords(t, everyCut(t, httpSettings, up, []byte(upload+body+get)),
		fmt.Sprintf("head@%d counted 1 refusable close method=POST path=/upload host=127.0.0.1", len(upload)),
		fmt.Sprintf("end@%d ", len(upload+body)),
		fmt.Sprintf("whole@%d counted 1 refusable method=GET path=/ host=127.0.0.1", len(upload+body+get)))
}

// A stream that two readers may split differently is refused.
func TestHTTPSmuggling(t *testing.T) {
	post := "POST / HTTP/1.1\r\nHost: h\r\n"
	chunked := post + "Transfer-Encoding: chunked\r\n\r\n"
	for _, c := range []struct {
		stream string
		want   string
	}{
		{post + "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "both-lengths at byte 0"},
		{post + "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n", "both-lengths at byte 0"},
		{post + "Content-Length: 4\r\nContent-Length: 5\r\n\r\nhello", "both-lengths at byte 45"},
		{post + "Content-Length: 5\r\nContent-Length: 05\r\n\r\nhello", "both-lengths at byte 45"},
		{post + "Content-Length: 5, 5\r\n\r\nhello", "bad-length at byte 26"},
		{post + "Content-Length: +5\r\n\r\nhello", "bad-length at byte 26"},
		{post + "Content-Length: -5\r\n\r\nhello", "bad-length at byte 26"},
		{post + "Content-Length: 0x5\r\n\r\nhello", "bad-length at byte 26"},
		{post + "Content-Length: 5 5\r\n\r\nhello", "bad-length at byte 26"},
		{post + "Content-Length:\r\n\r\nhello", "bad-length at byte 26"},
		{post + "Content-Length: 9223372036854775808\r\n\r\nhello", "bad-length at byte 26"},
		{post + "Content-Length : 5\r\n\r\nhello", "bad-field at byte 26"},
		{post + "Content-Length\t: 5\r\n\r\nhello", "bad-field at byte 26"},
		{post + "Content-Length\x00: 5\r\n\r\nhello", "bad-field at byte 26"},
		{post + "X\r\n\r\n", "bad-field at byte 26"},
		{post + ": x\r\n\r\n", "bad-field at byte 26"},
		{post + "X: a\x00b\r\n\r\n", "bad-field at byte 26"},
		{post + "X: a\x7f\r\n\r\n", "bad-field at byte 26"},
		{post + "X: a\x0bb\r\n\r\n", "bad-field at byte 26"},
		{post + "X\xc3\xa4: a\r\n\r\n", "bad-field at byte 26"},
		{post + "X: y\r\n Transfer-Encoding: chunked\r\n\r\n", "obs-fold at byte 32"},
		{post + "X: y\r\n\tz\r\n\r\n", "obs-fold at byte 32"},
		{"GET / HTTP/1.1\r\n X: y\r\n\r\n", "obs-fold at byte 16"},
		{post + "X: y\nContent-Length: 5\r\n\r\nhello", "bare-lf at byte 30"},
		{post + "X: y\r\n\nGET", "bare-lf at byte 32"},
		{"GET / HTTP/1.1\n\n", "bare-lf at byte 14"},
		{post + "X: y\rContent-Length: 5\r\n\r\nhello", "bare-cr at byte 26"},
		{post + "X: y\r\r\n\r\n", "bare-cr at byte 26"},
		{post + "\r\r\n\r\n", "bad-field at byte 26"},
		{post + "Host: i\r\n\r\n", "bad-host at byte 0"},
		{post + "Transfer-Encoding: identity\r\n\r\n", "bad-encoding at byte 26"},
		{post + "Transfer-Encoding: gzip, chunked\r\n\r\n", "bad-encoding at byte 26"},
		{post + "Transfer-Encoding: chunked, identity\r\n\r\n", "bad-encoding at byte 26"},
		{post + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", "bad-encoding at byte 54"},
		{post + "Transfer-Encoding: xchunked\r\n\r\n", "bad-encoding at byte 26"},
		{post + "Transfer-Encoding: \x0bchunked\r\n\r\n", "bad-field at byte 26"},
		{post + "Transfer-Encoding: \"chunked\"\r\n\r\n", "bad-encoding at byte 26"},
		{"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", "bad-encoding at byte 0"},
		{"CONNECT h:1 HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello", "bad-length at byte 0"},
		{"CONNECT h:1 HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", "bad-length at byte 0"},
		{"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "http2 at byte 0"},
		{"GET / HTTP/2.0\r\n\r\n", "bad-start at byte 0"},
		{"GET / HTTP/1.2\r\n\r\n", "bad-start at byte 0"},
		{"GET / HTTP/1.1 \r\n\r\n", "bad-start at byte 0"},
		{"GET / http/1.1\r\n\r\n", "bad-start at byte 0"},
		{"GET  / HTTP/1.1\r\n\r\n", "bad-start at byte 0"},
		{"GET /a b HTTP/1.1\r\n\r\n", "bad-start at byte 0"},
		{"GET /\r\n\r\n", "bad-start at byte 0"},
		{"GET HTTP/1.1\r\n\r\n", "bad-start at byte 0"},
		{"G(T / HTTP/1.1\r\n\r\n", "bad-start at byte 0"},
		{" GET / HTTP/1.1\r\n\r\n", "bad-start at byte 0"},
		{"\r\n\r\n\r\nGET / HTTP/1.1\r\n\r\n", "bad-start at byte 4"},
		{"GET / HTTP/1.1\r\n\r\n\r\n\r\n\r\n", "bad-start at byte 22"},
		{"\r\n GET / HTTP/1.1\r\n\r\n", "bad-start at byte 2"},
		{"\rGET / HTTP/1.1\r\n\r\n", "bad-start at byte 0"},
		{"\r\r\nGET / HTTP/1.1\r\n\r\n", "bad-start at byte 0"},
		{"\nGET / HTTP/1.1\r\n\r\n", "bare-lf at byte 0"},
		{"\r\n\nGET / HTTP/1.1\r\n\r\n", "bare-lf at byte 2"},
		{"\r\n\r", "cut-short at byte 3"},
		{"\x16\x03\x01\x02", "bad-start at byte 0"},
		{chunked + "x\r\n", "bad-chunk at byte 56"},
		{chunked + "\r\n", "bad-chunk at byte 56"},
		{chunked + ";a\r\n", "bad-chunk at byte 56"},
		{chunked + "-1\r\n", "bad-chunk at byte 56"},
		{chunked + "0x5\r\n", "bad-chunk at byte 56"},
		{chunked + "5 \r\nhello\r\n", "bad-chunk at byte 56"},
		{chunked + "5 ;a\r\nhello\r\n", "bad-chunk at byte 56"},
		{chunked + "5;\x00\r\nhello\r\n", "bad-chunk at byte 56"},
		{chunked + "5;a\rb\r\nhello\r\n", "bad-chunk at byte 56"},
		{chunked + "1000000000000000\r\n", "bad-chunk at byte 56"},
		{chunked + "0000000000000005\r\nhello\r\n", "bad-chunk at byte 56"},
		{chunked + "5;" + strings.Repeat("a", 300) + "\r\nhello\r\n", "bad-chunk at byte 56"},
		{chunked + "5\nhello\r\n", "bare-lf at byte 57"},
		{chunked + "5\r\nhello!\r\n", "bad-chunk at byte 64"},
		{chunked + "5\r\nhello\n", "bad-chunk at byte 64"},
		{chunked + "5\r\nhello\r\r", "bad-chunk at byte 64"},
		{chunked + "0\r\n\nGET", "bare-lf at byte 59"},
		{chunked + "0\r\nX : y\r\n\r\n", "bad-field at byte 59"},
		{chunked + "0\r\nX: y\r\n z\r\n\r\n", "obs-fold at byte 65"},
		{chunked + "0\r\nContent-Length: 5\r\n\r\n", "bad-field at byte 59"},
		{chunked + "0\r\nTransfer-Encoding: chunked\r\n\r\n", "bad-field at byte 59"},
		{chunked + "0\r\nHost: h\r\n\r\n", "bad-field at byte 59"},
		{chunked + "5\r\nhel", "cut-short at byte 62"},
		{chunked + "0\r\n", "cut-short at byte 59"},
		{post + "Content-Length: 5\r\n\r\nhell", "cut-short at byte 51"},
		{post, "cut-short at byte 26"},
	} {
		r := everyCut(t, httpSettings, up, []byte(c.stream))
		if got := fmt.Sprint(r.err); got != "http: "+c.want {
			t.Errorf("%q: %v, %v", c.stream, r.records, r.err)
		}
	}
}

func TestHTTPHeadIsBounded(t *testing.T) {
	begin := "GET / HTTP/1.1\r\nX: "
	for n, want := range map[int]Reason{maxHead - 4: fine, maxHead - 3: HeadTooLarge, maxHead: HeadTooLarge, 2 * maxHead: HeadTooLarge} {
		stream := []byte(begin + strings.Repeat("x", n-len(begin)) + "\r\n\r\n")
		r := sameForAllCuts(t, httpSettings, up, stream, []int{5, maxHead - 1, maxHead, maxHead + 1})
		if got := reasonOf(r.err); got != want {
			t.Errorf("a head of %d bytes: %v", n+4, r.err)
		}
	}
	trailer := "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n" + strings.Repeat("X: y\r\n", maxHead/6+1)
	r := sameForAllCuts(t, httpSettings, up, []byte(trailer), []int{maxHead})
	if reasonOf(r.err) != HeadTooLarge {
		t.Errorf("a trailer without end: %v", r.err)
	}
}

func TestChunkLineIsBounded(t *testing.T) {
	for n, want := range map[int]Reason{maxChunkLine: CutShort, maxChunkLine + 1: BadChunk} {
		line := "5;" + strings.Repeat("x", n-4) + "\r\n"
		r := everyCut(t, httpSettings, up, []byte("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"+line))
		if got := reasonOf(r.err); got != want {
			t.Errorf("a line of %d bytes: %v", n, r.err)
		}
	}
}

// answered chooses the responses to requests with these methods, which were sent before.
func answered(methods ...string) direction {
	return func(r *reader, l Link) Scanner {
		for _, m := range methods {
			method, upgrade, _ := strings.Cut(m, "+")
			head := method + " * HTTP/1.1\r\nHost: h\r\n"
			if upgrade != "" {
				head += "Connection: upgrade\r\nUpgrade: " + upgrade + "\r\n"
			}
			if _, ev, err := l.Up().Next([]byte(head + "\r\n")); ev != Whole || err != nil {
				r.t.Fatalf("%s: %v, %v", m, ev, err)
			}
			l.Sent(l.Up().Message(), start)
		}
		return l.Down()
	}
}

func TestHTTPResponses(t *testing.T) {
	ok := "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
	for _, c := range []struct {
		name    string
		methods []string
		stream  string
		want    []string
	}{
		{"in order", []string{"GET", "GET"}, ok + ok, []string{
			"head@38 response 0 answers status=200", "end@40 ", "head@78 response 0 answers status=200", "end@80 "}},
		{"to HEAD", []string{"HEAD", "GET"}, ok[:38] + ok, []string{
			"whole@38 response 0 answers status=200", "head@76 response 0 answers status=200", "end@78 "}},
		{"without content", []string{"GET", "GET", "GET"},
			"HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\nHTTP/1.1 304 \r\nTransfer-Encoding: chunked\r\n\r\n" + ok, []string{
				"whole@46 response 0 answers status=204", "whole@91 response 0 answers status=304", "head@129 response 0 answers status=200", "end@131 "}},
		{"interim", []string{"POST"}, "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + ok, []string{
			"whole@25 response 0 status=100", "whole@62 response 0 status=103", "head@100 response 0 answers status=200", "end@102 "}},
		{"without a length", []string{"GET"}, "HTTP/1.0 200\r\n\r\nto the end", []string{"head@16 response 0 answers status=200", "end@26 "}},
		{"empty without a length", []string{"GET"}, "HTTP/1.0 200\r\n\r\n", []string{"head@16 response 0 answers status=200", "end@16 "}},
		{"in chunks", []string{"GET"}, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", []string{
			"head@47 response 0 answers status=200", "end@59 "}},
		{"unasked", nil, "HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n", []string{"whole@51 response 0 status=408"}},
		{"WebSocket", []string{"GET+websocket"}, "HTTP/1.1 101 Switching\r\nUpgrade: websocket\r\n\r\n\x81\x00HTTP/1.1 200", []string{
			"whole@46 response 0 answers status=101", "tunnel@60 "}},
		{"an upgrade that is not taken", []string{"GET+websocket"}, ok + "", []string{"head@38 response 0 answers status=200", "end@40 "}},
		{"CONNECT", []string{"CONNECT"}, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\x16\x03", []string{
			"whole@47 response 0 answers status=200", "tunnel@49 "}},
		{"CONNECT refused", []string{"CONNECT"}, "HTTP/1.1 403 No\r\nContent-Length: 2\r\n\r\nno", []string{
			"head@38 response 0 answers status=403", "end@40 "}},
		{"throttled", []string{"GET"}, "HTTP/1.1 429 Too Many\r\nRetry-After: 3\r\nContent-Length: 0\r\n\r\n", []string{
			"whole@60 response 0 answers limited status=429"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := everyCut(t, httpSettings, answered(c.methods...), []byte(c.stream))
			expectRecords(t, r, c.want...)
			if r.err != nil {
				t.Error(r.err)
			}
		})
	}
}

func TestHTTPBadResponses(t *testing.T) {
	for _, c := range []struct {
		methods []string
		stream  string
		want    string
	}{
		{nil, "\r\nHTTP/1.1 200 OK\r\n\r\n", "bad-start at byte 0"},
		{nil, "SSH-2.0-x\r\n", "bad-start at byte 0"},
		{nil, "HTTP/1.1 20 OK\r\n\r\n", "bad-start at byte 0"},
		{nil, "HTTP/1.1 2000 OK\r\n\r\n", "bad-start at byte 0"},
		{nil, "HTTP/1.1 099 OK\r\n\r\n", "bad-start at byte 0"},
		{nil, "HTTP/1.1  200\r\n\r\n", "bad-start at byte 0"},
		{nil, "HTTP/1.1 200 O\x00\r\n\r\n", "bad-start at byte 0"},
		{nil, "HTTP/1.1 200 O\rK\r\n\r\n", "bare-cr at byte 0"},
		{nil, "HTTP/2 200 OK\r\n\r\n", "bad-start at byte 0"},
		{nil, "HTTP/1.1 200 OK\n\n", "bare-lf at byte 15"},
		{nil, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", "both-lengths at byte 0"},
		{nil, "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "bad-encoding at byte 0"},
		{nil, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell", "cut-short at byte 42"},
		{[]string{"GET"}, "HTTP/1.1 101 Switching\r\n\r\n", "bad-upgrade at byte 0"},
		{[]string{"GET+h2c"}, "HTTP/1.1 101 Switching\r\nUpgrade: h2c\r\n\r\n", "http2 at byte 0"},
		{nil, "HTTP/1.1 101 Switching\r\n\r\n", "bad-upgrade at byte 0"},
	} {
		r := everyCut(t, httpSettings, answered(c.methods...), []byte(c.stream))
		if got := fmt.Sprint(r.err); got != "http: "+c.want {
			t.Errorf("%q: %v, %v", c.stream, r.records, r.err)
		}
	}
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 11, 6, 8, 49, 30, 500e6, time.UTC)
	for _, c := range []struct {
		status  int
		value   string
		limited bool
		want    time.Duration
	}{
		{429, "3", true, 3 * time.Second}, {503, "120", true, 2 * time.Minute}, {429, "0", true, 0},
		{429, "", true, 0}, {503, "", false, 0}, {500, "3", false, 0}, {200, "3", false, 0}, {503, "soon", false, 0},
		{429, "soon", true, 0}, {429, "-3", true, 0}, {429, "1.5", true, 0},
		{503, "Fri, 06 Nov 2026 08:49:37 GMT", true, 6500 * time.Millisecond},
		{429, "Friday, 06-Nov-26 08:49:37 GMT", true, 6500 * time.Millisecond},
		{429, "Fri Nov  6 08:49:37 2026", true, 6500 * time.Millisecond},
		{429, "Sun, 06 Nov 1994 08:49:37 GMT", true, 0},
		{429, "999999999999", true, longest}, {503, strings.Repeat("9", 40), true, longest},
	} {
		l := NewLink(httpSettings)
		field := ""
		if c.value != "" {
			field = "Retry-After: " + c.value + "\r\n"
		}
		m := respond(t, l, fmt.Appendf(nil, "HTTP/1.1 %d No\r\n%sContent-Length: 0\r\n\r\n", c.status, field))
		if m.Throttle.Limited != c.limited || m.Throttle.Pause(now) != c.want {
			t.Errorf("%d, %q: %+v, for %v", c.status, c.value, m.Throttle, m.Throttle.Pause(now))
		}
	}
}
