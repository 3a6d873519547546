package conn

import (
	"time"

	"shaper/exchange"
	"shaper/frame"
	"shaper/policy"
	"shaper/shaper"
	"shaper/sock"
	"shaper/stats"
	"shaper/unit"
	"shaper/upstream"
)

// messages is the relay of messages. The machine decides what may leave. The session drives
// it, and reads and writes for it. The lock of the session guards it; only Turn is called without.
type messages struct {
	session  *tcpSession
	machine  *exchange.Exchange
	up, down lane
	counted  int // requests in flight that the target of the session counts

	lingering    alarm     // closes a session of whose end the client was told
	lingersUntil time.Time // when it does at the latest; zero: the client was not told
}

// newMessages returns the relay of a session whose directions are in their classes.
func newMessages(t *tcpSession, r *routes, who policy.Conn) *messages {
	m := &messages{session: t}
	m.machine = exchange.New(exchange.Config{
		Host: m, Up: &m.up, Down: &m.down, Protocol: t.conf.Protocol, Link: frame.NewLink(settingsOf(&t.conf.Listener)),
		Class: t.up.flow.Class(), Back: t.down.flow.Class(),
	})
	m.up.init(m, &t.up)
	m.down.init(m, &t.down)
	m.obey(time.Now(), r, who)
	m.copyTo(t.copies)
	return m
}

// settingsOf returns how to frame the messages of a listener. Package policy has checked it.
func settingsOf(l *policy.Listener) frame.Settings {
	return frame.Settings{
		Protocol: frame.Protocol(l.Protocol), Prefix: frame.Prefix(l.LengthPrefix),
		IncludesPrefix: l.LengthIncludesItself, Header: l.HeaderLength,
	}
}

// obey gives the machine the rules for messages that the policy has for the session. If the policy has lost the
// listener, the session keeps those that it had: they may have named the listener, and gone with it.
func (m *messages) obey(now time.Time, r *routes, who policy.Conn) {
	join := func(class string) *shaper.Class { return r.classes[class].Join(now, who) }
	if !r.classifier.HasListener(&m.session.conf.Listener) {
		m.machine.Rejoin(now, func(class string) *shaper.Class {
			if c := r.classes[class]; c == nil || c.Rate().Kind() == unit.Connections || !limits(c, m.session.conf.Protocol, stats.Upstream) {
				return nil // its name means something else now, which would limit no message
			}
			return join(class)
		})
		return
	}
	m.machine.Obey(now, who, r.classifier.Messages(who), join)
}

// drive implements driver.
func (m *messages) drive() {
	m.machine.Drive(time.Now())
	m.countInFlight()
}

// countInFlight makes the target of the session count the requests that have no answer.
func (m *messages) countInFlight() {
	if n := m.machine.InFlight(); n != m.counted {
		m.session.course.target().AddInFlight(n - m.counted)
		m.counted = n
	}
}

// changed implements driver.
func (m *messages) changed(*side) { m.drive() }

// granted implements driver. Messages wait in the machine's own flows. In the flow of a
// direction waits only the connection, before the relay begins, so nothing is granted here.
func (m *messages) granted(*direction, time.Time) {}

// finish implements part. If nothing has moved for too long, it may be the upstream that was silent.
func (m *messages) finish(result stats.Result) {
	now := time.Now()
	if result == stats.TimedOut && m.machine.AwaitsAnswer() {
		m.session.course.target().Failed(now, upstream.ErrSilent)
	}
	m.quit(now, dropReason(result))
}

// flush implements relay.
func (m *messages) flush() { m.machine.Flush() }

// tend implements relay.
func (m *messages) tend(now time.Time) (waits, rests bool) {
	waits = m.machine.Waits()
	inFlight := m.machine.InFlight()
	if m.machine.Tend(now); m.machine.InFlight() < inFlight { // it has given up answers
		m.session.course.target().Failed(now, upstream.ErrSilent)
	}
	m.countInFlight()
	return waits, m.machine.Rests()
}

// belong implements relay. The machine quits the old class when everything in flight there is
// answered.
func (m *messages) belong(now time.Time, _, to *shaper.Class) {
	m.machine.Belong(now, to)
	m.session.up.join(to)
}

