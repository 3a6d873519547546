package conn

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"shaper/policy"
	"shaper/stats"
	"shaper/tests/trial"
)

// messages returns a policy: listener "l" of a protocol with messages, and class "c" with a
// rate.
func exchanged(protocol, upstream, rate string, more ...string) string {
	return class("c", rate, more...) + listener("l", protocol, upstream, "c")
}

// pdu returns a PDU of SMPP.
func pdu(command, status, sequence uint32, body string) string {
	b := make([]byte, 16, 16+len(body))
	binary.BigEndian.PutUint32(b, uint32(16+len(body)))
	binary.BigEndian.PutUint32(b[4:], command)
	binary.BigEndian.PutUint32(b[8:], status)
	binary.BigEndian.PutUint32(b[12:], sequence)
	return string(append(b, body...))
}

// SMPP commands.
const (
	submit      = 0x04
	submitResp  = 0x80000004
	enquire     = 0x15
	enquireResp = 0x80000015
	unbind      = 0x06
	transceiver = 0x09
	deliver     = 0x05
)

func submitFrom(source string, sequence uint32) string {
	return pdu(submit, 0, sequence, "\x00\x00\x00"+source+"\x00\x00\x00123\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02hi")
}

// Submits leave one by one, at the gap of the rate. Messages that do not count pass between
// them, and unbind leaves after them.
func TestSubmits(t *testing.T) {
	addr, conns := listen(t)
	r := run(t, exchanged("smpp", addr, "20 messages/s"))
	client, upstream := r.open(conns)
	bind := pdu(transceiver, 0, 1, "acme\x00\x00\x00\x34\x00\x00\x00")
	watch, begin := trial.Begin(), time.Now()
	send(t, client, bind+submitFrom("a", 2)+submitFrom("a", 3)+submitFrom("a", 4)+pdu(enquire, 0, 5, "")+pdu(unbind, 0, 6, ""))
	expect(t, upstream, bind+submitFrom("a", 2)+pdu(enquire, 0, 5, ""))
	watch.Below(t, "enquire_link", time.Since(begin), 40*time.Millisecond)
	expect(t, upstream, submitFrom("a", 3)+submitFrom("a", 4)+pdu(unbind, 0, 6, ""))
	if took := time.Since(begin); took < 100*time.Millisecond {
		t.Errorf("three submits take %v at 20/s", took)
	}
	send(t, upstream, pdu(submitResp, 0, 2, "id\x00"))
	expect(t, client, pdu(submitResp, 0, 2, "id\x00"))
	if n := r.sent("c", stats.Upstream).Messages.Load(); n != 3 {
		t.Errorf("%d messages are counted, want 3", n)
	}
}

// If the queue has no room, submits are answered with ESME_RTHROTTLED.
func TestSubmitsAreRefused(t *testing.T) {
	addr, conns := listen(t)
	r := run(t, exchanged("smpp", addr, "1 messages/h", `queue = "1 messages"`))
	client, upstream := r.open(conns)
	send(t, client, submitFrom("a", 1)+submitFrom("a", 2)+submitFrom("a", 3)+submitFrom("a", 4))
	expect(t, upstream, submitFrom("a", 1))
	expect(t, client, pdu(submitResp, 0x58, 3, "")+pdu(submitResp, 0x58, 4, ""))
	if n := r.shaper.Class("c").Stats.Refused[stats.QueueFull].Items.Load(); n != 2 {
		t.Errorf("%d are counted as refused, want 2", n)
	}
	reset(client)
	r.awaitEnd(stats.ResetByPeer, 1)
	if n := r.shaper.Class("c").InFlight(); n != 0 {
		t.Errorf("%d are in flight, and the session has ended", n)
	}
}

// The sender decides the class of a message, on one bind.
func TestRulesOnMessages(t *testing.T) {
	addr, conns := listen(t)
	r := run(t, exchanged("smpp", addr, "0 messages/s")+class("otp", "1000 messages/s")+
		"[[rule]]\nsource_addr = \"otp*\"\nclass = \"otp\"\n")
	client, upstream := r.open(conns)
	send(t, client, submitFrom("bulk", 1)+submitFrom("otp1", 2)+submitFrom("bulk", 3))
	expect(t, upstream, submitFrom("otp1", 2))
	trial.Await(t, "bulk waits", func() bool { return r.shaper.Class("c").Backlog().Items == 2 })
	r.reload(exchanged("smpp", addr, "0 messages/s") + class("otp", "1000 messages/s") +
		"[[rule]]\nsource_addr = \"*lk\"\nclass = \"otp\"\n")
	send(t, client, submitFrom("bulk", 4))
	expect(t, upstream, submitFrom("bulk", 4))
}

