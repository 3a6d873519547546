package conn

import (
	"cmp"
	"context"
	"slices"
	"time"

	"shaper/upstream"
)

// search is what a session has still to try, and what it has tried in vain. The addresses are
// those of the upstream at which the walk of the session stands; while their name is looked up,
// there are none. The lock of the session guards it.
type search struct {
	addrs    []upstream.Address // in the order in which to try them
	cancel   context.CancelFunc // ends the lookup of the name; nil: there is none
	failures failures           // of all attempts
}

// lookUp looks up the addresses of a name in the background. It gives up at by. Then it calls
// then with the lock of the session held, unless the session has ended.
func (s *search) lookUp(t *tcpSession, name string, by time.Time, then func([]upstream.Address, error)) {
	ctx, cancel := context.WithDeadline(t.server.ctx, by)
	s.cancel = cancel
	t.server.wg.Go(func() {
		defer cancel()
		defer t.server.rescue(t)
		addrs, err := t.server.names.Find(ctx, name)
		t.do(func(*tcpSession) {
			s.cancel = nil
			then(addrs, err)
		})
	})
}

// begin sets the addresses of an upstream to try. The one by which the session was classified
// comes first: a name may return them in another order each time.
func (s *search) begin(c *course, addrs []upstream.Address) {
	s.addrs = c.walk.Arrange(time.Now(), addrs)
	isDestination := func(at upstream.Address) bool { return at.AddrPort == c.destination }
	if i := slices.IndexFunc(s.addrs, isDestination); i > 0 {
		s.addrs[0], s.addrs[i] = s.addrs[i], s.addrs[0]
	}
}

// forget makes the session look up its upstream once more: the addresses may be stale by the
// time it tries them.
func (s *search) forget(c *course) {
	if len(s.addrs) > 0 {
		c.walk.Back()
		s.addrs = nil
	}
}

// nextIsOf reports whether the next address is of the same host as at.
func (s *search) nextIsOf(at upstream.Address) bool {
	return len(s.addrs) > 0 && at.IsValid() && at.Host == s.addrs[0].Host
}

// failed notes why the present upstream, or its address what, cannot be reached.
func (s *search) failed(t *tcpSession, what string, err error) {
	s.failures.add(t.service, t.course.walk.Upstream(), what, err)
}

// missed notes why an address of the present upstream cannot be reached.
func (s *search) missed(t *tcpSession, at *upstream.Target, err error) {
	at.Failed(time.Now(), err)
	s.failed(t, cmp.Or(destinationName(at.Address().AddrPort), t.course.walk.Upstream()), err)
}

// stop ends the lookup, if there is one.
func (s *search) stop() {
	if s.cancel != nil {
		s.cancel()
	}
}
