package conn

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"shaper/buffer"
	"shaper/policy"
	"shaper/shaper"
	"shaper/stats"
	"shaper/tests/trial"
)

// shade runs a policy in the shadow, and returns its classes.
func (r *rig) shade(text string) map[string]*shaper.Class {
	r.t.Helper()
	p := parse(r.t, text)
	byName, trial := map[string]*shaper.Class{}, shaper.NewTrial(time.Now(), p.Classes)
	for _, c := range trial.Classes() {
		byName[c.Name()] = c
	}
	r.Shadow(p, trial)
	return byName
}

// wouldDrop returns how many items a class in the shadow would have dropped.
func wouldDrop(c *shaper.Class) uint64 { return c.Stats.ReadShadow().WouldDrop }

// What a policy in the shadow would do counts from its start on, for open and new sessions, in
// both directions. It does nothing of it.
func TestShadowPolicy(t *testing.T) {
	addr, conns := listen(t)
	r := run(t, forward(addr, fast))
	client, upstream := r.open(conns)
	classes := r.shade(class("tight", "1B/h", `overflow = "refuse"`, `algorithm = "token"`, `burst = "10B"`) + class("back", "0B/s") +
		listener("l", "tcp", addr, "tight", `return_class = "back"`))
	for range 5 {
		send(t, client, "12345")
		expect(t, upstream, "12345")
		send(t, upstream, "back")
		expect(t, client, "back")
	}
	tight, back := classes["tight"].Stats, classes["back"].Stats
	if n := back.Overlimits.Load(); n != 1 {
		t.Errorf("downstream %d pieces would wait, want one, forever", n)
	}
	if n := tight.Overlimits.Load(); n == 0 {
		t.Error("25 bytes would pass a bound of 10")
	}
	if waits := r.shaper.Class("c").Stats.Overlimits.Load(); waits != 0 {
		t.Errorf("%d wait in force", waits)
	}
	second := r.dial("l")
	next(t, conns)
	send(t, second, "x")
	trial.Await(t, "the second session would wait, too", func() bool { return tight.Overlimits.Load() == 2 })

	r.Shadow(nil, nil)
	before := tight.Overlimits.Load()
	send(t, second, "more")
	send(t, client, "more")
	expect(t, upstream, "more")
	if after := tight.Overlimits.Load(); after != before {
		t.Errorf("it still counts after it has ended: %d, %d", before, after)
	}
}

// The shadow counts datagrams one by one, as the class in force does.
func TestShadowPolicyOfDatagrams(t *testing.T) {
	r := run(t, udp(policy.Echo, fast))
	open := dialUDP(t, r.addr("l"))
	open.Write([]byte("open"))
	expectDatagram(t, open, "open")
	classes := r.shade(class("c", "1 packets/h", `queue = "5 packets"`) + listener("l", "udp", policy.Echo, "c"))
	for n := range 20 {
		what := fmt.Sprint(n)
		open.Write([]byte(what))
		expectDatagram(t, open, what)
	}
	if n := wouldDrop(classes["c"]); n != 14 {
		t.Errorf("%d would be dropped, want 14 of 20", n)
	}
	for _, one := range r.Sessions() {
		r.CloseSession(one.ID)
	}
}

// Datagrams that wait count with the memory that they hold, in the shadow as in force.
func TestShadowPolicyOfQueuesInBytes(t *testing.T) {
	limits := class("c", "1 packets/h", `queue = "10KB"`) + listener("l", "udp", policy.Echo, "c")
	datagram := []byte(strings.Repeat("x", 1400))
	r := run(t, limits)
	live, class := dialUDP(t, r.addr("l")), r.shaper.Class("c")
	c := class.Stats
	dropped := &c.Dropped[stats.QueueFull].Items
	for n := range uint64(10) {
		live.Write(datagram)
		trial.Await(t, "it has left, waits or is dropped", func() bool {
			return c.Sent[stats.Upstream].Packets.Load()+uint64(class.Backlog().Items)+dropped.Load() == n+1
		})
	}

	free := run(t, udp(policy.Echo, fast))
	copied := dialUDP(t, free.addr("l"))
	copied.Write([]byte("open"))
	expectDatagram(t, copied, "open")
	classes := free.shade(limits)
	for range 10 {
		copied.Write(datagram)
		expectDatagram(t, copied, string(datagram))
	}
	if got, want := wouldDrop(classes["c"]), dropped.Load(); got != want || want == 0 {
		t.Errorf("%d of 10 would be dropped, and %d are", got, want)
	}
}

