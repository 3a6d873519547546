package conn

import (
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"shaper/buffer"
	"shaper/policy"
	"shaper/stats"
	"shaper/tests/trial"
)

// SMPP commands that the tests of the backlog use.
const (
	query       = 0x03
	queryResp   = 0x80000003
	deliverResp = 0x80000005
)

// queueing returns a policy whose class "c" lets one message an hour go. A rule puts passcodes
// into another class.
func queueing(addr, name string, lines, more []string) string {
	rate := "1 messages/h"
	if name != "c" { // which would take time
		rate = "1000000 messages/s"
		lines = append([]string{`algorithm = "token"`, `burst = "100000 messages"`}, lines...)
	}
	return class(name, rate, lines...) + class("otp", "1000000 messages/s") + listener("l", "smpp", addr, name, more...) +
		"[[rule]]\nsource_addr = \"otp*\"\nclass = \"otp\"\n"
}

func submits(from string, first, n int) string {
	var all strings.Builder
	for i := range n {
		all.WriteString(submitFrom(from, uint32(first+i)))
	}
	return all.String()
}

// However many messages wait on a connection, those that cost nothing and those of another
// class pass. Those that must not overtake do not, and each class keeps its order.
func TestNothingStarvesBehindAQueue(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		n      int
		secure bool
		lines  []string
	}{
		{3_000, false, []string{`queue = "25000 messages"`}},
		{20_000, true, []string{`queue = "25000 messages"`}},
		{3_000, false, []string{`overflow = "wait"`}},
		{20_000, true, []string{`overflow = "wait"`}},
		{3_000, false, []string{`overflow = "wait"`, `max_wait = "2h"`}},
		{3_000, false, []string{`overflow = "wait"`, `queue = "25000 messages"`}},
	} {
		t.Run(fmt.Sprint(c.n, c.secure, c.lines), func(t *testing.T) {
			var addr string
			var client, upstream net.Conn
			var r *rig
			var more []string
			if c.secure {
				a := newAuthority(t)
				cert := a.issue("server")
				at, conns := listen(t)
				addr, more = at, []string{cert.terminating(), a.originating("")}
				r = run(t, queueing(addr, "c", c.lines, more))
				client = r.dialTLS("l", a.trusting())
				upstream = nextTLS(t, conns, serving(cert))
			} else {
				at, conns := listen(t)
				addr = at
				r = run(t, queueing(addr, "c", c.lines, nil))
				client, upstream = r.open(conns)
			}
			client.SetDeadline(time.Now().Add(6 * patience))
			upstream.SetDeadline(time.Now().Add(6 * patience))
			all := submits("bulk", 0, c.n)
			send(t, client, all)
			first := submitFrom("bulk", 0)
			expect(t, upstream, first)
			passes := func(number uint32) {
				t.Helper()
				keepAlive := pdu(enquire, 0, number, "")
				send(t, client, keepAlive+submitFrom("otp1", number)+pdu(deliverResp, 0, number, "\x00"))
				expect(t, upstream, keepAlive+submitFrom("otp1", number)+pdu(deliverResp, 0, number, "\x00"))
				answers := pdu(enquireResp, 0, number, "") + pdu(submitResp, 0, number, "\x00") + pdu(deliver, 0, number, "")
				send(t, upstream, answers)
				expect(t, client, answers)
			}
			passes(100_000)
			r.reload(queueing(addr, "c", c.lines, more)) // the class stays
			passes(100_001)
			// Also behind query_sm, which itself does not overtake.
			inOrder := pdu(query, 0, 200_000, "") + submits("bulk", 200_001, 2)
			send(t, client, inOrder)
			keepAlive := pdu(enquire, 0, 200_003, "")
			send(t, client, keepAlive)
			expect(t, upstream, keepAlive)
			send(t, client, pdu(unbind, 0, 200_004, ""))
			if held, want := r.Sessions()[0].Waiting, int64(len(all)-len(first)+len(inOrder)); held < want {
				t.Errorf("%d bytes wait, want %d", held, want)
			}
			r.reload(queueing(addr, "d", c.lines, more)) // the class is gone
			serves(t, client, upstream, all[len(first):], 1, len(first))
			expect(t, upstream, inOrder+pdu(unbind, 0, 200_004, ""))
		})
	}
}

