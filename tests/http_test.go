package tests

import (
	"bytes"
	"context"
	"crypto/sha1"
	"encoding/base64"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"shaper/tests/trial"
)

// watchedConn is a connection of a server. It notes all bytes that arrive, and when the last of
// them did.
type watchedConn struct {
	*net.TCPConn
	raw syscall.RawConn

	mu  sync.Mutex // guards the fields below
	at  time.Time  // when the last bytes reached the machine
	got bytes.Buffer
}

func (c *watchedConn) Read(p []byte) (int, error) {
	n, at, err := readStamped(c.raw, p)
	if n > 0 {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.at = at
		c.got.Write(p[:n])
	}
	return n, err
}

// arrived returns when the last bytes reached the machine.
func (c *watchedConn) arrived() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

// watchedListener accepts watchedConns.
type watchedListener struct {
	net.Listener

	mu  sync.Mutex
	all []*watchedConn
}

func (l *watchedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	raw, err := enableTimestamps(c.(*net.TCPConn))
	if err != nil {
		return nil, err
	}
	w := &watchedConn{TCPConn: c.(*net.TCPConn), raw: raw}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, w)
	return w, nil
}

// last returns the bytes that have arrived on the last connection.
func (l *watchedListener) last() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.all[len(l.all)-1]
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.got.String()
}

// connKey is the key of a request's watchedConn in its context.
type connKey struct{}

// httpServer runs an HTTP server with watched connections until the test ends.
func httpServer(t *testing.T, handle http.HandlerFunc) (l *watchedListener, addr string) {
	s := httptest.NewUnstartedServer(handle)
	l = &watchedListener{Listener: s.Listener}
	s.Listener = l
	s.Config.ConnContext = func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, connKey{}, c) }
	s.Start()
	t.Cleanup(s.Close)
	return l, l.Addr().String()
}

// spacedServer runs a server that answers 429 to requests that break the rule.
func spacedServer(t *testing.T, rule *spacing) (addr string) {
	_, addr = httpServer(t, func(w http.ResponseWriter, r *http.Request) {
		if !rule.accepts(exactly(r.Context().Value(connKey{}).(*watchedConn).arrived())) {
			w.WriteHeader(http.StatusTooManyRequests)
		}
	})
	return addr
}

const httpPolicy = `
[class.api]
rate     = "100 messages/s"
headroom = "2%%"
%s

[listener.api]
listen   = "127.0.0.1:0"
protocol = "http"
upstream = %q
class    = "api"
`

// hey runs hey(1), and returns how many answers had each status.
func hey(t *testing.T, args ...string) map[string]int {
	t.Helper()
	out, err := exec.Command(tool(t, "hey", "hey"), args...).CombinedOutput()
	if err != nil || strings.Contains(string(out), "Error distribution") {
		t.Fatalf("hey: %v\n%s", err, out)
	}
	statuses := map[string]int{}
	for _, m := range regexp.MustCompile(`\[(\d+)\]\s+(\d+) responses`).FindAllStringSubmatch(string(out), -1) {
		statuses[m[1]], _ = strconv.Atoi(m[2])
	}
	return statuses
}

// A hundred connections together keep the gap of a server that refuses earlier requests.
func TestHeyKeepsTheGap(t *testing.T) {
	t.Parallel()
	n := trial.Size(300, 1000)
	rule := &spacing{gap: 10 * time.Millisecond}
	d := start(t, plain(), fmt.Sprintf(httpPolicy, "", spacedServer(t, rule)))
	statuses := hey(t, "-n", strconv.Itoa(n), "-c", "100", "http://"+d.addr("api")+"/")
	accepted, refused, took := rule.score()
	t.Logf("hey: %v; the server accepted %d in %.2f s, with gaps of at least %v, and refused %d", statuses, accepted, took.Seconds(), rule.closest(), refused)
	if statuses["200"]+statuses["429"] != n || statuses["200"] != accepted {
		t.Errorf("of %d requests, hey counts %v, and the server accepted %d", n, statuses, accepted)
	}
	trial.Figure(t, "requests with a gap of 10 ms: refused", "%d of %d", refused, n)
	rule.check(t, n)
}

// Shaper answers 429 with Retry-After to requests that would wait longer than max_wait. Clients
// that obey succeed.
func TestClientsThatObey(t *testing.T) {
	t.Parallel()
	rule := &spacing{gap: 10 * time.Millisecond}
	d := start(t, raced(t), fmt.Sprintf(httpPolicy, `max_wait = "300ms"`, spacedServer(t, rule)))
	client := &http.Client{Timeout: patience, Transport: &http.Transport{MaxIdleConnsPerHost: 100}}
	defer client.CloseIdleConnections()
	var refused, done atomic.Int64
	var all sync.WaitGroup
	url := "http://" + d.addr("api") + "/"
	for range 80 {
		all.Go(func() {
			if err := askUntilAccepted(client, url, &refused); err != nil {
				t.Error(err)
				return
			}
			done.Add(1)
		})
	}
	all.Wait()
	accepted, throttled, _ := rule.score()
	t.Logf("%d requests succeeded after %d answers of 429 by shaper; the server refused %d", done.Load(), refused.Load(), throttled)
	if refused.Load() == 0 || accepted+throttled != int(done.Load()) {
		t.Errorf("shaper refused %d, want some; %d succeeded, and the server saw %d, want the same", refused.Load(), done.Load(), accepted+throttled)
	}
}

