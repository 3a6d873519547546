package tests

import (
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"shaper/tests/trial"
)

// overTLS starts two shapers in a row, with TLS between them, and plain text to the client and to
// the upstream. Both read messages. The first has the rate. Its class and listener are called
// "a".
func overTLS(t *testing.T, protocol, rate, upstream string, more ...string) (first *program) {
	a := newAuthority(t)
	a.issue("second", "127.0.0.1", time.Time{})
	policy := func(rate, upstream, tls string) string {
		return fmt.Sprintf("[class.a]\nrate = %q\nheadroom = \"2%%\"\n[listener.a]\nlisten = \"127.0.0.1:0\"\nprotocol = %q\nupstream = %q\nclass = \"a\"\n%s\n%s\n",
			rate, protocol, upstream, tls, strings.Join(more, "\n"))
	}
	second := start(t, raced(t), policy("100000 messages/s", upstream, a.terminating("second")))
	return start(t, raced(t), policy(rate, second.addr("a"), a.originating("")))
}

// Through TLS, HTTP client and server get the same bytes as without shaper.
func TestTLSCarriesHTTP(t *testing.T) {
	t.Parallel()
	l, direct := httpServer(t, pathServer)
	p := overTLS(t, "http", "10000 messages/s", direct)
	all := conversations()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		wantAnswers, want := converse(t, direct, all[name]), l.last()
		gotAnswers, got := converse(t, p.addr("a"), all[name]), l.last()
		if gotAnswers != wantAnswers || got != want {
			t.Errorf("%s: the client gets %d bytes, want %d, and the server %d, want %d", name, len(gotAnswers), len(wantAnswers), len(got), len(want))
		}
	}
}

// Submits keep the gap of a provider behind TLS. Each is answered once, and enquire_link overtakes
// those that wait. The rate leaves 5 ms to spare for each gap.
func TestTLSCarriesSMPP(t *testing.T) {
	t.Parallel()
	const n = 60
	rule := &spacing{gap: 20 * time.Millisecond}
	p := overTLS(t, "smpp", "40 messages/s", spacedProvider(t, rule).addr)
	e := bind(t, p.addr("a"), "acme")
	watch := trial.Begin()
	e.submit("acme", n)
	took := e.enquire()
	if e.answered > n/2 {
		t.Errorf("%d of %d submits were answered before enquire_link", e.answered, n)
	}
	for e.answered < n {
		e.read()
	}
	if sent := p.class("a").Sent["upstream"].Messages; sent != n {
		t.Errorf("shaper counts %d messages, want %d", sent, n)
	}
	rule.checkSum(t, n, n/2) // what the second shaper has late, it sends at once
	watch.Judge(t, 5*time.Millisecond, trial.Join(rule.kept(),
		trial.Most(took, 100*time.Millisecond, time.Second, "enquire_link was answered after %v, want at most 100 ms", took)))
}

// Payments and reversals keep their order through TLS.
func TestTLSCarriesISO8583(t *testing.T) {
	t.Parallel()
	const pairs = 20
	link, host := isoLinks()[0], &isoHost{}
	upstream := serve(t, func(c *net.TCPConn) { host.serve(link, c) })
	p := overTLS(t, "iso8583", "100 messages/s", upstream, fmt.Sprintf("length_prefix = %q", link.prefix))
	if err := isoConversation(link, p.addr("a"), host, pairs); err != nil {
		t.Error(err)
	}
	if sent := p.class("a").Sent["upstream"].Messages; sent != 2*pairs {
		t.Errorf("shaper counts %d messages, want %d", sent, 2*pairs)
	}
}

// Lines pass through TLS in both directions, in their order and at the rate that both share, though
// each side has written all of its lines at once. The last line has no end of its own.
func TestTLSCarriesLines(t *testing.T) {
	t.Parallel()
	const n, gap = 30, 20 * time.Millisecond
	text := func(from string) (all string) {
		for i := range n {
			all += fmt.Sprintf("line %d from the %s%s\n", i, from, strings.Repeat(".", i*97))
		}
		return all + "the last one"
	}
	got := make(chan string, 1)
	p := overTLS(t, "lines", "50 messages/s", serve(t, func(c *net.TCPConn) {
		io.WriteString(c, text("upstream"))
		c.CloseWrite()
		all, _ := io.ReadAll(c)
		got <- string(all)
	}), `return_class = "a"`)
	watch, began := trial.Begin(), time.Now()
	c, err := dialFrom("", p.addr("a"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(began.Add(patience))
	io.WriteString(c, text("client"))
	c.CloseWrite()
	trial.Await(t, "lines of both directions wait", func() bool { return p.class("a").Backlog > n })
	if all, err := io.ReadAll(c); string(all) != text("upstream") || err != nil {
		t.Errorf("the client gets %d bytes of %d, %v", len(all), len(text("upstream")), err)
	}
	if all := <-got; all != text("client") {
		t.Errorf("the upstream gets %d bytes of %d", len(all), len(text("client")))
	}
	took, least := time.Since(began), (2*(n+1)-1)*gap
	for direction, sent := range p.class("a").Sent {
		if sent.Messages != n+1 {
			t.Errorf("%s, shaper counts %d messages, want %d", direction, sent.Messages, n+1)
		}
	}
	if took < least {
		t.Errorf("all lines pass within %v, want at least %v", took, least)
	}
	watch.Below(t, "all lines", took, least*5/4)
}
