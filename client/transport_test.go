package client

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"shaper/policy"
	"shaper/shaper"
)

// server is the Base of a Transport. It answers at once.
type server func(*http.Request) (*http.Response, error)

func (s server) RoundTrip(req *http.Request) (*http.Response, error) { return s(req) }

// response returns a response with a body and with header fields, which come in pairs.
func response(status int, fields ...string) *http.Response {
	r := &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("answer"))}
	for pair := range slices.Chunk(fields, 2) {
		r.Header.Set(pair[0], pair[1])
	}
	return r
}

// recorder is a server that records when requests come, from when it was made.
type recorder struct {
	start time.Time
	mu    sync.Mutex
	at    []time.Duration
	reply func(n int) *http.Response // the answer to request n, from 0
}

func record(reply func(n int) *http.Response) *recorder {
	return &recorder{start: time.Now(), reply: reply}
}

func (r *recorder) RoundTrip(*http.Request) (*http.Response, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.at = append(r.at, time.Since(r.start))
	return r.reply(len(r.at) - 1), nil
}

func (r *recorder) want(t *testing.T, want ...time.Duration) {
	t.Helper()
	if !slices.Equal(r.at, want) {
		t.Errorf("requests come after %v, want %v", r.at, want)
	}
}

func ok(int) *http.Response { return response(200) }

// get sends one request and reads the answer.
func get(t *testing.T, c *http.Client) (status int) {
	t.Helper()
	resp, err := c.Get("http://api.example/")
	if err != nil {
		t.Fatal(err)
	}
	if body, err := io.ReadAll(resp.Body); string(body) != "answer" || err != nil {
		t.Errorf("the answer is %q, %v", body, err)
	}
	resp.Body.Close()
	return resp.StatusCode
}

// newClient returns a client with a Transport on base, and the class of its requests.
func newClient(base http.RoundTripper, rate string, change func(*policy.Class)) (*http.Client, *shaper.Class) {
	class := limited(rate, change)
	return &http.Client{Transport: &Transport{Base: base, Class: class}}, class
}

func plain(*policy.Class) {}

// Requests that are made at once reach the server one by one.
func TestTransportPaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport, err := NewTransport("20 messages/s", 0)
		if err != nil {
			t.Fatal(err)
		}
		base := record(ok)
		transport.Base = base
		client := &http.Client{Transport: transport}
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() { get(t, client) })
		}
		all.Wait()
		const gap = 50 * time.Millisecond
		base.want(t, 0, gap, 2*gap, 3*gap)
	})
}

// A server that says "too fast" gets no request before the time that it names, in seconds or
// as a date. If it names none, the pause is a second, and doubles until a request succeeds.
func TestTransportPauses(t *testing.T) {
	const s = time.Second
	for _, tt := range []struct {
		name  string
		reply []*http.Response
		want  []time.Duration
	}{
		{"seconds", []*http.Response{response(429, "Retry-After", "3"), response(200), response(200)}, []time.Duration{0, 3 * s, 3*s + s/20}},
		{"a date", []*http.Response{response(503, "Retry-After", "Sat, 01 Jan 2000 00:00:07 GMT"), response(200)}, []time.Duration{0, 7 * s}},
		{"no time", []*http.Response{response(429), response(429), response(200), response(429), response(200)}, []time.Duration{0, s, 3 * s, 3*s + s/20, 4*s + s/20}},
		{"an hour", []*http.Response{response(429, "Retry-After", "3600"), response(200)}, []time.Duration{0, time.Minute}},
		{"a failure", []*http.Response{response(503), response(500, "Retry-After", "3"), response(200)}, []time.Duration{0, s / 20, s / 10}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				base := record(func(n int) *http.Response { return tt.reply[n] })
				client, class := newClient(base, "20 messages/s", plain)
				throttled := uint64(0)
				for _, reply := range tt.reply {
					get(t, client)
					if reply.StatusCode == 429 || tt.name == "a date" && reply.StatusCode == 503 {
						throttled++
					}
				}
				base.want(t, tt.want...)
				signals := class.Stats.Throttled.Read()
				if n := signals["429"] + signals["503"]; n != throttled {
					t.Errorf("%d signals are counted, want %d", n, throttled)
				}
			})
		})
	}
}

