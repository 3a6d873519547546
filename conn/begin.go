package conn

import (
	"net/netip"
	"time"

	"shaper/sock"
	"shaper/stats"
)

// newSession returns a session of an accepted connection. It has no class yet, and nobody
// knows it.
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

// start starts the session of an accepted connection, which has entered the gate of its
// service.
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

// enter begins the session as soon as it is known where it leads to.
func (t *tcpSession) enter() {
	if t.server.asksWhere(t.conf.Name) {
		t.do((*tcpSession).locate)
		return
	}
	t.begin()
}

// begin puts the session into its classes, and drives it for the first time.
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
	t.dialling.await()
	if t.stage == queued { // it has to wait
		t.dialling.forget()
	}
}

// watchesClient lets the poller tell of the client. If that is not possible, it ends the
// session and returns false.
func (t *tcpSession) watchesClient() bool {
	if t.client.key != 0 {
		return true
	}
	if err := t.client.watch(); err != nil {
		t.server.log.Error("a connection cannot be watched", "listener", t.conf.Name, "err", err)
		t.finish(stats.DialFailed)
		return false
	}
	return true
}

// locate finds out where the session leads to, for the rules that ask: to the first
// upstream that has an address. Then the session begins.
func (t *tcpSession) locate() {
	if t.watchesClient() {
		t.dialling.found = t.begin
		t.dialling.tryUpstream()
	}
}

// Turn implements sock.Turner.
func (t *tcpSession) Turn() { t.do(func(t *tcpSession) { t.driver.drive() }) }
