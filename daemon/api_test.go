package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"shaper/policy"
	"shaper/stats"
	"shaper/tests/trial"
)

// raw sends one request without our Client.
func raw(p *process, method, path, body string) (status int, text string) {
	p.t.Helper()
	client := http.Client{Timeout: patience, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(context.Context, string, string) (net.Conn, error) {
			return net.Dial("unix", p.Client.path)
		},
	}}
	request, err := http.NewRequest(method, "http://shaper"+path, strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	response, err := client.Do(request)
	if err != nil {
		p.t.Fatal(err)
	}
	defer response.Body.Close()
	all, err := io.ReadAll(response.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return response.StatusCode, string(all)
}

func TestAPI(t *testing.T) {
	p := begin(t, base)
	for _, c := range []struct {
		method, path, body string
		status             int
		says               string
	}{
		{"GET", "/v1/status", "", 200, `"policy_hash"`},
		{"GET", "/v1/classes", "", 200, `"now"`},
		{"GET", "/v1/sessions", "", 200, "[]"},
		{"POST", "/v1/events/classes", "", 405, "GET"},
		{"GET", "/v1/events/none", "", 404, `there is no view \"none\"`},
		{"GET", "/v1/events/classes", "x", 400, "has no body"},
		{"GET", "/v1/upstreams", "", 200, `"state": "unchecked"`},
		{"GET", "/v1/policy", "", 200, `"listeners"`},
		{"POST", "/v1/reload", "", 200, `"changes": []`},
		{"POST", "/v1/reload", `{"rollback_after": "5m"}`, 200, `"rollback_at"`},
		{"POST", "/v1/confirm", `{"rollback_after": "5m"}`, 400, "unknown field"},
		{"POST", "/v1/confirm", `{}}`, 400, "text follows the JSON value"},
		{"POST", "/v1/confirm", "", 200, `"hash"`},
		{"POST", "/v1/confirm", "", 409, `"code": "state"`},
		{"POST", "/v1/reload", `{"rollback_after": "soon"}`, 400, "is not a duration"},
		{"POST", "/v1/reload", `{"rollback": "5m"}`, 400, "unknown field"},
		{"POST", "/v1/reload", `{} {}`, 400, "text follows the JSON value"},
		{"POST", "/v1/reload", `[` + strings.Repeat(" ", maxBody), 400, "too large"},
		{"POST", "/v1/explain", `{"source": "127.0.0.1"}`, 200, `"why"`},
		{"POST", "/v1/explain", ``, 400, "is not an address"},
		{"PATCH", "/v1/classes/slow", `{"rate": "1mbit", "for": "1m"}`, 200, `"new": "1mbit"`},
		{"PATCH", "/v1/classes/slow", `{"max_connections": 7, "shadow": false, "for": "1m"}`, 200, `"new": "7"`},
		{"PATCH", "/v1/classes/slow", `{"max_connections": "8", "for": "1m"}`, 200, `"new": "8"`},
		{"PATCH", "/v1/classes/slow", `{"rate": 7}`, 422, `\"7\" is not a rate: it has no unit`},
		{"PATCH", "/v1/classes/slow", `{"also": ["1mbit"]}`, 400, `also: [\"1mbit\"] cannot be set`},
		{"PATCH", "/v1/classes/slow", `{"rate": null}`, 400, "rate: null cannot be set"},
		{"PATCH", "/v1/classes/slow", `[]`, 400, "cannot unmarshal"},
		{"PATCH", "/v1/classes/slow", `{}`, 400, "nothing to set"},
		{"PATCH", "/v1/classes/none", `{"rate": "1mbit"}`, 404, `"code": "not_found"`},
		{"GET", "/v1/shadow", "", 200, `"file": ""`},
		{"DELETE", "/v1/shadow", "", 409, "no policy runs in the shadow"},
		{"POST", "/v1/shadow", `{"file": "next.toml", "text": "[class"}`, 422, `next.toml:1:`},
		{"POST", "/v1/shadow", `{"text": "[class"}`, 400, "the name of the policy file is missing"},
		{"DELETE", "/v1/sessions/x", "", 400, "is not the id"},
		{"DELETE", "/v1/sessions/77", "", 404, "there is no session 77; shaper sessions shows those that are open"},
		{"DELETE", "/v1/status", "", 405, `"code": "usage"`},
		{"GET", "/v2/status", "", 404, `"code": "not_found"`},
	} {
		if status, text := raw(p, c.method, c.path, c.body); status != c.status || !strings.Contains(text, c.says) {
			t.Errorf("%s %s %.40s: %d %s", c.method, c.path, c.body, status, text)
		}
	}
}

// The answer of GET /v1/policy decodes into the policy of the file.
func TestPolicyRoundTrip(t *testing.T) {
	p := begin(t, base)
	_, text := raw(p, "GET", "/v1/policy", "")
	var got policy.Policy
	if err := json.Unmarshal([]byte(text), &got); err != nil {
		t.Fatal(err)
	}
	want, _, err := policy.Load(p.path)
	if err != nil {
		t.Fatal(err)
	}
	if changes := policy.Diff(want, &got); len(changes) != 0 || got.Hash != want.Hash {
		t.Errorf("the answer differs from the file: %v", changes)
	}
}

// A client above maxConnections is served when another has closed its connection.
func TestMaxConnections(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := bounded(l, 2)
	accepted := make(chan net.Conn, 3)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for c, err := b.Accept(); err == nil; c, err = b.Accept() {
			accepted <- c
		}
	}()
	for range 3 {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	first, second := <-accepted, <-accepted
	if len(b.taken) != 2 {
		t.Fatalf("%d connections are counted, want 2", len(b.taken))
	}
	first.Close()
	first.Close() // the second Close makes no more room
	(<-accepted).Close()
	second.Close()
	b.Close()
	<-ended
}

// Close ends an Accept that waits for room.
func TestBoundedCloseWhileFull(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := bounded(l, 1)
	b.taken <- struct{}{}
	ended := make(chan error)
	go func() { _, err := b.Accept(); ended <- err }()
	b.Close()
	if err := <-ended; err != net.ErrClosed {
		t.Errorf("Accept returns %v", err)
	}
}

func TestUnreachable(t *testing.T) {
	path := trial.ShortDir(t) + "/c.sock"
	_, err := NewClient(path).Status(t.Context())
	if want := "the daemon is not reachable at " + path + ": connect: no such file or directory"; err == nil || err.Error() != want {
		t.Errorf("error is %q, want %q", err, want)
	}
	leaveDead(t, path)
	if _, err := NewClient(path).Status(t.Context()); err == nil || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("error is %v", err)
	}
}

