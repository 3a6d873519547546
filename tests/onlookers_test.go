package tests

import (
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"shaper/tests/trial"
)

// The most that looking on takes, as shares of a processor.
const (
	mostOfPage = 0.01  // of the daemon, with a page open
	mostOfTop  = 0.005 // of shaper top
)

// onlookersPolicy returns a policy of n classes, with a listener for lines that c0 paces, and one for datagrams.
func onlookersPolicy(n int, datagrams, lines string) string {
	text := fmt.Sprintf(`
[listener.datagrams]
listen = "127.0.0.1:0"
protocol = "udp"
upstream = %q
class = "c1"
idle_timeout = "1h"
[listener.lines]
listen = "127.0.0.1:0"
protocol = "lines"
upstream = %q
class = "c0"
`, datagrams, lines)
	for i := range n {
		text += fmt.Sprintf("[class.c%d]\nrate = \"%d messages/s\"\n", i, 10+i)
	}
	return strings.Replace(text, `rate = "11 messages/s"`, `rate = "1GB/s"`, 1) // for datagrams
}

// skipUnlessFull skips a test that measures for minutes.
func skipUnlessFull(t *testing.T) {
	t.Helper()
	if !trial.Full {
		t.Skip("measures only at full size: FULL=1")
	}
}

// With 1,000 classes and 10,000 idle sessions, a page takes little of the daemon's processor. The same daemon without a
// page is the reference: a busy machine excuses as much more as it takes, three times.
func TestOpenPageTakesLittle(t *testing.T) {
	skipUnlessFull(t)
	const classes, sessions = 1000, 10_000
	sink, err := listenUDP("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	defer sink.Close()
	b := newBrowser(t)
	p := start(t, plain(), onlookersPolicy(classes, sink.LocalAddr().String(), serve(t, func(*net.TCPConn) {})))
	openSessions(t, p, sessions)
	load := func(open string) float64 {
		time.Sleep(5 * time.Second) // what the start and the first events take
		return noteLoad(t, fmt.Sprintf("the daemon of %d classes and %d sessions, %s open", classes, sessions, open), p.load(time.Minute))
	}
	nothing := load("nothing")
	for _, view := range []string{"classes", "sessions"} {
		openAnew(b, "http://"+p.status().HTTP+"/#"+view)
		b.await(view+" are there", `document.querySelectorAll("main tbody tr").length > 100`)
		trial.Judge(t, 10*time.Millisecond, func() *trial.Miss {
			return mostLoad(load(view), mostOfPage, mostOfPage+3*nothing, "the daemon, "+view+" open,")
		})
	}
	b.open("about:blank") // so that no stream holds up the end of the daemon
}

// openSessions sends a datagram from each of n sockets, which it closes again: the sessions stay. It waits for each
// hundred, which is what the listener's buffer has room for.
func openSessions(t *testing.T, p *program, n int) {
	t.Helper()
	to := p.addr("datagrams")
	for i := range n {
		from := net.UDPAddr{IP: net.IPv4(127, 0, byte(1+i/250), byte(1+i%250))}
		c, err := (&net.Dialer{LocalAddr: &from}).Dial("udp", to)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write([]byte(hello)); err != nil {
			t.Fatal(err)
		}
		c.Close()
		if sent := i + 1; sent%100 == 0 {
			trial.Await(t, fmt.Sprintf("%d sessions are open", sent), func() bool { return p.listener("datagrams").Open == sent })
		}
	}
}

// shaper top takes little of a processor while it shows 100 classes, one of which sends.
func TestTopTakesLittle(t *testing.T) {
	skipUnlessFull(t)
	p := start(t, plain(), onlookersPolicy(100, "discard:", serve(t, func(c *net.TCPConn) { io.Copy(io.Discard, c) })))
	p.offer("lines", 5000) // at 10 a second
	m := newTmux(t, fmt.Sprintf("exec %s -c %s top", plain(), p.config))
	m.await("100 classes, something waits in 1", "c0")
	pid, err := strconv.Atoi(strings.TrimSpace(m.do("display-message", "-p", "#{pane_pid}")))
	if err != nil {
		t.Fatal(err)
	}
	trial.Judge(t, 10*time.Millisecond, func() *trial.Miss {
		load := noteLoad(t, "shaper top with 100 classes", loadOf(t, pid, time.Minute))
		return mostLoad(load, mostOfTop, 3*mostOfTop, "shaper top")
	})
}

// noteLoad notes a share of a processor, and returns it.
func noteLoad(t *testing.T, what string, load float64) float64 {
	t.Helper()
	t.Logf("%s: %.3f %% of a processor", what, 100*load)
	trial.Figure(t, what, "%.3f %% of a processor", 100*load)
	return load
}

// mostLoad returns a Miss if a share of a processor is more than most. On a busy machine each wake-up is dearer, as the
// caches are cold, but not so that it is more than sure.
func mostLoad(load, most, sure float64, what string) *trial.Miss {
	return trial.Most(load, most, sure, "%s takes %.2f %% of a processor, want at most %.1f %%", what, 100*load, 100*most)
}
