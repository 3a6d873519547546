package client

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// attempts is a server that notes what comes, and when.
type attempts struct {
	began  time.Time
	at     []time.Duration
	bodies []string
	answer func(n int) (*http.Response, error) // to attempt n, from 0
}

func (a *attempts) RoundTrip(req *http.Request) (*http.Response, error) {
	body := ""
	if req.Body != nil {
		text, _ := io.ReadAll(req.Body)
		body = string(text)
		req.Body.Close()
	}
	a.at, a.bodies = append(a.at, time.Since(a.began)), append(a.bodies, body)
	return a.answer(len(a.at) - 1)
}

// failing returns a server that gives these answers one after the other, and then 200.
func failing(all ...func() (*http.Response, error)) *attempts {
	return &attempts{began: time.Now(), answer: func(n int) (*http.Response, error) {
		if n < len(all) {
			return all[n]()
		}
		return response(200), nil
	}}
}

func status(code int, fields ...string) func() (*http.Response, error) {
	return func() (*http.Response, error) { return response(code, fields...), nil }
}

var errReset = errors.New("connection reset")

func broken() (*http.Response, error) { return nil, errReset }

// What is sent again depends on the method, on the answer, and on whether the body can be read
// again.
func TestRetryOfWhatIsSafe(t *testing.T) {
	again := func(answer func() (*http.Response, error)) []func() (*http.Response, error) {
		return []func() (*http.Response, error){answer, answer}
	}
	for _, c := range []struct {
		method, body string
		key          string // of the header Idempotency-Key
		answers      []func() (*http.Response, error)
		want         int // attempts
	}{
		{"GET", "", "", again(status(503)), 3},
		{"GET", "", "", again(status(502)), 3},
		{"GET", "", "", again(status(504)), 3},
		{"GET", "", "", again(broken), 3},
		{"PUT", "x", "", again(broken), 3},
		{"DELETE", "", "", again(status(503)), 3},
		{"POST", "x", "", again(broken), 1},
		{"POST", "x", "", again(status(503)), 1},
		{"PATCH", "x", "", again(status(502)), 1},
		{"POST", "x", "7", again(broken), 3},
		{"POST", "x", "", again(status(429)), 3},
		{"POST", "x", "", again(status(503, "Retry-After", "1")), 3},
		{"POST", "stream", "", again(status(429)), 1},
		{"GET", "", "", again(status(500)), 1},
		{"GET", "", "", again(status(404)), 1},
		{"GET", "", "", slices.Repeat(again(status(503)), 4), 4},
	} {
		synctest.Test(t, func(t *testing.T) {
			base := failing(c.answers...)
			class := limited("1000 messages/s", plain)
			client := &http.Client{Transport: &Transport{Base: base, Class: class, Retry: Retry{Max: 3}}}
			var body io.Reader
			if c.body != "" {
				body = strings.NewReader(c.body)
			}
			if c.body == "stream" {
				body = io.MultiReader(body) // http.NewRequest knows no GetBody for it
			}
			req, err := http.NewRequest(c.method, "http://api.example/", body)
			if err != nil {
				t.Fatal(err)
			}
			if c.key != "" {
				req.Header.Set("Idempotency-Key", c.key)
			}
			resp, err := client.Do(req)
			if err == nil {
				resp.Body.Close()
			}
			if len(base.at) != c.want {
				t.Errorf("%s %q after %d answers: %d attempts, want %d", c.method, c.body, len(c.answers), len(base.at), c.want)
			}
			if last, _ := base.answer(c.want - 1); last == nil && !errors.Is(err, errReset) || last != nil && (err != nil || resp.StatusCode != last.StatusCode) {
				t.Errorf("%s: the caller gets %v, %v", c.method, resp, err)
			}
			for _, got := range base.bodies {
				if got != c.body {
					t.Errorf("%s: an attempt has the body %q, want %q", c.method, got, c.body)
				}
			}
		})
	}
}

