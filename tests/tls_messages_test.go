package tests

import (
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"shaper/tests/trial"
)

// overTLS starts two shapers that both read messages: what the client says to the first goes
// on by TLS to the second, and from there to the upstream as it was. The first has the rate.
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

// Whatever is said in HTTP is the same through TLS, on both sides.
func TestTLSCarriesHTTP(t *testing.T) {
	t.Parallel()
	l, direct := httpServer(t, askedServer)
	p := overTLS(t, "http", "10000 messages/s", direct)
	all := conversations()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		wantAnswers, want := converse(t, direct, all[name]), l.last()
		gotAnswers, got := converse(t, p.addr("a"), all[name]), l.last()
		if gotAnswers != wantAnswers || got != want {
			t.Errorf("%s: the client gets %d bytes, not %d, and the server %d, not %d", name, len(gotAnswers), len(wantAnswers), len(got), len(want))
		}
	}
}

// Submits keep the gap of a provider behind TLS, with 5 ms to spare on the way, each is answered once, and enquire_link passes
// those that wait.
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
		t.Errorf("%d of %d submits are answered before enquire_link", e.answered, n)
	}
	for e.answered < n {
		e.read()
	}
	if sent := p.class("a").Sent["upstream"].Messages; sent != n {
		t.Errorf("%d messages are counted, of %d", sent, n)
	}
	err := rule.holds(n)
	if took > 100*time.Millisecond && err == nil {
		err = fmt.Errorf("enquire_link is answered after %v", took)
	}
	watch.Judge(t, 5*time.Millisecond, err)
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
		t.Errorf("%d messages are counted, of %d", sent, 2*pairs)
	}
}