// policy.Holds counts what a buffer takes, and what we keep about the bytes in it.
func TestHolds(t *testing.T) {
	for _, n := range []int{0, 1, 127, 128, 129, 1400, 65_000, buffer.Max} {
		if got, want := policy.Holds(int64(n)), int64(policy.MessageHolds-buffer.Min+buffer.Size(n)); got != want {
			t.Errorf("%d bytes hold %d, want %d", n, got, want)
		}
	}
}

// Copies leave in time, even if nobody looks or sends.
func TestShadowPolicyCatchesUp(t *testing.T) {
	r := run(t, udp(policy.Echo, fast))
	classes := r.shade(class("c", "100 packets/s") + listener("l", "udp", policy.Echo, "c"))
	open := dialUDP(t, r.addr("l"))
	for range 10 {
		open.Write([]byte("x"))
		expectDatagram(t, open, "x")
	}
	trial.Await(t, "the copies leave", func() bool { return classes["c"].Backlog().Items == 0 })
}

// Buckets of a policy in the shadow go with their sessions, and with the policy.
func TestShadowPolicyLeavesNothing(t *testing.T) {
	addr, conns := listen(t)
	text := class("c", fast, `per = "connection"`) + listener("l", "tcp", addr, "c")
	r := run(t, forward(addr, fast))
	client, upstream := r.open(conns)
	classes := r.shade(text)
	other, _ := r.open(conns)
	send(t, client, "x")
	expect(t, upstream, "x")
	if n := classes["c"].Buckets().Keys(time.Now()); n != 2 {
		t.Errorf("%d buckets, want 2", n)
	}
	reset(other)
	trial.Await(t, "its bucket is given up", func() bool { return classes["c"].Buckets().Keys(time.Now()) == 1 })
	again := r.shade(text)
	if n, m := classes["c"].Buckets().Keys(time.Now()), again["c"].Buckets().Keys(time.Now()); n != 0 || m != 1 {
		t.Errorf("%d buckets of the old policy and %d of the new one, want 0 and 1", n, m)
	}
	r.Shadow(nil, nil)
	if n := again["c"].Buckets().Keys(time.Now()); n != 0 {
		t.Errorf("%d buckets remain", n)
	}
	reset(client)
	r.awaitEnd(stats.ResetByPeer, 2)
}

// If rules of a policy in the shadow ask for the destination, it is looked up, too.
func TestShadowPolicyOfDestinations(t *testing.T) {
	addr, conns := listen(t)
	r := run(t, forward(addr, fast))
	classes := r.shade(class("c", fast) + class("d", "1B/h", `per = "destination"`) +
		listener("l", "tcp", addr, "c") + "[[rule]]\ndestination = \"127.0.0.1\"\nclass = \"d\"\n")
	client, upstream := r.open(conns)
	send(t, client, "x")
	expect(t, upstream, "x")
	if n := classes["d"].Buckets().Keys(time.Now()); n != 1 {
		t.Errorf("%d buckets of the class for what leads there, want 1", n)
	}
	reset(client)
	r.awaitEnd(stats.ResetByPeer, 1)
}

// A listener that the policy in the shadow does not know, or knows with another protocol, gets no copies.
func TestShadowPolicyKnowsNot(t *testing.T) {
	p := parse(t, class("c", fast)+listener("other", "udp", policy.Echo, "c"))
	trial := shaper.NewTrial(time.Now(), p.Classes)
	other := &shadow{routes: routes{policy.Compile(p), map[string]*shaper.Class{"c": trial.Classes()[0]}}, trial: trial}
	for _, l := range []policy.Listener{{Name: "l", Protocol: policy.UDP}, {Name: "other", Protocol: policy.TCP}} {
		who := policy.Conn{Listener: l.Name, Source: netip.MustParseAddrPort("10.0.0.1:1")}
		guest := other.guest(who, &l, time.Now())
		if up, down := guest.Classes(); up != nil || down != nil {
			t.Errorf("%s gets %v and %v", l.Name, up, down)
		}
	}
}

