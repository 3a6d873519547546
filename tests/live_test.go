package tests

import (
	"io"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"shaper/tests/trial"
)

// A new rate takes effect on an open connection within 100 ms of the command's end, whether it is
// higher or lower.
func TestNewRateReachesOpenConnection(t *testing.T) {
	for how, change := range map[string]func(p *program, policy, rate string){
		"set":    func(p *program, _, rate string) { p.must("set", "a", "rate="+rate) },
		"reload": func(p *program, policy, _ string) { p.write(policy); p.must("reload") },
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			r, upstream := recordTCP(t)
			policy := func(rate string) string {
				return strings.NewReplacer("RATE", rate, "UPSTREAM", upstream).Replace(`
[class.a]
rate = "RATE"
[listener.a]
listen = "127.0.0.1:0"
upstream = "UPSTREAM"
class = "a"
`)
			}
			p := start(t, plain(), policy("1MB/s"))
			go flood(dial(t, "", p.addr("a")), 8<<10)
			trial.Await(t, "bytes arrive", func() bool { return r.total() > 0 })

			for rate, bytes := range map[string]float64{"5MB/s": 5e6, "400kB/s": 4e5} {
				trial.Judge(t, 10*time.Millisecond, func() *trial.Miss {
					change(p, policy("1MB/s"), "1MB/s") // the rate before the change
					time.Sleep(200 * time.Millisecond)
					change(p, policy(rate), rate)
					changed := time.Now()
					time.Sleep(700 * time.Millisecond)
					return checkReached(t, how, r, changed, bytes)
				})
			}
		})
	}
}

// checkReached returns a Miss unless bytes arrive at the rate from 100 ms after changed on. On a busy
// machine it may be off, but not by as much as the rate before.
func checkReached(t *testing.T, how string, r *recorder, changed time.Time, rate float64) *trial.Miss {
	deadline := changed.Add(100 * time.Millisecond)
	got := float64(r.between(deadline, deadline.Add(500*time.Millisecond))) / 0.5
	took := time.Duration(0)
	for ; took <= 500*time.Millisecond; took += time.Millisecond {
		window := float64(r.between(changed.Add(took), changed.Add(took+40*time.Millisecond))) / 0.04
		if window > 0.8*rate && window < 1.2*rate {
			break
		}
	}
	t.Logf("%s to %.0f B/s: reached %v after the command; from 100 ms on %.0f B/s", how, rate, took, got)
	return trial.Join(
		trial.Most(took, 100*time.Millisecond, time.Second, "%s: the connection has the new rate after %v, want at most 100 ms", how, took),
		trial.Least(got, 0.95*rate, 0.22*rate, "%s: from 100 ms on, %.0f B/s of %.0f B/s", how, got, rate),
		trial.Most(got, 1.05*rate, 2*rate, "%s: from 100 ms on, %.0f B/s of %.0f B/s", how, got, rate))
}

// crowd is an upstream of many connections. It does not read connection 0.
type crowd struct {
	counts  []atomic.Int64 // bytes that arrived on each connection
	stalled chan struct{}  // the handler of connection 0 returns when it is closed
}

// handle reads the connection's number, which is its first byte, and then all that arrives. It does
// not read from connection 0 again.
func (c *crowd) handle(conn *net.TCPConn) {
	conn.SetReadBuffer(32 << 10) // it is full soon if nobody reads
	first := make([]byte, 1)
	if _, err := io.ReadFull(conn, first); err != nil {
		return
	}
	if first[0] == 0 {
		<-c.stalled
		return
	}
	buf := make([]byte, 64<<10)
	for {
		n, err := conn.Read(buf)
		c.counts[first[0]].Add(int64(n))
		if err != nil {
			return
		}
	}
}

// measure returns the rates of all connections but 0 over a span, in bytes/s and in ascending
// order, and their sum.
func (c *crowd) measure(span time.Duration) (got []float64, sum float64) {
	before := make([]int64, len(c.counts))
	for i := range c.counts {
		before[i] = c.counts[i].Load()
	}
	began := time.Now()
	time.Sleep(span)
	for i := 1; i < len(c.counts); i++ {
		n := float64(c.counts[i].Load()-before[i]) / time.Since(began).Seconds()
		got, sum = append(got, n), sum+n
	}
	slices.Sort(got)
	return got, sum
}

// A peer that stops reading delays no other session: the other 99 share the whole rate of the
// class.
//
// The test looks at their sum, and at the tenth slowest. One or two sessions may lose a tenth over
// some seconds even without a stalled peer, because the kernel makes their clients wait for a
// window update (RFC 9293, 3.8.6.2).
func TestStalledReaderCostsTheOthersNothing(t *testing.T) {
	t.Parallel()
	const rate = 20e6 // bytes/s, set after the stalled connection's buffers are full
	c := &crowd{counts: make([]atomic.Int64, 100), stalled: make(chan struct{})}
	defer close(c.stalled)
	p := start(t, plain(), `
[class.a]
rate = "200MB/s"
[listener.a]
listen = "127.0.0.1:0"
upstream = "`+serve(t, c.handle)+`"
class = "a"
`)
	for i := range c.counts {
		conn := dial(t, "", p.addr("a"))
		if _, err := conn.Write([]byte{byte(i)}); err != nil {
			t.Fatal(err)
		}
		go flood(conn, 16<<10)
	}
	stalled := p.sessions()[0].Client
	moved := func() uint64 {
		all := p.sessions()
		return all[slices.IndexFunc(all, func(s session) bool { return s.Client == stalled })].Upward
	}
	trial.Await(t, "the connection that is not read carries nothing", func() bool {
		before := moved()
		time.Sleep(200 * time.Millisecond)
		return len(p.sessions()) == 100 && moved() == before
	})
	p.must("set", "a", "rate=20MB/s")
	c.measure(time.Second) // pieces that were sized for the old rate leave first
	trial.Judge(t, 20*time.Millisecond, func() *trial.Miss {
		got, sum := c.measure(trial.Size(3*time.Second, 5*time.Second))
		fair := rate / 100. // a session's share with 100 sessions
		tenth := got[len(got)/10]
		t.Logf("99 sessions have %.2f %% of the rate; the slowest has %.2f %% of a hundredth, the tenth slowest %.2f %%",
			100*sum/rate, 100*got[0]/fair, 100*tenth/fair)
		if sum > 1.1*rate { // some of it was sent before the measurement
			t.Errorf("99 sessions get %.0f B/s, want at most 1.1 times the rate", sum)
		}
		return trial.Join(
			trial.Least(sum, 0.98*rate, 0.3*rate, "99 sessions have %.2f %% of the rate", 100*sum/rate),
			trial.Most(sum, 1.02*rate, 1.1*rate, "99 sessions have %.2f %% of the rate", 100*sum/rate),
			trial.Least(tenth, 0.98*fair, 0.2*fair, "the tenth slowest session has %.2f %% of its share", 100*tenth/fair))
	})
}
