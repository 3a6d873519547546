package simulate

import (
	"maps"
	"slices"
	"time"

	"shaper/exchange"
	"shaper/policy"
	"shaper/shaper"
	"shaper/stats"
)

// A link is a connection of a protocol with messages. It is the host of an exchange, as a
// session of the proxy is. Nobody answers there: what has left is taken to be answered.
type link struct {
	run      *run
	sender   *sender
	client   *client
	protocol policy.Protocol
	machine  *exchange.Exchange
	own      [2]*shaper.Class // of the connection, there and back; nil: that way nothing is shaped
	up, down inbox
	joined   []joined
	trees    []*tree // that its messages go through

	again bool      // the machine has more to do
	busy  bool      // something has been sent since it was idle
	ended bool      // the connection has been closed
	fresh []*posted // messages that were found since settle
}

// joined is a class that a link has joined.
type joined struct {
	class  *class
	bucket *shaper.Class // the class, or one of its
}

// classOf returns the class that a bucket is, or is of.
func (l *link) classOf(bucket *shaper.Class) *class {
	i := slices.IndexFunc(l.joined, func(j joined) bool { return j.bucket == bucket })
	return l.joined[i].class
}

// client is one of a sender's, of a protocol with messages.
type client struct {
	of   policy.Conn
	free []*link // connections that can take a message
	open int     // connections of HTTP that carry a request
}

// mostClients bounds the clients of a sender that are remembered while they send nothing.
const mostClients = 1 << 12

// client returns that of the arrival.
func (s *sender) client() *client {
	c := s.clients[s.last]
	if c == nil {
		if s.clients == nil {
			s.clients = map[policy.Conn]*client{}
		}
		if len(s.clients) >= mostClients {
			maps.DeleteFunc(s.clients, func(_ policy.Conn, c *client) bool { return c.leaves() })
		}
		c = &client{of: s.last}
		s.clients[s.last] = c
	}
	return c
}

// leaves closes the connections of a client that is idle. It returns false if it is not.
func (c *client) leaves() bool {
	if c.open > 0 {
		return false
	}
	for _, l := range c.free {
		if l.stays() {
			return false
		}
	}
	for _, l := range c.free {
		l.close(stats.Closed)
	}
	return true
}

// link returns a connection for the arrival. A client of HTTP has one for each request that
// waits, as clients do; another one has one for all.
func (s *sender) link() *link {
	if s.from == nil || s.from.of != s.last {
		s.from = s.client()
	}
	c := s.from
	last := len(c.free) - 1
	if last < 0 {
		l := s.connect(c)
		if s.protocol == policy.HTTP {
			c.open++
		} else {
			c.free = append(c.free, l)
		}
		return l
	}
	l := c.free[last]
	if s.protocol == policy.HTTP {
		c.free = c.free[:last]
		c.open++
	}
	return l
}

// connect opens the connection of the arrival.
func (s *sender) connect(of *client) *link {
	r := s.run
	l := &link{run: r, sender: s, client: of, protocol: s.protocol}
	l.up.link, l.down.link = l, l
	who := s.last
	who.Session = r.nextSession()
	join := func(c *class) *shaper.Class {
		if c == nil {
			return nil
		}
		bucket := c.Join(r.now, who)
		l.joined = append(l.joined, joined{c, bucket})
		if !slices.Contains(l.trees, c.tree) {
			l.trees = append(l.trees, c.tree)
		}
		return bucket
	}
	l.own = [2]*shaper.Class{join(s.way[0]), join(s.way[1])}
	l.machine = exchange.New(exchange.Config{
		Host: l, Up: (*wire)(&l.up), Down: (*wire)(&l.down), Protocol: s.protocol, Link: provider{l},
		Class: l.own[0], Back: l.own[1],
	})
	l.machine.Watch(l)
	l.machine.Obey(r.now, s.rules, func(name string) *shaper.Class { return join(r.byName[name]) })
	return l
}

