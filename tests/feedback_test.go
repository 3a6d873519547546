package tests

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"shaper/tests/trial"
)

// outage makes a provider refuse all messages for a while. It begins at message number after.
type outage struct {
	after int
	lasts time.Duration

	mu    sync.Mutex // guards the fields below
	came  int        // messages so far
	since time.Time  // when the outage began; zero: it has not begun
}

// refuses counts a message that came at a moment. It reports whether the outage refuses it, and
// how long the outage still lasts.
func (o *outage) refuses(at time.Time) (refuses bool, remaining time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.came++; o.came == o.after {
		o.since = at
	}
	remaining = o.lasts - at.Sub(o.since)
	return !o.since.IsZero() && remaining > 0, remaining
}

// If a provider throttles for a while, the class pauses for longer each time. Each submit gets one
// answer, and the order stays.
func TestProviderThrottles(t *testing.T) {
	t.Parallel()
	const n = 60
	lasts := trial.Size(time.Second, 5*time.Second)
	o := &outage{after: 20, lasts: lasts}
	p := newProvider(t, func(m moment) uint32 {
		if refuses, _ := o.refuses(m.by); refuses {
			return smppThrottled
		}
		return 0
	})
	d := start(t, raced(t), fmt.Sprintf(`
[class.acme]
rate        = "200 messages/s"
on_throttle = { pause = "%v", max = "60s" }
adapt       = true

[listener.gateway]
listen   = "127.0.0.1:0"
protocol = "smpp"
upstream = %q
class    = "acme"
`, lasts/5, p.addr))
	e := bind(t, d.addr("gateway"), "acme")
	first := e.submit("acme", n)
	watch, answers := trial.Begin(), map[uint32]uint32{}
	for range n {
		command, status, sequence := e.read()
		if _, twice := answers[sequence]; command != smppSubmitResp || twice {
			t.Fatalf("PDU %#x answers submit %d (a second time: %t), want one submit_sm_resp", command, sequence, twice)
		}
		answers[sequence] = status
	}
	refused := 0
	var times []time.Time
	for i, s := range p.got() {
		if s.sequence != first+uint32(i) || answers[s.sequence] != s.status {
			t.Fatalf("submit %d reaches the provider as number %d; it answers %#x, and the client gets %#x", s.sequence-first, i, s.status, answers[s.sequence])
		}
		if times = append(times, s.by); s.status != 0 {
			refused++
		}
	}
	// The class pauses for 1, 2 and 4 fifths of the outage. At each pause one more submit may be
	// in flight. Afterwards the pace is an eighth of the rate: adapt halves it three times.
	gap := medianGap(times[30:])
	t.Logf("throttled for %v: %d of %d refused; then gaps of %v", lasts, refused, n, gap)
	trial.Figure(t, fmt.Sprintf("throttled for %v: refused; gap afterwards", lasts), "%d of %d; %v", refused, n, gap)
	if len(times) != n || refused == 0 {
		t.Errorf("%d of %d submits came, and %d were refused, want some", len(times), n, refused)
	}
	// On a busy machine the provider answers late, and refuses more. Without pauses it would refuse
	// all that come after the first 20.
	watch.Judge(t, 4*time.Millisecond, trial.Join(
		trial.Least(refused, 3, 1, "%d were refused, want 3 to 6", refused),
		trial.Most(refused, 6, 30, "%d were refused, want 3 to 6", refused),
		trial.Least(gap, 38*time.Millisecond, 8*time.Millisecond, "then the gaps are %v, want 40 ms", gap),
		trial.Most(gap, 48*time.Millisecond, 480*time.Millisecond, "then the gaps are %v, want 40 ms", gap)))
}

// medianGap returns the median of the gaps between times.
func medianGap(times []time.Time) time.Duration {
	var gaps []time.Duration
	for i := 1; i < len(times); i++ {
		gaps = append(gaps, times[i].Sub(times[i-1]))
	}
	slices.Sort(gaps)
	return gaps[len(gaps)/2]
}

// If a server answers with Retry-After, shaper holds back the requests of all connections until
// then. Each request gets its answer.
func TestServerThrottles(t *testing.T) {
	t.Parallel()
	const n = 60
	lasts := trial.Size(time.Second, 5*time.Second)
	for _, status := range []int{http.StatusTooManyRequests, http.StatusServiceUnavailable} {
		t.Run(strconv.Itoa(status), func(t *testing.T) {
			t.Parallel()
			o := &outage{after: 20, lasts: lasts}
			_, addr := httpServer(t, func(w http.ResponseWriter, r *http.Request) {
				if refuses, remaining := o.refuses(time.Now()); refuses {
					w.Header().Set("Retry-After", strconv.Itoa(int(remaining/time.Second+1)))
					w.WriteHeader(status)
				}
			})
			d := start(t, raced(t), fmt.Sprintf(httpPolicy, "", addr))
			watch, begin := trial.Begin(), time.Now()
			statuses := askAll(t, d.addr("api"), n)
			took, refused := time.Since(begin), statuses[status]
			t.Logf("%v in %v", statuses, took)
			if refused < 1 || statuses[http.StatusOK] != n-refused || took < lasts {
				t.Errorf("%d requests have the statuses %v in %v, want some of status %d, and at least %v", n, statuses, took, status, lasts)
			}
			// A request leaves every 10 ms until the first answer is back.
			watch.Judge(t, 5*time.Millisecond, trial.Most(refused, 3, 20, "%d requests were refused, want at most 3", refused))
		})
	}
}

// askAll sends n requests over ten connections, and counts the answers by status.
func askAll(t *testing.T, addr string, n int) map[int]int {
	client := &http.Client{Timeout: patience, Transport: &http.Transport{MaxConnsPerHost: 10, MaxIdleConnsPerHost: 10}}
	defer client.CloseIdleConnections()
	statuses := map[int]int{}
	var mu sync.Mutex
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			answer, err := client.Get("http://" + addr + "/")
			if err != nil {
				t.Error(err)
				return
			}
			answer.Body.Close()
			mu.Lock()
			defer mu.Unlock()
			statuses[answer.StatusCode]++
		})
	}
	all.Wait()
	return statuses
}