// A wait that has come to Longest stays there, however long Base is and whatever is repeated.
func TestRetryDoesNotOverflow(t *testing.T) {
	req, err := http.NewRequest(http.MethodGet, "http://provider", nil)
	if err != nil {
		t.Fatal(err)
	}
	retry, sum := Retry{Max: 100, Base: 1<<40 + 1, Longest: time.Hour}, time.Duration(0)
	for range 20 {
		wait, ok := retry.next(24, req, nil, io.ErrUnexpectedEOF)
		if !ok {
			t.Fatal("the request is not repeated")
		}
		sum += wait
	}
	if sum < time.Hour {
		t.Errorf("20 waits of up to an hour take %v together", sum)
	}
}

// Each wait is random, and of up to twice as long as the one before: programs that fail together
// come back spread.
func TestRetryHasFullJitter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n, most = 400, 4
		var early, late [most]int
		for range n {
			base := failing(slices.Repeat([]func() (*http.Response, error){broken}, most)...)
			client := &http.Client{Transport: &Transport{Base: base, Retry: Retry{Max: most, Base: time.Second, Longest: 5 * time.Second}}}
			get(t, client)
			for i := range most {
				wait, longest := base.at[i+1]-base.at[i], min(time.Second<<i, 5*time.Second)
				switch {
				case wait > longest:
					t.Fatalf("wait %d takes %v, want at most %v", i, wait, longest)
				case wait < longest/4:
					early[i]++
				case wait > longest*3/4:
					late[i]++
				}
			}
		}
		for i := range most {
			if early[i] < n/8 || late[i] < n/8 {
				t.Errorf("of %d waits before attempt %d, %d are in the first quarter and %d in the last", n, i+1, early[i], late[i])
			}
		}
	})
}

// A request is not sent again before Retry-After has passed, and not much later.
func TestRetryObeysRetryAfter(t *testing.T) {
	for _, class := range []string{"", "1000 messages/s"} {
		synctest.Test(t, func(t *testing.T) {
			base := failing(status(429, "Retry-After", "3"))
			transport := &Transport{Base: base, Retry: Retry{Max: 1}}
			if class != "" {
				transport.Class = limited(class, plain)
			}
			get(t, &http.Client{Transport: transport})
			if at := base.at[1]; at < 3*time.Second || at > 3500*time.Millisecond {
				t.Errorf("it comes again after %v", at)
			}
		})
	}
}

// If the next attempt would come too late, the caller gets the last answer at once. If the context
// ends during a wait, the caller gets its error.
func TestRetryGivesUp(t *testing.T) {
	for _, after := range []string{"61", "30"} { // longer than the longest wait, and than the client waits
		synctest.Test(t, func(t *testing.T) {
			base := failing(status(503, "Retry-After", after))
			client := &http.Client{Transport: &Transport{Base: base, Retry: Retry{Max: 3}}, Timeout: 20 * time.Second}
			if code := get(t, client); code != 503 || time.Since(base.began) > 0 {
				t.Errorf("it gets %d after %v", code, time.Since(base.began))
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		base := failing(status(503, "Retry-After", "30"))
		req, _ := http.NewRequestWithContext(ctx, "GET", "http://api.example/", nil)
		time.AfterFunc(time.Second, cancel)
		_, err := (&Transport{Base: base, Retry: Retry{Max: 3}}).RoundTrip(req)
		if !errors.Is(err, context.Canceled) || time.Since(base.began) != time.Second {
			t.Errorf("it ends after %v with %v", time.Since(base.began), err)
		}
	})
}

// Each attempt waits for its turn in the class.
func TestRetryTakesItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := failing(broken, broken)
		retry := Retry{Max: 2, Base: 1, Longest: 1} // as good as no wait
		get(t, &http.Client{Transport: &Transport{Base: base, Class: limited("2 messages/s", plain), Retry: retry}})
		if want := []time.Duration{0, time.Second / 2, time.Second}; !slices.Equal(base.at, want) {
			t.Errorf("the attempts are at %v, want %v", base.at, want)
		}
	})
}
