package tests

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"shaper/tests/trial"
)

// iperfReport is the part of the output of `iperf3 --json` that the test reads.
type iperfReport struct {
	Error  string `json:"error"`
	Server struct {
		Intervals []struct{ Sum transfer }
		End       struct {
			Received transfer `json:"sum_received"`
		}
	} `json:"server_output_json"`
}

type transfer struct{ Seconds, Bytes float64 }

// deviation returns the relative deviation of a transfer from a rate.
func (tr transfer) deviation(rate float64) float64 { return tr.Bytes/tr.Seconds/rate - 1 }

// check returns a Miss if the server's rate is off by more than 0.5 % over all, or by more than
// 2 % in any whole second; on a busy machine it may be off by half over all. It fails the test if the server received much more than the rate allows
// in half a second more: on a busy machine iperf3 may measure its time that badly.
func (r iperfReport) check(t *testing.T, rate float64) *trial.Miss {
	all := r.Server.End.Received
	worst := 0.
	for _, second := range r.Server.Intervals[:min(iperfSeconds, len(r.Server.Intervals))] {
		if d := second.Sum.deviation(rate); math.Abs(d) > math.Abs(worst) {
			worst = d
		}
	}
	t.Logf("%.0f B/s: received %.0f B/s over %.2f s (%+.3f %%), worst second of %d %+.3f %%",
		rate, all.Bytes/all.Seconds, all.Seconds, 100*all.deviation(rate), len(r.Server.Intervals), 100*worst)
	if excess := all.Bytes - rate*(all.Seconds+0.5); excess > 64<<10 {
		t.Errorf("received %.0f bytes more than the rate allows in %.2f s", excess, all.Seconds)
	}
	const anything = 100 // in a second, a busy machine may receive what was sent in others
	return trial.Join(
		trial.Least(len(r.Server.Intervals), iperfSeconds, iperfSeconds/2, "iperf3 measured only %d seconds", len(r.Server.Intervals)),
		trial.Most(math.Abs(all.deviation(rate)), 0.005, 0.5, "the rate is off by %+.2f %% over all", 100*all.deviation(rate)),
		trial.Most(math.Abs(worst), 0.02, anything, "the rate is off by %+.2f %% in a second", 100*worst))
}

// Bytes through a leaky class arrive at its rate, in each second and from the start.
func TestIperf3ThroughLeakyClasses(t *testing.T) {
	iperf3 := tool(t, "iperf3", "iperf3")
	for _, test := range []struct {
		rate  string
		bytes float64 // per second
		piece string  // size of iperf3's writes; it counts whole writes only
	}{
		{"1MB/s", 1e6, "1K"},
		{"10MB/s", 10e6, "8K"},
		{"100MB/s", 100e6, "64K"},
	} {
		t.Run(test.rate[:strings.Index(test.rate, "/")], func(t *testing.T) {
			t.Parallel()
			port := freePort(t)
			p := start(t, plain(), `
[class.a]
rate = "`+test.rate+`"
[listener.a]
listen = "127.0.0.1:0"
upstream = "127.0.0.1:`+port+`"
class = "a"
`)
			trial.Judge(t, 10*time.Millisecond, func() *trial.Miss {
				return iperf(t, iperf3, port, p.addr("a"), test.piece).check(t, test.bytes)
			})
		})
	}
}

// iperfSeconds is how long iperf3 sends, in seconds.
var iperfSeconds = trial.Size(5, 10)

// iperf runs a server on a port, and a client that sends to it through shaper.
func iperf(t *testing.T, iperf3, port, through, piece string) (r iperfReport) {
	server := exec.Command(iperf3, "--server", "--json", "--one-off", "--bind", "127.0.0.1", "--port", port)
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	defer server.Wait()
	defer server.Process.Kill()
	trial.Await(t, "iperf3 listens", func() bool { return listens(port) })
	host, at, err := net.SplitHostPort(through)
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(iperf3, "--client", host, "--port", at, "--time", strconv.Itoa(iperfSeconds), "--length", piece,
		"--json", "--get-server-output").Output()
	if json.Unmarshal(out, &r) != nil || r.Error != "" || err != nil {
		t.Fatalf("iperf3: %v: %s%s", err, r.Error, out)
	}
	return r
}

