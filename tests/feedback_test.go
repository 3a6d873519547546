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

// outage is a time for which a provider refuses all that comes, from a number of
// messages on.
type outage struct {
	after int
	lasts time.Duration

	mu    sync.Mutex
	came  int
	since time.Time // that it lasts; zero: it has not begun
}

// refuses reports whether what came at a moment is refused, and for how long that
// still goes on.
func (o *outage) refuses(at time.Time) (refuses bool, left time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.came++; o.came == o.after {
		o.since = at
	}
	left = o.lasts - at.Sub(o.since)
	return !o.since.IsZero() && left > 0, left
}

// A provider that throttles for a while has the class pause longer and longer. Each
// submit has one answer, and none overtakes another.
func TestProviderThrottles(t *testing.T) {
	t.Parallel()
	const n = 60
	lasts := trial.Size(time.Second, 5*time.Second)
	o := &outage{after: 20, lasts: lasts}
	p := newProvider(t, func(at time.Time) uint32 {
		if refuses, _ := o.refuses(at); refuses {
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
			t.Fatalf("%#x answers %d, twice: %t", command, sequence, twice)
		}
		answers[sequence] = status
	}
	refused := 0
	var times []time.Time
	for i, s := range p.got() {
		if s.sequence != first+uint32(i) || answers[s.sequence] != s.status {
			t.Fatalf("submit %d is number %d at the provider, which answers %#x, and the client gets %#x", s.sequence-first, i, s.status, answers[s.sequence])
		}
		if times = append(times, s.at); s.status != 0 {
			refused++
		}
	}
	// It pauses for 1, 2 and 4 fifths, during which one may be under way each time.
	// The pace, halved three times, is an eighth behind them.
	gap := gapsOf(times[30:])
	t.Logf("throttled for %v: %d of %d refused; then one each %v", lasts, refused, n, gap)
	trial.Figure(t, fmt.Sprintf("throttled for %v: refused; then one each", lasts), "%d of %d; %v", refused, n, gap)
	if len(times) != n || refused == 0 {
		t.Errorf("%d came, and %d were refused", len(times), refused)
	}
	var wrong error // a provider that answers late has refused more by then
	if refused < 3 || refused > 6 || gap < 38*time.Millisecond || gap > 48*time.Millisecond {
		wrong = fmt.Errorf("%d were refused, and then the gaps are %v, not 40 ms", refused, gap)
	}
	watch.Judge(t, 4*time.Millisecond, wrong)
}

// gapsOf returns the median of the gaps.
func gapsOf(times []time.Time) time.Duration {
	var gaps []time.Duration
	for i := 1; i < len(times); i++ {
		gaps = append(gaps, times[i].Sub(times[i-1]))
	}
	slices.Sort(gaps)
	return gaps[len(gaps)/2]
}

// A server that says when to come again is left alone until then, by all connections,
// and each request has its answer.
func TestServerThrottles(t *testing.T) {
	t.Parallel()
	const n = 60
	lasts := trial.Size(time.Second, 5*time.Second)
	for _, status := range []int{http.StatusTooManyRequests, http.StatusServiceUnavailable} {
		t.Run(strconv.Itoa(status), func(t *testing.T) {
			t.Parallel()
			o := &outage{after: 20, lasts: lasts}
			_, addr := httpServer(t, func(w http.ResponseWriter, r *http.Request) {
				if refuses, left := o.refuses(time.Now()); refuses {
					w.Header().Set("Retry-After", strconv.Itoa(int(left/time.Second+1)))
					w.WriteHeader(status)
				}
			})
			d := start(t, raced(t), fmt.Sprintf(httpPolicy, "", addr))
			begin := time.Now()
			statuses := askAll(t, d.addr("api"), n)
			took := time.Since(begin)
			t.Logf("%v in %v", statuses, took)
			if refused := statuses[status]; refused < 1 || refused > 3 || statuses[http.StatusOK] != n-refused || took < lasts {
				t.Errorf("of %d requests %v in %v", n, statuses, took)
			}
		})
	}
}

// askAll asks so often, over ten connections, and returns how many answers had which
// status.
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
