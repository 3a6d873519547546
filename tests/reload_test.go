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
	connectRate = 1000 // most new connections per second
)

// reloadPolicy returns policy n. From one to the next, a rate changes, and a class, a rule and a
// listener appear or disappear.
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

// rateAfter returns the rate of class a in policy n, in bytes/s.
func rateAfter(n int) float64 { return float64(10+n%7) * 1e6 }

// Reloads under load lose no connection and no byte, and bytes pass at the rates in force.
func TestReloadsUnderLoad(t *testing.T) { reloadUnderLoad(t, plain(), 0.85) }

// With the race detector the program need not reach the rates.
func TestReloadsUnderLoadAreRaceFree(t *testing.T) {
	t.Parallel()
	reloadUnderLoad(t, raced(t), 0)
}

// reloadUnderLoad reloads again and again. Of the bytes that the rates allow, at least share has to
// pass.
func reloadUnderLoad(t *testing.T, shaper string, share float64) {
	upstream := serve(t, answerHash)
	p := start(t, shaper, reloadPolicy(upstream, 0))
	stop := make(chan struct{})
	var streams, connections attempts
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
	before, allowed := sent(), allowance{{began, rateAfter(0)}}
	for n := 1; n <= reloads; n++ {
		asked := time.Now()
		p.write(reloadPolicy(upstream, n))
		p.must("reload")
		allowed = allowed.changed(asked, time.Now(), rateAfter(n))
	}
	passed, took := sent()-before, time.Since(began)
	most := allowed.until(time.Now())
	p.must("set", "a", "rate=1GB/s") // bytes in the sockets' buffers need not wait
	close(stop)
	wg.Wait()
	t.Logf("%d reloads in %v under %.0f connections/s (at most %d) and %d streams with %d MB", reloads, took.Round(time.Millisecond),
		float64(connections.done.Load())/took.Seconds(), connectRate, longStreams, moved.Load()/1e6)
	trial.Figure(t, "reloads under load; share of the bytes that the rates allow", "%d; %.1f %%", reloads, 100*passed/most)
	if lateness := 0.05 * rateAfter(reloads); passed > most+lateness+64<<10 { // shaper makes up for 50 ms of lateness
		t.Errorf("%.0f bytes passed, and the rates allow %.0f", passed, most)
	}
	var wrong error
	if passed < share*most { // while a command runs, the lower of two rates may be in force
		wrong = fmt.Errorf("%.0f bytes passed, and the rates allow %.0f", passed, most)
	}
	watch.Judge(t, 20*time.Millisecond, wrong)
	streams.check(t, "streams")
	connections.check(t, "connections")
	for _, l := range []string{"a", "quick"} {
		for result, n := range p.listener(l).Ended {
			if result != "ok" && n > 0 {
				t.Errorf("listener %s: %d sessions ended as %s", l, n, result)
			}
		}
	}
}

// longStream writes until stop is closed. Then it compares the upstream's SHA-256 with that of what
// it has sent.
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

// compareHash ends the sending direction, and compares the upstream's answer with want.
func compareHash(c *net.TCPConn, want []byte) error {
	c.SetDeadline(time.Now().Add(patience))
	if err := c.CloseWrite(); err != nil {
		return err
	}
	got, err := io.ReadAll(c)
	if err == nil && !bytes.Equal(got, want) {
		err = errors.New("the upstream has got other bytes than were sent")
	}
	return err
}

// connectSteadily makes short connections at connectRate until stop is closed. On a slow machine it
// makes fewer: at most 100 at a time.
func connectSteadily(addr string, stop chan struct{}, y *attempts) {
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

// shortConnection sends some bytes over a connection, and compares the upstream's SHA-256.
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