// A token class passes at most burst + rate*t bytes in any window of length t. The test looks at
// all windows between two arrivals, or between the start and an arrival.
func TestTokenClassHoldsInEveryWindow(t *testing.T) {
	const rate, burst = 1e6, 64 << 10
	r, upstream := recordTCP(t)
	p := start(t, plain(), `
[class.a]
algorithm = "token"
rate = "1MB/s"
burst = "64KiB"
[listener.a]
listen = "127.0.0.1:0"
upstream = "`+upstream+`"
class = "a"
`)
	// If another process delays shaper between a decision and its write, the bytes arrive late
	// and closer to those after them. The test allows for a delay of 2 ms. Even a busy machine can
	// add no more than another burst, which is what the bucket holds.
	const delay = 0.002
	addr := p.addr("a")
	trial.Judge(t, 2*time.Millisecond, func() *trial.Miss {
		excess := 0.
		for range 3 {
			r.reset()
			began := time.Now()
			transferAll(t, addr, 500_000)
			excess = max(excess, r.excess(allowance{{began, rate}}))
			time.Sleep(100 * time.Millisecond) // the bucket fills
		}
		t.Logf("the fullest window of three bursts has %.0f bytes more than rate*t; the burst is %d", excess, burst)
		return trial.Join(
			trial.Most(excess, burst+delay*rate, 2*burst, "a window has %.0f bytes more than burst + rate*t", excess-burst),
			// The connection's beginning takes a part of the burst.
			trial.Least(excess, 0.5*burst, 0.02*burst, "of the burst, %.0f bytes were used", excess))
	})
}

// transferAll sends n bytes through shaper, and waits until the upstream has them.
func transferAll(t *testing.T, to string, n int) {
	t.Helper()
	c := dial(t, "", to)
	defer c.Close()
	c.SetDeadline(time.Now().Add(patience))
	if _, err := c.Write(make([]byte, n)); err != nil {
		t.Fatal(err)
	}
	c.CloseWrite()
	if _, err := io.Copy(io.Discard, c); err != nil { // until the upstream closes
		t.Fatal(err)
	}
}

// Shaper charges the bytes that it reads, not the size of its buffer: small writes reach the full
// rate.
func TestSmallWritesRunAtTheFullRate(t *testing.T) {
	t.Parallel()
	const rate = 100e3
	r, upstream := recordTCP(t)
	p := start(t, plain(), `
[class.a]
rate = "100kB/s"
[listener.a]
listen = "127.0.0.1:0"
upstream = "`+upstream+`"
class = "a"
`)
	trial.Judge(t, 20*time.Millisecond, func() *trial.Miss {
		r.reset()
		c := dial(t, "", p.addr("a"))
		defer c.Close()
		go flood(c, 100)
		trial.Await(t, "bytes arrive", func() bool { return r.total() > 0 })
		from := time.Now()
		time.Sleep(4 * time.Second)
		to := time.Now()
		got := float64(r.between(from, to)) / to.Sub(from).Seconds()
		t.Logf("writes of 100 bytes: %.0f B/s (%.2f %% of the rate)", got, 100*got/rate)
		if got > 1.02*rate {
			t.Errorf("%.0f B/s is more than 2 %% above the rate", got)
		}
		return trial.Least(got, 0.98*rate, 0.5*rate, "%.0f B/s is more than 2 %% below the rate", got)
	})
}

// slew returns how much two clocks of the kernel may differ after d: the real-time clock, which
// stamps arrivals, and the monotonic clock, which paces. NTP slews by at most 500 ppm
// (adjtimex(2)).
func slew(d time.Duration) time.Duration { return d / 2000 }