// If the policy in the shadow has another protocol by the name of a listener, its classes are for other clients: nothing of the
// sessions counts there, whether they were open before or come later.
func TestShadowPolicyOfAnotherProtocol(t *testing.T) {
	for _, c := range []struct{ live, shadow, rate string }{
		{"lines", "tcp", "1B/h"},
		{"tcp", "http", "1B/h"},
		{"http", "lines", "1 messages/h"},
		{"http", "smpp", "1 messages/h"},
	} {
		t.Run(c.live+" as "+c.shadow, func(t *testing.T) {
			addr, conns := listen(t)
			r := run(t, class("c", fast)+listener("l", c.live, addr, "c"))
			const text = "GET / HTTP/1.1\r\nHost: h\r\n\r\n"
			client, upstream := r.open(conns)
			classes := r.shade(class("c", c.rate) + listener("l", c.shadow, addr, "c"))
			later := r.dial("l")
			send(t, client, text)
			expect(t, upstream, text)
			send(t, later, text)
			expect(t, next(t, conns), text)
			if is := classes["c"].Stats.ReadShadow(); is.WouldDelay+is.WouldDrop+is.Wait.Count > 0 {
				t.Errorf("%d items would have waited, %d would have been dropped, and %d have left", is.WouldDelay, is.WouldDrop, is.Wait.Count)
			}
		})
	}
}

// counted is how many items of a class have waited, and how many it has dropped or refused.
type counted struct{ delayed, lost uint64 }

func countsOf(classes func(string) *shaper.Class) func() [2]counted {
	return func() (all [2]counted) {
		for i, name := range []string{"otp", "bulk"} {
			c := classes(name).Stats
			full := stats.QueueFull
			all[i] = counted{c.Overlimits.Load(), c.Dropped[full].Items.Load() + c.Refused[full].Items.Load()}
		}
		return all
	}
}

// A policy in the shadow counts of the same messages what it counts in force: by its message
// rules, in_flight with the answers that come, messages without room, and max_connections.
func TestShadowPolicyOfMessages(t *testing.T) {
	for overflow, otp := range map[string]counted{
		"refuse": {4, 2}, // two wait, and two are refused
		"wait":   {3, 0}, // two wait, and the others of the class are parked; the first of them has asked
	} {
		t.Run(overflow, func(t *testing.T) { shadowOfMessages(t, overflow, otp) })
	}
}

func shadowOfMessages(t *testing.T, overflow string, otp counted) {
	limits := class("otp", "1 messages/h", `queue = "2 messages"`, fmt.Sprintf("overflow = %q", overflow)) +
		class("bulk", "1000000 messages/s", `algorithm = "token"`, `burst = "1000 messages"`, "in_flight = 2", "max_connections = 1", `overflow = "refuse"`)
	rules := func(addr string) string {
		return listener("l", "smpp", addr, "bulk") + "[[rule]]\nsource_addr = \"OTP*\"\nclass = \"otp\"\n"
	}
	t.Run("in force", func(t *testing.T) {
		addr, conns := listen(t)
		r := run(t, limits+rules(addr))
		messagesThatWait(t, r, conns, countsOf(r.shaper.Class), otp)
		if n := r.shaper.Class("bulk").InFlight(); n != 2 {
			t.Errorf("%d are in flight, want 2", n)
		}
	})
	t.Run("in the shadow", func(t *testing.T) {
		addr, conns := listen(t)
		r := run(t, class("any", "1000000 messages/s", `algorithm = "token"`, `burst = "1000 messages"`)+listener("l", "smpp", addr, "any"))
		classes := r.shade(limits + rules(addr))
		messagesThatWait(t, r, conns, countsOf(func(name string) *shaper.Class { return classes[name] }), otp)
		next(t, conns)
		if n := classes["bulk"].InFlight(); n != 2 {
			t.Errorf("%d would be in flight, want 2", n)
		}
		if waits := r.shaper.Class("any").Stats.Overlimits.Load(); waits != 0 {
			t.Errorf("%d wait in force", waits)
		}
	})
}