// serves makes a provider read submits of one length and answer them, and the client read the
// answers.
func serves(t *testing.T, client, upstream net.Conn, all string, first, one int) {
	t.Helper()
	const batch = 100
	var answers strings.Builder
	for i := range len(all) / one {
		answers.WriteString(pdu(submitResp, 0, uint32(first+i), ""))
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for at := 0; at < len(all); at += batch * one {
			end := min(at+batch*one, len(all))
			got := make([]byte, end-at)
			if n, err := io.ReadFull(upstream, got); err != nil || string(got) != all[at:end] {
				t.Errorf("at byte %d the provider reads %.100q, %v", at, got[:n], err)
				return
			}
			io.WriteString(upstream, answers.String()[at/one*16:end/one*16])
		}
	}()
	got := make([]byte, answers.Len())
	if n, err := io.ReadFull(client, got); err != nil || string(got) != answers.String() {
		t.Errorf("the client reads of %d answers only %d, %v", len(got)/16, n/16, err)
	}
	<-done
}

// How much memory a message of a long queue takes. `make test` knows by its name that it runs without
// the race detector.
func TestWhatWaitsAllocatesAsItCounts(t *testing.T) {
	skipUnderRace(t)
	const n = 20_000
	addr, conns := listen(t)
	r := run(t, queueing(addr, "c", []string{`overflow = "wait"`}, nil))
	client, upstream := r.open(conns)
	expectPass := func(number uint32) {
		send(t, client, pdu(enquire, 0, number, ""))
		expect(t, upstream, pdu(enquire, 0, number, ""))
	}
	expectPass(0)
	before := heap()
	for i := range n / 1000 {
		send(t, client, submits("bulk", i*1000, 1000))
	}
	expect(t, upstream, submitFrom("bulk", 0))
	expectPass(1)
	took := heap() - before
	if wait, want := r.Sessions()[0].Waiting, int64((n-1)*len(submitFrom("bulk", 0))); wait != want {
		t.Fatalf("%d bytes wait, want %d", wait, want)
	}
	t.Logf("a message that waits takes %d bytes", took/n)
	const rest = 128 << 10 // what the connection itself may take by now, and the test
	if took > n*policy.MessageHolds+rest {
		t.Errorf("a message that waits takes %d bytes, but counts as %d", took/n, policy.MessageHolds)
	}
}

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// A connection holds a bounded amount. Beyond that the client waits, or is refused and still
// read from.
func TestAConnectionHoldsSoMuch(t *testing.T) { virtually(t, aConnectionHoldsSoMuch) }

func aConnectionHoldsSoMuch(t *testing.T) {
	const n = 600 // of 64 KiB, in 37 MiB
	large := func(i int) string {
		return pdu(submit, 0, uint32(i), "\x00\x00\x00bulk\x00"+strings.Repeat("x", 64<<10-100))
	}
	for _, overflow := range []string{"wait", "refuse"} {
		addr, conns := listen(t)
		r := run(t, queueing(addr, "c", []string{`queue = "32768 messages"`, `overflow = "` + overflow + `"`}, nil))
		client, upstream := r.open(conns)
		sent := make(chan struct{})
		go func() {
			defer close(sent)
			for i := range n {
				if _, err := io.WriteString(client, large(i)); err != nil {
					return
				}
			}
		}()
		expect(t, upstream, large(0))
		held := func() int64 { return r.Sessions()[0].Waiting }
		trial.Await(t, "it holds what it may", func() bool { return held() > int64(policy.ConnectionHolds)-256<<10 })
		if overflow == "refuse" {
			<-sent
			send(t, client, pdu(enquire, 0, n, ""))
			expect(t, upstream, pdu(enquire, 0, n, ""))
			if n := r.shaper.Class("c").Stats.Refused[stats.QueueFull].Items.Load(); n < 300 {
				t.Errorf("%d are refused", n)
			}
		}
		time.Sleep(50 * time.Millisecond) // more might come
		if now := held(); now > int64(policy.ConnectionHolds)+buffer.Max {
			t.Errorf("with %s it holds %d bytes", overflow, now)
		}
		client.Close()
		upstream.Close()
		<-sent
	}
}

