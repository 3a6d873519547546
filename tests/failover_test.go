package tests

import (
	"fmt"
	"net"
	"regexp"
	"strings"
	"testing"

	"shaper/tests/trial"
)

// If the first provider is down, shaper charges the class of the second. The sessions, explain,
// the metrics and the log show the failover.
func TestFailOver(t *testing.T) {
	t.Parallel()
	down := net.JoinHostPort("127.0.0.1", freePort(t))
	l, err := net.Listen("tcp", "127.0.0.2:0")
	if err != nil {
		t.Fatal(err)
	}
	serveOn(t, l, answerHash)
	up := l.Addr().String()
	p := start(t, raced(t), fmt.Sprintf(`
[class.first]
rate = "1B/h"
[class.second]
rate = "8gbit"
[listener.l]
listen   = "127.0.0.1:0"
upstream = [%q, %q]
class    = "first"
[[rule]]
destination = "127.0.0.2"
class       = "second"
`, down, up))
	const size = 100_000
	c := dial(t, "", p.addr("l"))
	if _, err := c.Write(noise(1, size)); err != nil {
		t.Fatal(err)
	}
	trial.Await(t, "the second class is charged for all bytes", func() bool { return p.class("second").Sent["upstream"].Bytes == size })
	if n := p.class("first").Sent["upstream"].Bytes; n != 0 {
		t.Errorf("the first class is charged for %d bytes, want 0", n)
	}
	if got := p.must("sessions"); !regexp.MustCompile(` 127\.0\.0\.2\S* +2 +second `).MatchString(got) {
		t.Errorf("shaper sessions does not show the second upstream:\n%s", got)
	}
	if got, want := p.must("explain", "127.0.0.1"), "failed over to "+up+": class second: rule 1"; !strings.Contains(got, want) {
		t.Errorf("explain does not say %q:\n%s", want, got)
	}
	for upstream, want := range map[string]float64{down: 1, up: 0} {
		series := fmt.Sprintf(`shaper_upstream_failures_total{listener="l",reason="refused",upstream="%s"}`, upstream)
		if got := p.metric(series); got != want {
			t.Errorf("%s is %v, want %v", series, got, want)
		}
	}
	if log := p.log.String(); strings.Count(log, "failed over to another address") != 1 {
		t.Errorf("the log does not report the failover exactly once:\n%s", log)
	}
	c.Close()
}
