package tests

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"shaper/tests/trial"
)

// report is what iperf3 --json prints, as far as it is read.
type report struct {
	Error  string `json:"error"`
	Server struct {
		Intervals []struct{ Sum transfer }
		End       struct {
			Received transfer `json:"sum_received"`
		}
	} `json:"server_output_json"`
}

type transfer struct{ Seconds, Bytes float64 }

// deviation returns by which share of the wanted rate a transfer is off.
func (tr transfer) deviation(rate float64) float64 { return tr.Bytes/tr.Seconds/rate - 1 }

// holds returns an error if what the server received is off by more than 0.5 % over
// all, or by more than 2 % in any whole second. It is never much more than the rate: the
// server's clock may be late by half a second on a busy machine.
func (r report) holds(t *testing.T, rate float64) error {
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
		t.Errorf("%.0f bytes more than the rate gives in %.2f s", excess, all.Seconds)
	}
	switch {
	case len(r.Server.Intervals) < iperfSeconds:
		return fmt.Errorf("only %d seconds were measured", len(r.Server.Intervals))
	case math.Abs(all.deviation(rate)) > 0.005:
		return fmt.Errorf("off by more than 0.5 %% over all")
	case math.Abs(worst) > 0.02:
		return fmt.Errorf("off by more than 2 %% in a second")
	}
	return nil
}

func TestIperf3ThroughLeakyClasses(t *testing.T) {
	iperf3 := tool(t, "iperf3", "iperf3")
	for _, test := range []struct {
		rate  string
		bytes float64 // a second
		piece string  // that iperf3 writes, and counts once it has all of it
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
			trial.Judge(t, 10*time.Millisecond, func() error {
				r, err := iperf(t, iperf3, port, p.addr("a"), test.piece)
				if err != nil {
					return err
				}
				return r.holds(t, test.bytes)
			})
		})
	}
}

// iperfSeconds is how long iperf3 sends.
var iperfSeconds = trial.Size(5, 10)

// iperf runs one server on a port, and one client through shaper.
func iperf(t *testing.T, iperf3, port, through, piece string) (r report, err error) {
	server := exec.Command(iperf3, "--server", "--json", "--one-off", "--bind", "127.0.0.1", "--port", port)
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	defer server.Wait()
	defer server.Process.Kill()
	waitFor(t, "iperf3 listens", func() bool { return listens(port) })
	host, at, err := net.SplitHostPort(through)
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(iperf3, "--client", host, "--port", at, "--time", strconv.Itoa(iperfSeconds), "--length", piece,
		"--json", "--get-server-output").Output()
	if err := json.Unmarshal(out, &r); err != nil {
		return r, fmt.Errorf("iperf3: %w: %s", err, out)
	}
	if r.Error != "" {
		return r, fmt.Errorf("iperf3: %s", r.Error)
	}
	return r, err
}

// A token class passes at most burst + rate*t in any window t. What is looked
// at are all windows from the start, or from an arrival, to another arrival, by
// the kernel's timestamps.
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
	// A departure that is decided and then held up, since another process has the
	// processor, arrives late and closer to those after it: by what the rate gives in that
	// time. 2 ms are allowed for it; on a busy machine no more than another burst, which is
	// what the bucket holds.
	const heldUp = 0.002
	addr := p.addr("a")
	trial.Judge(t, 2*time.Millisecond, func() error {
		excess := 0.
		for range 3 {
			r.reset()
			began := time.Now()
			transferAll(t, addr, 500_000)
			excess = max(excess, r.excess(promise{{began, rate}}))
			time.Sleep(100 * time.Millisecond) // the bucket fills up
		}
		t.Logf("of three bursts the fullest window has %.0f bytes above rate*t; burst is %d", excess, burst)
		if excess > 2*burst {
			t.Errorf("a window has %.0f bytes more than burst + rate*t", excess-burst)
		}
		if excess > burst+heldUp*rate {
			return fmt.Errorf("a window has %.0f bytes more than burst + rate*t", excess-burst)
		}
		if excess < 0.5*burst { // some of it is spent while the connection is made
			return fmt.Errorf("the burst was never used")
		}
		return nil
	})
}

