package conn

import (
	"bufio"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"shaper/limit"
	"shaper/policy"
	"shaper/shaper"
	"shaper/stats"
	"shaper/tests/trial"
	"shaper/unit"
)

// A usedUp member has nothing in hand. It hears only when something waits that the window of the fleet is used up for an hour.
type usedUp struct{ shaper.Member }

func (usedUp) Budget(int, string) shaper.Budget { return usedUpBudget{} }
func (usedUp) Set([]shaper.Limit)               {}
func (usedUp) PausedUntil(string) time.Time     { return time.Time{} }

type usedUpBudget struct{ shaper.Budget }

func (usedUpBudget) SetRate(time.Time, unit.Rate, int64)           {}
func (usedUpBudget) Amend(_, _ time.Time, _ int64)                 {}
func (usedUpBudget) Want(time.Time, int64, ...int64)               {}
func (usedUpBudget) Owe(time.Time, int64, time.Time)               {}
func (usedUpBudget) Left(time.Time)                                {}
func (usedUpBudget) Over() (at time.Time)                          { return at }
func (usedUpBudget) Lost(time.Time, int64)                         {}
func (usedUpBudget) Next(time.Time, int64, int64) time.Time        { return limit.Never }
func (usedUpBudget) Estimate(now time.Time, _, _ int64) time.Time  { return now }
func (usedUpBudget) RefusedUntil(now time.Time, _ int64) time.Time { return now.Add(time.Hour) }
func (usedUpBudget) Forget()                                       {}

// Messages that wait when it turns out that the window of the fleet is used up are refused as those are that come later: by the
// answer of their protocol, in their places, and counted. The connection goes on.
func TestRefusedWhileWaiting(t *testing.T) {
	const get, post = "GET / HTTP/1.1\r\nHost: x\r\n\r\n", "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n"
	answers429 := func(t *testing.T, in *bufio.Reader) {
		for range 3 {
			answer, err := http.ReadResponse(in, nil)
			if err != nil || answer.StatusCode != 429 {
				t.Fatalf("%v, the answer is %v", err, answer)
			}
			io.Copy(io.Discard, answer.Body)
		}
	}
	for name, one := range map[string]struct {
		protocol string
		send     []string // each waits when the fleet says that the window is used up
		messages []uint64
		read     func(t *testing.T, in *bufio.Reader)
	}{
		"smpp": {"smpp", []string{submitFrom("a", 1) + submitFrom("a", 2), submitFrom("a", 3)}, []uint64{2, 1}, func(t *testing.T, in *bufio.Reader) {
			for number := range uint32(3) {
				answer := make([]byte, 16)
				if _, err := io.ReadFull(in, answer); err != nil || string(answer) != pdu(submitResp, 0x58, number+1, "") {
					t.Errorf("%v, the answer is %x", err, answer)
				}
			}
		}},
		"http":           {"http", []string{get, post, "hello" + get}, []uint64{1, 1, 1}, answers429},
		"pipelined http": {"http", []string{get + post + "hello" + get}, []uint64{3}, answers429},
		"lines": {"lines", []string{"one\n"}, []uint64{1}, func(t *testing.T, in *bufio.Reader) {
			if p, err := io.ReadAll(in); err == nil || len(p) > 0 {
				t.Errorf("%q, %v, want that the connection is reset", p, err)
			}
		}},
	} {
		t.Run(name, virtual(func(t *testing.T) {
			addr, _ := listen(t)
			r := bare(t)
			r.shaper.SetMembers(map[string]shaper.Member{"c": usedUp{}})
			r.reload("[fleet.prod]\naddress = \"127.0.0.1:1\"\n" + exchanged(one.protocol, addr, "1000 messages/h", `algorithm = "fixed-window"`, `shared = "prod"`, `max_wait = "10s"`, `overflow = "refuse"`))
			client, class := r.dial("l"), r.shaper.Class("c")
			refused := uint64(0)
			for i, text := range one.send {
				send(t, client, text)
				trial.Await(t, "it waits", func() bool { return class.Backlog().Items > 0 })
				refused += one.messages[i]
				trial.Await(t, "it is refused, and counted", func() bool {
					r.shaper.Told("c", "")
					return class.Stats.Refused[stats.MaxWait].Items.Load() == refused
				})
				synctest.Wait() // until nobody looks for more
			}
			one.read(t, bufio.NewReader(client))
			if b := class.Backlog(); b.Items > 0 {
				t.Errorf("%d wait", b.Items)
			}
		}))
	}
}

// A oneByOne member has as many units in hand as are given to it. If it is asked for more, the window of the fleet is used up
// for an hour.
type oneByOne struct {
	usedUp
	have atomic.Int64
}

func (s *oneByOne) Budget(int, string) shaper.Budget { return oneByOneBudget{member: s} }

type oneByOneBudget struct {
	usedUpBudget
	member *oneByOne
}

func (b oneByOneBudget) Next(now time.Time, ahead, n int64) time.Time {
	if ahead+n <= b.member.have.Load() {
		return now
	}
	return limit.Never
}
func (b oneByOneBudget) Take(_, _ time.Time, n int64) { b.member.have.Add(-n) }
func (b oneByOneBudget) RefusedUntil(now time.Time, n int64) time.Time {
	if n <= b.member.have.Load() {
		return time.Time{}
	}
	return now.Add(time.Hour)
}