// messagesThatWait sends messages, answers one, sends one more, and opens a second session.
// After each step it checks the counts, which do not depend on time. Those of the first class
// stay the same after the first step.
func messagesThatWait(t *testing.T, r *rig, conns <-chan tcpConn, counts func() [2]counted, otp counted) {
	t.Helper()
	step := func(n int, want [2]counted) {
		t.Helper()
		trial.Await(t, fmt.Sprintf("step %d: %v", n, want), func() bool { return counts() == want })
	}
	client, upstream := r.open(conns)
	messages := ""
	for n := range uint32(5) {
		messages += submitFrom("OTP1", 10+n) + submitFrom("x", 20+n)
	}
	send(t, client, messages+pdu(enquire, 0, 99, ""))
	step(1, [2]counted{otp, {3, 0}})
	readUntil(t, upstream, pdu(enquire, 0, 99, ""))
	send(t, upstream, pdu(submitResp, 0, 20, "id\x00")+pdu(submitResp, 0, 77, "id\x00"))
	readUntil(t, client, pdu(submitResp, 0, 77, "id\x00"))
	send(t, client, submitFrom("y", 30))
	step(2, [2]counted{otp, {4, 0}})
	if second, err := net.Dial("tcp", r.addr("l")); err == nil { // otherwise it was reset already
		defer second.Close()
	}
	step(3, [2]counted{otp, {5, 1}})
}

// A policy in the shadow gives messages the buckets that they would have in force, and no
// bucket stays when the session has gone and its messages would have left.
func TestShadowPolicyOfKeys(t *testing.T) {
	addr, conns := listen(t)
	keyed := class("c", "1 messages/h", `per = ["source", "source_addr"]`, `overflow = "wait"`)
	for _, inForce := range []bool{true, false} {
		r := run(t, keyed+listener("l", "smpp", addr, "c"))
		c := r.shaper.Class("c")
		if !inForce {
			r = run(t, class("any", "1000000 messages/s")+listener("l", "smpp", addr, "any"))
			c = r.shade(keyed + listener("l", "smpp", addr, "c"))["c"]
		}
		client, _ := r.open(conns)
		for i, from := range []string{"a", "b", "a", "a", "c", "b"} {
			send(t, client, submitFrom(from, uint32(i)))
		}
		trial.Await(t, "three of six wait", func() bool { return c.Backlog().Items == 3 && c.InFlight() == 3 })
		if n := c.Buckets().Keys(time.Now()); n != 3 {
			t.Errorf("in force %v: %d keys, want 3", inForce, n)
		}
		client.SetLinger(0)
		client.Close()
		if inForce {
			trial.Await(t, "only what they owe is remembered", func() bool { return c.Backlog().Items == 0 && c.Buckets().Keys(time.Now().Add(2*time.Hour)) == 0 })
		}
	}
}

// readUntil reads until it has read a text.
func readUntil(t *testing.T, c net.Conn, text string) {
	t.Helper()
	all := ""
	for buf := make([]byte, 4096); !strings.Contains(all, text); {
		n, err := c.Read(buf)
		if err != nil {
			t.Fatalf("%q does not come: %v", text, err)
		}
		all += string(buf[:n])
	}
}

// The body of a request that a policy in the shadow would have refused counts nowhere, as it
// would not in force.
func TestShadowPolicyOfRefusedBodies(t *testing.T) {
	limits := class("account", "1KB/s", `algorithm = "token"`, `burst = "1KB"`) +
		class("c", "1 messages/h", `parent = "account"`, `max_wait = "1ms"`, `overflow = "refuse"`)
	requests := []string{"GET /1 HTTP/1.1\r\nHost: h\r\n\r\n", "POST /2 HTTP/1.1\r\nHost: h\r\nContent-Length: 8000\r\n\r\n" + strings.Repeat("b", 8000)}
	server := httpServer(t, func(w http.ResponseWriter, r *http.Request) { io.Copy(io.Discard, r.Body) })
	ask := func(r *rig) {
		t.Helper()
		client := r.dial("l")
		in := bufio.NewReader(client)
		for _, request := range requests {
			send(t, client, request)
			answer, err := http.ReadResponse(in, nil)
			if err != nil {
				t.Fatal(err)
			}
			io.Copy(io.Discard, answer.Body)
		}
	}
	inForce := run(t, limits+listener("l", "http", server, "c"))
	ask(inForce)
	free := run(t, class("any", fast)+listener("l", "http", server, "any"))
	classes := free.shade(limits + listener("l", "http", server, "c"))
	ask(free)
	got, want := classes["account"].Stats.Wait.Read().Count, inForce.shaper.Class("account").Stats.Wait.Read().Count
	if got != want || classes["account"].Stats.Overlimits.Load() != inForce.shaper.Class("account").Stats.Overlimits.Load() {
		t.Errorf("%d would leave the account, and %d have", got, want)
	}
	if n := wouldDrop(classes["c"]); n != 1 {
		t.Errorf("%d would be refused, want 1", n)
	}
}