// What waits in the class of a rule goes where the rules lead after a reload that renames or replaces that class, and not
// to the class of the connection, which may let it go at once. If no rule leads there any more, the connection's class has it.
func TestReloadFollowsRules(t *testing.T) {
	addr, conns := listen(t)
	rule := func(name string) string { return fmt.Sprintf("[[rule]]\nsource_addr = \"otp*\"\nclass = %q\n", name) }
	open := exchanged("smpp", addr, "1000 messages/s")
	for what, after := range map[string]string{
		"renamed":  class("other", "0 messages/s") + rule("other"),
		"replaced": class("otp", "0 messages/s", `per = "recipient"`) + rule("otp"),
	} {
		t.Run(what, func(t *testing.T) {
			r := run(t, open+class("otp", "0 messages/s")+rule("otp"))
			client, upstream := r.open(conns)
			old := r.shaper.Class("otp")
			send(t, client, submitFrom("otp", 1)+submitFrom("otp", 2))
			trial.Await(t, "both wait", func() bool { return old.Backlog().Items == 2 })
			r.reload(open + after)
			name := "otp"
			if what == "renamed" {
				name = "other"
			}
			if n, left := r.shaper.Class(name).Backlog().Items, old.Backlog().Items; n != 2 || left != 0 {
				t.Errorf("%d wait in %s, and %d in the class before", n, name, left)
			}
			r.reload(open)
			expect(t, upstream, submitFrom("otp", 1)+submitFrom("otp", 2))
			client.Close()
			upstream.Close()
		})
	}
}

// A bind whose listener goes keeps the rules that it had: its messages do not go to the class of the connection. If the class
// of a rule goes, too, its messages stay in it.
func TestRulesOutlastTheListener(t *testing.T) {
	addr, conns := listen(t)
	keep := class("c", "1000 messages/s") + listener("keep", "smpp", addr, "c")
	otp, rule := class("otp", "0 messages/s"), "[[rule]]\nlistener = \"l\"\nsource_addr = \"otp*\"\nclass = \"otp\"\n"
	r := run(t, keep+listener("l", "smpp", addr, "c")+otp+rule)
	client, upstream := r.open(conns)
	class := r.shaper.Class("otp")
	for n, text := range []string{keep + otp, keep, keep} {
		r.reload(text)
		send(t, client, submitFrom("otp", uint32(2*n))+submitFrom("bulk", uint32(2*n+1)))
		expect(t, upstream, submitFrom("bulk", uint32(2*n+1)))
		if got := class.Backlog().Items; got != int64(n+1) {
			t.Errorf("%d messages wait after reload %d, want %d", got, n+1, n+1)
		}
	}
	r.reload(keep + listener("l", "smpp", addr, "c"))
	expect(t, upstream, submitFrom("otp", 0)+submitFrom("otp", 2)+submitFrom("otp", 4))
}

// A listener of another protocol is not the listener that a bind came by, although it has its name: the bind keeps its rules, and
// its class.
func TestListenerOfAnotherProtocol(t *testing.T) {
	addr, conns := listen(t)
	keep := class("c", "1000 messages/s") + listener("keep", "smpp", addr, "c")
	otp, rule := class("otp", "0 messages/s"), "[[rule]]\nlistener = \"l\"\nsource_addr = \"otp*\"\nclass = \"otp\"\n"
	for protocol, rate := range map[string]string{"lines": "1000 messages/s", "http": "1000 messages/s", "tcp": fast} {
		t.Run(protocol, func(t *testing.T) {
			r := run(t, keep+otp+class("own", "1000 messages/s")+listener("l", "smpp", addr, "own")+rule)
			client, upstream := r.open(conns)
			held := r.shaper.Class("otp")
			r.reload(keep + otp + class("web", rate) + listener("l", protocol, addr, "web"))
			if got := r.Sessions()[0].Class; got != "own" {
				t.Errorf("the session is in %q, want the class that it had", got)
			}
			send(t, client, submitFrom("otp", 1)+submitFrom("bulk", 2))
			expect(t, upstream, submitFrom("bulk", 2))
			if n := held.Backlog().Items; n != 1 {
				t.Errorf("%d messages wait in the class of their rule, want 1", n)
			}
			r.reload(keep + listener("l", "smpp", addr, "c"))
			expect(t, upstream, submitFrom("otp", 1))
			client.Close()
			upstream.Close()
		})
	}
}