// transferAll sends n bytes through shaper, and returns when the upstream has them.
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

// What is charged is what is read, never the size of the buffer.
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
	trial.Judge(t, 20*time.Millisecond, func() error {
		r.reset()
		c := dial(t, "", p.addr("a"))
		defer c.Close()
		go flood(c, 100)
		waitFor(t, "bytes arrive", func() bool { return r.total() > 0 })
		from := time.Now()
		time.Sleep(4 * time.Second)
		to := time.Now()
		got := float64(r.between(from, to)) / to.Sub(from).Seconds()
		t.Logf("writes of 100 bytes: %.0f B/s (%.2f %% of the rate)", got, 100*got/rate)
		if got > 1.02*rate {
			t.Errorf("%.0f B/s is more than 2 %% above", got)
		}
		if got < 0.98*rate {
			return fmt.Errorf("%.0f B/s is more than 2 %% below", got)
		}
		return nil
	})
}

// slew is by how much the kernel's real-time clock, which stamps what arrives,
// may run faster or slower than the monotonic one that paces: NTP turns it by
// 500 ppm at most (adjtimex(2)).
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
	trial.Judge(t, 25*time.Millisecond, func() error {
		r.reset()
		send(t, p.addr("a"), 4)
		waitFor(t, "all have passed", func() bool { return len(r.all()) == 4 })
		t.Logf("gaps %v", r.gaps())
		for _, g := range r.gaps() {
			if g < gap-slew(gap) {
				t.Errorf("a gap of %v is shorter than %v", g, gap)
			}
			if g > gap+50*time.Millisecond {
				return fmt.Errorf("a gap of %v is longer than %v", g, gap)
			}
		}
		return nil
	})
}

// send sends datagrams at once, from one socket.
func send(t *testing.T, to string, n int) {
	t.Helper()
	c := dialUDP(t, to)
	for i := range n {
		if _, err := fmt.Fprintf(c, "datagram %d", i); err != nil {
			t.Fatal(err)
		}
	}
}

// Of 50 datagrams at once, one leaves, 20 wait, and the rest are dropped and counted.
func TestDatagramsAreSpacedAndCounted(t *testing.T) {
	const gap = 100 * time.Millisecond
	trial.Judge(t, 5*time.Millisecond, func() error {
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
		waitFor(t, "all are sent or dropped", func() bool { return accounted(p.class("a")) == 50 })
		c := p.class("a")
		sent, dropped := c.Sent["upstream"].Packets, c.Dropped["queue_full"].Items
		if m := p.metric(`shaper_class_sent_packets_total{class="a",direction="upstream"}`); m != float64(sent) {
			t.Errorf("/metrics has %v sent, shaper classes %d", m, sent)
		}
		if m := p.metric(`shaper_class_dropped_total{class="a",reason="queue_full"}`); m != float64(dropped) {
			t.Errorf("/metrics has %v dropped, shaper classes %d", m, dropped)
		}
		waitFor(t, "what was sent has arrived", func() bool { return len(r.all()) >= int(sent) })
		return spaced(t, r.gaps(), gap, int(sent))
	})
}

// spaced holds that gaps are never shorter than wanted, and evenly so.
func spaced(t *testing.T, gaps []time.Duration, gap time.Duration, sent int) error {
	least, most := time.Hour, time.Duration(0)
	for _, g := range gaps {
		least, most = min(least, g), max(most, g)
	}
	t.Logf("50 at once: %d passed, gaps from %v to %v", sent, least, most)
	switch {
	case len(gaps) != sent-1:
		t.Errorf("%d were sent and %d arrived", sent, len(gaps)+1)
	case least < gap-slew(gap):
		t.Errorf("a gap of %v is shorter than %v", least, gap)
	case sent != 21:
		return fmt.Errorf("%d passed, not 21: some were sent or took their turn late", sent)
	case most > gap+10*time.Millisecond:
		return fmt.Errorf("a gap of %v is far from %v", most, gap)
	}
	return nil
}
