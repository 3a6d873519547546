package conn

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"shaper/policy"
	"shaper/sock"
	"shaper/stats"
	"shaper/tests/trial"
)

// A listener with another name takes over the socket of the same address, even while accept
// waits. The sessions of the old one go on.
func TestRenamedListenerKeepsItsSocket(t *testing.T) {
	r := bare(t)
	port := freePort(t)
	at := fmt.Sprintf(`listen = "127.0.0.1:%s"`, port)
	r.reload(class("c", fast) + listener("l", "tcp", policy.Echo, "c", at))
	old := r.service("l")
	before := r.dial("l")
	send(t, before, "x")
	expect(t, before, "x")
	descriptors := openDescriptors(t)

	r.reload(class("c", fast) + listener("other", "tcp", policy.Echo, "c", at))
	if n := openDescriptors(t); n != descriptors {
		t.Errorf("%d descriptors after, %d before", n, descriptors)
	}
	after := dialTCP(t, "127.0.0.1:"+port)
	send(t, after, "y")
	expect(t, after, "y")
	send(t, before, "z")
	expect(t, before, "z")
	if names := []string{r.Sessions()[0].Listener, r.Sessions()[1].Listener}; names[0] != "l" || names[1] != "other" {
		t.Errorf("the sessions belong to %v", names)
	}
	before.Close()
	trial.Await(t, "the old service ends its session", func() bool { return old.stats.Ended[stats.OK].Load() == 1 })
	trial.Await(t, "nobody is inside the old gate", func() bool {
		old.gate.mu.Lock()
		defer old.gate.mu.Unlock()
		return old.gate.inside == 0
	})
}

// What sessions have carried stays in the totals if their listener goes, while they are open and afterwards.
func TestCarriedOutlastsTheListener(t *testing.T) {
	r := bare(t)
	r.reload(class("c", fast) + listener("l", "tcp", policy.Echo, "c"))
	client := r.dial("l")
	send(t, client, "x")
	expect(t, client, "x")
	trial.Await(t, "both bytes count", func() bool { // the client may have its byte a moment before
		sent := r.Carried().Sent
		return sent[stats.Upstream].Bytes == 1 && sent[stats.Downstream].Bytes == 1
	})
	want := stats.Carried{Open: 1, Sent: r.Carried().Sent}
	check := func(when string) {
		t.Helper()
		if got := r.Carried(); got != want {
			t.Errorf("%s: got %+v, want %+v", when, got, want)
		}
	}
	other := class("c", fast) + listener("other", "tcp", policy.Echo, "c")
	r.reload(other)
	check("the listener has gone")
	client.Close()
	trial.Await(t, "the session has ended", func() bool { return r.Carried().Ended == 1 && len(r.Sessions()) == 0 })
	want.Open, want.Ended = 0, 1
	for range 2 { // the first forgets the listener
		r.reload(other)
		check("the session has ended")
	}
	r.reload(class("c", fast) + listener("l", "tcp", policy.Echo, "c"))
	check("the listener is back")
}

// A removed listener accepts nothing more. Its sessions go on in their class.
func TestRemovedListener(t *testing.T) {
	addr, conns := listen(t)
	text := forward(addr, fast)
	keep := listener("keep", "tcp", policy.Echo, "c")
	r := run(t, text+keep)
	gone := r.addr("l")
	client, upstream := r.open(conns)
	r.reload(class("other", fast) + strings.ReplaceAll(keep, `"c"`, `"other"`))
	if c, err := net.Dial("tcp", gone); err == nil {
		c.Close()
		t.Error("the removed listener still accepts")
	}
	send(t, client, "x")
	expect(t, upstream, "x")
	if got := r.Sessions()[0].Class; got != "c" { // no new rule claims it, and it must not be unlimited
		t.Errorf("the session is in %q, want c", got)
	}
}

