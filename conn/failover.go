package conn

import (
	"net/netip"
	"time"

	"shaper/policy"
	"shaper/sock"
)

// A session fails over if it cannot reach an address: it tries the next address, and then the
// next upstream. Since rules may ask for the destination, the session enters the classes of an
// address before it dials it. If its upstream class changes, it gives up its permit, and waits
// for a permit and its turn in the new class.

// mayChangeClasses reports whether the classes of the session may be wrong for an address. If
// no rule asked for the destination when the session began, a reload may have brought one, so
// it checks again after the first attempt that fails.
func (d *dialling) mayChangeClasses(to netip.AddrPort) bool {
	t := d.session
	return to != t.course.destination && (t.course.located || len(d.search.failures) > 0)
}

// enterNext puts the session into the classes of the next address, and tries that address.
// The session's lock is not held.
func (d *dialling) enterNext() {
	t := d.session
	s := t.server
	s.routing.mu.RLock()
	defer s.routing.mu.RUnlock()
	t.do(func(t *tcpSession) {
		if t.stage != resolving && t.stage != connecting {
			return
		}
		if t.upstream.end != noEnd || len(d.search.addrs) == 0 { // a rival has called tryAddress meanwhile, or has won
			return
		}
		t.course.destination = d.search.addrs[0].AddrPort
		mayDiffer := s.routing.needsDestination(t.conf.Name) || t.course.origin.unfit > 0 && s.routing.needsBind(t.conf.Name)
		if mayDiffer && d.changeClasses(time.Now()) {
			d.queue()
			return
		}
		d.tryAddress()
	})
}

// changeClasses puts the session into the classes of its destination. It reports whether the
// upstream class has changed. If not, it ends the attempts that go on: the classes of their addresses
// may be others. The locks of the routes and of the session are held.
func (d *dialling) changeClasses(now time.Time) bool {
	t := d.session
	before := t.up.flow.Class()
	t.up.departed() // otherwise the old class would wait for it
	t.course.located = true
	t.enterClasses(now)
	if t.up.flow.Class() != before {
		return true
	}
	d.endRace()
	t.copies.reopen(t) // its classes in the shadow may have changed
	return false
}

// chooseOurs chooses our side of a connection to an address. Its address of bind is the session's
// origin from now on. The session's lock is held.
func (d *dialling) chooseOurs(to netip.AddrPort) sock.Local {
	t := d.session
	bind := t.conf.Bind
	from := t.service.choose(time.Now(), &t.conf.Listener, policy.Conn{Bind: t.course.origin.of(bind), Destination: to})
	t.course.origin.set(bind, from)
	return ourSide(&t.conf.Listener, t.source, from, t.server.marks.mark(t.up.flow.Class()))
}

// tryNextBind tries the present address from the next one of bind, if the last attempt has
// failed because of our address, and another may do. It returns false if it tries none. The
// session's lock is held.
func (d *dialling) tryNextBind(err error) bool {
	t := d.session
	t.service.lost.note(time.Now(), err)
	if !isOfSource(err) || !t.course.origin.next(t.conf.Bind, t.course.destination.Addr()) {
		t.course.origin.unfit = 0
		return false
	}
	d.search.failed(t, destinationName(t.course.destination), err)
	t.server.wg.Go(d.enterNext) // it takes locks that come before the session's
	return true
}