// Requests that wait when the server says "too fast" leave in order after the pause.
func TestTransportPausesWhatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := record(func(n int) *http.Response {
			if n == 0 {
				return response(429, "Retry-After", "10")
			}
			return response(200)
		})
		client, _ := newClient(base, "1 messages/s", plain)
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() { get(t, client) })
		}
		all.Wait()
		base.want(t, 0, 10*time.Second, 11*time.Second)
	})
}

// A context ends the wait, and so does the client's timeout. Then the body is closed, nothing
// is sent and nothing is charged.
func TestTransportGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := record(ok)
		client, class := newClient(base, "1 messages/min", plain)
		get(t, client)
		canceled, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		body := &closing{Reader: strings.NewReader("body")}
		req, _ := http.NewRequestWithContext(canceled, "POST", "http://api.example/", body)
		if _, err := client.Do(req); !errors.Is(err, context.Canceled) {
			t.Errorf("a cancelled request returns %v", err)
		}
		if !body.closed.Load() {
			t.Error("the body of a cancelled request is not closed")
		}
		client.Timeout = time.Second
		_, err := client.Get("http://api.example/")
		var late *url.Error
		if !errors.As(err, &late) || !late.Timeout() {
			t.Errorf("a request that waits longer than the client's timeout returns %v", err)
		}
		client.Timeout = 0
		get(t, client)
		base.want(t, 0, time.Minute)
		if n := class.InFlight(); n != 0 {
			t.Errorf("%d are in flight", n)
		}
	})
}

type closing struct {
	io.Reader
	closed atomic.Bool
}

func (c *closing) Close() error { c.closed.Store(true); return nil }

// A refused request gets an error that says when there is room.
func TestTransportRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := record(ok)
		client, _ := newClient(base, "1 messages/min", func(c *policy.Class) { c.Overflow, c.MaxWait = policy.Refuse, 1e9 })
		get(t, client)
		_, err := client.Get("http://api.example/")
		var refused *shaper.RefusedError
		if !errors.As(err, &refused) || refused.Reason != shaper.ErrTooLong || refused.Retry != 59*time.Second {
			t.Errorf("a request that would wait for a minute: %v", err)
		}
		base.want(t, 0)
	})
}

// A request is in flight until its answer ends, whichever way it ends.
func TestTransportInFlight(t *testing.T) {
	failed := errors.New("no connection")
	for _, tt := range []struct {
		name string
		base server
		end  func(*http.Response) // ends the answer; nil: it has already ended
	}{
		{"read", func(*http.Request) (*http.Response, error) { return response(200), nil }, func(r *http.Response) { io.ReadAll(r.Body) }},
		{"closed", func(*http.Request) (*http.Response, error) { return response(200), nil }, func(r *http.Response) { r.Body.Close() }},
		{"throttled", func(*http.Request) (*http.Response, error) { return response(429), nil }, func(r *http.Response) { r.Body.Close(); r.Body.Close() }},
		{"none", func(*http.Request) (*http.Response, error) { return nil, failed }, nil},
		{"empty", func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 204, Body: http.NoBody}, nil
		}, nil},
		{"upgrade", func(*http.Request) (*http.Response, error) { return response(101), nil }, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			class := limited("1000 messages/s", func(c *policy.Class) { c.InFlight = 1 })
			transport := &Transport{Base: tt.base, Class: class}
			for range 2 {
				resp, err := transport.RoundTrip(httptest.NewRequest("GET", "http://api.example/", nil))
				if tt.end != nil {
					if n := class.InFlight(); n != 1 {
						t.Errorf("%d are in flight before the answer has ended", n)
					}
					tt.end(resp)
				}
				if n := class.InFlight(); n != 0 || errors.Is(err, failed) != (resp == nil) {
					t.Errorf("%d are in flight after it; %v", n, err)
				}
			}
		})
	}
}