// quit implements relay.
func (m *messages) quit(now time.Time, reason stats.Reason) {
	m.machine.Quit(now, reason)
	m.countInFlight()
	m.session.up.quit(now, reason)
	m.session.down.quit(now, reason)
}

// reroute implements relay: new messages follow the new rules, and so does what waits in a class that
// is gone. A session that has not reached its upstream has nothing that waits, but answers will come.
func (m *messages) reroute(now time.Time, r *routes, who policy.Conn, gone map[*shaper.Class]bool) {
	m.obey(now, r, who)
	if m.session.stage < cutting { // else everything was dropped
		m.machine.Reroute(now, gone, m.session.down.flow.Class())
	}
}

// reach implements relay: the session has reached its upstream. It bounds how much the kernel
// holds for the upstream (TCP_NOTSENT_LOWAT, tcp(7)). Otherwise a provider that has stalled would
// get all that has left meanwhile in one burst. HTTP needs no bound, since bodies do not wait for
// a turn.
func (m *messages) reach(upstream string) {
	conf := m.session.conf
	m.machine.AskFor(originOf(&conf.Listener, upstream))
	if conf.Protocol != policy.HTTP {
		m.session.upstream.end.Set(sock.UnsentLow, exchange.MostHeld)
	}
}

// originOf returns the origin server that requests name when they go to an upstream; nil if they
// leave as the client wrote them.
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

// copyTo implements relay. The shadow watches the messages that are counted, and gets copies of
// all other bytes.
func (m *messages) copyTo(c *copies) {
	if c == nil {
		m.machine.Watch(nil)
		m.machine.Mirror(nil, nil)
		return
	}
	if m.session.conf.Protocol == policy.HTTP {
		c.expect(m.machine.InFlight()) // answers without a copied request
		m.machine.FollowWaiting(func() exchange.Follower { return &copied{of: c} })
	}
	m.machine.Watch(c)
	m.machine.Mirror(&c.guest.Up, &c.guest.Down)
}

// Time implements exchange.Host.
func (m *messages) Time() time.Time { return time.Now() }

// Turn implements exchange.Host. The pacer calls it, without the session's lock.
func (m *messages) Turn(now time.Time, turn exchange.Turn) {
	t := m.session
	defer t.server.rescue(t)
	t.mu.Lock()
	defer t.mu.Unlock()
	turn.Take(now)
	m.countInFlight()
}

// Revisit implements exchange.Host.
func (m *messages) Revisit() { m.session.poller.Revisit(m.session) }

// Fail implements exchange.Host.
func (m *messages) Fail(result stats.Result) { m.session.fail(result) }

// How long a client may take to end the session after it was told of the end. A client that was refused may have to
// send a long body first, before it reads why. So the session waits for it as nginx does (lingering_timeout and
// lingering_time): until it has sent nothing for refusedTimeout, and for mostLinger in all. A server that stops has no such
// patience: lingerTimeout in all.
const (
	lingerTimeout  = 2 * time.Second
	refusedTimeout = 5 * time.Second
	mostLinger     = 30 * time.Second
)

// Linger implements exchange.Host.
func (m *messages) Linger(result stats.Result) {
	now := time.Now()
	if m.lingersUntil.IsZero() {
		m.lingersUntil = now.Add(mostLinger)
	}
	timeout := lingerTimeout
	switch stops := m.session.server.stopping.Load(); {
	case stops && m.lingersUntil.Sub(now) > lingerTimeout:
		m.lingersUntil = now.Add(lingerTimeout)
	case !stops && result == stats.Overflow:
		timeout = refusedTimeout
	}
	m.lingering.after(min(timeout, m.lingersUntil.Sub(now)), m.session, func() { m.Close(result) })
}

// Close implements exchange.Host.
func (m *messages) Close(result stats.Result) {
	t := m.session
	t.client.close()
	t.upstream.close()
	t.finish(result)
}

// age implements relay.
func (m *messages) age(now time.Time, quiet bool) {
	m.machine.Retire(now, quiet)
	m.countInFlight()
}

// drain implements relay.
func (m *messages) drain(now time.Time, quiet bool) {
	m.machine.Drain(now, quiet)
	m.countInFlight()
}
