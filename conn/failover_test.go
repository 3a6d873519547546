package conn

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"shaper/policy"
	"shaper/stats"
	"shaper/tests/trial"
)

// second is the address of the second upstream of these tests, by which rules know it.
const second = "127.0.0.2"

// listenOn is listen on any address.
func listenOn(t testing.TB, host string) (addr string, conns <-chan tcpConn) {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		t.Fatal(err)
	}
	return handOver(t, l)
}

// pair is a policy with listener "l". Its upstreams at 127.0.0.2 have class "second", all
// others class "first".
func pair(protocol string, upstreams []string, firstClass, secondClass string, more ...string) string {
	return firstClass + secondClass + fmt.Sprintf("[listener.l]\nlisten = \"127.0.0.1:0\"\nprotocol = %q\nclass = \"first\"\nupstream = [\"%s\"]\n%s\n",
		protocol, strings.Join(upstreams, `", "`), strings.Join(more, "\n")) +
		"[[rule]]\ndestination = \"" + second + "\"\nclass = \"second\"\n"
}

// failures returns the failed attempts at an upstream of listener "l".
func (r *rig) failures(upstream string) map[stats.Failure]uint64 {
	some := map[stats.Failure]uint64{}
	for _, l := range r.Listeners() {
		for why, n := range l.UpstreamFailures[upstream] {
			if n > 0 {
				some[why] = n
			}
		}
	}
	return some
}

// However the first upstream fails, what reaches the second is in the class of the second,
// from the first byte on.
func TestFailOverChangesClass(t *testing.T) {
	resetting := serveTCP(t, func(c tcpConn) { c.Read(make([]byte, 1)); reset(c) })
	a := newAuthority(t)
	cert := a.issue("server")
	for name, c := range map[string]struct {
		first string
		why   stats.Failure
		tls   bool
	}{
		"refused":                {closedPort(t), stats.NotServed, false},
		"silent":                 {silent(t), stats.NoAnswer, false},
		"a name without address": {"test:1", stats.Unresolved, false},
		"reset in the handshake": {resetting, stats.NoTLS, true},
	} {
		t.Run(name, func(t *testing.T) {
			to, conns := listenOn(t, second)
			more := []string{`connect_timeout = "300ms"`}
			if c.tls {
				more = append(more, a.originating(`, server_name = "localhost"`))
			}
			r := run(t, class("c", fast)+listener("other", "tcp", policy.Echo, "c"))
			r.meaning(func(context.Context) ([]netip.AddrPort, error) { return nil, errors.New("no such host") })
			r.reload(pair("tcp", []string{c.first, to}, class("first", fast), class("second", fast), more...))
			client := r.dial("l")
			var upstream net.Conn = next(t, conns)
			if c.tls {
				upstream = tls.Server(upstream, serving(cert))
			}
			send(t, client, "hello")
			expect(t, upstream, "hello")
			one := r.Sessions()[0]
			if one.Upstream != to || one.UpstreamNumber != 2 || one.Destination != to || one.Class != "second" {
				t.Errorf("the session is %+v", one)
			}
			if n := r.sent("first", stats.Upstream).Bytes.Load(); n != 0 {
				t.Errorf("the first class is charged for %d bytes", n)
			}
			trial.Await(t, "the second class is charged for all", func() bool { return r.sent("second", stats.Upstream).Bytes.Load() == 5 })
			if got := fmt.Sprint(r.failures(c.first)); got != fmt.Sprint(map[stats.Failure]uint64{c.why: 1}) {
				t.Errorf("failures of the first upstream: %v", got)
			}
			if got := r.failures(to); len(got) != 0 {
				t.Errorf("failures of the second: %v", got)
			}
			if log := r.log.String(); strings.Count(log, "failed over") != 1 || !strings.Contains(log, "upstream="+to) || !strings.Contains(log, c.first) {
				t.Errorf("the log is\n%s", log)
			}
			client.Close()
			upstream.Close()
			r.awaitEnd(stats.OK, 1)
		})
	}
}

