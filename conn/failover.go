package conn

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"shaper/stats"
)

// A session fails over when an address cannot be reached: it goes on to the next one,
// and then to the next upstream. Rules may ask for the destination; so before an
// address is dialled, the session is in the classes of that address. If its class
// towards the upstream is another one, the session gives up its slot, and waits for a
// slot and for its turn there.

// locate finds out where the session leads to, for the rules that ask: to the first
// upstream that has an address.
func (t *tcpSession) locate() {
	if t.watchesClient() {
		t.tryUpstream()
	}
}

// asksWhere is needsDestination for who does not hold the lock.
func (s *Server) asksWhere(listener string) bool {
	s.routesMu.RLock()
	defer s.routesMu.RUnlock()
	return s.needsDestination(listener)
}

// isElsewhere reports whether the classes of the session may be those of another
// address. Where no rule asked when the session began, it looks again once an attempt
// has failed: a reload may have brought one.
func (t *tcpSession) isElsewhere(to netip.AddrPort) bool {
	return to != t.destination && (t.located || len(t.dialling.errs) > 0)
}

// follow puts the session into the classes of the next address, and goes on with that.
func (t *tcpSession) follow() {
	s := t.server
	s.routesMu.RLock()
	defer s.routesMu.RUnlock()
	t.drive(func(t *tcpSession) {
		if t.stage != resolving && t.stage != connecting {
			return
		}
		t.destination = t.dialling.addrs[0]
		if s.needsDestination(t.conf.Name) && t.changeClasses(time.Now()) {
			t.queueAgain()
			return
		}
		t.tryAddress()
	})
}

// changeClasses puts the session into the classes of its destination, and reports
// whether the one towards the upstream is another one.
func (t *tcpSession) changeClasses(now time.Time) bool {
	before := t.class()
	t.left() // else the class would wait for it
	t.located = true
	t.enterClasses(now)
	if t.class() != before {
		return true
	}
	t.copies.reopen(t) // its classes in the shadow may be others
	return false
}

// queueAgain has the connection wait for its new class, as it did for the first.
func (t *tcpSession) queueAgain() {
	t.dialling.begun = false
	if t.up.flow.Class() == nil { // a reload has removed it, with the listener
		t.finish(stats.ByOperator)
		return
	}
	t.acquire()
}

// lookupError is why a name has no address.
type lookupError struct{ err error }

func (e *lookupError) Error() string { return e.err.Error() }
func (e *lookupError) Unwrap() error { return e.err }

// failed notes why an upstream, or one of its addresses, cannot be reached. A want of
// descriptors is no fault of the upstream.
func (t *tcpSession) failed(upstream, what string, err error) {
	t.dialling.errs = append(t.dialling.errs, fmt.Errorf("dial %s: %w", what, err))
	if !lacksDescriptors(err) {
		t.service.stats.Failed.Add(upstream, failureOf(err))
	}
}

// failureOf tells from an error of an attempt why it has failed.
func failureOf(err error) stats.Failure {
	var name *lookupError
	var handshake *handshakeError
	switch {
	case errors.As(err, &name):
		return stats.Unresolved
	case errors.As(err, &handshake):
		return stats.NoTLS
	case errors.Is(err, unix.ECONNREFUSED):
		return stats.NotServed
	case errors.Is(err, errTimeout), errors.Is(err, unix.ETIMEDOUT):
		return stats.NoAnswer
	case errors.Is(err, unix.ECONNRESET), errors.Is(err, unix.EPIPE):
		return stats.DialReset
	case errors.Is(err, unix.ENETUNREACH), errors.Is(err, unix.EHOSTUNREACH), errors.Is(err, unix.EHOSTDOWN), errors.Is(err, unix.ENETDOWN):
		return stats.Unreachable
	}
	return stats.Unfit
}

// tellFailOver logs that the address which was reached is not the first that was tried.
func (t *tcpSession) tellFailOver() {
	if len(t.dialling.errs) > 0 {
		t.warn(failedOver, "upstream", t.name, "address", t.reached(), "class", nameOf(t.class()), "err", errors.Join(t.dialling.errs...))
	}
}
