package conn

import (
	"time"

	"shaper/shaper"
	"shaper/stats"
	"shaper/upstream"
)

// leaveGrace is how long a session still waits and dials after its client has sent a FIN and
// nothing before it. The client may have gone, or may only want to listen.
const leaveGrace = 500 * time.Millisecond

// dialling drives a session until it has reached an upstream. It tries one upstream of the
// listener after the other, and of each one address after the other. The lock of the session
// guards it.
//
// A session waits in this order: permit, name, class, connect. The name comes before the class,
// since it may take long, and a class that counts connections lets nothing else go until the
// last one has departed.
type dialling struct {
	session *tcpSession // never changes
	found   func()      // begins an arriving session that has found its first address; called without the lock

	search search
	clock  dialClock
	race   race  // the attempts at earlier addresses
	grace  alarm // ends the session of a client that has gone

	waitsSince time.Time // when the wait for a permit began
}

// drive implements driver.
func (d *dialling) drive() {
	switch t := d.session; t.stage {
	case queued:
		if t.permit.IsOpen() {
			t.permit.taken()
			d.tryAddress()
		}
	case opening:
		if !t.up.waiting {
			d.dial()
		}
	}
}

// changed implements driver.
func (d *dialling) changed(s *side) {
	if s == &d.session.client {
		d.clientLeaves()
	} else if s.Writable {
		d.answered(s)
	}
}

// granted implements driver: the class lets the connection go.
func (d *dialling) granted(by *direction, now time.Time) {
	if d.session.stage != opening {
		by.flow.Left(now)
		return
	}
	d.dial()
}

// finish implements part.
func (d *dialling) finish(stats.Result) {
	if d != nil {
		d.session.up.departed() // if it has not, it never will
		d.giveUp(time.Now())
		d.stop()
	}
}

// giveUp notes which attempts have failed by now, although the session ends for another reason.
func (d *dialling) giveUp(now time.Time) {
	t := d.session
	d.race.giveUp(now)
	if d.isTrying() && now.After(d.clock.overdue) {
		d.search.missed(t, t.course.target(), upstream.ErrTimeout)
	}
}

// isTrying reports whether the present attempt is under way, or its TLS handshake, which the poller does not watch.
// A handshake that waits for descriptors of ours has not begun.
func (d *dialling) isTrying() bool {
	s := &d.session.upstream
	if end, over := s.end.(*tlsEnd); over {
		return end.tunnel.isOpen()
	}
	return s.isWatched()
}

// queue queues the connection in its class, and tries an address when it has a permit. It ends the
// attempts that go on, and their addresses come last. If a reload has just removed the listener, there
// is no class, and the session ends.
func (d *dialling) queue() {
	t := d.session
	if t.up.flow.Class() == nil {
		t.finish(stats.ByOperator)
		return
	}
	d.endRace()
	if t.permit.acquire() {
		d.tryAddress()
	}
}

// stop ends the dial, whether or not it has reached an upstream.
func (d *dialling) stop() {
	d.grace.stop()
	d.clock.stop()
	d.search.stop()
	d.race.end()
	d.session.dialling = nil
}

// tryUpstream tries the next upstream of the list. If there is none, the session ends.
func (d *dialling) tryUpstream() {
	t := d.session
	if !t.course.walk.Next(time.Now()) {
		t.warn(unreachable, "err", d.search.failures.join())
		t.finish(d.search.failures.result())
		return
	}
	d.clock.begin(time.Duration(t.conf.ConnectTimeout))
	if addrs, known := t.entrance().known(&t.course.walk); known {
		d.resolved(addrs, nil)
		return
	}
	t.up.departed() // the class must not wait for a name
	d.search.lookUp(t, t.entrance().upstream(&t.course.walk), d.clock.giveUpAt, d.resolved)
}

// resolved goes on when the present upstream has its addresses, or has none: then err is not nil. It
// tries those that the session may dial.
func (d *dialling) resolved(addrs []upstream.Address, err error) {
	t := d.session
	if err != nil {
		d.search.failed(t, t.aim(), &upstream.LookupError{Err: err})
		d.tryUpstream()
		return
	}
	d.clock.resolved()
	addrs = t.entrance().allowed(addrs)
	nowhere := upstream.ErrFamily
	if len(addrs) == 0 {
		nowhere = errDenied
	}
	if d.search.begin(&t.course, addrs); len(d.search.addrs) == 0 {
		d.search.failed(t, t.aim(), nowhere)
	}
	d.tryAddress()
}

// tryAddress takes the next step towards the next address of the present upstream. If it has
// none, it tries the next upstream.
func (d *dialling) tryAddress() {
	t := d.session
	switch {
	case len(d.search.addrs) == 0 && d.race.isOn():
		d.await(d.clock.remaining())
	case len(d.search.addrs) == 0:
		d.tryUpstream()
	case t.stage == arriving:
		t.course.destination, t.course.located = d.search.addrs[0].AddrPort, true
		t.server.wg.Go(d.found) // it takes locks that come before the session's
	case d.mayChangeClasses(d.search.addrs[0].AddrPort):
		t.server.wg.Go(d.enterNext) // likewise
	case t.stage == resolving:
		d.askClass()
	default:
		d.attempt()
	}
}

// askClass asks the class whether the connection may go. The session has a permit and an address.
func (d *dialling) askClass() {
	t := d.session
	t.stage = opening
	t.up.ask(time.Now(), shaper.Cost{Connections: 1})
	d.drive()
}

// dial begins to connect to the upstream, since the class has let the connection go.
func (d *dialling) dial() {
	t := d.session
	t.up.count(t.up.flow.Class(), shaper.Cost{Connections: 1})
	t.stage, t.up.unsettled = connecting, true
	if first := d.clock.resume(); first { // not again after a failover
		t.service.stats.Sent[stats.Upstream].Connections.Add(1)
	}
	if d.clientLeaves(); t.stage != ended {
		d.tryAddress()
	}
}

// clientLeaves ends a session without an upstream if its client has gone. A client that has
// reset the connection has gone. One that has sent a FIN, and nothing before it, has gone
// after leaveGrace.
func (d *dialling) clientLeaves() {
	t := d.session
	switch {
	case t.client.Broken:
		t.finish(stats.Aborted)
	case t.client.Ends && !d.grace.isSet() && t.client.end.AtEnd():
		d.grace.after(leaveGrace, t, func() { t.finish(stats.Aborted) })
	}
}