// A caller who is not allowed gets "forbidden", and the request has no effect.
func TestForbidden(t *testing.T) {
	served := false
	h := jsonHandler(func(caller, *http.Request) (any, error) { served = true; return nil, nil })
	for _, id := range []any{nil, identity{err: errors.New("user 65534 may not")}} {
		answer := httptest.NewRecorder()
		request := httptest.NewRequest("POST", "/v1/reload", nil)
		h.ServeHTTP(answer, request.WithContext(context.WithValue(t.Context(), callerKey{}, id)))
		var e Error
		if err := json.Unmarshal(answer.Body.Bytes(), &e); err != nil || answer.Code != 403 || e.Code != CodeForbidden || served {
			t.Errorf("%v: %d %s", id, answer.Code, answer.Body)
		}
	}
}

// A request that no handler takes is also answered in JSON, and only to callers who are allowed.
func TestNoHandler(t *testing.T) {
	mux := http.NewServeMux()
	mux.Handle("GET /v1/a", jsonHandler(func(caller, *http.Request) (any, error) { return struct{}{}, nil }))
	mux.Handle("PATCH /v1/a", jsonHandler(func(caller, *http.Request) (any, error) { return struct{}{}, nil }))
	for _, c := range []struct {
		id             any
		method, path   string
		status         int
		code           Code
		message, allow string
	}{
		{identity{}, "GET", "/v1/a", 200, "", "", ""},
		{identity{}, "POST", "/v1/a", 405, CodeUsage, `"/v1/a" does not take "POST"; it takes GET, HEAD, PATCH`, "GET, HEAD, PATCH"},
		{identity{}, "GET", "/v1/b", 404, CodeNotFound, `there is no "/v1/b"`, ""},
		{identity{}, "GET", "/v1/a/", 404, CodeNotFound, `there is no "/v1/a/"`, ""},
		{identity{}, "GET", "/v1//a", 404, CodeNotFound, `there is no "/v1//a"`, ""}, // a mux alone would redirect
		{nil, "GET", "/v1/b", 403, CodeForbidden, "the caller is not known", ""},
	} {
		got := httptest.NewRecorder()
		request := httptest.NewRequest(c.method, c.path, nil)
		alwaysJSON(mux).ServeHTTP(got, request.WithContext(context.WithValue(t.Context(), callerKey{}, c.id)))
		var e Error
		if err := json.Unmarshal(got.Body.Bytes(), &e); err != nil || got.Code != c.status || e.Code != c.code || e.Message != c.message ||
			got.Header().Get("Allow") != c.allow || got.Header().Get("Content-Type") != "application/json" {
			t.Errorf("%s %s: %d %v %s", c.method, c.path, got.Code, got.Header(), got.Body)
		}
	}
}

