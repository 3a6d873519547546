package conn

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"shaper/exchange"
	"shaper/frame"
	"shaper/policy"
	"shaper/shaper"
	"shaper/stats"
)

// messages is what a session of a protocol with messages has instead of two streams of
// bytes. The machine decides what leaves; the session drives it, and reads and writes for
// it. The lock of the session guards all of it.
type messages struct {
	session  *tcpSession
	machine  *exchange.Exchange
	up, down lane
}

// newMessages has messages go through a session, whose directions are in their classes.
func newMessages(t *tcpSession, r *routes, who policy.Conn) *messages {
	m := &messages{session: t}
	m.machine = exchange.New(exchange.Config{
		Host: m, Up: &m.up, Down: &m.down, Protocol: t.conf.Protocol, Link: frame.NewLink(settingsOf(t.conf)),
		Class: t.up.flow.Class(), Back: t.down.flow.Class(),
	})
	m.up.init(m, &t.up.direction)
	m.down.init(m, &t.down.direction)
	m.obey(time.Now(), r, who)
	m.copyTo(t.copies)
	return m
}

// settingsOf returns how the messages of a listener are framed. Package policy has
// checked them.
func settingsOf(l *policy.Listener) frame.Settings {
	return frame.Settings{
		Protocol: frame.Protocol(l.Protocol), Prefix: frame.Prefix(l.LengthPrefix),
		IncludesPrefix: l.LengthIncludesItself, Header: l.HeaderLength,
	}
}

// obey takes the rules about messages that a policy has for the session.
func (m *messages) obey(now time.Time, r *routes, who policy.Conn) {
	m.machine.Obey(now, r.classifier.Messages(who), func(class string) *shaper.Class {
		return r.classes[class].Join(now, who)
	})
}

// reroute follows a reload: new rules hold for the messages to come, and what waits in a
// class that is gone moves to that of the session.
func (m *messages) reroute(now time.Time, r *routes, who policy.Conn, gone map[*shaper.Class]bool) {
	m.obey(now, r, who)
	if m.session.stage == relaying {
		m.machine.Reroute(now, gone, m.session.down.flow.Class())
	}
}

// reach notes that the session has its upstream. What the kernel holds of messages for it
// is bounded (TCP_NOTSENT_LOWAT, tcp(7)): else a provider that stalls would get in one
// burst what has left meanwhile. Bodies of HTTP are not messages that wait for their turn.
func (m *messages) reach(upstream string) {
	conf := m.session.conf
	m.machine.AskFor(originOf(conf, upstream))
	if conf.Protocol != policy.HTTP {
		m.session.upstream.onWire(func(fd int) { setNow(fd, unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, exchange.MostHeld) })
	}
}

// originOf returns the server that requests ask for which are sent to an upstream; nil
// if they leave as the client wrote them.
func originOf(conf *policy.Listener, upstream string) *frame.Origin {
	host := conf.HostFor(upstream)
	if host == "" {
		return nil
	}
	scheme := "http"
	if conf.UpstreamTLS != nil {
		scheme = "https"
	}
	o := frame.NewOrigin(scheme, host)
	return &o
}

// copyTo has a policy in the shadow get copies of the messages from now on; nil for none.
func (m *messages) copyTo(c *copies) {
	if c == nil {
		m.machine.Watch(nil)
		m.machine.Mirror(nil, nil)
		return
	}
	m.machine.Watch(c)
	m.machine.Mirror(&c.guest.Up, &c.guest.Down)
}

// Time implements exchange.Host.
func (m *messages) Time() time.Time { return time.Now() }

// Turn implements exchange.Host. The pacer calls it.
func (m *messages) Turn(now time.Time, turn exchange.Turn) {
	t := m.session
	defer t.server.rescue(t)
	t.mu.Lock()
	defer t.mu.Unlock()
	turn.Take(now)
}

// Revisit implements exchange.Host.
func (m *messages) Revisit() { m.session.poller.revisit(m.session) }

// Fail implements exchange.Host.
func (m *messages) Fail(result stats.Result) { m.session.fail(result) }

// Cut implements exchange.Host.
func (m *messages) Cut(result stats.Result) { m.down.direction.cutOff(result) }

// Linger implements exchange.Host.
func (m *messages) Linger() { m.session.linger() }

// unframed counts and logs that what a session carries is no message.
func (t *tcpSession) unframed(from string, err error) {
	var wrong *frame.Error
	if errors.As(err, &wrong) {
		t.service.stats.Unframed.Add(wrong.Reason.String())
	}
	t.warn(unframed, "from", from, "err", err)
}