// A session that waits for its permit while a reload renames its return class has its answers in the class that follows:
// nobody is in the one before.
func TestReloadWhileQueued(t *testing.T) {
	addr, conns := listen(t)
	for _, per := range []string{"", `per = "source"`} {
		text := func(back string) string {
			return class("c", "1000 messages/s", "max_connections = 1", `overflow = "wait"`) + class(back, "1000 messages/s", per) +
				listener("l", "smpp", addr, "c", fmt.Sprintf("return_class = %q", back))
		}
		r := run(t, text("back"))
		first, at := r.open(conns)
		second := r.dial("l")
		trial.Await(t, "the second waits for its permit", func() bool { return len(r.Sessions()) == 2 })
		old := r.shaper.Class("back")
		r.reload(text("other"))
		first.Close()
		at.Close()
		upstream := next(t, conns)
		send(t, upstream, pdu(deliver, 0, 1, "")+pdu(deliver, 0, 2, "")+pdu(deliver, 0, 3, ""))
		expect(t, second, pdu(deliver, 0, 1, "")+pdu(deliver, 0, 2, "")+pdu(deliver, 0, 3, ""))
		other := r.shaper.Class("other")
		trial.Await(t, "the answers count in other", func() bool { return other.Stats.Sent[stats.Downstream].Messages.Load() == 3 })
		if n := old.Stats.Sent[stats.Downstream].Messages.Load(); n != 0 {
			t.Errorf("%q: %d count in the class before", per, n)
		}
		second.Close()
		upstream.Close()
	}
}

// A bind that outlives many reloads leaves the classes that these take away once nothing of it uses them.
func TestBindLeavesLostClasses(t *testing.T) {
	addr, conns := listen(t)
	text := func(n int, rate string) string {
		name := fmt.Sprint("otp", n)
		return exchanged("smpp", addr, "1000 messages/s") + class(name, rate) + fmt.Sprintf("[[rule]]\nsource_addr = \"otp*\"\nclass = %q\n", name)
	}
	r := run(t, text(0, "1000 messages/s"))
	client, upstream := r.open(conns)
	used := func(n int) int { return len(r.shaper.Apply(parse(t, text(n, "1000 messages/s")).Classes)) }
	for n := range 3 {
		send(t, client, submitFrom("otp", uint32(2*n)))
		expect(t, upstream, submitFrom("otp", uint32(2*n)))
		r.reload(text(n+1, "1000 messages/s"))
		if got := used(n + 1); got != 1 {
			t.Errorf("%d lost classes are in use, want that of the message that has no answer", got)
		}
		send(t, upstream, pdu(submitResp, 0, uint32(2*n), "id\x00"))
		expect(t, client, pdu(submitResp, 0, uint32(2*n), "id\x00"))
		send(t, client, submitFrom("bulk", uint32(2*n+1))) // the message that was found last
		expect(t, upstream, submitFrom("bulk", uint32(2*n+1)))
		trial.Await(t, "the lost class is left", func() bool { return used(n+1) == 0 })
	}
	client.Close()
	upstream.Close()
}

// in_flight bounds the requests in flight over all connections of a class.
func TestInFlight(t *testing.T) {
	addr, conns := listen(t)
	r := run(t, exchanged("smpp", addr, "10000 messages/s", "in_flight = 2"))
	a, toA := r.open(conns)
	b, toB := r.open(conns)
	send(t, a, submitFrom("a", 1)+submitFrom("a", 2))
	expect(t, toA, submitFrom("a", 1)+submitFrom("a", 2))
	send(t, b, submitFrom("b", 1))
	trial.Await(t, "the third waits", func() bool { return r.shaper.Class("c").Backlog().Items == 1 })
	send(t, toA, pdu(submitResp, 0, 1, ""))
	expect(t, toB, submitFrom("b", 1))
	if n := r.shaper.Class("c").InFlight(); n != 2 {
		t.Errorf("%d are in flight, want 2", n)
	}
	expect(t, a, pdu(submitResp, 0, 1, ""))
}

// If a provider says "too fast", the whole class pauses, and the client gets the answer.
func TestProviderThrottles(t *testing.T) { virtually(t, providerThrottles) }

