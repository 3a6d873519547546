package tests

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"shaper/tests/trial"
)

// The rate is far above what the provider takes.
const hintsPolicy = `
[class.api]
rate        = "200 messages/s"
overflow    = "wait"
hints       = %t
on_throttle = { pause = "1ms", max = "1ms" }

[listener.gateway]
listen   = "127.0.0.1:0"
protocol = "http"
upstream = %q
class    = "api"
`

// A quotaServer takes so many requests in each window, says how many remain, and refuses others.
type quotaServer struct {
	quota  int
	window time.Duration

	mu      sync.Mutex // guards the fields below
	until   time.Time  // the end of the window
	counted int
	refused int
}

func (s *quotaServer) serve(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if !now.Before(s.until) {
		s.until, s.counted = now.Add(s.window), 0
	}
	s.counted++
	w.Header().Set("X-RateLimit-Limit", strconv.Itoa(s.quota))
	w.Header().Set("X-RateLimit-Remaining", strconv.Itoa(max(s.quota-s.counted, 0)))
	w.Header().Set("X-RateLimit-Reset", strconv.FormatInt(int64((s.until.Sub(now)+time.Second-1)/time.Second), 10))
	if s.counted > s.quota {
		s.refused++
		w.WriteHeader(http.StatusTooManyRequests)
	}
}

// With hints, a provider that counts by X-RateLimit refuses nothing, although the policy has a wrong
// rate. Without hints it does.
func TestHintsAgainstAWrongRate(t *testing.T) {
	t.Parallel()
	for _, hints := range []bool{true, false} {
		t.Run(fmt.Sprint(hints), func(t *testing.T) {
			t.Parallel()
			s := &quotaServer{quota: 10, window: time.Minute}
			if hints {
				s.window = 2 * time.Second
			}
			_, addr := httpServer(t, s.serve)
			d := start(t, plain(), fmt.Sprintf(hintsPolicy, hints, addr))
			client := &http.Client{Timeout: patience, Transport: &http.Transport{MaxIdleConnsPerHost: 4}}
			defer client.CloseIdleConnections()
			const requests = 25
			var asked atomic.Int64
			var all sync.WaitGroup
			for range 4 {
				all.Go(func() {
					for asked.Add(1) <= requests {
						answer, err := client.Get("http://" + d.addr("gateway") + "/")
						if err != nil {
							t.Error(err)
							return
						}
						io.Copy(io.Discard, answer.Body)
						answer.Body.Close()
					}
				})
			}
			all.Wait()
			s.mu.Lock()
			defer s.mu.Unlock()
			t.Logf("hints = %t: of %d requests, %d were refused", hints, requests, s.refused)
			if hints != (s.refused == 0) {
				t.Errorf("with hints = %t, the provider has refused %d requests", hints, s.refused)
			}
			if !hints {
				return
			}
			if n := d.metric(`shaper_class_hints_total{class="api",fate="taken"}`); n != requests {
				t.Errorf("%v hints were taken, want %d", n, requests)
			}
		})
	}
}

// shaper says that a hint holds a class, and until when. Without the key, what waits leaves.
func TestWhatAHintHolds(t *testing.T) {
	t.Parallel()
	_, addr := httpServer(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("RateLimit", `"hourly";r=0;t=3600`)
	})
	d := start(t, plain(), fmt.Sprintf(hintsPolicy, true, addr))
	ask := func() error {
		answer, err := http.Get("http://" + d.addr("gateway") + "/")
		if err == nil {
			answer.Body.Close()
		}
		return err
	}
	if err := ask(); err != nil {
		t.Fatal(err)
	}
	answered := make(chan error, 1)
	go func() { answered <- ask() }()
	trial.Await(t, "the second request waits", func() bool { return d.metric(`shaper_class_backlog_items{class="api"}`) == 1 })
	for _, c := range []struct{ want, command string }{
		{"what the provider says remains of its limit: 0, until ", "why api"},
		{`"cause": "hints"`, "why api --json"},
		{"class api: what the provider says remains of its limit: 0, until ", "explain --listener gateway 127.0.0.1"},
		{`"limit": "hints"`, "classes api --json"},
		{"waits for        a hint of the provider, ", "classes api"},
	} {
		if got := d.must(strings.Fields(c.command)...); !strings.Contains(got, c.want) {
			t.Errorf("shaper %s does not say %q: %s", c.command, c.want, got)
		}
	}
	d.write(fmt.Sprintf(hintsPolicy, false, addr))
	d.must("reload")
	if err := <-answered; err != nil {
		t.Error(err)
	}
}