// A connection that a reload overtakes does not pass unlimited.
func TestListenerRemovedBeforeClassification(t *testing.T) {
	r := run(t, class("c", fast)+class("d", fast)+listener("l", "tcp", policy.Echo, "c"))
	sv := r.service("l")
	start := func() *tcpSession {
		s := newSession(r.Server, noEnd, netip.AddrPort{}, &localAddr{}, sv)
		admission{s}.classify()
		return s
	}
	r.reload(class("c", fast) + class("d", fast) + listener("other", "tcp", policy.Echo, "d"))
	if s := start(); s.up.flow.Class() == nil || s.up.flow.Class().Name() != "c" {
		t.Error("it is not in the class that its listener had")
	}
	r.reload(class("d", fast) + listener("other", "tcp", policy.Echo, "d"))
	if start().up.flow.Class() != nil {
		t.Error("it goes on without a class")
	}
}

// Sessions of a removed class are classified again, and what waits moves with them.
func TestRemovedClass(t *testing.T) {
	addr, conns := listen(t)
	r := run(t, forward(addr, "0B/s"))
	client, upstream := r.open(conns)
	send(t, client, "waits")
	r.awaitWaiting(5)
	old := r.shaper.Class("c")
	r.reload(class("d", fast) + listener("l", "tcp", addr, "d"))
	if n := old.Backlog().Items; n != 0 {
		t.Errorf("%d items wait in the removed class", n)
	}
	expect(t, upstream, "waits")
	if got := r.Sessions()[0].Class; got != "d" {
		t.Errorf("the session is in %q, want d", got)
	}
	trial.Await(t, "the bytes are counted where they went", func() bool { return r.sent("d", stats.Upstream).Bytes.Load() == 5 })
}

// A class that now counts connections limits no bytes. Its sessions go where the new rules put
// them, and do not stay in it unlimited.
func TestClassCountsAnotherUnit(t *testing.T) {
	addr, conns := listen(t)
	r := run(t, forward(addr, "0B/s"))
	client, upstream := r.open(conns)
	send(t, client, "waits")
	r.awaitWaiting(5)
	r.reload(class("c", "10 connections/s") + class("d", "0B/s") + listener("l", "tcp", addr, "d"))
	if got := r.Sessions()[0]; got.Class != "d" || got.Waiting != 5 {
		t.Errorf("the session is %+v, want one that waits in d", got)
	}
	r.reload(forward(addr, fast))
	expect(t, upstream, "waits")
}

// If a name now means something else, no session becomes unlimited: it stays in its class.
func TestNameMeansSomethingElse(t *testing.T) {
	addr, conns := listen(t)
	before := class("c", "0B/s") + listener("l", "tcp", addr, "c")
	for what, after := range map[string]string{
		"another protocol": class("d", "10 packets/s") + listener("l", "udp", policy.Echo, "d"),
		"another unit":     class("c", "10 packets/s") + listener("other", "udp", policy.Echo, "c"),
	} {
		t.Run(what, func(t *testing.T) {
			r := run(t, before)
			client, upstream := r.open(conns)
			send(t, client, "waits")
			r.awaitWaiting(5)
			r.reload(after)
			if got := r.Sessions()[0]; got.Class != "c" || got.Waiting != 5 {
				t.Errorf("the session is %+v, want one that waits in c", got)
			}
			r.reload(forward(addr, fast) + class("d", fast))
			r.CloseSession(r.Sessions()[0].ID)
			upstream.Close()
		})
	}
}

// Sessions of a listener that goes and comes back count towards its max_sessions.
func TestMaxSessionsOutlastTheListener(t *testing.T) {
	addr, conns := listen(t)
	keep := class("c", fast) + listener("keep", "tcp", policy.Echo, "c")
	text := keep + listener("l", "tcp", addr, "c", "max_sessions = 1")
	r := run(t, text)
	client, upstream := r.open(conns)
	r.reload(keep)
	r.reload(text)
	second := r.dial("l")
	send(t, second, "waits")
	if n := r.service("l").stats.Open.Load(); n != 1 || len(r.Sessions()) != 1 {
		t.Errorf("%d sessions are open, of which %d are counted", len(r.Sessions()), n)
	}
	client.Close()
	upstream.Close()
	third := next(t, conns)
	expect(t, third, "waits")
	r.reload(keep)
	second.Close()
	third.Close()
	trial.Await(t, "all have ended", func() bool { return len(r.Sessions()) == 0 })
	r.reload(keep)
	if n := len(r.retired); n != 0 {
		t.Errorf("%d listeners are kept", n)
	}
}