func providerThrottles(t *testing.T) {
	addr, conns := listen(t)
	r := run(t, exchanged("smpp", addr, "10000 messages/s", `on_throttle = { pause = "300ms", max = "1s" }`))
	a, toA := r.open(conns)
	b, toB := r.open(conns)
	send(t, a, submitFrom("a", 1))
	expect(t, toA, submitFrom("a", 1))
	send(t, toA, pdu(submitResp, 0x58, 1, ""))
	expect(t, a, pdu(submitResp, 0x58, 1, ""))
	begin := time.Now()
	send(t, b, submitFrom("b", 1))
	expect(t, toB, submitFrom("b", 1))
	if paused := time.Since(begin); paused != 300*time.Millisecond {
		t.Errorf("the class pauses for %v, want 300 ms", paused)
	}
	if n := r.shaper.Class("c").Stats.Throttled.Read()["0x58"]; n != 1 {
		t.Errorf("%d signals are counted", n)
	}
}

// Bytes that cannot be framed end the session.
func TestUnframed(t *testing.T) {
	addr, conns := listen(t)
	r := run(t, exchanged("smpp", addr, "10 messages/s"))
	client, upstream := r.open(conns)
	send(t, client, "\x00\x00\x00\x07nothing of SMPP")
	expectReset(t, upstream)
	expectReset(t, client)
	r.awaitEnd(stats.Unframed, 1)
	if n := r.service("l").stats.Unframed.Read()["bad-length"]; n != 1 {
		t.Errorf("the reason is not counted: %v", r.service("l").stats.Unframed.Read())
	}
}

// What comes before them still passes.
func TestAnswersBeforeWhatIsUnframed(t *testing.T) {
	addr, conns := listen(t)
	r := run(t, exchanged("smpp", addr, "10 messages/s"))
	client, upstream := r.open(conns)
	send(t, upstream, pdu(enquire, 0, 1, "")+"\x00\x00\x00\x07nothing of SMPP")
	expect(t, client, pdu(enquire, 0, 1, ""))
	expectReset(t, client)
	r.awaitEnd(stats.Unframed, 1)
}

// badAsk is no request: it has two hosts.
const badAsk = "GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n"

// A client of HTTP that sends what is no request gets the answers to those before it first. That has a bound, and
// a client that leaves meanwhile is not waited for.
func TestAnswersThatAreOwed(t *testing.T) {
	const answer = anAnswer + "Content-Length: 5\r\n\r\nhello"
	for name, c := range map[string]struct {
		then   func(t *testing.T, client, upstream tcpConn)
		result stats.Result
		after  time.Duration
		resets bool // the client sees a reset
	}{
		"an answer": {func(t *testing.T, client, upstream tcpConn) {
			time.Sleep(3 * time.Second)
			send(t, upstream, answer[:20])
			time.Sleep(3 * time.Second)
			send(t, upstream, answer[20:])
			expect(t, client, answer)
		}, stats.Unframed, 6 * time.Second, true},
		"an end instead":     {func(_ *testing.T, _, upstream tcpConn) { upstream.CloseWrite() }, stats.Unframed, 0, false},
		"nothing":            {func(*testing.T, tcpConn, tcpConn) {}, stats.TimedOut, 4 * time.Second, true},
		"the client leaves":  {func(_ *testing.T, client, _ tcpConn) { reset(client) }, stats.ResetByPeer, 0, false},
		"the upstream fails": {func(_ *testing.T, _, upstream tcpConn) { reset(upstream) }, stats.ResetByPeer, 0, true},
	} {
		t.Run(name, virtual(func(t *testing.T) {
			addr, conns := listen(t)
			r := run(t, class("c", "10 messages/s")+listener("l", "http", addr, "c", `half_close_timeout = "4s"`))
			client, upstream := r.open(conns)
			send(t, client, anAsk+badAsk)
			expect(t, upstream, anAsk)
			began := time.Now()
			c.then(t, client, upstream)
			r.awaitEnd(c.result, 1)
			if took := time.Since(began); took < c.after || took > c.after+2*time.Second {
				t.Errorf("the session ends after %v", took)
			}
			if log := r.log.String(); strings.Count(log, unframed.String()) != 1 {
				t.Errorf("the log is %s", log)
			}
			if c.resets {
				expectReset(t, client)
			}
		}))
	}
}

// Such a client that has left is noticed at once, though it waits for an answer.
func TestResetWhileAnswersAreOwed(t *testing.T) {
	virtually(t, func(t *testing.T) {
		addr, conns := listen(t)
		r := run(t, exchanged("http", addr, "10 messages/s"))
		client, upstream := r.open(conns)
		send(t, client, anAsk+"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nhello")
		client.CloseWrite()
		expect(t, upstream, anAsk)
		time.Sleep(time.Second)
		left := time.Now()
		reset(client)
		r.awaitEnd(stats.ResetByPeer, 1)
		if took := time.Since(left); took > 10*time.Second { // not half_close_timeout
			t.Errorf("the session ends after %v", took)
		}
	})
}

