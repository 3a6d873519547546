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
// session of the proxy is. Nobody answers; a message counts as answered when it has left.
type link struct {
	run      *run
	sender   *sender
	client   *client
	protocol policy.Protocol
	machine  *exchange.Exchange
	own      [2]*shaper.Class // the classes of the connection, upstream and downstream; nil: not shaped
	up, down inbox
	joined   []joined
	trees    []*tree // of all classes that its messages enter

	driveAgain bool       // the exchange asked to be driven again
	busy       bool       // a message was sent since the link was idle
	ended      bool       // the connection is closed
	justFound  []*message // messages that were found since drive looked last
}

// joined is a class that a link has joined.
type joined struct {
	class  *class
	bucket *shaper.Class // the class, or one of its buckets
}

// classOf returns the class of a bucket.
func (l *link) classOf(bucket *shaper.Class) *class {
	i := slices.IndexFunc(l.joined, func(j joined) bool { return j.bucket.Named() == bucket.Named() })
	return l.joined[i].class
}

// A client is a client of a sender, over a protocol with messages.
type client struct {
	of   policy.Conn
	free []*link // connections that can take a message
	open int     // HTTP connections that carry a request
}

// mostClients bounds the clients of a sender. Above it, idle ones are forgotten.
const mostClients = 1 << 12

// client returns the client of the arrival.
func (s *sender) client() *client {
	c := s.clients[s.lastConn]
	if c == nil {
		if s.clients == nil {
			s.clients = map[policy.Conn]*client{}
		}
		if len(s.clients) >= mostClients {
			maps.DeleteFunc(s.clients, func(_ policy.Conn, c *client) bool { return c.closeIfIdle() })
		}
		c = &client{of: s.lastConn}
		s.clients[s.lastConn] = c
	}
	return c
}

// closeIfIdle closes the connections of a client. It returns false, and closes none, if the
// client is not idle.
func (c *client) closeIfIdle() bool {
	if c.open > 0 {
		return false
	}
	for _, l := range c.free {
		if l.mustStay() {
			return false
		}
	}
	for _, l := range c.free {
		l.close(stats.Closed)
	}
	return true
}

// link returns a connection for the arrival. An HTTP client opens one for each request that
// waits, as real clients do. Any other client has a single one.
func (s *sender) link() *link {
	if s.lastClient == nil || s.lastClient.of != s.lastConn {
		s.lastClient = s.client()
	}
	c := s.lastClient
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

// connect opens a connection for the arrival.
func (s *sender) connect(of *client) *link {
	r := s.run
	l := &link{run: r, sender: s, client: of, protocol: s.protocol}
	l.up.link, l.down.link = l, l
	who := s.lastConn
	who.Session, who.Bind = r.nextSession(), r.choose(who, s.classes)
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
	l.own = [2]*shaper.Class{join(s.classes[0]), join(s.classes[1])}
	l.machine = exchange.New(exchange.Config{
		Host: l, Up: (*wire)(&l.up), Down: (*wire)(&l.down), Protocol: s.protocol, Link: provider{l},
		Class: l.own[0], Back: l.own[1],
	})
	l.machine.Watch(l)
	l.machine.Obey(r.now, who, s.rules, func(name string) *shaper.Class { return join(r.byName[name]) })
	return l
}

// post sends the arrival to the exchange as a message.
func (l *link) post(a *Arrival) {
	p := l.run.newMessage()
	*p = message{link: l, arrived: l.run.now, fields: a.Message, bytes: a.Bytes, messages: max(a.Messages, 1), says: a.Cost, used: a.Used, returns: a.Returns}
	p.size = int(min(p.bytes, largest))
	if a.Returns {
		l.down.push(p)
	} else {
		l.up.push(p)
	}
	l.driveAgain, l.busy = true, true
	l.drive()
}

// holds reports whether the client has to wait: the exchange has not read all that it sent, or
// it waits for an answer although its class would not refuse.
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

// drive drives the exchange until it has nothing to do, and then counts what has changed.
func (l *link) drive() {
	for l.driveAgain && !l.ended {
		l.driveAgain = false
		l.machine.Drive(l.run.now)
	}
	for _, p := range l.justFound {
		if p.over {
			l.run.reuse(p)
		} else {
			p.waits()
		}
	}
	l.justFound = l.justFound[:0]
	for _, t := range l.trees {
		l.run.expect(t)
	}
	s := l.sender
	if l.busy && l.protocol == policy.HTTP && l.isIdle() {
		l.busy = false
		l.client.open--
		l.client.free = append(l.client.free, l)
	}
	if s.heldBy == l && !l.holds() {
		s.heldBy = nil
		s.resume()
	}
}

// Time implements exchange.Host.
func (l *link) Time() time.Time { return l.run.now }

// Turn implements exchange.Host.
func (l *link) Turn(now time.Time, turn exchange.Turn) {
	turn.Take(now)
	l.drive()
}

// Revisit implements exchange.Host.
func (l *link) Revisit() { l.driveAgain = true }

// Fail implements exchange.Host. The connection is reset, and the client connects again.
func (l *link) Fail(stats.Result) {
	l.client.free = nil
	l.close(stats.QueueFull)
}

// Linger implements exchange.Host. In a simulation, no refusal ends a connection.
func (l *link) Linger(stats.Result) {}

// Close implements exchange.Host. In a simulation, no connection gets old.
func (l *link) Close(stats.Result) {}

// close closes the connection, and drops what it holds.
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

// lose drops the messages of an inbox that the exchange has not found. class is the class of
// that direction.
func (l *link) lose(from *inbox, class *shaper.Class, reason stats.Reason) {
	for from.first != nil {
		p := from.take()
		p.cost = shaper.Cost{Bytes: p.bytes, Messages: p.messages}
		p.enters(l.classOf(class), class, false)
		p.Dropped(l.run.now, reason)
	}
	from.unread = 0
}

// mustStay reports whether the connection has to stay open: something is on its way, or its
// class has a bucket for each connection, whose state would be lost.
func (l *link) mustStay() bool {
	return !l.isIdle() || slices.ContainsFunc(l.joined, func(j joined) bool { return j.class.conf.Per.Has(policy.ByConnection) })
}

// Found implements exchange.Watcher.
func (l *link) Found(_ time.Time, f exchange.Found) exchange.Follower {
	p := l.up.found
	if f.Direction == stats.Downstream {
		p = l.down.found
	}
	p.cost = f.Cost
	p.cost.Bytes = p.bytes // also those of a body, which follow
	p.enters(l.classOf(f.Class), f.Class, f.Asks)
	l.justFound = append(l.justFound, p)
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