// post sends a message to the exchange.
func (l *link) post(a *Arrival) {
	p := l.run.posted()
	*p = posted{link: l, arrived: l.run.now, said: a.Message, bytes: a.Bytes, messages: max(a.Messages, 1), returns: a.Returns}
	p.size = int(min(p.bytes, largest))
	if a.Returns {
		l.down.push(p)
	} else {
		l.up.push(p)
	}
	l.again, l.busy = true, true
	l.settle()
}

// holds reports whether the client is to wait: the exchange has not read all that it has
// sent; or it waits for an answer, though its class would not refuse.
func (l *link) holds() bool {
	if l.ended || l.isIdle() {
		return false
	}
	return !l.up.isEmpty() || l.protocol == policy.HTTP && exchange.MakesWait(l.up.found.bucket, l.protocol, true)
}

// isIdle reports whether nothing is on its way through the connection.
func (l *link) isIdle() bool {
	m := l.machine
	return l.up.isEmpty() && l.down.isEmpty() && m.Waiting() == 0 && m.Held(stats.Upstream) == 0 && m.Held(stats.Downstream) == 0
}

// settle drives the machine until it has nothing to do, and looks what that has changed.
func (l *link) settle() {
	for l.again && !l.ended {
		l.again = false
		l.machine.Drive(l.run.now)
	}
	for _, p := range l.fresh {
		if p.over {
			l.run.reuse(p)
		} else {
			p.waits()
		}
	}
	l.fresh = l.fresh[:0]
	for _, t := range l.trees {
		l.run.expect(t)
	}
	s := l.sender
	if l.busy && l.protocol == policy.HTTP && l.isIdle() {
		l.busy = false
		l.client.open--
		l.client.free = append(l.client.free, l)
	}
	if s.held == l && !l.holds() {
		s.held = nil
		s.resume()
	}
}

// Time implements exchange.Host.
func (l *link) Time() time.Time { return l.run.now }

// Turn implements exchange.Host.
func (l *link) Turn(now time.Time, turn exchange.Turn) {
	turn.Take(now)
	l.settle()
}

// Revisit implements exchange.Host.
func (l *link) Revisit() { l.again = true }

// Fail implements exchange.Host: the connection is reset, and the client connects again.
func (l *link) Fail(stats.Result) {
	l.client.free = nil
	l.close(stats.QueueFull)
}

// Cut implements exchange.Host.
func (l *link) Cut(result stats.Result) { l.Fail(result) }

// Linger implements exchange.Host. No refusal of a simulated provider ends a connection.
func (l *link) Linger() {}

// close ends the connection.
func (l *link) close(reason stats.Reason) {
	now := l.run.now
	l.ended = true
	l.machine.Quit(now, reason)
	l.lose(&l.up, l.own[0], reason)
	l.lose(&l.down, l.own[1], reason)
	for _, class := range l.own {
		class.Quit(now)
	}
}

// lose drops the messages of an inbox that the exchange has not found; class is the class
// of that direction.
func (l *link) lose(from *inbox, class *shaper.Class, reason stats.Reason) {
	for from.first != nil {
		p := from.take()
		p.enters(l.classOf(class), class, false)
		p.Dropped(l.run.now, reason)
	}
	from.unread = 0
}

// stays reports whether the connection has to stay open: something is on its way there, or
// it has a bucket of its own, which would be forgotten.
func (l *link) stays() bool {
	return !l.isIdle() || slices.ContainsFunc(l.joined, func(j joined) bool { return j.class.conf.Per.By == policy.ByConnection })
}

// Found implements exchange.Watcher.
func (l *link) Found(_ time.Time, f exchange.Found) exchange.Follower {
	p := l.up.found
	if f.Direction == stats.Downstream {
		p = l.down.found
	}
	p.enters(l.classOf(f.Class), f.Class, f.Asks)
	l.fresh = append(l.fresh, p)
	return p
}

// Answered implements exchange.Watcher.
func (l *link) Answered(time.Time, uint32) {}

// Expired implements exchange.Watcher.
func (l *link) Expired(time.Time, time.Time) {}

// nextSession returns the number of a new connection.
func (r *run) nextSession() uint64 {
	r.lastSession++
	return r.lastSession
}