// Requests that were in flight before the policy began have no copies. Their answers are not
// taken for those of the requests behind them, which have.
func TestShadowPolicyOfPipelines(t *testing.T) {
	addr, conns := listen(t)
	r := run(t, class("any", "1000000 messages/s", `algorithm = "token"`, `burst = "1000 messages"`)+listener("l", "http", addr, "any"))
	client, upstream := r.open(conns)
	request, answer := "GET / HTTP/1.1\r\nHost: h\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
	send(t, client, request)
	expect(t, upstream, request)
	c := r.shade(class("c", "1000000 messages/s", "in_flight = 5") + listener("l", "http", addr, "c"))["c"]
	send(t, client, request)
	expect(t, upstream, request)
	for n, want := range []int{1, 0} {
		send(t, upstream, answer)
		expect(t, client, answer)
		trial.Await(t, "it is answered", func() bool { return r.shaper.Class("any").InFlight() == want })
		c.Status().CatchUp(time.Now().Add(time.Hour))
		if got := c.InFlight(); got != want {
			t.Errorf("after %d answers %d would be in flight, want %d", n+1, got, want)
		}
	}
}

// The same holds for requests that waited when the policy began, and for those that waited when another one was in the shadow.
func TestShadowPolicyOfRequestsThatWait(t *testing.T) {
	addr, conns := listen(t)
	r := run(t, class("any", "4 messages/s")+listener("l", "http", addr, "any"))
	client, upstream := r.open(conns)
	request, answer := "GET / HTTP/1.1\r\nHost: h\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
	shade := func() *shaper.Class {
		return r.shade(class("c", "1000000 messages/s", "in_flight = 5") + listener("l", "http", addr, "c"))["c"]
	}
	shade()
	send(t, client, request+request)
	trial.Await(t, "one waits", func() bool { return r.shaper.Class("any").Backlog().Items == 1 })
	c := shade()
	send(t, client, request)
	expect(t, upstream, request+request+request)
	for n, want := range []int{1, 1, 0} {
		send(t, upstream, answer)
		expect(t, client, answer)
		trial.Await(t, "it is answered", func() bool { return r.shaper.Class("any").InFlight() == 2-n })
		c.Status().CatchUp(time.Now().Add(time.Hour))
		if got := c.InFlight(); got != want {
			t.Errorf("after %d answers %d would be in flight, want %d", n+1, got, want)
		}
	}
}

// If the protocol cannot refuse, a refused message ends the session, and what waits is lost. A
// policy in the shadow counts the same, and everything once.
func TestShadowPolicyOfSessionsThatEnd(t *testing.T) {
	limits := class("c", "1 messages/h", `queue = "2 messages"`, `overflow = "refuse"`)
	lost := func(c *shaper.Class) (items, n uint64) {
		dropped, refused := &c.Stats.Dropped[stats.QueueFull], &c.Stats.Refused[stats.QueueFull]
		return dropped.Items.Load() + refused.Items.Load(), dropped.Bytes.Load() + refused.Bytes.Load()
	}
	overflow := func(r *rig, c *shaper.Class, client tcpConn) {
		t.Helper()
		send(t, client, "1\n2\n3\n")
		trial.Await(t, "two wait", func() bool { return c.Backlog().Items == 2 })
		send(t, client, "4\n")
		trial.Await(t, "nothing waits any more", func() bool { return c.Backlog().Items == 0 })
	}
	addr, conns := listen(t)
	inForce := run(t, limits+listener("l", "lines", addr, "c"))
	client, _ := inForce.open(conns)
	overflow(inForce, inForce.shaper.Class("c"), client)
	inForce.awaitEnd(stats.Overflow, 1)
	if items, n := lost(inForce.shaper.Class("c")); items != 3 || n != 6 {
		t.Errorf("%d messages of %d bytes are lost, want 3 of 6", items, n)
	}
	free := run(t, class("any", fast)+listener("l", "lines", addr, "any"))
	copied, upstream := free.open(conns)
	c := free.shade(limits + listener("l", "lines", addr, "c"))["c"]
	overflow(free, c, copied)
	expect(t, upstream, "1\n2\n3\n4\n")
	reset(copied)
	if items, n := lost(c); items != 3 || n != 6 {
		t.Errorf("%d messages of %d bytes would be lost, want 3 of 6", items, n)
	}
}