// Messages are charged to the class of the upstream that got them, and follow the message
// rules for that destination.
func TestFailOverOfMessages(t *testing.T) {
	l, err := net.Listen("tcp", second+":0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})}
	go server.Serve(l)
	defer server.Close()
	text := pair("http", []string{closedPort(t), l.Addr().String()}, class("first", "1 messages/h", "in_flight = 1"), class("second", "1000 messages/s")) +
		class("urgent", "1000 messages/s")
	before, rule, _ := strings.Cut(text, "[[rule]]")
	r := run(t, before+"[[rule]]\npath = \"/now\"\ndestination = \""+second+"\"\nclass = \"urgent\"\n[[rule]]"+rule)
	client := r.dial("l")
	in := bufio.NewReader(client)
	for _, path := range []string{"/", "/", "/now"} {
		send(t, client, "GET "+path+" HTTP/1.1\r\nHost: h\r\n\r\n")
		answer, err := http.ReadResponse(in, nil)
		if err != nil || answer.StatusCode != 200 {
			t.Fatal(answer, err)
		}
	}
	for name, want := range map[string]uint64{"first": 0, "second": 2, "urgent": 1} {
		trial.Await(t, fmt.Sprintf("class %s has sent %d messages", name, want), func() bool { return r.sent(name, stats.Upstream).Messages.Load() == want })
		r.noneInFlight(name)
	}
}

// The class of the second upstream counts the connection, too, and keeps its gap.
func TestFailOverWaitsForTheOtherGap(t *testing.T) {
	to, conns := listenOn(t, second)
	first := closedPort(t)
	r := run(t, pair("tcp", []string{first, to}, class("first", "1000 connections/s"), class("second", "1 connections/h", `overflow = "wait"`)))
	r.dial("l")
	next(t, conns)
	r.dial("l")
	second := r.shaper.Class("second")
	trial.Await(t, "the second session waits in the second class", func() bool { return second.Backlog().Items == 1 })
	if len(conns) != 0 {
		t.Error("two connections leave within a gap of an hour")
	}
	if n := r.sent("first", stats.Upstream).Connections.Load(); n != 2 {
		t.Errorf("the first class has let %d attempts through, want 2", n)
	}
	if n := r.sent("second", stats.Upstream).Connections.Load(); n != 1 {
		t.Errorf("the second class has let %d through, want 1", n)
	}
	if n := r.shaper.Class("first").Backlog().Items; n != 0 {
		t.Errorf("%d wait in the first class", n)
	}
	if got := r.failures(first)[stats.NotServed]; got != 2 {
		t.Errorf("%d failures are counted", got)
	}
}

// The session gives up its permit of the first class, and waits for one of the second.
func TestFailOverWaitsForAPermit(t *testing.T) {
	to, conns := listenOn(t, second)
	r := run(t, pair("tcp", []string{closedPort(t), to}, class("first", fast, "max_connections = 1"), class("second", fast, "max_connections = 1")))
	client := r.dial("l")
	upstream := next(t, conns)
	other := r.dial("l")
	send(t, other, "patient")
	trial.Await(t, "the other waits", func() bool {
		return r.shaper.Class("second").Sessions() == 1 && len(r.Sessions()) == 2 && r.Sessions()[1].Class == "second"
	})
	if n := r.shaper.Class("first").Sessions(); n != 0 {
		t.Errorf("%d sessions are open in the first class", n)
	}
	if len(conns) > 0 {
		t.Error("two are let into one permit")
	}
	client.Close()
	upstream.Close()
	expect(t, next(t, conns), "patient")
	if n := r.shaper.Class("second").Sessions(); n != 1 {
		t.Errorf("%d sessions are open in the second class", n)
	}
}

// If the second class has no room and refuses, the session ends as refused by it.
func TestFailOverIsRefused(t *testing.T) {
	to, conns := listenOn(t, second)
	r := run(t, pair("tcp", []string{closedPort(t), to}, class("first", fast), class("second", fast, "max_connections = 1", `overflow = "refuse"`)))
	r.dial("l")
	next(t, conns)
	r.expectRefused("l")
	r.awaitEndOf(stats.Overflow, 1)
	for name, want := range map[string]uint64{"first": 0, "second": 1} {
		if n := r.shaper.Class(name).Stats.Refused[stats.QueueFull].Items.Load(); n != want {
			t.Errorf("class %s has refused %d, want %d", name, n, want)
		}
	}
}

// A built-in upstream has no address, and so the class without a destination.
func TestFailOverToWhatIsBuiltIn(t *testing.T) {
	text := class("first", fast) + class("second", fast) + "[listener.l]\nlisten = \"127.0.0.1:0\"\nclass = \"second\"\nupstream = [\"" + closedPort(t) + "\", \"echo:\"]\n" +
		"[[rule]]\ndestination = \"127.0.0.1\"\nclass = \"first\"\n"
	r := run(t, text)
	client := r.dial("l")
	send(t, client, "x")
	expect(t, client, "x")
	if one := r.Sessions()[0]; one.Class != "second" || one.Upstream != policy.Echo || one.UpstreamNumber != 2 || one.Destination != "" {
		t.Errorf("the session is %+v", one)
	}
}

// If a name has several addresses, the class and the bucket are those of the address that was
// reached.
func TestFailOverWithinAName(t *testing.T) {
	to, conns := listenOn(t, second)
	dead := closedPort(t)
	r := run(t, class("c", fast)+listener("other", "tcp", policy.Echo, "c"))
	r.meaning(func(context.Context) ([]netip.AddrPort, error) {
		return []netip.AddrPort{netip.MustParseAddrPort(dead), netip.MustParseAddrPort(to)}, nil
	})
	r.reload(pair("tcp", []string{"test:1"}, class("first", fast), class("second", fast, `per = "destination"`)))
	client := r.dial("l")
	upstream := next(t, conns)
	send(t, client, "x")
	expect(t, upstream, "x")
	one := r.Sessions()[0]
	if one.Class != "second" || one.UpstreamNumber != 1 || one.Destination != to {
		t.Errorf("the session is %+v", one)
	}
	if n := r.shaper.Class("second").Buckets().Keys(time.Now()); n != 1 {
		t.Errorf("there are %d buckets", n)
	}
	if got := r.failures("test:1")[stats.NotServed]; got != 1 {
		t.Errorf("%d failures are counted", got)
	}
}

// listenTwice is listen on two addresses of this host, at the same port.
func listenTwice(t *testing.T) (near string, nearConns <-chan tcpConn, far string, farConns <-chan tcpConn) {
	t.Helper()
	for range 100 { // until the port is free on both
		near, nearConns = listen(t)
		_, port, _ := net.SplitHostPort(near)
		if l, err := net.Listen("tcp", net.JoinHostPort(second, port)); err == nil {
			far, farConns = handOver(t, l)
			return near, nearConns, far, farConns
		}
	}
	t.Fatal("no port is free on both addresses")
	return "", nil, "", nil
}

// If a name has its addresses in another order each time, the session dials the address by
// which it was classified.
func TestClassifiedAddressIsDialled(t *testing.T) {
	near, nearConns, far, farConns := listenTwice(t)
	r, questions := asks(t)
	r.ttl.Store(int64(time.Millisecond)) // it is looked up again each second
	r.reload(pair("tcp", []string{"test:1"}, class("first", "1000 connections/s", "max_connections = 1", `overflow = "wait"`), class("second", "1000 connections/s")))
	client := r.dial("l")
	asked(t, questions).is(near, far)
	upstream := next(t, nearConns)
	r.dial("l")
	trial.Await(t, "the other waits for the permit", func() bool { return r.shaper.Class("first").Stats.Overlimits.Load() == 1 })
	asked(t, questions).is(far, near)
	asked(t, questions) // now the answer before it is known
	client.Close()
	upstream.Close()
	next(t, nearConns)
	if len(farConns) != 0 || r.connections("second") != 0 {
		t.Error("the other address was dialled")
	}
	if n := r.connections("first"); n != 2 {
		t.Errorf("%d connections are counted", n)
	}
}

// A first upstream whose name has no address is charged to no class.
func TestUnresolvedCostsNothing(t *testing.T) {
	to, conns := listenOn(t, second)
	r := run(t, class("c", fast)+listener("other", "tcp", policy.Echo, "c"))
	r.meaning(func(context.Context) ([]netip.AddrPort, error) { return nil, errors.New("no such host") })
	r.reload(pair("tcp", []string{"test:1", to}, class("first", "1 connections/h"), class("second", "1000 connections/s")))
	for range 3 {
		r.dial("l")
		next(t, conns)
	}
	for name, want := range map[string]uint64{"first": 0, "second": 3} {
		if n := r.sent(name, stats.Upstream).Connections.Load(); n != want {
			t.Errorf("class %s has let %d through, want %d", name, n, want)
		}
	}
}

// The downstream class is that of the upstream that was reached, too.
func TestFailOverOfTheWayBack(t *testing.T) {
	to, conns := listenOn(t, second)
	text := pair("tcp", []string{closedPort(t), to}, class("first", fast), class("second", fast), `return_class = "back"`) + "return_class = \"other\"\n" +
		class("back", fast) + class("other", fast)
	r := run(t, text)
	client := r.dial("l")
	upstream := next(t, conns)
	send(t, upstream, "back")
	expect(t, client, "back")
	trial.Await(t, "the other class is charged", func() bool { return r.sent("other", stats.Downstream).Bytes.Load() == 4 })
	if n := r.sent("back", stats.Downstream).Bytes.Load(); n != 0 {
		t.Errorf("class back has sent %d bytes", n)
	}
}

// If rules by destination come into force while a session dials, it obeys them when it fails
// over.
func TestReloadDuringFailOver(t *testing.T) {
	t.Parallel()
	to, conns := listenOn(t, second)
	mute := silent(t)
	text := pair("tcp", []string{mute, to}, class("first", fast), class("second", fast), `connect_timeout = "1s"`)
	without, _, _ := strings.Cut(text, "[[rule]]")
	r := run(t, without)
	r.dial("l")
	trial.Await(t, "it dials", func() bool { return len(r.Sessions()) == 1 })
	r.reload(text)
	next(t, conns)
	if got := r.Sessions()[0].Class; got != "second" {
		t.Errorf("the class is %s", got)
	}
}

// If the first rule by destination comes into force while a session waits for its permit, its name or its class, the
// session obeys it when it dials, whether or not its class is gone.
func TestReloadBeforeDial(t *testing.T) {
	for _, c := range []struct {
		where       stage
		named       bool
		first, then string // its class, and how that lets it go on after the reload
	}{
		{queued, false, class("first", fast, "max_connections = 1"), class("first", fast)},
		{resolving, true, class("first", fast), class("first", fast)},
		{opening, false, class("first", "0 connections/s"), class("first", "1000 connections/s")},
	} {
		for _, gone := range []bool{false, true} {
			t.Run(fmt.Sprintf("stage %d, and its class is gone: %v", c.where, gone), func(t *testing.T) {
				to, conns := listenOn(t, second)
				known := make(chan bool)
				r := bare(t)
				r.meaning(func(context.Context) ([]netip.AddrPort, error) {
					<-known
					return []netip.AddrPort{netip.MustParseAddrPort(to)}, nil
				})
				at := to
				if c.named {
					at = "test:1"
				}
				without, _, _ := strings.Cut(pair("tcp", []string{at}, c.first, class("second", fast)), "[[rule]]")
				r.reload(without)
				if c.where == queued {
					r.open(conns)
				}
				send(t, r.dial("l"), "waits")
				trial.Await(t, "it waits", func() bool {
					all := r.sessions.all()
					return len(all) > 0 && stageOf(all[len(all)-1]) == c.where
				})
				for _, first := range []string{c.first, c.then} {
					text := pair("tcp", []string{at}, first, class("second", fast))
					if gone {
						text = strings.ReplaceAll(text, "first", "other")
					}
					r.reload(text)
				}
				close(known)
				expect(t, next(t, conns), "waits")
				if all := r.Sessions(); all[len(all)-1].Class != "second" {
					t.Errorf("the session is %+v", all[len(all)-1])
				}
			})
		}
	}
}

// stageOf returns how far a session has come.
func stageOf(one session) (at stage) {
	one.(*tcpSession).do(func(t *tcpSession) { at = t.stage })
	return at
}

// A session of messages that waits for its permit while a rule by message and destination comes into force obeys it.
func TestReloadBeforeDialOfMessages(t *testing.T) {
	to, conns := listenOn(t, second)
	text := class("c", "1000 messages/s", "max_connections = 1") + class("urgent", "1000 messages/s") + listener("l", "http", to, "c")
	r := run(t, text)
	client, upstream := r.open(conns)
	send(t, r.dial("l"), anAsk)
	trial.Await(t, "it waits", func() bool { return r.shaper.Class("c").Stats.Overlimits.Load() == 1 })
	r.reload(text + "[[rule]]\npath = \"/\"\ndestination = \"" + second + "\"\nclass = \"urgent\"\n")
	client.Close()
	upstream.Close()
	if _, err := http.ReadRequest(bufio.NewReader(next(t, conns))); err != nil {
		t.Fatal(err)
	}
	for _, one := range r.sessions.all() {
		stageOf(one) // takes the lock, under which a message is written and then counted
	}
	if n := r.sent("urgent", stats.Upstream).Messages.Load(); n != 1 {
		t.Errorf("%d messages are sent by the rule", n)
	}
}

// If a reload removes the second class while a session waits there, the session goes on where
// the new rules put it.
func TestReloadTakesTheSecondClass(t *testing.T) {
	to, conns := listenOn(t, second)
	text := pair("tcp", []string{closedPort(t), to}, class("first", fast), class("second", "0 connections/s", `overflow = "wait"`))
	r := run(t, text)
	client := r.dial("l")
	send(t, client, "x")
	trial.Await(t, "it waits", func() bool { return r.shaper.Class("second").Backlog().Items == 1 })
	r.reload(strings.ReplaceAll(strings.ReplaceAll(text, "second", "third"), "0 connections/s", "10 connections/s"))
	expect(t, next(t, conns), "x")
	if one := r.Sessions()[0]; one.Class != "third" || one.Upstream != to {
		t.Errorf("the session is %+v", one)
	}
}

// A client that leaves while its session waits in the second class ends the session.
func TestClientLeavesDuringFailOver(t *testing.T) {
	to, _ := listenOn(t, second)
	r := run(t, pair("tcp", []string{closedPort(t), to}, class("first", fast), class("second", "0 connections/s", `overflow = "wait"`)))
	client := r.dial("l")
	second := r.shaper.Class("second")
	trial.Await(t, "it waits", func() bool { return second.Backlog().Items == 1 })
	reset(client)
	r.awaitEnd(stats.Aborted, 1)
	if second.Backlog().Items != 0 {
		t.Error("it waits still")
	}
}

// A policy in the shadow whose rules ask for the destination sees the one that was reached.
func TestFailOverInTheShadow(t *testing.T) {
	to, conns := listenOn(t, second)
	dead := closedPort(t)
	r := run(t, quoted(dead, to))
	classes := r.shade(pair("tcp", []string{dead, to}, class("first", fast), class("second", "1B/h", `algorithm = "token"`, `burst = "10B"`)))
	client := r.dial("l")
	upstream := next(t, conns)
	send(t, client, strings.Repeat("x", 20))
	expect(t, upstream, strings.Repeat("x", 20))
	if n := classes["second"].Stats.Overlimits.Load(); n == 0 {
		t.Error("the second class has no copy")
	}
}

// A session that fails over into another class of the policy in the shadow has its permit there,
// and nowhere else. Its class in force may change or not.
func TestFailOverTakesItsPermitInTheShadow(t *testing.T) {
	to, conns := listenOn(t, second)
	dead := closedPort(t)
	two := pair("tcp", []string{dead, to}, class("first", fast, "max_connections = 1"), class("second", fast, "max_connections = 1"))
	for name, inForce := range map[string]string{"one in force": quoted(dead, to), "two in force": two} {
		t.Run(name, func(t *testing.T) {
			r := run(t, inForce)
			classes := r.shade(two)
			client := r.dial("l")
			upstream := next(t, conns)
			trial.Await(t, "it has its permit", func() bool { return classes["second"].Sessions() == 1 })
			if n := classes["first"].Sessions(); n != 0 {
				t.Errorf("%d sessions have a permit of the first class", n)
			}
			client.Close()
			upstream.Close()
			trial.Await(t, "it has given it back", func() bool { return classes["second"].Sessions() == 0 })
		})
	}
}

// A session that fails over within a class of the policy in the shadow counts as one
// connection there.
func TestFailOverWithinAClassOfTheShadow(t *testing.T) {
	to, conns := listenOn(t, second)
	dead := closedPort(t)
	r := run(t, pair("tcp", []string{dead, to}, class("first", fast), class("second", fast)))
	classes := r.shade(class("c", "1 connections/h", "max_connections = 1") + listener("l", "tcp", to, "c"))
	r.dial("l")
	next(t, conns)
	c := classes["c"]
	if n, waits := c.Sessions(), c.Stats.Overlimits.Load(); n != 1 || waits != 0 {
		t.Errorf("%d sessions have a permit, and %d waited", n, waits)
	}
}

// Sessions that fail over one after the other are all counted, but not all logged.
func TestFailOversAreLoggedOnce(t *testing.T) {
	to, conns := listen(t)
	first := closedPort(t)
	r := run(t, quoted(first, to))
	const n = 50
	for range n {
		r.dial("l")
		next(t, conns)
	}
	trial.Await(t, "all are counted", func() bool { return r.failures(first)[stats.NotServed] == n })
	if lines := strings.Count(r.log.String(), "failed over"); lines == 0 || lines > n/5 {
		t.Errorf("%d lines are logged of %d fail-overs", lines, n)
	}
}

// If no rule asks for the destination, all attempts count as one connection.
func TestFailOverInOneClass(t *testing.T) {
	to, conns := listenOn(t, second)
	r := run(t, class("c", "1 connections/h")+"[listener.l]\nlisten = \"127.0.0.1:0\"\nclass = \"c\"\nupstream = [\""+closedPort(t)+"\", \""+closedPort(t)+"\", \""+to+"\"]\n")
	r.dial("l")
	next(t, conns)
	if n := r.sent("c", stats.Upstream).Connections.Load(); n != 1 {
		t.Errorf("%d connections are counted", n)
	}
	trial.Await(t, "the session has reached the third", func() bool { return r.Sessions()[0].UpstreamNumber == 3 })
}

// serveTCP answers the connections of an upstream until the test ends.
func serveTCP(t testing.TB, handle func(tcpConn)) (addr string) {
	t.Helper()
	done := make(chan struct{})
	t.Cleanup(func() { <-done }) // runs after the cleanup of listen, which ends it
	addr, conns := listen(t)
	go func() {
		defer close(done)
		for c := range conns {
			handle(c)
		}
	}()
	return addr
}

// A session with a bucket of its own that fails over gives up its permit of the class above.
func TestFailOverOfABucketLetsOthersIn(t *testing.T) {
	t.Parallel()
	to, conns := listenOn(t, second)
	text := class("above", fast, "max_connections = 1") +
		pair("tcp", []string{silent(t), to}, class("first", fast, `parent = "above"`, `per = "connection"`), class("second", fast), `connect_timeout = "400ms"`)
	r := run(t, text)
	r.dial("l")
	trial.Await(t, "one has the permit", func() bool { return r.shaper.Class("above").Sessions() == 1 })
	r.dial("l")
	trial.Await(t, "two", func() bool { return len(r.Sessions()) == 2 })
	next(t, conns)
	next(t, conns)
}

// A listener counts a session once, whatever number of classes it goes through.
func TestFailOverIsOneConnection(t *testing.T) {
	to, conns := listenOn(t, second)
	r := run(t, pair("tcp", []string{closedPort(t), to}, class("first", fast), class("second", fast)))
	r.dial("l")
	next(t, conns)
	if n := r.service("l").stats.Sent[stats.Upstream].Connections.Load(); n != 1 {
		t.Errorf("%d connections are counted of the listener", n)
	}
}

// If a first rule by destination comes into force while addresses race, no attempt goes on beside one that obeys it: if it
// won, the session would be in the class of another address. Its address is tried again, in its own class.
func TestRaceEndsWithARuleByDestination(t *testing.T) {
	virtually(t, func(t *testing.T) {
		late := silence(t, "192.0.2.1:1")
		r := bare(t)
		r.addresses(late, "192.0.2.9:1", silence(t, "192.0.2.2:1"))
		text := pair("tcp", []string{"test:1"}, class("first", fast), class("second", fast), `connect_timeout = "10s"`)
		without, rule, _ := strings.Cut(text, "[[rule]]")
		r.reload(without)
		r.dial("l")
		time.Sleep(raceDelay - time.Millisecond)
		r.reload(without + "[[rule]]" + strings.Replace(rule, second, "192.0.2.1", 1))
		time.Sleep(raceDelay + time.Millisecond) // the second one has refused, and the third is tried
		r.look(func(one *tcpSession) {
			if one.dialling.race.isOn() {
				t.Errorf("beside %v another attempt goes on", one.course.destination)
			}
		})
		time.Sleep(5 * time.Second) // the share of the third one
		if got := r.Sessions()[0]; got.Class != "second" {
			t.Errorf("towards the first one, the class is %s", got.Class)
		}
	})
}

// If a reload takes the listener and its class while addresses race, the session ends before it tries another one. An
// address that takes too long has failed, although the session ends for another reason.
func TestRaceEndsWithItsClass(t *testing.T) {
	virtually(t, func(t *testing.T) {
		to, _ := listen(t)
		r := bare(t)
		r.addresses(silence(t, "192.0.2.1:1"), silence(t, "192.0.2.2:1"), silence(t, "192.0.2.3:1"), silence(t, "192.0.2.4:1"), "192.0.2.8:1", to)
		text := forward("test:1", fast)
		r.reload(text)
		sv := r.service("l")
		r.dial("l")
		time.Sleep(4*raceDelay - time.Millisecond) // until the fifth one is tried, which refuses
		r.shade(text + "[[rule]]\ndestination = \"192.0.2.0/24\"\nclass = \"c\"\n")
		r.reload(class("d", fast) + listener("m", "tcp", to, "d"))
		trial.Await(t, "it ends", func() bool { return sv.stats.Ended[stats.ByOperator].Load() == 1 })
		if got := sv.stats.Failed.Read([]string{"test:1"})["test:1"]; got[stats.NotServed] != 1 || got[stats.NoAnswer] != 1 {
			t.Errorf("counted: %v, want one that refuses and one that does not answer", got)
		}
	})
}