// More requests than the link remembers wait for answers, but messages that cost nothing do
// not wait.
func TestUnansweredHoldsUpNoKeepAlive(t *testing.T) {
	const room = 4096
	addr, conns := listen(t)
	r := run(t, exchanged("smpp", addr, "1000000 messages/s", `algorithm = "token"`, `burst = "10000 messages"`))
	client, upstream := r.open(conns)
	all := submits("a", 0, room+10)
	one := len(all) / (room + 10)
	go io.WriteString(client, all+pdu(enquire, 0, 1, ""))
	expect(t, upstream, all[:room*one]+pdu(enquire, 0, 1, ""))
	answer := pdu(submitResp, 0, 5, "")
	send(t, upstream, answer)
	expect(t, client, answer)
	expect(t, upstream, all[room*one:][:one])
}

// Network management messages pass those that wait.
func TestNetworkManagementPasses(t *testing.T) {
	addr, conns := listen(t)
	r := run(t, class("c", "1 messages/h", `queue = "2 messages"`)+listener("l", "iso8583", addr, "c", `length_prefix = "ascii4"`))
	client, upstream := r.open(conns)
	const ask, echo = "00080200abcd", "00080800ping"
	send(t, client, strings.Repeat(ask, 3000)+echo)
	expect(t, upstream, ask+echo)
}

// If nothing may pass what waits, the session does not read from the client.
func TestLinesAreNotReadInVain(t *testing.T) { virtually(t, linesAreNotReadInVain) }

func linesAreNotReadInVain(t *testing.T) {
	addr, conns := listen(t)
	r := run(t, class("c", "1 messages/h", `queue = "2 messages"`)+listener("l", "lines", addr, "c"))
	client, upstream := r.open(conns)
	go io.WriteString(client, strings.Repeat("line\n", 4<<20))
	expect(t, upstream, "line\n")
	trial.Await(t, "two wait", func() bool { return r.shaper.Class("c").Backlog().Items >= 2 })
	time.Sleep(50 * time.Millisecond) // more might be read
	if held := r.Sessions()[0].Waiting; held > 64<<10 {
		t.Errorf("%d bytes are held", held)
	}
	client.Close()
}

// A session with a long queue ends at once, and so does its wait in a class that is gone.
func TestALongQueueEnds(t *testing.T) {
	addr, conns := listen(t)
	r := run(t, queueing(addr, "c", []string{`queue = "25000 messages"`}, nil))
	client, upstream := r.open(conns)
	send(t, client, submits("bulk", 0, 20_000)+pdu(enquire, 0, 1, ""))
	expect(t, upstream, submitFrom("bulk", 0)+pdu(enquire, 0, 1, ""))
	reset(client)
	r.awaitEnd(stats.ResetByPeer, 1)
	if n, _ := r.dropped("c", stats.Reset); n != 19_999 {
		t.Errorf("%d are dropped", n)
	}
	if n := r.shaper.Class("c").Backlog().Items; n != 0 {
		t.Errorf("%d wait", n)
	}
	r.noneInFlight("c")
}

// A provider that stops reading gets no more than its own kernel has room for. When it reads
// on, what has waited leaves in its order, at the rate of the class, without a burst.
func TestAStalledProviderGetsNoBurst(t *testing.T) { virtually(t, aStalledProviderGetsNoBurst) }

func aStalledProviderGetsNoBurst(t *testing.T) {
	const n, rate = 1500, 2000 // fewer than may be unanswered
	addr, conns := listen(t)
	at := func(rate string) string {
		return exchanged("smpp", addr, rate, `queue = "20000 messages"`, `algorithm = "token"`, `burst = "100 messages"`)
	}
	r := run(t, at("1 messages/h"))
	client, upstream := r.open(conns)
	client.SetDeadline(time.Now().Add(6 * patience))
	upstream.SetDeadline(time.Now().Add(6 * patience))
	upstream.SetReadBuffer(4096)
	var text strings.Builder
	for i := range uint32(n) {
		text.WriteString(pdu(submit, 0, i, "\x00\x00\x00a\x00"+strings.Repeat("x", 219)))
	}
	all := text.String()
	one := len(all) / n
	send(t, client, all)
	trial.Await(t, "all are read", func() bool {
		s := r.Sessions()[0]
		return s.Waiting+int64(s.Upward) == int64(len(all))
	})
	r.reload(at(fmt.Sprint(rate, " messages/s")))
	trial.Await(t, "each has had its turn", func() bool { return r.shaper.Class("c").Backlog().Items == 0 })
	before := int(r.sent("c", stats.Upstream).Messages.Load())
	if before*one > 200<<10 {
		t.Errorf("%d messages of %d bytes have left, and the provider reads none", before, one)
	}
	begin := time.Now()
	serves(t, client, upstream, all, 0, one)
	if took, least := time.Since(begin), time.Duration(n-before-100)*time.Second/rate*9/10; took < least {
		t.Errorf("%d messages come within %v of the end of a stall, at %d/s", n-before, took, rate)
	}
	r.noneInFlight("c")
}