// If a listener is removed together with its downstream class, both classes still limit its
// open sessions.
func TestRemovedWithItsReturnClass(t *testing.T) {
	addr, conns := listen(t)
	keep := class("c", fast) + listener("keep", "tcp", policy.Echo, "c")
	r := run(t, keep+class("back", "0B/s")+listener("l", "tcp", addr, "c", `return_class = "back"`))
	_, upstream := r.open(conns)
	send(t, upstream, "answer")
	r.awaitWaiting(6)
	r.reload(keep)
	if got := r.Sessions()[0]; got.Class != "c" || got.ReturnClass != "back" || got.Waiting != 6 {
		t.Errorf("the session is %+v, want one that waits in back", got)
	}
}

// A class of a session whose listener has gone comes back with other quiet hours, for another listener. The session moves
// there: the class before lets nothing out any more.
func TestClassComesBackForOthers(t *testing.T) {
	addr, conns := listen(t)
	keep := class("d", "1000 messages/s") + listener("keep", "lines", policy.Discard, "d")
	r := run(t, keep+class("c", "1000 messages/s")+class("back", "1000 messages/s")+listener("l", "lines", addr, "c", `return_class = "back"`))
	client, upstream := r.open(conns)
	r.reload(keep)
	soon := time.Now().UTC().Add(3 * time.Hour)
	quiet := fmt.Sprintf("[[class.c.quiet]]\nfrom = %q\nto = %q\n", soon.Format("15:04"), soon.Add(time.Hour).Format("15:04"))
	r.reload(keep + class("c", "1000 messages/s") + quiet + listener("other", "lines", policy.Discard, "c"))
	send(t, client, "leaves\n")
	expect(t, upstream, "leaves\n")
}

// The class of a session whose listener has gone is replaced by one that has a bucket for each key of a message. Answers and
// streams have no such key, so nothing of them may enter it: the session stays in the class that it had, at its rate.
func TestClassComesBackForMessages(t *testing.T) {
	keep := class("d", "1000 messages/s") + listener("keep", "smpp", policy.Discard, "d")
	after := keep + listener("other", "smpp", policy.Discard, "c")
	for _, over := range [][]string{{}, {keep}} { // in one reload or in two
		t.Run("answers", virtual(func(t *testing.T) {
			addr, conns := listen(t)
			r := run(t, keep+class("c", "1 messages/s")+listener("l", "smpp", addr, "d", `return_class = "c"`))
			client, upstream := r.open(conns)
			answers, start := pdu(deliver, 0, 1, "")+pdu(deliver, 0, 2, "")+pdu(deliver, 0, 3, ""), time.Now()
			send(t, upstream, answers)
			synctest.Wait()
			for _, text := range append(over, after+class("c", "1 messages/s", `per = "recipient"`)) {
				r.reload(text)
			}
			if expect(t, client, answers); time.Since(start) != 2*time.Second {
				t.Errorf("three answers take %v at 1/s, want 2 s", time.Since(start))
			}
			client.Close()
			upstream.Close()
		}))
		t.Run("streams", virtual(func(t *testing.T) {
			addr, conns := listen(t)
			r := run(t, keep+class("c", "1000B/s")+listener("l", "tcp", addr, "c"))
			client, upstream := r.open(conns)
			send(t, client, strings.Repeat("x", 4000))
			synctest.Wait()
			for _, text := range append(over, after+class("c", "1000B/s", `per = "recipient"`)) {
				r.reload(text)
			}
			expect(t, upstream, strings.Repeat("x", 4000))
			client.Close()
			upstream.Close()
		}))
	}
}

// A class that nobody limits by any more stays while a session is in it, though nothing leaves there. If its name comes
// back, it is the same class: else both would let the whole rate pass.
func TestClassOfASessionComesBack(t *testing.T) {
	virtually(t, func(t *testing.T) {
		r := bare(t)
		keep := class("c", fast) + listener("keep", "tcp", policy.Echo, "c")
		whole := keep + class("back", fast) + listener("l", "tcp", policy.Echo, "c", `return_class = "back"`)
		r.reload(whole)
		r.dial("l")
		synctest.Wait()
		old := r.shaper.Class("back")
		r.reload(keep)
		time.Sleep(time.Minute)
		r.reload(keep)
		r.reload(whole)
		if r.shaper.Class("back") != old || r.sessions.all()[0].(*tcpSession).down.flow.Class() != old {
			t.Error("the class was forgotten, although a session is in it")
		}
	})
}

