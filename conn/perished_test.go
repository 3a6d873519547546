package conn

import (
	"sync/atomic"
	"testing"
	"time"

	"shaper/limit"
	"shaper/policy"
	"shaper/shaper"
	"shaper/stats"
	"shaper/tests/trial"
)

// A brief member has nothing in hand until it is open. Then so many items come to their turns too late to be sent.
type brief struct {
	usedUp
	open    atomic.Bool
	turns   atomic.Int64
	perish  int64
	wasLast time.Time // when the last turn was; the lock of the tree guards it
}

func (s *brief) Budget(int, string) shaper.Budget { return briefBudget{member: s} }

type briefBudget struct {
	usedUpBudget
	member *brief
}

func (briefBudget) RefusedUntil(time.Time, int64) (at time.Time) { return at }
func (b briefBudget) Next(now time.Time, _, _ int64) time.Time {
	if b.member.open.Load() {
		return now
	}
	return limit.Never
}
func (b briefBudget) Take(_, now time.Time, _ int64) {
	b.member.turns.Add(1)
	b.member.wasLast = now
}
func (b briefBudget) Over() (at time.Time) {
	if b.member.turns.Load() <= b.member.perish {
		return b.member.wasLast // which has passed when the item is about to be sent
	}
	return at
}

// What comes to its turn too late for its slot of a fleet is not sent then, in any kind of class. It leaves later, whole and in
// its order.
func TestPerishedLeavesLater(t *testing.T) {
	const perish = 3
	for _, c := range []struct{ protocol, rate, text string }{
		{"udp", "1000 packets/s", "abc"},
		{"tcp", "1MB/s", "abc"},
		{"tcp", "1000 connections/s", "abc"},
		{"lines", "1000 messages/s", "a\nb\nc\n"},
		{"http", "1MB/s", "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc"},
	} {
		t.Run(c.protocol+" "+c.rate, func(t *testing.T) {
			r, member := bare(t), &brief{perish: perish}
			var addr string
			var conns <-chan tcpConn
			datagrams := bindUDP(t, "127.0.0.1:0")
			if addr = datagrams.LocalAddr().String(); c.protocol != "udp" {
				addr, conns = listen(t)
			}
			r.shaper.SetMembers(map[string]shaper.Member{"c": member})
			r.reload("[fleet.prod]\naddress = \"127.0.0.1:1\"\n" + class("c", c.rate, `shared = "prod"`) + listener("l", c.protocol, addr, "c"))
			waits := func() bool { return r.shaper.Class("c").Backlog().Items > 0 }
			if c.protocol == "udp" {
				client := dialUDP(t, r.addr("l"))
				for _, one := range c.text {
					send(t, client, string(one))
				}
				trial.Await(t, "all wait", func() bool { return r.shaper.Class("c").Backlog().Items == int64(len(c.text)) })
			} else {
				send(t, r.dial("l"), c.text)
				trial.Await(t, "it waits", waits)
			}
			member.open.Store(true)
			r.shaper.Told("c", "")
			if c.protocol == "udp" {
				for _, one := range c.text {
					expect(t, datagrams, string(one))
				}
			} else {
				expect(t, next(t, conns), c.text)
			}
			if n, least := member.turns.Load(), int64(perish+1); n < least {
				t.Errorf("%d items have had their turns, want %d at least", n, least)
			}
			trial.Await(t, "nothing waits", func() bool { return !waits() && r.Sessions()[0].Waiting == 0 })
		})
	}
}

// Datagrams whose session ends between their turn and their return are dropped, and counted.
func TestPerishedOfAnEndedSession(t *testing.T) {
	r, member := bare(t), &brief{perish: 1 << 40}
	r.shaper.SetMembers(map[string]shaper.Member{"c": member})
	r.reload("[fleet.prod]\naddress = \"127.0.0.1:1\"\n" + class("c", "1000 packets/s", `shared = "prod"`) + listener("l", "udp", policy.Discard, "c"))
	c := r.shaper.Class("c")
	send(t, dialUDP(t, r.addr("l")), "abc")
	trial.Await(t, "it waits", func() bool { return c.Backlog().Items == 1 })
	member.open.Store(true)
	it := c.Release(time.Now())
	if it == nil {
		t.Fatal("nothing has its turn")
	}
	member.open.Store(false)
	it.Owner.(*datagrams).direction.session.abort(stats.OK)
	it.Owner.Leave(time.Now())
	if items, n := r.dropped("c", stats.Reset); c.Backlog().Items != 0 || items != 1 || n != 3 {
		t.Errorf("%d items wait, and %d of %d bytes are dropped, want one of 3", c.Backlog().Items, items, n)
	}
}

// A datagram that has come to its turn too late, and that a reload then moves to another class, jumps no queue there.
func TestPerishedJumpsNoOtherQueue(t *testing.T) {
	r, member, upstream := bare(t), &brief{perish: 1}, bindUDP(t, "127.0.0.1:0")
	addr := upstream.LocalAddr().String()
	text := func(of, rate string) string {
		return class("d", rate) + listener("l", "udp", addr, of) + listener("m", "udp", addr, "d")
	}
	r.shaper.SetMembers(map[string]shaper.Member{"c": member})
	r.reload("[fleet.prod]\naddress = \"127.0.0.1:1\"\n" + class("c", "1000 packets/s", `shared = "prod"`) + text("c", "0 packets/s"))
	c, d := r.shaper.Class("c"), r.shaper.Class("d")
	send(t, dialUDP(t, r.addr("l")), "second")
	trial.Await(t, "one waits", func() bool { return c.Backlog().Items == 1 })
	send(t, dialUDP(t, r.addr("m")), "first")
	trial.Await(t, "and one in the other class", func() bool { return d.Backlog().Items == 1 })
	member.open.Store(true)
	it := c.Release(time.Now())
	member.open.Store(false)
	it.Owner.Leave(time.Now())
	r.reload(text("d", "0 packets/s"))
	trial.Await(t, "both wait there", func() bool { return d.Backlog().Items == 2 })
	r.reload(text("d", "1000 packets/s"))
	expect(t, upstream, "first")
	expect(t, upstream, "second")
}