// A message that is found, and has entered no class since its connection holds as much as it may, stays with its rule
// when a reload takes the listener and the class away.
func TestFoundMessageStaysWithItsRule(t *testing.T) {
	virtually(t, func(t *testing.T) {
		addr, conns := listen(t)
		keep := class("c", "1000 messages/s") + listener("keep", "smpp", addr, "c")
		r := run(t, keep+listener("l", "smpp", addr, "c")+class("otp", "0 messages/s", `overflow = "wait"`, `queue = "32768 messages"`)+
			"[[rule]]\nlistener = \"l\"\nsource_addr = \"otp*\"\nclass = \"otp\"\n")
		client, _ := r.open(conns)
		go io.WriteString(client, strings.Repeat(submitFrom("otp", 1), 40_000)) // until the client is reset
		otp := r.shaper.Class("otp")
		trial.Await(t, "the connection holds as much as it may", func() bool { return otp.Backlog().Items == 32768 })
		r.reload(keep)
		time.Sleep(time.Minute)
		if n := r.sent("c", stats.Upstream).Messages.Load(); n != 0 {
			t.Errorf("%d messages of otp have left by the class of the connection", n)
		}
	})
}

// While a listener is away, the name of a rule's class may come to mean something that counts no messages. The
// messages of the rule stay in the class that they had.
func TestRuleOutlastsItsClass(t *testing.T) {
	for kind, protocol := range map[string]string{"10 connections/s": "tcp", "1 packets/s": "udp"} {
		addr, conns := listen(t)
		keep := class("c", "1000 messages/s") + listener("keep", "smpp", addr, "c")
		r := run(t, keep+listener("l", "smpp", addr, "c")+class("otp", "0 messages/s")+
			"[[rule]]\nlistener = \"l\"\nsource_addr = \"otp*\"\nclass = \"otp\"\n")
		client, _ := r.open(conns)
		otp := r.shaper.Class("otp")
		send(t, client, submitFrom("otp", 1)+submitFrom("otp", 2))
		trial.Await(t, "both wait", func() bool { return otp.Backlog().Items == 2 })
		r.reload(keep + class("otp", kind) + listener("m", protocol, policy.Discard, "otp"))
		send(t, client, submitFrom("otp", 3)+submitFrom("otp", 4))
		trial.Await(t, "the others wait, too", func() bool { return otp.Backlog().Items == 4 })
	}
}

// The reset of such a client comes behind the answer, if it reads that within cutTimeout.
func TestAnswerArrivesBeforeAResetByUs(t *testing.T) {
	addr, conns := listen(t)
	r := run(t, exchanged("http", addr, "10 messages/s"))
	client, upstream := r.open(conns)
	client.SetReadBuffer(4 << 10)
	answer := fmt.Sprintf("%sContent-Length: %d\r\n\r\n%s", anAnswer, 64<<10, strings.Repeat("x", 64<<10))
	send(t, client, anAsk)
	expect(t, upstream, anAsk)
	send(t, upstream, answer)
	send(t, client, badAsk)
	trial.Await(t, "it is seen", func() bool { return r.service("l").stats.Unframed.Read()["bad-host"] == 1 })
	expect(t, client, answer)
	expectReset(t, client)
	r.awaitEnd(stats.Unframed, 1)
}

// The class pauses if a provider of SMPP 5.0 says in an answer that it is congested. It does
// not if the provider is only busy.
func TestCongestionPauses(t *testing.T) {
	for _, c := range []struct {
		state  string
		pauses bool
	}{{"\x63", false}, {"\x64", true}} {
		addr, conns := listen(t)
		r := run(t, exchanged("smpp", addr, "10000 messages/s"))
		client, upstream := r.open(conns)
		send(t, client, submitFrom("a", 1))
		expect(t, upstream, submitFrom("a", 1))
		answer := pdu(submitResp, 0, 1, "id\x00\x04\x28\x00\x01"+c.state)
		send(t, upstream, answer)
		expect(t, client, answer)
		until, _ := r.shaper.Class("c").Provider().Signals(time.Now())
		if n := r.shaper.Class("c").Stats.Throttled.Read()["congestion"]; until.IsZero() == c.pauses || n > 0 != c.pauses {
			t.Errorf("a congestion_state of %q has the class pause until %v, and %d signals are counted", c.state, until, n)
		}
	}
}

