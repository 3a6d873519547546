package shaper

import (
	"net/netip"
	"testing"
	"time"

	"pgregory.net/rapid"

	"shaper/policy"
	"shaper/stats"
	"shaper/unit"
)

// A streamScript is what clients send as bytes, whatever becomes of it.
type streamScript struct {
	sessions []streamed
}

type streamed struct {
	class, client int
	opens, closes time.Duration
	chunks        []chunk
}

type chunk struct {
	at    time.Duration
	down  bool
	bytes int64
}

// who describes the client of the nth session.
func (s *streamed) who(id int) policy.Conn {
	return policy.Conn{Source: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(s.client)}), 1), Session: uint64(id)}
}

// relays runs the script until nothing more happens. What comes back is in a class too.
func (p *proxy) relays(s streamScript, back *Class) {
	for i, one := range s.sessions {
		x := &relayed{proxy: p}
		p.plan(at(one.opens), func() {
			x.class = p.classes[one.class].Join(p.now, one.who(i))
			x.up.session, x.down.session = x, x
			x.up.flow.Init(x.class, &x.up)
			x.down.flow.Init(back.Join(p.now, one.who(i)), &x.down)
			x.begin()
		})
		for _, c := range one.chunks {
			p.plan(at(c.at), func() {
				w := &x.up
				if c.down {
					w = &x.down
				}
				w.unread += c.bytes
				x.drive()
			})
		}
		p.plan(at(one.closes), func() { x.closing = true; x.drive() })
	}
	p.drive()
}

// A relayed is a session in the model of package conn for streams of bytes.
type relayed struct {
	proxy    *proxy
	class    *Class
	permit   Permit
	opening  bool // its connection waits for its class
	open     bool
	closing  bool // nothing more comes
	over     bool
	up, down relayedWay
}

// A relayedWay is one direction of a relayed.
type relayedWay struct {
	session *relayed
	flow    Flow
	unread  int64 // bytes that have come and have not entered the class
	waiting bool
	busy    bool
}

func (w *relayedWay) Leave(time.Time) {
	w.waiting = false
	w.flow.Left(w.session.proxy.now)
	if x := w.session; x.opening {
		x.opening, x.open = false, true
		x.drive()
		return
	}
	w.move()
	w.session.drive()
}

// move sends what has come, piece by piece, until a piece has to wait.
func (w *relayedWay) move() {
	x := w.session
	for x.open && !x.over && !w.waiting && w.unread > 0 {
		n := min(w.unread, w.flow.Class().Piece())
		w.unread -= n
		w.judge(w.flow.Ask(x.proxy.now, Cost{Bytes: n}, w.busy))
		w.busy = true
	}
	if !w.waiting {
		w.busy = false
	}
}

// judge follows the verdict of the class for a piece or for the connection.
func (w *relayedWay) judge(v Verdict) {
	x := w.session
	switch v {
	case Leaves:
		w.flow.Left(x.proxy.now)
	case Waits:
		w.waiting = true
	case Full:
		x.overflow(w, stats.QueueFull)
	case TooLong:
		x.overflow(w, stats.MaxWait)
	}
}

// overflow ends the session because one direction was refused something. What waits in the
// other direction is lost.
func (x *relayed) overflow(refused *relayedWay, reason stats.Reason) {
	refused.flow.Class().tally.lose(reason, &Cost{})
	for _, w := range []*relayedWay{&x.up, &x.down} {
		if w.waiting {
			w.flow.Class().tally.lose(stats.QueueFull, &Cost{})
		}
	}
	x.end()
}

// begin asks for a permit.
func (x *relayed) begin() {
	conf := x.class.Policy()
	switch {
	case x.permit.Acquire(x.class, x):
		x.admitted()
	case conf.OverflowFor(policy.TCP) != policy.Wait:
		x.class.tally.lose(stats.QueueFull, &Cost{})
		x.end()
	case conf.MaxWait > 0:
		x.proxy.plan(x.proxy.now.Add(time.Duration(conf.MaxWait)), func() {
			if !x.permit.IsOpen() && !x.over {
				x.class.tally.lose(stats.MaxWait, &Cost{})
				x.end()
			}
		})
	}
}

func (x *relayed) Protocol() policy.Protocol { return policy.TCP }

func (x *relayed) Acquired() { x.proxy.plan(x.proxy.now, x.admitted) }

func (x *relayed) admitted() {
	if x.over {
		return
	}
	x.opening = true
	x.up.judge(x.up.flow.Ask(x.proxy.now, Cost{Connections: 1}, false))
	if !x.over && !x.up.waiting {
		x.opening, x.open = false, true
		x.drive()
	}
}

func (x *relayed) drive() {
	x.up.move()
	x.down.move()
	if x.closing && x.open && !x.over && !x.up.waiting && !x.down.waiting && x.up.unread+x.down.unread == 0 {
		x.end()
	}
}

func (x *relayed) end() {
	if x.over {
		return
	}
	x.over = true
	x.permit.Release()
	x.up.flow.Cancel(x.proxy.now)
	x.down.flow.Cancel(x.proxy.now)
	x.up.flow.Class().Quit(x.proxy.now)
	x.down.flow.Class().Quit(x.proxy.now)
}

// tries runs the script through a trial. Nothing really holds it up.
func (s streamScript) tries(t *Trial, back *Class) {
	var agenda proxy
	for i, one := range s.sessions {
		var g *Guest
		agenda.plan(at(one.opens), func() {
			g = t.Guest(agenda.now, one.who(i), t.classes[one.class], back)
			g.Open(agenda.now, policy.TCP)
			g.Up.Send(agenda.now, Cost{Connections: 1})
		})
		for _, c := range one.chunks {
			agenda.plan(at(c.at), func() {
				if c.down {
					g.Down.Send(agenda.now, Cost{Bytes: c.bytes})
				} else {
					g.Up.Send(agenda.now, Cost{Bytes: c.bytes})
				}
			})
		}
		agenda.plan(at(one.closes), func() { g.End(agenda.now, true) })
	}
	agenda.all()
	t.CatchUp(at(24 * time.Hour))
}