// With in_flight, a request waits until the answer to another ends.
func TestTransportBoundsInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := record(ok)
		client, _ := newClient(base, "1000 messages/s", func(c *policy.Class) { c.InFlight = 2 })
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				resp, err := client.Get("http://api.example/")
				if err != nil {
					t.Error(err)
					return
				}
				time.Sleep(time.Second)
				resp.Body.Close()
			})
		}
		all.Wait()
		const gap = time.Millisecond
		base.want(t, 0, gap, time.Second, time.Second+gap)
	})
}

// Each redirect is a request.
func TestTransportCountsRedirects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := record(func(n int) *http.Response {
			if n < 2 {
				return response(302, "Location", "/next")
			}
			return response(200)
		})
		client, _ := newClient(base, "1 messages/s", func(c *policy.Class) { c.InFlight = 1 })
		get(t, client)
		base.want(t, 0, time.Second, 2*time.Second)
	})
}

// A class with a bucket for each destination has one bucket for each address.
func TestTransportByDestination(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := record(ok)
		client, _ := newClient(base, "1 messages/s", func(c *policy.Class) { c.Per = policy.Per{{By: policy.ByDestination}} })
		for _, host := range []string{"192.0.2.1", "192.0.2.2:8080", "192.0.2.2", "[2001:db8::1]"} {
			resp, err := client.Get("http://" + host + "/")
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
		}
		base.want(t, 0, 0, time.Second, time.Second)
	})
}

// A request has no source: in a class with a bucket for each source, all requests share one.
func TestTransportBySource(t *testing.T) {
	for _, by := range []policy.PerKind{policy.BySource, policy.BySourcePort} {
		synctest.Test(t, func(t *testing.T) {
			base := record(ok)
			client, _ := newClient(base, "1 messages/s", func(c *policy.Class) { c.Per = policy.Per{{By: by, IPv4: 32, IPv6: 64}} })
			for range 2 {
				get(t, client)
			}
			base.want(t, 0, time.Second)
		})
	}
}

// A request has a key by what it says.
func TestTransportByRequest(t *testing.T) {
	for _, c := range []struct {
		per  policy.PerPart
		urls []string
		want []time.Duration
	}{
		{policy.PerPart{By: policy.ByHost}, []string{"http://a/x", "http://A:80/y", "http://b/x"}, []time.Duration{0, time.Second, time.Second}},
		{policy.PerPart{By: policy.ByPath, Name: "/v1/*"}, []string{"http://a/v1/x?q", "http://b/v1/x", "http://a/v1/y", "http://a", "http://a/"}, []time.Duration{0, time.Second, time.Second, time.Second, 2 * time.Second}},
		{policy.PerPart{By: policy.ByMethod}, []string{"http://a/x", "http://b/y"}, []time.Duration{0, time.Second}},
		{policy.PerPart{By: policy.ByHeader, Name: "x-key"}, []string{"http://one@a/x", "http://one@a/x", "http://two@a/x"}, []time.Duration{0, time.Second, time.Second}},
	} {
		synctest.Test(t, func(t *testing.T) {
			base := record(ok)
			client, _ := newClient(base, "1 messages/s", func(conf *policy.Class) { conf.Per = policy.Per{c.per} })
			for _, url := range c.urls {
				req, err := http.NewRequest("", url, nil)
				if err != nil {
					t.Fatal(err)
				}
				if req.URL.User != nil {
					req.Header.Set("X-Key", req.URL.User.Username())
				}
				resp, err := client.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				resp.Body.Close()
			}
			base.want(t, c.want...)
		})
	}
}