// Messages behind others keep their order when the class of one of those is removed.
func TestReloadKeepsTheOrderBehind(t *testing.T) {
	const full = 4096 // requests in flight
	addr, conns := listen(t)
	text := func(otp string) string {
		return class("c", "1000000 messages/s", `overflow = "wait"`) + class(otp, "1000000 messages/s", `overflow = "wait"`) + listener("l", "smpp", addr, "c") +
			"[[rule]]\nsource_addr = \"otp*\"\nclass = \"" + otp + "\"\n"
	}
	r := run(t, text("otp"))
	client, upstream := r.open(conns)
	all := submits("bulk", 0, full)
	send(t, client, all)
	expect(t, upstream, all)
	behind := submitFrom("otp1", 5000) + submitFrom("bulk", 5001) + pdu(unbind, 0, 5002, "")
	send(t, client, behind+pdu(enquire, 0, 6000, ""))
	expect(t, upstream, pdu(enquire, 0, 6000, ""))
	r.reload(text("other"))
	var answers strings.Builder
	for i := range full {
		answers.WriteString(pdu(submitResp, 0, uint32(i), ""))
	}
	send(t, upstream, answers.String())
	expect(t, upstream, behind)
}

// Messages that were accepted and lost their turns because the provider stalled are not refused,
// even if others have filled the queue since.
func TestNothingAcceptedIsRefusedAfterAStall(t *testing.T) {
	virtually(t, nothingAcceptedIsRefusedAfterAStall)
}

func nothingAcceptedIsRefusedAfterAStall(t *testing.T) {
	const n = 15
	addr, conns := listen(t)
	r := run(t, exchanged("smpp", addr, "200 messages/s", `queue = "20 messages"`))
	client, upstream := r.open(conns)
	upstream.SetReadBuffer(4096)
	one := func(i int) string {
		return pdu(submit, 0, uint32(i), "\x00\x00\x00bulk\x00"+strings.Repeat("x", 60<<10))
	}
	for i := range n {
		send(t, client, one(i))
	}
	c := r.shaper.Class("c")
	trial.Await(t, "all are read, and have had their turns", func() bool {
		s := r.Sessions()[0]
		return s.Waiting+int64(s.Upward) == int64(n*len(one(0))) && c.Backlog().Items == 0
	})
	if lost := n - r.sent("c", stats.Upstream).Messages.Load(); lost < n/2 {
		t.Fatalf("%d messages have lost their turns, want at least %d", lost, n/2)
	}
	// Another connection fills the queue.
	other, otherUp := r.open(conns)
	go io.Copy(io.Discard, otherUp)
	go io.Copy(io.Discard, other)
	stop := make(chan struct{})
	stopped := make(chan struct{})
	defer func() {
		close(stop)
		<-stopped
	}()
	go func() {
		defer close(stopped)
		tick := time.NewTicker(time.Millisecond) // less than one leaves in this time
		defer tick.Stop()
		for i := 0; ; i += 4 {
			select {
			case <-stop:
				return
			case <-tick.C:
			}
			if _, err := io.WriteString(other, submits("other", i, 4)); err != nil {
				return
			}
		}
	}()
	trial.Await(t, "the queue is full", func() bool { return c.Backlog().Items >= 20 })
	upstream.SetReadBuffer(1 << 20)
	for i := range n {
		expect(t, upstream, one(i))
	}
}