// drawAlgorithm gives a class any algorithm.
func drawAlgorithm(t *rapid.T, c policy.Class, name string) policy.Class {
	c.Algorithm = rapid.SampledFrom(algorithms).Draw(t, name+" algorithm")
	if c.Algorithm.HasBurst() {
		c.Burst = policy.Burst{N: rapid.SampledFrom([]int64{0, 3000, 20000}).Draw(t, name+" burst"), Kind: c.Rate.Kind()}
	}
	return c
}

// drawStreamPolicy draws a tree of two leaves under an account. What comes back goes
// through the second leaf.
func drawStreamPolicy(t *rapid.T) []policy.Class {
	leaf := func(name string, rates ...string) policy.Class {
		c := under("account", named(name, leakyClass(rapid.SampledFrom(rates).Draw(t, name+" rate"))))
		c = drawAlgorithm(t, withQueue(c, int64(rapid.SampledFrom([]int{1, 3, 100}).Draw(t, name+" queue")), 0), name)
		c.Overflow = rapid.SampledFrom([]policy.Overflow{"", policy.Wait, policy.Refuse}).Draw(t, name+" overflow")
		c.MaxWait = unit.Duration(rapid.SampledFrom([]int{0, 0, 700}).Draw(t, name+" max_wait") * int(ms))
		c.Priority = rapid.IntRange(3, 5).Draw(t, name+" priority")
		c.Weight = rapid.IntRange(1, 3).Draw(t, name+" weight")
		if rapid.Bool().Draw(t, name+" has ceil") && c.Algorithm == policy.Leaky {
			c.Ceil = map[unit.Kind]unit.Rate{unit.Bytes: rateOf("15KB/s"), unit.Connections: rateOf("7 connections/s")}[c.Rate.Kind()]
		}
		switch rapid.IntRange(0, 2).Draw(t, name+" per") {
		case 0:
			c.MaxConnections = rapid.SampledFrom([]int{0, 1, 2}).Draw(t, name+" max_connections")
		case 1:
			c.Per = policy.Per{{By: policy.BySource, IPv4: 32, IPv6: 64}}
			c.MaxKeys = rapid.SampledFrom([]int{1, 2, 100}).Draw(t, name+" max_keys")
		}
		return c
	}
	account := drawAlgorithm(t, named("account", leakyClass(rapid.SampledFrom([]string{"20KB/s", "5 connections/s"}).Draw(t, "account rate"))), "account")
	account.MaxConnections = rapid.SampledFrom([]int{0, 2, 3}).Draw(t, "max_connections")
	return []policy.Class{leaf("a", "9KB/s", "3 connections/s"), leaf("b", "5KB/s"), account}
}

// drawStreamScript draws a script in which no two things happen at the same moment.
func drawStreamScript(t *rapid.T) (s streamScript) {
	unique := time.Duration(1)
	draw := func(name string, most int) time.Duration {
		unique = unique*3/2%100_000 + 7
		return time.Duration(rapid.IntRange(0, most).Draw(t, name))*ms + unique
	}
	for range rapid.IntRange(1, 5).Draw(t, "sessions") {
		one := streamed{opens: draw("opens", 3000), class: rapid.IntRange(0, 1).Draw(t, "class"), client: rapid.IntRange(1, 3).Draw(t, "client")}
		now := one.opens
		for range rapid.IntRange(0, 8).Draw(t, "chunks") {
			now += draw("gap", 300)
			one.chunks = append(one.chunks, chunk{now, rapid.Bool().Draw(t, "down"), rapid.SampledFrom([]int64{1, 100, 1500, 9000}).Draw(t, "bytes")})
		}
		one.closes = now + draw("closes", 1000)
		s.sessions = append(s.sessions, one)
	}
	return s
}

// A policy in the shadow counts what it does when it is in force, also for streams, in
// both directions: with every algorithm, in a tree, with buckets for each source,
// connections that are counted, max_connections, max_wait and every overflow.
func TestTrialCountsStreams(t *testing.T) {
	delayed, lost := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		confs, s := drawStreamPolicy(t), drawStreamScript(t)
		p := &proxy{now: start, protocol: policy.TCP, classes: NewTree(start, confs)}
		p.relays(s, p.classes[1])
		trial := NewTrial(start, confs)
		s.tries(trial, trial.Classes()[1])
		for i, c := range trial.Classes() {
			got, want := of(c.Stats), of(p.classes[i].Stats)
			delayed, lost = delayed+int(want.delayed), lost+int(want.full+want.tooLong)
			got.waits.Sum += max(-ms.Seconds(), min(ms.Seconds(), want.waits.Sum-got.waits.Sum)) // a nanosecond may change whose turn it is, so the sums may differ
			if !got.is(want) {
				t.Fatalf("%s: the trial counts %s, and the class in force %s", c.Name(), got, want)
			}
			if c.Sessions() != 0 || c.admitted != 0 || c.Backlog().Items != 0 {
				t.Fatalf("%s: %d sessions, %d admitted and %d waiting items remain", c.Name(), c.Sessions(), c.admitted, c.Backlog().Items)
			}
			if k := c.Buckets().Keys(at(240 * time.Hour)); k != 0 {
				t.Fatalf("%s: %d keys remain", c.Name(), k)
			}
		}
	})
	if delayed == 0 || lost == 0 {
		t.Errorf("over all scripts %d items waited and %d were lost: the scripts do not cover everything", delayed, lost)
	}
}
