package tests

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
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

// Reloads under load lose no connection and no byte. Of the bytes that the rates allow, nearly as
// many pass as without reloads, and nearly as many connections are made.
func TestReloadsUnderLoad(t *testing.T) { reloadUnderLoad(t, plain(), trial.Begin) }

// With the race detector the program need not be as fast.
func TestReloadsUnderLoadAreRaceFree(t *testing.T) {
	t.Parallel()
	if !trial.Raced {
		t.Skip("make race runs it")
	}
	reloadUnderLoad(t, raced(t), nil)
}

// reloadUnderLoad reloads again and again. If the program has to be fast, begin begins to watch the machine, and
// reloadUnderLoad runs `shaper check` in between as often on the same policies: that costs the machine about as much,
// and concerns the daemon not at all. What passes during the reloads is compared with that.
func reloadUnderLoad(t *testing.T, shaper string, begin func() *trial.Watch) {
	upstream := serve(t, answerHash)
	p := start(t, shaper, reloadPolicy(upstream, 0))
	load := beginLoad(p)
	trial.Await(t, "there is load", func() bool { return load.sent() > 1e6 && load.connections.done.Load() > 100 })
	const rounds = 5
	each, n := trial.Size(30, 200)/rounds, 0
	var reloads, checks passage
	var watch *trial.Watch
	if begin != nil {
		watch = begin()
	}
	for range rounds {
		if watch != nil {
			checks.add(t, load.during(n, func(passed *passage) {
				for i := range each {
					p.write(reloadPolicy(upstream, n+1+i))
					p.must("check")
				}
			}))
		}
		reloads.add(t, load.during(n, func(passed *passage) {
			for range each {
				n++
				asked := time.Now()
				p.write(reloadPolicy(upstream, n))
				p.must("reload")
				passed.changed(asked, rateAfter(n))
			}
		}))
	}
	p.must("set", "a", "rate=1GB/s") // bytes in the sockets' buffers need not wait
	load.end(t)
	if watch != nil {
		trial.Figure(t, "reloads under load; bytes and connections, of what passes without reloads", "%d; %.1f %% and %.1f %%",
			n, 100*reloads.share()/checks.share(), 100*reloads.perSecond()/checks.perSecond())
		watch.Judge(t, 20*time.Millisecond, reloads.slowerThan(checks))
	}
	for _, l := range []string{"a", "quick"} {
		for result, n := range p.listener(l).Ended {
			if result != "ok" && n > 0 {
				t.Errorf("listener %s: %d sessions ended as %s", l, n, result)
			}
		}
	}
}

// A passage is what passed in a time, and how many bytes the rates allowed. While a command changes
// a rate, the old one or the new one is in force: least counts the lower one, and most the higher.
type passage struct {
	bytes       float64
	least, most float64
	lateness    float64 // bytes of 50 ms, for which shaper makes up
	connections int64
	took        time.Duration

	lower, higher allowance // of a passage that has not ended
}

// changed notes that a command has changed the rate since asked.
func (p *passage) changed(asked time.Time, rate float64) {
	p.lower, p.higher = p.lower.changed(time.Now(), asked, rate), p.higher.changed(asked, time.Now(), rate)
	p.lateness = 0.05 * rate
}

// add adds another passage. It fails the test if more passed than the rates allow.
func (p *passage) add(t *testing.T, more passage) {
	t.Helper()
	if more.bytes > more.most+more.lateness+64<<10 {
		t.Errorf("%.0f bytes passed, and the rates allow %.0f", more.bytes, more.most)
	}
	p.bytes, p.least, p.connections, p.took = p.bytes+more.bytes, p.least+more.least, p.connections+more.connections, p.took+more.took
}

func (p *passage) share() float64     { return p.bytes / p.least }
func (p *passage) perSecond() float64 { return float64(p.connections) / p.took.Seconds() }

// slowerThan returns a Miss if less passed than 95 % of a reference.
func (p *passage) slowerThan(reference passage) *trial.Miss {
	const least, sure = 0.95, 0.5
	return trial.Join(
		trial.Least(p.share(), least*reference.share(), sure*reference.share(),
			"%.1f %% of the bytes that the rates allow passed, and without reloads %.1f %%", 100*p.share(), 100*reference.share()),
		trial.Least(p.perSecond(), least*reference.perSecond(), sure*reference.perSecond(),
			"%.0f connections/s were made, and without reloads %.0f", p.perSecond(), reference.perSecond()))
}

// reloadLoad is what the daemon carries while its policy changes.
type reloadLoad struct {
	program              *program
	streams, connections attempts
	stop                 chan struct{}
	all                  sync.WaitGroup
}

// beginLoad starts longStreams streams, and connections at connectRate.
func beginLoad(p *program) *reloadLoad {
	l := &reloadLoad{program: p, stop: make(chan struct{})}
	slow, quick := p.addr("a"), p.addr("quick")
	for i := range longStreams {
		l.all.Go(func() { l.streams.add(longStream(slow, i, l.stop)) })
	}
	l.all.Go(func() { connectSteadily(quick, l.stop, &l.connections) })
	return l
}

// sent returns how many bytes the streams have sent.
func (l *reloadLoad) sent() float64 { return float64(l.program.class("a").Sent["upstream"].Bytes) }

// during returns what passes while do runs, which begins with policy n.
func (l *reloadLoad) during(n int, do func(*passage)) passage {
	before, connections, began := l.sent(), l.connections.done.Load(), time.Now()
	first := allowance{{began, rateAfter(n)}}
	p := passage{lower: first, higher: slices.Clone(first), lateness: 0.05 * rateAfter(n)}
	do(&p)
	p.connections, p.took = l.connections.done.Load()-connections, time.Since(began)
	p.bytes, p.least, p.most = l.sent()-before, p.lower.until(time.Now()), p.higher.until(time.Now())
	return p
}

// end ends the load. All of it must have succeeded.
func (l *reloadLoad) end(t *testing.T) {
	t.Helper()
	close(l.stop)
	l.all.Wait()
	l.streams.check(t, "streams")
	l.connections.check(t, "connections")
}

// longStream writes until stop is closed. Then it compares the upstream's SHA-256 with that of what
// it has sent.
func longStream(addr string, i int, stop chan struct{}) error {
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