// Lines leave one by one, and the client waits.
func TestLines(t *testing.T) {
	addr, conns := listen(t)
	r := run(t, exchanged("lines", addr, "100 messages/s", `queue = "2 messages"`))
	client, upstream := r.open(conns)
	var all strings.Builder
	for n := range 20 {
		fmt.Fprintf(&all, "line %d\n", n)
	}
	begin := time.Now()
	send(t, client, all.String()+"cut")
	client.CloseWrite()
	expect(t, upstream, all.String()+"cut")
	expectEOF(t, upstream)
	if took := time.Since(begin); took < 190*time.Millisecond {
		t.Errorf("21 lines take %v at 100/s", took)
	}
}

// httpServer returns an upstream of HTTP.
func httpServer(t *testing.T, handle http.HandlerFunc) string {
	s := httptest.NewUnstartedServer(handle)
	if m := memoryOf(t); m != nil {
		s.Listener.Close()
		s.Listener = listenIn(t, m)
	}
	s.Start()
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

// Requests are paced over all connections, and bodies pass unchanged in both directions.
func TestRequests(t *testing.T) {
	var mu sync.Mutex
	var times []time.Time
	addr := httpServer(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		times = append(times, time.Now())
		mu.Unlock()
		body, _ := io.ReadAll(r.Body) // all of it before the answer begins, since net/http reads no more then
		w.Write(body)
	})
	r := run(t, exchanged("http", addr, "100 messages/s"))
	body := strings.Repeat("0123456789abcdef", 20_000)
	begin := time.Now() // not when the provider sees the first one, which may be late
	var wg sync.WaitGroup
	for range 5 {
		wg.Go(func() {
			client := &http.Client{Transport: &http.Transport{}, Timeout: patience}
			defer client.CloseIdleConnections()
			for n := range 4 {
				var in io.Reader = strings.NewReader(body)
				if n%2 == 1 {
					in = io.MultiReader(in) // the length is not known, so it is sent in chunks
				}
				answer, err := client.Post("http://"+r.addr("l"), "text/plain", in)
				if err != nil {
					t.Error(err)
					return
				}
				got, err := io.ReadAll(answer.Body)
				answer.Body.Close()
				if err != nil || string(got) != body {
					t.Errorf("%d bytes come back, %v", len(got), err)
				}
			}
		})
	}
	wg.Wait()
	if len(times) != 20 || times[19].Sub(begin) < 190*time.Millisecond {
		t.Errorf("%d requests since %v, at %v", len(times), begin, times)
	}
	trial.Await(t, "nothing is in flight", func() bool { return r.shaper.Class("c").InFlight() == 0 })
}

// A request without room gets 429, in its place among pipelined ones. One that comes after
// Retry-After succeeds.
func TestRequestsAreRefused(t *testing.T) { virtually(t, requestsAreRefused) }

