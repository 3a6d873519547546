package conn

import (
	"net/netip"
	"time"

	"shaper/sock"
	"shaper/stats"
)

// newSession returns the session of an accepted connection. It has no class yet, and is not
// in the registry.
func newSession(s *Server, client sock.End, source netip.AddrPort, port uint16, sv *service) *tcpSession {
	now := sv.terms.Load()
	t := &tcpSession{
		id: s.lastID.Add(1), server: s, service: sv, conf: &now.Listener, secure: now.secure, started: time.Now(),
		source: source, port: port,
	}
	t.client = side{session: t, end: client}
	t.upstream = side{session: t, end: noEnd}
	t.up.init(t, stats.Upstream, nil)
	t.down.init(t, stats.Downstream, nil)
	t.relay, t.driver = newStreams(t), &t.dialling
	t.dialling.session, t.place.session = t, t
	t.poller = s.pollers[t.id%uint64(len(s.pollers))]
	return t
}

// start starts the session of an accepted connection, which has entered the gate of sv. If
// the server is stopping, it resets the connection.
func (s *Server) start(client sock.End, source netip.AddrPort, port uint16, sv *service) {
	t := newSession(s, client, source, port, sv)
	sv.stats.Open.Add(1)
	if !s.add(t, t.id) {
		t.client.reset()
		sv.stats.Open.Add(-1)
		sv.gate.leave()
		return
	}
	defer s.rescue(t)
	if config := t.secure.client; config != nil {
		t.do(func(t *tcpSession) { t.client.terminate(config, t.enter) })
		return
	}
	t.enter()
}

// enter begins the session. If a rule asks for the destination, it finds that first.
func (t *tcpSession) enter() {
	if t.server.asksWhere(t.conf.Name) {
		t.do((*tcpSession).locate)
		return
	}
	t.begin()
}

// begin puts the session into its classes and opens it. The session's lock is not held.
func (t *tcpSession) begin() {
	defer t.server.rescue(t)
	t.classify()
	t.do((*tcpSession).open)
}

// open queues the connection in its class. If a reload has just removed the listener,
// there is no class, and the session ends.
func (t *tcpSession) open() {
	if t.up.flow.Class() == nil {
		t.finish(stats.ByOperator)
		return
	}
	if !t.watchesClient() {
		return
	}
	t.dialling.awaitSlot()
	if t.stage == queued { // it waits for a slot
		t.dialling.forget()
	}
}

// watchesClient lets the poller watch the client. If that fails, it ends the session and
// returns false.
func (t *tcpSession) watchesClient() bool {
	if t.client.key != 0 {
		return true
	}
	if err := t.client.watch(); err != nil {
		t.server.log.Error("cannot watch a connection", "listener", t.conf.Name, "err", err)
		t.finish(stats.DialFailed)
		return false
	}
	return true
}

// locate finds the destination of the session, which is the first upstream that has an
// address. Then the session begins.
func (t *tcpSession) locate() {
	if t.watchesClient() {
		t.dialling.found = t.begin
		t.dialling.tryUpstream()
	}
}

// Turn implements sock.Turner: it drives the session.
func (t *tcpSession) Turn() { t.do(func(t *tcpSession) { t.driver.drive() }) }