// A host for which there was no room shares a bucket until its last request has ended. in_flight holds for all of its
// requests.
func TestTransportByRequestShares(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := record(ok)
		client, class := newClient(base, "1000 messages/s", func(conf *policy.Class) {
			conf.Per, conf.MaxKeys, conf.InFlight = policy.Per{{By: policy.ByHost}}, 1, 1
		})
		send := func(url string) (end func() error) {
			resp, err := client.Get(url)
			if err != nil {
				t.Fatal(err)
			}
			return resp.Body.Close
		}
		first, shares := send("http://a/"), send("http://b/")
		first()
		time.Sleep(time.Second)
		time.AfterFunc(time.Second, func() { shares() })
		send("http://b/")() // the first one is still in flight
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if req, _ := http.NewRequestWithContext(ctx, "", "http://b/", nil); true {
			client.Do(req)
		}
		time.Sleep(time.Second)
		base.want(t, 0, 0, 2*time.Second)
		before := class.Stats.KeysShared.Load()
		if send("http://b/")(); class.Stats.KeysShared.Load() != before {
			t.Error("the host has no bucket of its own, although no request of it is left")
		}
	})
}

// Without a class nothing waits. A class that would never limit is an error.
func TestTransportClass(t *testing.T) {
	base := record(ok)
	none := &http.Client{Transport: &Transport{Base: base}}
	for range 3 {
		get(t, none)
	}
	client, _ := newClient(base, "1mbit", plain)
	_, err := client.Get("http://api.example/")
	if want := `Get "http://api.example/": client: "c" counts bytes, and a request is a message: it would never limit; a rate here is like "20 messages/s"`; text(err) != want {
		t.Errorf("a class of bytes: %v", err)
	}
	client, _ = newClient(base, "1 messages/s", func(c *policy.Class) { c.Per[0].By = policy.ByConnection })
	_, err = client.Get("http://api.example/")
	if want := `Get "http://api.example/": client: "c" has a bucket for each connection, and a request is not a connection: it would never limit`; text(err) != want {
		t.Errorf("a class by connection: %v", err)
	}
	client, _ = newClient(base, "1 messages/s", func(c *policy.Class) { c.Per[0].By = policy.ByRecipient })
	_, err = client.Get("http://api.example/")
	if want := `Get "http://api.example/": client: "c" has a bucket per recipient, and a request has none`; text(err) != want {
		t.Errorf("a class by recipient: %v", err)
	}
}

// idler is a base whose idle connections can be closed.
type idler struct {
	server
	closed int
}

func (i *idler) CloseIdleConnections() { i.closed++ }

func TestTransportClosesIdleConnections(t *testing.T) {
	base := &idler{}
	client := &http.Client{Transport: &Transport{Base: base}}
	client.CloseIdleConnections()
	if base.closed != 1 {
		t.Errorf("the idle connections of Base are closed %d times, want once", base.closed)
	}
	client.Transport = &Transport{Base: server(nil)} // it cannot close idle connections
	client.CloseIdleConnections()
}

// Over real sockets, requests reach the server no faster than the rate on average, and no
// more than in_flight are there at once.
func TestTransportOverSockets(t *testing.T) {
	var now, most atomic.Int32
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for n := now.Add(1); ; {
			if m := most.Load(); n <= m || most.CompareAndSwap(m, n) {
				break
			}
		}
		io.WriteString(w, "answer")
		now.Add(-1)
	}))
	defer api.Close()
	client, _ := newClient(nil, "500 messages/s", func(c *policy.Class) { c.InFlight = 3 })
	client.Transport.(*Transport).Base = api.Client().Transport
	start := time.Now()
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			resp, err := client.Get(api.URL)
			if err != nil {
				t.Error(err)
				return
			}
			defer resp.Body.Close()
			if body, err := io.ReadAll(resp.Body); string(body) != "answer" || err != nil {
				t.Errorf("the answer is %q, %v", body, err)
			}
		})
	}
	all.Wait()
	if took := time.Since(start); took < 98*time.Millisecond {
		t.Errorf("50 requests at 500 a second take %v", took)
	}
	if n := most.Load(); n > 3 {
		t.Errorf("%d requests are in flight at once, want at most 3", n)
	}
}