func requestsAreRefused(t *testing.T) {
	slow := make(chan struct{})
	addr := httpServer(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			<-slow
		}
		io.WriteString(w, r.URL.Path)
	})
	r := run(t, exchanged("http", addr, "1 messages/s", `max_wait = "1ms"`))
	client := r.dial("l")
	send(t, client, "GET /slow HTTP/1.1\r\nHost: x\r\n\r\nPOST /full HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello")
	trial.Await(t, "the second is refused", func() bool { return r.shaper.Class("c").Stats.Refused[stats.MaxWait].Items.Load() == 1 })
	close(slow)
	in := bufio.NewReader(client)
	first, err := http.ReadResponse(in, nil)
	if err != nil || first.StatusCode != 200 {
		t.Fatal(first, err)
	}
	io.Copy(io.Discard, first.Body)
	second, err := http.ReadResponse(in, nil)
	if err != nil || second.StatusCode != 429 || second.Header.Get("Retry-After") != "1" || second.Header.Get("RateLimit-Policy") != `"c";q=1;w=1` {
		t.Fatal(second, err)
	}
	for name, want := range map[string]string{"X-RateLimit-Limit": "1", "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "1", "X-Queue-Position": "1", "X-Queue-Wait": "1"} {
		if got := second.Header.Get(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	time.Sleep(time.Second)
	send(t, client, "GET /again HTTP/1.1\r\nHost: x\r\n\r\n")
	if third, err := http.ReadResponse(in, nil); err != nil || third.StatusCode != 200 {
		t.Fatal(third, err)
	}
}

// A client that does not read refusals has to wait with its requests. It gets all refusals
// when it reads.
func TestRefusalsThatNobodyReads(t *testing.T) {
	t.Parallel()
	addr := httpServer(t, func(w http.ResponseWriter, r *http.Request) {})
	r := run(t, exchanged("http", addr, "0 messages/s", `max_wait = "1ms"`))
	client := r.dial("l")
	client.SetReadBuffer(64 << 10) // so that it takes fewer refusals
	const n = 40_000
	go io.WriteString(client, strings.Repeat("GET / HTTP/1.1\r\nHost: x\r\n\r\n", n))
	refused := func() uint64 { return r.shaper.Class("c").Stats.Refused[stats.MaxWait].Items.Load() }
	before, stood := refused(), 0
	trial.Await(t, "the client waits", func() bool {
		now := refused()
		if stood++; now == 0 || now != before {
			before, stood = now, 0
		}
		return stood == 100
	})
	if held := r.Sessions()[0].Waiting; refused() == n || held > 128<<10 {
		t.Errorf("of %d requests %d are refused, and %d bytes are held", n, refused(), held)
	}
	in := bufio.NewReaderSize(client, 1<<20)
	for i := range n {
		if answer, err := http.ReadResponse(in, nil); err != nil || answer.StatusCode != 429 {
			t.Fatalf("answer %d: %v, %v", i, answer, err)
		}
	}
}

// A provider that never answers holds up messages as long as clients wait, and no longer.
func TestUnansweredIsForgotten(t *testing.T) {
	addr, conns := listen(t)
	r := run(t, exchanged("smpp", addr, "1000000 messages/s", `algorithm = "token"`, `burst = "10000 messages"`))
	client, upstream := r.open(conns)
	const room, more = 4096, 100
	one := submitFrom("a", 1)
	go io.WriteString(client, strings.Repeat(one, room+more))
	expect(t, upstream, strings.Repeat(one, room))
	trial.Await(t, "the rest waits", func() bool { return r.Sessions()[0].Waiting >= int64(more*len(one)) })
	for _, s := range r.sessions.all() {
		s.(*tcpSession).do(func(s *tcpSession) { s.relay.tend(time.Now().Add(2 * time.Minute)) })
	}
	expect(t, upstream, strings.Repeat(one, more))
	if n := r.shaper.Class("c").InFlight(); n != more {
		t.Errorf("%d are in flight, not %d", n, more)
	}
}

// What waits in a class that a reload removes goes on in another, with what follows it.
func TestReloadLetsGo(t *testing.T) {
	addr, conns := listen(t)
	for _, c := range []struct{ protocol, all string }{
		{"http", strings.Repeat("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello", 3)},
		{"lines", strings.Repeat("line\n", 10)},
		{"smpp", submitFrom("a", 1) + submitFrom("a", 2) + pdu(unbind, 0, 3, "")},
	} {
		r := run(t, exchanged(c.protocol, addr, "0 messages/s", `queue = "2 messages"`))
		client, upstream := r.open(conns)
		send(t, client, c.all)
		trial.Await(t, "something waits", func() bool { return r.shaper.Class("c").Backlog().Items > 0 })
		r.reload(class("d", "10000 messages/s", `queue = "2 messages"`) + listener("l", c.protocol, addr, "d"))
		expect(t, upstream, c.all)
	}
}

// If there is no other class, it goes on at once.
func TestReloadWithoutReturnClass(t *testing.T) {
	addr, conns := listen(t)
	classes := class("c", "10 messages/s")
	r := run(t, classes+class("back", "0 messages/s")+listener("l", "smpp", addr, "c", `return_class = "back"`))
	client, upstream := r.open(conns)
	send(t, upstream, pdu(deliver, 0, 1, "")+pdu(deliver, 0, 2, ""))
	trial.Await(t, "both wait", func() bool { return r.shaper.Class("back").Backlog().Items == 2 })
	r.reload(classes + listener("l", "smpp", addr, "c"))
	expect(t, client, pdu(deliver, 0, 1, "")+pdu(deliver, 0, 2, ""))
}

// If there is no room, it is refused.
func TestReloadRefuses(t *testing.T) {
	addr, conns := listen(t)
	full := class("d", "0 messages/s", `queue = "1 messages"`, `overflow = "refuse"`)
	r := run(t, exchanged("smpp", addr, "0 messages/s")+full)
	client, _ := r.open(conns)
	send(t, client, submitFrom("a", 1)+submitFrom("a", 2)+submitFrom("a", 3))
	trial.Await(t, "all wait", func() bool { return r.shaper.Class("c").Backlog().Items == 3 })
	r.reload(full + listener("l", "smpp", addr, "d"))
	expect(t, client, pdu(submitResp, 0x58, 2, "")+pdu(submitResp, 0x58, 3, ""))
	d := r.shaper.Class("d")
	if n, waits := d.Stats.Refused[stats.QueueFull].Items.Load(), d.Backlog().Items; n != 2 || waits != 1 {
		t.Errorf("%d are counted as refused, and %d wait", n, waits)
	}
}

// The client can read all of a refusal that ends the connection, however much it goes on
// sending.
func TestRefusalThatEnds(t *testing.T) {
	addr := httpServer(t, func(w http.ResponseWriter, r *http.Request) {})
	r := run(t, exchanged("http", addr, "0 messages/s", `max_wait = "1ms"`))
	client := r.dial("l")
	go io.WriteString(client, "POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 1000000\r\n\r\n"+strings.Repeat("x", 1_000_000))
	answer, err := io.ReadAll(client)
	if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 429 ") {
		t.Errorf("%.40q, %v", answer, err)
	}
	client.Close()
	r.awaitEnd(stats.Overflow, 1)
}