// If the sender is made to wait, none of its messages is refused when it turns out that the window of the fleet is used up. They
// leave in their order when there are units again.
func TestWaitsForAWindowUsedUp(t *testing.T) {
	for protocol, texts := range map[string][]string{
		"smpp":  {submitFrom("a", 1), submitFrom("a", 2), submitFrom("a", 3), submitFrom("a", 4)},
		"http":  {"GET /1 HTTP/1.1\r\nHost: x\r\n\r\n", "GET /2 HTTP/1.1\r\nHost: x\r\n\r\n", "GET /3 HTTP/1.1\r\nHost: x\r\n\r\n"},
		"lines": {"one\n", "two\n", "three\n", "four\n"},
	} {
		t.Run(protocol, virtual(func(t *testing.T) {
			addr, conns := listen(t)
			r := bare(t)
			member := new(oneByOne)
			r.shaper.SetMembers(map[string]shaper.Member{"c": member})
			r.reload("[fleet.prod]\naddress = \"127.0.0.1:1\"\n" + exchanged(protocol, addr, "1000 messages/h", `algorithm = "fixed-window"`, `shared = "prod"`, `max_wait = "10s"`, `overflow = "wait"`))
			client, upstream := r.open(conns)
			class := r.shaper.Class("c")
			send(t, client, strings.Join(texts, ""))
			synctest.Wait()
			for i, text := range texts {
				member.have.Store(1)
				r.shaper.Told("c", "")
				expect(t, upstream, text)
				synctest.Wait()
				if n, b := class.Stats.Refused[stats.MaxWait].Items.Load(), class.Backlog(); n > 0 || i < len(texts)-1 && b.Items == 0 {
					t.Fatalf("after %d messages, %d are refused and %d wait", i+1, n, b.Items)
				}
			}
			if n := len(r.Sessions()); n != 1 {
				t.Errorf("there are %d sessions, want 1", n)
			}
		}))
	}
}

// Datagrams that wait when it turns out that the window of the fleet is used up are dropped, and a connection that waits ends.
func TestDroppedWhileWaiting(t *testing.T) {
	r := bare(t)
	r.shaper.SetMembers(map[string]shaper.Member{"c": usedUp{}, "d": usedUp{}})
	shared := []string{`algorithm = "fixed-window"`, `shared = "prod"`, `max_wait = "10s"`}
	refuses := append(shared[:3:3], `overflow = "refuse"`)
	r.reload("[fleet.prod]\naddress = \"127.0.0.1:1\"\n" + class("c", "1000 packets/h", shared...) + listener("l", "udp", policy.Discard, "c") +
		class("d", "1000 connections/h", refuses...) + listener("m", "tcp", policy.Discard, "d"))
	c := dialUDP(t, r.addr("l"))
	for range 5 {
		send(t, c, "12345")
	}
	trial.Await(t, "they wait", func() bool { return r.shaper.Class("c").Backlog().Items == 5 })
	r.shaper.Told("c", "")
	trial.Await(t, "they are dropped", func() bool {
		items, n := r.dropped("c", stats.MaxWait)
		return items == 5 && n == 25
	})
	if n := r.Sessions()[0].Waiting; n != 0 {
		t.Errorf("%d bytes wait", n)
	}
	client := r.dial("m")
	trial.Await(t, "it waits", func() bool { return r.shaper.Class("d").Backlog().Items == 1 })
	r.shaper.Told("d", "")
	if p, err := io.ReadAll(client); len(p) > 0 {
		t.Errorf("%q, %v, want that the connection ends", p, err)
	}
	if n := r.shaper.Class("d").Stats.Refused[stats.MaxWait].Items.Load(); n != 1 {
		t.Errorf("%d connections are counted as refused by max_wait, want 1", n)
	}
}

// A session that has failed delivers what it has written, also if it turns out meanwhile that the window of the fleet is used up,
// for which its bytes waited.
func TestFailedSessionIsNotRefused(t *testing.T) {
	virtually(t, func(t *testing.T) {
		addr, conns := listen(t)
		r := bare(t)
		r.shaper.SetMembers(map[string]shaper.Member{"c": usedUp{}})
		r.reload("[fleet.prod]\naddress = \"127.0.0.1:1\"\n" +
			class("c", "1000 B/h", `algorithm = "fixed-window"`, `shared = "prod"`, `max_wait = "10s"`, `overflow = "refuse"`) + listener("l", "tcp", addr, "c"))
		client, upstream := r.open(conns)
		const size = 70_000 // more than arrives before the client reads
		send(t, client, "request")
		send(t, upstream, strings.Repeat("x", size))
		synctest.Wait()
		one := r.one()
		one.mu.Lock()
		one.down.cutOff(stats.ResetByPeer)
		one.mu.Unlock()
		r.shaper.Told("c", "")
		synctest.Wait()
		if n, err := io.ReadFull(client, make([]byte, size)); err != nil {
			t.Errorf("%d bytes arrive, then %v, want %d", n, err, size)
		}
		r.awaitEnd(stats.ResetByPeer, 1)
		if n := r.shaper.Class("c").Stats.Refused[stats.MaxWait].Items.Load(); n > 0 {
			t.Errorf("%d items are counted as refused by max_wait, want none", n)
		}
	})
}