func TestHalfAPacketPerSecond(t *testing.T) {
	t.Parallel()
	r, upstream := recordUDP(t)
	p := start(t, plain(), `
[class.a]
rate = "0.5 packets/s"
[listener.a]
listen = "127.0.0.1:0"
protocol = "udp"
upstream = "`+upstream+`"
class = "a"
`)
	const gap = 2 * time.Second
	trial.Judge(t, 25*time.Millisecond, func() *trial.Miss {
		r.reset()
		send(t, p.addr("a"), 4)
		trial.Await(t, "all have passed", func() bool { return len(r.all()) == 4 })
		t.Logf("gaps %v", r.gaps())
		longest := slices.Max(r.gaps())
		for _, g := range r.gaps() {
			if g < gap-slew(gap) {
				t.Errorf("a gap of %v is shorter than %v", g, gap)
			}
		}
		return trial.Most(longest, gap+50*time.Millisecond, 2*gap, "a gap of %v is longer than %v", longest, gap)
	})
}

// send sends n datagrams at once, from one socket.
func send(t *testing.T, to string, n int) {
	t.Helper()
	c := dialUDP(t, to)
	for i := range n {
		if _, err := fmt.Fprintf(c, "datagram %d", i); err != nil {
			t.Fatal(err)
		}
	}
}

// If 50 datagrams arrive at once, the first leaves, 20 wait and leave at the rate, and shaper drops
// and counts the others.
func TestDatagramsAreSpacedAndCounted(t *testing.T) {
	t.Parallel()
	const gap = 100 * time.Millisecond
	trial.Judge(t, 5*time.Millisecond, func() *trial.Miss {
		r, upstream := recordUDP(t)
		p := start(t, plain(), `
[class.a]
rate = "10 packets/s"
queue = "20 packets"
[listener.a]
listen = "127.0.0.1:0"
protocol = "udp"
upstream = "`+upstream+`"
class = "a"
`)
		send(t, p.addr("a"), 50)
		accounted := func(c class) uint64 { return c.Sent["upstream"].Packets + c.Dropped["queue_full"].Items }
		trial.Await(t, "all are sent or dropped", func() bool { return accounted(p.class("a")) == 50 })
		c := p.class("a")
		sent, dropped := c.Sent["upstream"].Packets, c.Dropped["queue_full"].Items
		if m := p.metric(`shaper_class_sent_packets_total{class="a",direction="upstream"}`); m != float64(sent) {
			t.Errorf("/metrics shows %v packets sent, shaper classes %d", m, sent)
		}
		if m := p.metric(`shaper_class_dropped_total{class="a",reason="queue_full"}`); m != float64(dropped) {
			t.Errorf("/metrics shows %v packets dropped, shaper classes %d", m, dropped)
		}
		trial.Await(t, "what was sent has arrived", func() bool { return len(r.all()) >= int(sent) })
		return checkGaps(t, r.gaps(), gap, int(sent))
	})
}

// checkGaps fails the test if a gap is too short, or fewer than 21 datagrams were sent. It returns a
// Miss if a gap is too long, or if more than 21 were sent: the first of them may have left before the
// last has come.
func checkGaps(t *testing.T, gaps []time.Duration, gap time.Duration, sent int) *trial.Miss {
	least, most := time.Hour, time.Duration(0)
	for _, g := range gaps {
		least, most = min(least, g), max(most, g)
	}
	t.Logf("of 50 datagrams, %d passed, with gaps from %v to %v", sent, least, most)
	switch {
	case len(gaps) != sent-1:
		t.Errorf("%d datagrams were sent and %d arrived", sent, len(gaps)+1)
	case least < gap-slew(gap):
		t.Errorf("a gap of %v is shorter than %v", least, gap)
	case sent < 21:
		t.Errorf("%d datagrams passed, want 21", sent)
	}
	return trial.Join(
		trial.Most(sent, 21, 31, "%d datagrams passed, want 21", sent),
		trial.Most(most, gap+10*time.Millisecond, 20*gap, "a gap of %v is more than 10 ms longer than %v", most, gap))
}
