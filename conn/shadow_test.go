package conn

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"shaper/policy"
	"shaper/shaper"
	"shaper/stats"
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

// wouldDrop returns how many a class in the shadow would have dropped.
func wouldDrop(c *shaper.Class) uint64 { return c.Stats.ReadShadow().WouldDrop }

// What a policy in the shadow would do counts from when it begins, for sessions that
// were open before and for new ones, both ways; and nothing of it is done.
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
		t.Errorf("on the way back %d pieces would wait, want the first, for ever", n)
	}
	if n := tight.Overlimits.Load(); n == 0 {
		t.Error("25 bytes would pass through 10")
	}
	if waits := r.shaper.Class("c").Stats.Overlimits.Load(); waits != 0 {
		t.Errorf("in force %d wait", waits)
	}
	second := r.dial("l")
	next(t, conns)
	send(t, second, "x")
	until(t, "the second session would wait, too", func() bool { return tight.Overlimits.Load() == 2 })

	r.Shadow(nil, nil)
	before := tight.Overlimits.Load()
	send(t, second, "more")
	send(t, client, "more")
	expect(t, upstream, "more")
	if after := tight.Overlimits.Load(); after != before {
		t.Errorf("it goes on counting after it has ended: %d, %d", before, after)
	}
}

// Datagrams in the shadow are counted one by one, as many as would be.
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
	for id := range r.sessions {
		r.CloseSession(id)
	}
}

// Copies leave in time, whether or not anybody looks or sends.
func TestShadowPolicyCatchesUp(t *testing.T) {
	r := run(t, udp(policy.Echo, fast))
	classes := r.shade(class("c", "100 packets/s") + listener("l", "udp", policy.Echo, "c"))
	open := dialUDP(t, r.addr("l"))
	for range 10 {
		open.Write([]byte("x"))
		expectDatagram(t, open, "x")
	}
	until(t, "the copies leave", func() bool { return classes["c"].Stats.BacklogItems.Load() == 0 })
}

// Buckets of a policy in the shadow are given up with their sessions, and when the
// policy is.
func TestShadowPolicyLeavesNothing(t *testing.T) {
	addr, conns := listen(t)
	text := class("c", fast, `per = "connection"`) + listener("l", "tcp", addr, "c")
	r := run(t, forward(addr, fast))
	client, upstream := r.open(conns)
	classes := r.shade(text)
	other, _ := r.open(conns)
	send(t, client, "x")
	expect(t, upstream, "x")
	if n := classes["c"].Keys(time.Now()); n != 2 {
		t.Errorf("%d buckets, want 2", n)
	}
	reset(other)
	until(t, "its bucket is given up", func() bool { return classes["c"].Keys(time.Now()) == 1 })
	again := r.shade(text)
	if n, m := classes["c"].Keys(time.Now()), again["c"].Keys(time.Now()); n != 0 || m != 1 {
		t.Errorf("%d buckets of the old policy and %d of the new one, want 0 and 1", n, m)
	}
	r.Shadow(nil, nil)
	if n := again["c"].Keys(time.Now()); n != 0 {
		t.Errorf("%d buckets are left", n)
	}
	reset(client)
	r.awaitEnd(stats.ResetByPeer, 2)
}

// Where a session leads to is looked up for the policy in the shadow, too.
func TestShadowPolicyOfDestinations(t *testing.T) {
	addr, conns := listen(t)
	r := run(t, forward(addr, fast))
	classes := r.shade(class("c", fast) + class("d", "1B/h", `per = "destination"`) +
		listener("l", "tcp", addr, "c") + "[[rule]]\ndestination = \"127.0.0.1\"\nclass = \"d\"\n")
	client, upstream := r.open(conns)
	send(t, client, "x")
	expect(t, upstream, "x")
	if n := classes["d"].Keys(time.Now()); n != 1 {
		t.Errorf("%d buckets of the class for what leads there, want 1", n)
	}
	reset(client)
	r.awaitEnd(stats.ResetByPeer, 1)
}

// A listener that the policy in the shadow does not know gets no copies.
func TestShadowPolicyKnowsNot(t *testing.T) {
	p := parse(t, class("c", fast)+listener("other", "udp", policy.Echo, "c"))
	trial := shaper.NewTrial(time.Now(), p.Classes)
	other := &shadow{routes{policy.Compile(p), map[string]*shaper.Class{"c": trial.Classes()[0]}}, trial}
	guest := other.guest(policy.Conn{Listener: "l", Source: netip.MustParseAddrPort("10.0.0.1:1")}, time.Now())
	if up, down := guest.Classes(); up != nil || down != nil {
		t.Errorf("it gets %v and %v", up, down)
	}
}

// counted is what a class has had wait, and what it has dropped or refused.
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

// A policy in the shadow counts what it does when it is in force, of the same
// messages: its rules about them, in_flight with the answers that come, what finds no
// room, and max_connections.
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
			t.Errorf("in force %d wait", waits)
		}
	})
}

// messagesThatWait sends messages, answers one, sends one more, and opens a second
// session. It checks the counts after each of these, which do not depend on time. Those
// of the first class do not change any more after the first step.
func messagesThatWait(t *testing.T, r *rig, conns <-chan tcpConn, counts func() [2]counted, otp counted) {
	t.Helper()
	step := func(n int, want [2]counted) {
		t.Helper()
		until(t, fmt.Sprintf("step %d: %v", n, want), func() bool { return counts() == want })
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
	if second, err := net.Dial("tcp", r.addr("l")); err == nil { // else it is reset already
		defer second.Close()
	}
	step(3, [2]counted{otp, {5, 1}})
}

// readUntil reads until a text has come.
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
