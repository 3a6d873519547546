package conn

import (
	"net/netip"
	"time"

	"shaper/stats"
)

// A session fails over when an address cannot be reached: it goes on to the next one,
// and then to the next upstream. Rules may ask for the destination; so before an
// address is dialled, the session is in the classes of that address. If its class
// towards the upstream is another one, the session gives up its slot, and waits for a
// slot and for its turn there.

// isElsewhere reports whether the classes of the session may be those of another
// address. Where no rule asked when the session began, it looks again once an attempt
// has failed: a reload may have brought one.
func (d *dialling) isElsewhere(to netip.AddrPort) bool {
	t := d.session
	return to != t.destination && (t.located || len(d.errs) > 0)
}

// follow puts the session into the classes of the next address, and goes on with that.
func (d *dialling) follow() {
	t := d.session
	s := t.server
	s.routesMu.RLock()
	defer s.routesMu.RUnlock()
	t.do(func(t *tcpSession) {
		if t.stage != resolving && t.stage != connecting {
			return
		}
		t.destination = d.addrs[0]
		if s.needsDestination(t.conf.Name) && d.changeClasses(time.Now()) {
			d.queueAgain()
			return
		}
		d.tryAddress()
	})
}

// changeClasses puts the session into the classes of its destination, and reports
// whether the one towards the upstream is another one.
func (d *dialling) changeClasses(now time.Time) bool {
	t := d.session
	before := t.class()
	d.departed() // else the class would wait for it
	t.located = true
	t.enterClasses(now)
	if t.class() != before {
		return true
	}
	t.copies.reopen(t) // its classes in the shadow may be others
	return false
}

// queueAgain queues the connection in its new class, as it was in the first.
func (d *dialling) queueAgain() {
	t := d.session
	if t.up.flow.Class() == nil { // a reload has removed it, with the listener
		t.finish(stats.ByOperator)
		return
	}
	d.await()
}