// While clients read and change at the same time, each answer is whole. At the end the file is in
// force. This test is meant for -race.
func TestConcurrentRequests(t *testing.T) {
	p := begin(t, base)
	var wg sync.WaitGroup
	each := func(f func() error) {
		wg.Go(func() {
			for range 20 {
				if err := f(); err != nil && CodeOf(err) != CodeState {
					t.Error(err)
				}
			}
		})
	}
	ctx := t.Context()
	each(func() error { _, err := p.Status(ctx); return err })
	each(func() error { _, err := p.Classes(ctx); return err })
	each(func() error { _, err := p.Sessions(ctx); return err })
	each(func() error { _, err := p.Explain(ctx, ExplainRequest{Source: "::1"}); return err })
	each(func() error { _, err := p.Reload(ctx, 0); return err })
	each(func() error { _, err := p.Reload(ctx, time.Millisecond); return err })
	each(func() error { _, err := p.Confirm(ctx); return err })
	each(func() error {
		_, err := p.Set(ctx, "slow", map[string]string{"rate": "1mbit"}, time.Millisecond)
		return err
	})
	each(func() error {
		if code, body := get(t, "http://"+p.first.HTTP+"/metrics"); code != 200 {
			return errors.New(body)
		}
		return nil
	})
	address := p.address("quick")
	each(func() error {
		c, err := net.Dial("tcp", address)
		if err == nil {
			p.pass(c)
			c.Close()
		}
		return err
	})
	wg.Wait()
	mustReload(p)
	if got := p.rate("slow"); got != "64KiB/s" {
		t.Errorf("at the end the rate is %s, which is not that of the file", got)
	}
}

func TestWaysIn(t *testing.T) {
	listeners := []stats.ListenerReading{
		{Name: "web", Addresses: []string{"127.0.0.1:80", "[::1]:80", "127.0.0.1:8080"}},
		{Name: "sms", Addresses: []string{"[::]:2775"}},
		{Name: "local", Addresses: []string{"unix:/run/x.sock"}},
		{Name: "handed", Addresses: []string{"systemd:a", "127.0.0.1:25"}},
		{Name: "any", Addresses: []string{"127.0.0.1:0"}},
	}
	for _, c := range []struct {
		listener string
		port     uint16
		want     string
	}{
		{"", 0, "web:80 web:8080 sms:2775 local:0 handed:0 handed:25 any:0"},
		{"web", 0, "web:80 web:8080"},
		{"", 8080, "web:8080"},
		{"web", 8080, "web:8080"},
		{"sms", 9, `listener "sms" does not listen on port 9; it listens on [::]:2775`},
		{"web", 9, `listener "web" does not listen on port 9; it listens on 127.0.0.1:80, [::1]:80, 127.0.0.1:8080`},
		{"local", 9, `listener "local" does not listen on port 9; it listens on unix:/run/x.sock`},
		{"handed", 9, "handed:9"}, // the unit may have it, and a policy does not know
		{"any", 9, "any:9"},       // so may the kernel
		{"", 9, "no listener listens on port 9; listeners: web, sms, local, handed, any"},
		{"ftp", 0, `there is no listener "ftp"; listeners: web, sms, local, handed, any`},
	} {
		ways, err := waysIn(ExplainRequest{Listener: c.listener, Port: c.port}, listeners)
		var got []string
		for _, w := range ways {
			got = append(got, fmt.Sprintf("%s:%d", w.Listener, w.Port))
		}
		if err != nil {
			got = []string{err.Error()}
		}
		if text := strings.Join(got, " "); text != c.want {
			t.Errorf("%q, port %d: %s, want %s", c.listener, c.port, text, c.want)
		}
	}
}

