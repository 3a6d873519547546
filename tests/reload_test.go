package tests

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"shaper/tests/trial"
)

const (
	longStreams = 50
	connectRate = 1000 // new connections a second, at most
)

// reloadPolicy returns one of many policies: rates change, and classes, rules
// and listeners come and go.
func reloadPolicy(upstream string, n int) string {
	policy := fmt.Sprintf(`
[class.a]
rate = "%.0fB/s"
[class.quick]
rate = "1gbit"
[listener.a]
listen = "127.0.0.1:0"
upstream = "%s"
class = "a"
[listener.quick]
listen = "127.0.0.1:0"
upstream = "%s"
class = "quick"
`, rateAfter(n), upstream, upstream)
	if n%2 == 1 {
		policy += `
[class.guest]
rate = "20MB/s"
[listener.guest]
listen = "127.0.0.1:0"
upstream = "discard:"
class = "guest"
[[rule]]
source = ["127.0.0.2", "127.0.0.3"]
class = "guest"
`
	}
	return policy
}

// rateAfter is the rate of class a in the policy of a number, in bytes a second.
func rateAfter(n int) float64 { return float64(10+n%7) * 1e6 }

// Many reloads under load lose no connection and no byte, and each rate is kept to while it
// is in force.
func TestReloadsUnderLoad(t *testing.T) { reloadUnderLoad(t, plain(), 0.85) }

// The same with the race detector, under which no rate need be reached.
func TestReloadsUnderLoadAreRaceFree(t *testing.T) {
	t.Parallel()
	reloadUnderLoad(t, raced(t), 0)
}

// reloadUnderLoad reloads again and again. At least a share of what the rates allow passes.
func reloadUnderLoad(t *testing.T, shaper string, share float64) {
	upstream := serve(t, answerHash)
	p := start(t, shaper, reloadPolicy(upstream, 0))
	stop := make(chan struct{})
	var streams, connections tally
	var moved atomic.Int64
	var wg sync.WaitGroup
	for i := range longStreams {
		wg.Go(func() { streams.add(longStream(p.addr("a"), i, stop, &moved)) })
	}
	quick := p.addr("quick")
	wg.Go(func() { connectSteadily(quick, stop, &connections) })

	sent := func() float64 { return float64(p.class("a").Sent["upstream"].Bytes) }
	waitFor(t, "there is load", func() bool { return sent() > 1e6 && connections.done.Load() > 100 })
	reloads := trial.Size(30, 200)
	watch, began := trial.Begin(), time.Now()
	before, allowed := sent(), promise{{began, rateAfter(0)}}
	for n := 1; n <= reloads; n++ {
		asked := time.Now()
		p.write(reloadPolicy(upstream, n))
		p.must("reload")
		allowed = allowed.then(asked, time.Now(), rateAfter(n))
	}
	passed, took := sent()-before, time.Since(began)
	most := allowed.by(time.Now())
	p.must("set", "a", "rate=1GB/s") // what stands in the sockets' buffers need not wait
	close(stop)
	wg.Wait()
	t.Logf("%d reloads in %v under %.0f connections/s (asked for: %d) and %d streams with %d MB", reloads, took.Round(time.Millisecond),
		float64(connections.done.Load())/took.Seconds(), connectRate, longStreams, moved.Load()/1e6)
	trial.Figure(t, "reloads under load; bytes of those that the rates give", "%d; %.1f %%", reloads, 100*passed/most)
	if made := 0.05 * rateAfter(reloads); passed > most+made+64<<10 { // lateness is made up for
		t.Errorf("%.0f bytes passed, and the rates give %.0f", passed, most)
	}
	var wrong error
	if passed < share*most { // the lower of two rates may be in force while a command runs
		wrong = fmt.Errorf("%.0f bytes passed, and the rates give %.0f", passed, most)
	}
	watch.Judge(t, 20*time.Millisecond, wrong)
	streams.holds(t, "streams")
	connections.holds(t, "connections")
	for _, l := range []string{"a", "quick"} {
		for result, n := range p.listener(l).Ended {
			if result != "ok" && n > 0 {
				t.Errorf("listener %s: %d sessions ended as %s", l, n, result)
			}
		}
	}
}

// longStream writes until it is stopped, and then compares what the upstream
// says it has got: a SHA-256.
func longStream(addr string, i int, stop chan struct{}, moved *atomic.Int64) error {
	c, err := dialFrom(fmt.Sprintf("127.0.0.%d", 1+i%5), addr)
	if err != nil {
		return err
	}
	defer c.Close()
	c.SetWriteBuffer(64 << 10)
	piece := noise(uint64(i), 64<<10)
	h := sha256.New()
	for n := i + 1; ; n = n*31%len(piece) + 1 { // pieces of all sizes
		select {
		case <-stop:
			return compareHash(c, h.Sum(nil))
		default:
		}
		if _, err := c.Write(piece[:n]); err != nil {
			return err
		}
		h.Write(piece[:n])
		moved.Add(int64(n))
	}
}

func compareHash(c *net.TCPConn, want []byte) error {
	c.SetDeadline(time.Now().Add(patience))
	if err := c.CloseWrite(); err != nil {
		return err
	}
	got, err := io.ReadAll(c)
	if err == nil && !bytes.Equal(got, want) {
		err = errors.New("the stream is not the one that was sent")
	}
	return err
}

// connectSteadily makes short connections at connectRate, or as fast as the
// machine can.
func connectSteadily(addr string, stop chan struct{}, y *tally) {
	var wg sync.WaitGroup
	defer wg.Wait()
	room := make(chan struct{}, 100)
	next := time.Now()
	for n := 0; ; n++ {
		next = next.Add(time.Second / connectRate)
		select {
		case <-stop:
			return
		case <-time.After(time.Until(next)):
		}
		room <- struct{}{}
		wg.Go(func() {
			y.add(shortConnection(addr, n))
			<-room
		})
	}
}

func shortConnection(addr string, n int) error {
	c, err := dialFrom(fmt.Sprintf("127.0.0.%d", 1+n%5), addr)
	if err != nil {
		return err
	}
	defer c.Close()
	text := []byte(strings.Repeat("x", n%2000))
	if _, err := c.Write(text); err != nil {
		return err
	}
	sum := sha256.Sum256(text)
	return compareHash(c, sum[:])
}
