package conn

import (
	"fmt"
	"net/netip"
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