func TestParseSource(t *testing.T) {
	for in, want := range map[string]string{
		"10.1.2.3": "10.1.2.3:0", "10.1.2.3:4": "10.1.2.3:4", "::1": "[::1]:0", "[::1]": "[::1]:0", "[::1]:5": "[::1]:5",
		"::ffff:10.1.2.3": "10.1.2.3:0", "[::ffff:10.1.2.3]:6": "10.1.2.3:6",
	} {
		if got, err := parseSource(in); err != nil || got.String() != want {
			t.Errorf("%q is %v, %v; want %s", in, got, err, want)
		}
	}
	for _, in := range []string{"", "host", "10.1.2", "10.1.2.3:x", "10.1.2.3:0", "[::1]:0", "10.1.2.3:70000", "10.0.0.0/8"} {
		if got, err := parseSource(in); err == nil {
			t.Errorf("%q is taken for %v", in, got)
		}
	}
}

// For rules by destination, explain resolves the upstreams in the order of the list.
func TestUpstreamAddresses(t *testing.T) {
	four, six := []netip.Addr{netip.MustParseAddr("127.0.0.1")}, []netip.Addr{netip.MustParseAddr("::1")}
	for _, c := range []struct {
		l    policy.Listener
		want string
	}{
		{policy.Listener{Upstream: []string{"10.9.8.7:25"}}, "10.9.8.7:25 at 10.9.8.7:25; "},
		{policy.Listener{Upstream: []string{"name.invalid:25"}}, ""},
		{policy.Listener{Upstream: []string{"name.invalid:25", policy.Echo, "[fd00::1]:25"}}, "echo: at invalid AddrPort; [fd00::1]:25 at [fd00::1]:25; "},
		{policy.Listener{Upstream: []string{"10.9.8.7:25", "[fd00::1]:25"}, Bind: four}, "10.9.8.7:25 at 10.9.8.7:25; "},
		{policy.Listener{Upstream: []string{"10.9.8.7:25", "[fd00::1]:25"}, Bind: six}, "[fd00::1]:25 at [fd00::1]:25; "},
		{policy.Listener{Upstream: []string{"10.9.8.7:25", "10.9.8.6:25"}, Protocol: policy.UDP}, "10.9.8.7:25 at 10.9.8.7:25; "},
	} {
		got := ""
		for _, d := range upstreamAddressesOf(t.Context(), c.l) {
			got += d.upstream + " at " + d.addr.String() + "; "
		}
		if got != c.want {
			t.Errorf("%v leads to %s, want %s", c.l.Upstream, got, c.want)
		}
	}
}

// An explanation has the class for the first upstream, and after it those for failing over.
func TestExplainFailOver(t *testing.T) {
	p, _, err := policy.Parse("t.toml", []byte(`
[class.first]
rate = "1mbit"
[class.second]
rate = "1mbit"
[listener.l]
listen   = "127.0.0.1:1"
upstream = ["10.0.0.1:2", "10.0.0.2:2"]
class    = "first"
[[rule]]
destination = "10.0.0.2"
class       = "second"
`))
	if err != nil {
		t.Fatal(err)
	}
	way := policy.Conn{Listener: "l", Source: netip.MustParseAddrPort("10.1.1.1:0"), Port: 1}
	e := explainWay(p, policy.Compile(p), way, upstreamAddressesOf(t.Context(), p.Listeners[0]), policy.Fields{})
	want := `class first: no rule matches, so it is the class of listener "l"
  not rule 1 (t.toml:10): destination 10.0.0.1 is not in 10.0.0.2/32
  failed over to 10.0.0.2:2: class second: rule 1 (t.toml:10): destination 10.0.0.2 is in 10.0.0.2/32
`
	if e.String() != want {
		t.Errorf("got\n%swant\n%s", e, want)
	}
	if text, _ := json.Marshal(e); !strings.Contains(string(text), `"fail_over":[{"conn":{"listener":"l"`) {
		t.Errorf("%s", text)
	}
}