// If a listener goes with its class, and comes back with a class of another name, its sessions go there: else both classes
// would let the whole rate pass. Those that wait for a permit wait there, too.
func TestClassRenamedOverTwoReloads(t *testing.T) {
	virtually(t, func(t *testing.T) {
		r := bare(t)
		keep := class("keep", fast) + listener("keep", "tcp", policy.Echo, "keep")
		whole := func(name string) string {
			return keep + class(name, "1000B/s", "max_connections = 1") + listener("l", "tcp", policy.Echo, name)
		}
		r.reload(whole("c"))
		for range 2 {
			r.dial("l")
		}
		synctest.Wait()
		r.reload(keep)
		time.Sleep(time.Minute)
		r.reload(keep)
		r.reload(whole("d"))
		for _, one := range r.Sessions() {
			if one.Class != "d" {
				t.Errorf("the session is in %q, want d", one.Class)
			}
		}
		if n := r.shaper.Class("d").Sessions(); n != 1 {
			t.Errorf("%d sessions have a permit in d, want 1", n)
		}
	})
}

// An open connection takes a new rate at once.
func TestReratedWhileWaiting(t *testing.T) {
	addr, conns := listen(t)
	r := run(t, forward(addr, "0B/s"))
	client, upstream := r.open(conns)
	send(t, client, "waits")
	r.awaitWaiting(5)
	watch, start := trial.Begin(), time.Now()
	r.reload(forward(addr, fast))
	expect(t, upstream, "waits")
	watch.Below(t, "the new rate", time.Since(start), 100*time.Millisecond)
}

// Prepare reports every address that it cannot bind, and changes nothing.
func TestPrepareFails(t *testing.T) {
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	udp, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()

	text := class("c", fast) + listener("l", "tcp", policy.Echo, "c")
	r := run(t, text)
	at := r.addr("l")
	before := openDescriptors(t)
	_, err = r.prepare(text +
		listener("a", "tcp", policy.Echo, "c", fmt.Sprintf("listen = [\"127.0.0.1:0\", %q]", tcp.Addr())) +
		listener("b", "udp", policy.Echo, "c", fmt.Sprintf("listen = %q", udp.LocalAddr())) +
		listener("s", "tcp", policy.Echo, "c", `listen = "systemd:none"`))
	for _, want := range []string{
		"listener.a.listen: listen tcp4 " + tcp.Addr().String() + ": bind: address already in use",
		"listener.b.listen: listen udp4 " + udp.LocalAddr().String() + ": bind: address already in use",
		`listener.s.listen: systemd has passed no socket named "none"`,
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is\n%v\nwithout %q", err, want)
		}
	}
	if n := openDescriptors(t); n != before {
		t.Errorf("%d descriptors after, %d before", n, before)
	}
	if len(r.Listeners()) != 1 || r.addr("l") != at {
		t.Errorf("the listeners are %v", r.Listeners())
	}
	client := r.dial("l")
	send(t, client, "x")
	expect(t, client, "x")
}

func TestAbortLeavesNothing(t *testing.T) {
	text := class("c", fast) + listener("l", "tcp", policy.Echo, "c")
	r := run(t, text)
	before := openDescriptors(t)
	for range 10 {
		change, err := r.prepare(text + listener("a", "tcp", policy.Echo, "c") + listener("b", "udp", policy.Echo, "c"))
		if err != nil {
			t.Fatal(err)
		}
		change.Abort()
	}
	if n := openDescriptors(t); n != before {
		t.Errorf("%d descriptors after, %d before", n, before)
	}
}