// askUntilAccepted repeats a request, after the time in Retry-After, until shaper does not refuse
// it. It ignores whether the server refuses it, as may happen on a busy machine.
func askUntilAccepted(client *http.Client, url string, refused *atomic.Int64) error {
	for {
		answer, err := client.Post(url, "text/plain", strings.NewReader("hello"))
		if err != nil {
			return err
		}
		io.Copy(io.Discard, answer.Body)
		answer.Body.Close()
		if answer.StatusCode != http.StatusTooManyRequests || answer.Header.Get("RateLimit-Policy") == "" {
			return nil
		}
		refused.Add(1)
		seconds, err := strconv.Atoi(answer.Header.Get("Retry-After"))
		if err != nil || seconds < 1 || !strings.HasPrefix(answer.Header.Get("RateLimit"), `"api";r=0;t=`) {
			return fmt.Errorf("429 with the header %v, want Retry-After and RateLimit", answer.Header)
		}
		time.Sleep(time.Duration(seconds) * time.Second)
	}
}

// step is a step of a conversation. The client sends a text. Then it reads until all that it has
// got ends in until; "" means that it goes on at once.
type step struct{ send, until string }

const wsKey = "dGhlIHNhbXBsZSBub25jZQ=="

// wsAccept returns the Sec-WebSocket-Accept for wsKey (RFC 6455, 1.3).
func wsAccept() string {
	h := sha1.Sum([]byte(wsKey + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	return base64.StdEncoding.EncodeToString(h[:])
}

// conversations returns conversations of clients with pathServer, by name.
func conversations() map[string][]step {
	get := func(path string) string { return "GET " + path + " HTTP/1.1\r\nHost: h\r\n\r\n" }
	last := "GET /last HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
	var pipelined strings.Builder
	for n := range 40 {
		pipelined.WriteString(get(fmt.Sprintf("/%d", n)))
	}
	big := string(noise(3, 300_000))
	return map[string][]step{
		"keep-alive":   {{get("/a"), "/a"}, {get("/b"), "/b"}, {last, ""}},
		"close":        {{last, ""}},
		"HTTP/1.0":     {{"GET /old HTTP/1.0\r\n\r\n", ""}},
		"pipelined":    {{pipelined.String() + last, ""}},
		"HEAD":         {{"HEAD /big HTTP/1.1\r\nHost: h\r\n\r\n" + last, ""}},
		"204 and 304":  {{get("/204") + get("/304") + last, ""}},
		"upload":       {{"POST /up HTTP/1.1\r\nHost: h\r\nContent-Length: 300000\r\n\r\n" + big + last, ""}},
		"small pieces": {{"POST /up HTT", ""}, {"P/1.1\r\nHo", ""}, {"st: h\r\nContent-Length: 5\r", ""}, {"\n\r\nhel", ""}, {"lo" + last, ""}},
		"chunks": {{"POST /up HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nTrailer: T\r\n\r\n", ""},
			{"5;a=b\r\nhello\r\n493E0\r\n" + big, ""}, {"\r\n0\r\nT: v\r\n\r\n" + last, ""}},
		"100-continue":                        {{"POST /up HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n", "100 Continue\r\n\r\n"}, {"hello" + last, ""}},
		"refused body":                        {{"POST /413 HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n", "\r\n\r\n"}, {"hello", ""}},
		"chunked answers, hints and trailers": {{get("/chunks") + get("/hints") + last, ""}},
		"WebSocket": {{"GET /ws HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " +
			wsKey + "\r\n\r\n", wsAccept() + "\r\n\r\n"},
			{"\x81\x85mask" + "\x05\x04\x1f\x07\x02", "hello"}, {"\x82\x04\r\n\r\n", "\r\n\r\n"}, {"\x88\x00", ""}},
		"CONNECT": {{"CONNECT h:1 HTTP/1.1\r\nHost: h:1\r\n\r\n", "\r\n\r\n"}, {big + "bye!", ""}},
	}
}

// pathServer answers each path in a different way, and the same request with the same bytes.
func pathServer(w http.ResponseWriter, r *http.Request) {
	w.Header()["Date"] = nil
	switch {
	case r.Method == http.MethodConnect:
		tunnel(w, "HTTP/1.1 200 OK\r\n\r\n")
		return
	case r.URL.Path == "/ws":
		tunnel(w, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: "+wsAccept()+"\r\n\r\n")
		return
	case r.URL.Path == "/413":
		w.Header().Set("Connection", "close")
		w.WriteHeader(http.StatusRequestEntityTooLarge)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	switch r.URL.Path {
	case "/204":
		w.WriteHeader(http.StatusNoContent)
	case "/304":
		w.WriteHeader(http.StatusNotModified)
	case "/hints":
		w.Header().Set("Link", "</x>")
		w.WriteHeader(http.StatusEarlyHints)
		io.WriteString(w, "hinted")
	case "/chunks":
		for n := range 20 {
			fmt.Fprintf(w, "piece %d\r\n", n)
			w.(http.Flusher).Flush()
		}
		w.Header().Set(http.TrailerPrefix+"Digest", "x")
	case "/big":
		w.Write(noise(4, 1<<20))
	case "/up":
		fmt.Fprintf(w, "%x %v", sha1.Sum(body), r.Trailer)
	default:
		io.WriteString(w, "this is "+r.URL.Path)
	}
}

// tunnel takes over the connection and echoes what arrives, until that ends in a WebSocket close
// frame or in "bye!".
func tunnel(w http.ResponseWriter, answer string) {
	c, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer c.Close()
	io.WriteString(c, answer)
	for p := make([]byte, 64<<10); ; {
		n, err := buffered.Read(p)
		if err != nil {
			return
		}
		echo := p[:n]
		if bytes.HasPrefix(echo, []byte("\x81\x85mask")) {
			echo = []byte("\x81\x05hello")
		}
		c.Write(echo)
		if bytes.HasSuffix(p[:n], []byte("\x88\x00")) || bytes.HasSuffix(p[:n], []byte("bye!")) {
			return
		}
	}
}

// converse has a conversation, and returns all that the client gets.
func converse(t *testing.T, addr string, steps []step) string {
	c := dial(t, "", addr)
	c.SetDeadline(time.Now().Add(patience))
	var got bytes.Buffer
	for _, s := range steps {
		sent := make(chan struct{})
		go func() { // answers may come meanwhile
			defer close(sent)
			io.WriteString(c, s.send)
		}()
		for p := make([]byte, 64<<10); s.until != "" && !strings.HasSuffix(got.String(), s.until); {
			n, err := c.Read(p)
			if got.Write(p[:n]); err != nil {
				t.Fatalf("%v after %q", err, got.String())
			}
		}
		if s.until != "" || s != steps[len(steps)-1] {
			<-sent
		}
	}
	if _, err := io.Copy(&got, c); err != nil {
		t.Fatalf("%v after %d bytes from %s", err, got.Len(), addr)
	}
	return got.String()
}

// Through shaper, client and server get the same bytes as without it.
func TestHTTPIsUnchanged(t *testing.T) {
	t.Parallel()
	l, direct := httpServer(t, pathServer)
	d := start(t, raced(t), strings.Replace(fmt.Sprintf(httpPolicy, "", direct), "100 m", "10000 m", 1))
	all := conversations()
	counted := 0
	for _, name := range slices.Sorted(maps.Keys(all)) {
		t.Run(name, func(t *testing.T) {
			wantAnswers := converse(t, direct, all[name])
			want := l.last()
			gotAnswers := converse(t, d.addr("api"), all[name])
			got := l.last()
			if got != want {
				t.Errorf("the server gets %d bytes, without shaper %d: %.200q", len(got), len(want), got)
			}
			if gotAnswers != wantAnswers {
				t.Errorf("the client gets %d bytes, without shaper %d: %.400q\nwant %.400q", len(gotAnswers), len(wantAnswers), gotAnswers, wantAnswers)
			}
			counted += len(regexp.MustCompile(` HTTP/1\.[01]\r\n`).FindAllString(want, -1))
		})
	}
	if n := d.class("api").Sent["upstream"].Messages; n != uint64(counted) {
		t.Errorf("shaper counts %d messages, want %d", n, counted)
	}
}

// Of requests that wrk pipelines 16 at a time, shaper counts as many as the server, apart from
// those that wrk abandons at its end.
func TestWrkPipelines(t *testing.T) {
	t.Parallel()
	wrk := tool(t, "wrk", "wrk")
	var served atomic.Int64
	_, addr := httpServer(t, func(w http.ResponseWriter, r *http.Request) { served.Add(1) })
	d := start(t, plain(), strings.Replace(fmt.Sprintf(httpPolicy, "", addr), "100 m", "1000000 m", 1))
	script := filepath.Join(t.TempDir(), "pipeline.lua")
	lua := "function request() return string.rep(wrk.format('GET', '/'), 16) end\n"
	if err := os.WriteFile(script, []byte(lua), 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(wrk, "-t1", "-c8", "-d1s", "-s", script, "http://"+d.addr("api")).CombinedOutput()
	if err != nil || strings.Contains(string(out), "errors") || strings.Contains(string(out), "Non-2xx") {
		t.Fatalf("wrk: %v\n%s", err, out)
	}
	trial.Await(t, "the sessions have ended", func() bool { return d.listener("api").Open == 0 })
	sent := d.class("api").Sent["upstream"].Messages
	t.Logf("%d requests", served.Load())
	if n := uint64(served.Load()); n < 8*16 || sent < n || sent > n+8*16 {
		t.Errorf("the server counts %d requests, and shaper %d", n, sent)
	}
}