// After an upgrade there are no messages, only bytes.
func TestUpgrade(t *testing.T) {
	addr, conns := listen(t)
	r := run(t, exchanged("http", addr, "100 messages/s"))
	client, upstream := r.open(conns)
	ask := "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n"
	send(t, client, ask)
	expect(t, upstream, ask)
	grant := "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n"
	send(t, upstream, grant+"hello")
	expect(t, client, grant+"hello")
	send(t, client, "GET this is no request\r\n\r\n")
	expect(t, upstream, "GET this is no request\r\n\r\n")
	client.CloseWrite()
	expectEOF(t, upstream)
	upstream.Close()
	expectEOF(t, client)
	r.awaitEnd(stats.OK, 1)
}

// A session whose provider never answers is idle, even if more of its requests wait: for the
// place in flight that the first one holds, or for their turn. A session that waits for its
// turn while nothing is owed is not idle.
func TestUnansweredTimesOut(t *testing.T) { virtually(t, unansweredTimesOut) }

func unansweredTimesOut(t *testing.T) {
	const get = "GET / HTTP/1.1\r\nHost: h\r\n\r\n"
	for _, conf := range []string{
		class("c", "1000 messages/s", "in_flight = 1"),
		class("c", "1 messages/min"),
	} {
		addr, conns := listen(t)
		r := run(t, conf+listener("l", "http", addr, "c", `idle_timeout = "500ms"`))
		client, upstream := r.open(conns)
		send(t, client, get+get)
		expect(t, upstream, get)
		expectReset(t, client)
		r.awaitEnd(stats.TimedOut, 1)
	}
	addr, conns := listen(t)
	r := run(t, class("c", "20 messages/min")+listener("l", "http", addr, "c", `idle_timeout = "700ms"`))
	client, upstream := r.open(conns)
	send(t, client, get+get)
	expect(t, upstream, get)
	send(t, upstream, "HTTP/1.1 204 No Content\r\n\r\n")
	expect(t, upstream, get) // three seconds later
}

// A refusal waits until the body before it has passed, which its class holds up. A refusal
// that ends the connection cuts nothing off.
func TestRefusalBehindABody(t *testing.T) { virtually(t, refusalBehindABody) }

func refusalBehindABody(t *testing.T) {
	for _, version := range []string{"1.1", "1.0"} {
		body := strings.Repeat("b", 3_800)
		addr, conns := listen(t)
		r := run(t, class("c", "1 messages/h", `max_wait = "1s"`, `overflow = "refuse"`)+class("back", "1500B/s")+
			listener("l", "http", addr, "c", `return_class = "back"`))
		client, upstream := r.open(conns)
		send(t, client, "GET /1 HTTP/1.1\r\nHost: h\r\n\r\n")
		expect(t, upstream, "GET /1 HTTP/1.1\r\nHost: h\r\n\r\n")
		send(t, upstream, fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", len(body))+body)
		in := bufio.NewReader(client)
		if _, err := in.Peek(1); err != nil {
			t.Fatal(err)
		}
		send(t, client, "GET /2 HTTP/"+version+"\r\nHost: h\r\n\r\n")
		first, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(first.Body); err != nil || string(got) != body {
			t.Errorf("HTTP/%s: of the body %d bytes arrive, with a head at %d; %v", version, len(got), strings.Index(string(got), "HTTP/"), err)
			continue
		}
		if second, err := http.ReadResponse(in, nil); err != nil || second.StatusCode != 429 {
			t.Errorf("HTTP/%s: the second answer is %v, %v", version, second, err)
		}
	}
}