// A change that makes a listener transparent, and is given up, leaves its socket as it was.
func TestAbortLeavesNoInterception(t *testing.T) {
	for protocol, more := range map[string]string{"tcp": "", "udp": `inside = "udp"`} {
		at := "127.0.0.1:" + freePort(t)
		r := run(t, class("c", fast)+listener("l", protocol, policy.Echo, "c", fmt.Sprintf("listen = %q", at)))
		change, err := r.prepare(strings.Replace(entryTo("transparent", `allow = "127.0.0.0/8"`, more), "127.0.0.1:0", at, 1))
		if errors.Is(err, unix.EPERM) {
			trial.SkipUnlessCI(t, "it needs CAP_NET_ADMIN")
		}
		if err != nil {
			t.Fatal(err)
		}
		options := func() (mark, transparent int) {
			if protocol == "udp" {
				for _, b := range r.bound {
					b.(*udpSocket).raw.Control(func(fd uintptr) {
						mark, transparent = sock.Descriptor(fd).Get(sock.Mark), sock.Descriptor(fd).Get(sock.Transparent)
					})
				}
				return mark, transparent
			}
			c := dialTCP(t, r.addr("l")) // an accepted connection has the options of its listener
			send(t, c, "x")
			expect(t, c, "x")
			all := r.sessions.all()
			one := all[len(all)-1].(*tcpSession)
			one.mu.Lock()
			defer one.mu.Unlock()
			return one.client.end.Get(sock.Mark), one.client.end.Get(sock.Transparent)
		}
		if mark, transparent := options(); mark == 0 || transparent == 0 {
			t.Fatalf("%s: the change has not made it transparent", protocol)
		}
		change.Abort()
		if mark, transparent := options(); mark != 0 || transparent != 0 {
			t.Errorf("%s: the mark is %#x, and transparent is %d", protocol, mark, transparent)
		}
	}
}

// Listeners that leave the port to the kernel each get one.
func TestPortZeroTwice(t *testing.T) {
	text := class("c", fast) + listener("l", "tcp", policy.Echo, "c") + listener("m", "tcp", policy.Echo, "c")
	r := run(t, text)
	l, m := r.addr("l"), r.addr("m")
	if l == m {
		t.Errorf("both are at %s", l)
	}
	r.reload(text)
	if r.addr("l") != l || r.addr("m") != m {
		t.Error("a reload has moved them")
	}
}

// Reloads lose no connection, neither open nor new ones.
func TestShortConnectionsDuringReloads(t *testing.T) {
	const connections, reloads, workers = 1000, 50, 10
	port := freePort(t)
	r := bare(t)
	text := func(i int) string {
		return class("c", fmt.Sprintf("%dmbit", 100+i)) + class("d", "800mbit") +
			listener(fmt.Sprintf("l%d", i%2), "tcp", policy.Echo, []string{"c", "d"}[i%3%2],
				fmt.Sprintf(`listen = "127.0.0.1:%s"`, port))
	}
	r.reload(text(0))
	failures := make(chan error, workers)
	todo := make(chan struct{}, connections)
	for range connections {
		todo <- struct{}{}
	}
	close(todo)
	for range workers {
		go func() {
			for range todo {
				if err := shortEcho("127.0.0.1:" + port); err != nil {
					failures <- err
					return
				}
			}
			failures <- nil
		}()
	}
	for i := range reloads {
		r.reload(text(i + 1))
	}
	for range workers {
		if err := <-failures; err != nil {
			t.Error(err)
		}
	}
}

func shortEcho(addr string) error {
	c, err := net.DialTimeout("tcp", addr, patience)
	if err != nil {
		return err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(c, "hello"); err != nil {
		return err
	}
	if err := c.(tcpConn).CloseWrite(); err != nil {
		return err
	}
	got, err := io.ReadAll(c)
	if err == nil && string(got) != "hello" {
		err = fmt.Errorf("got %q, want hello", got)
	}
	return err
}

// A socket that was passed comes back as often as a reload wants it. It stays open in between,
// and nothing may watch it then.
func TestPassedSocketComesBack(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	passed, err := l.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer passed.Close()
	l.Close()
	r := bare(t)
	r.inherited = Inherited{"web": {passed}}
	for range 3 {
		r.reload(class("c", fast) + listener("l", "tcp", policy.Echo, "c", `listen = "systemd:web"`))
		if err := shortEcho(l.Addr().String()); err != nil {
			t.Fatal(err)
		}
		r.reload(class("c", fast) + listener("other", "tcp", policy.Echo, "c"))
	}
}
