package conn

import (
	"context"
	"net"
	"net/netip"
	"sync/atomic"

	"shaper/shaper"
	"shaper/stats"
	"shaper/upstream"
)

// service is a listener of the policy: what its sockets lead to. It lives until no policy
// has its name and its last session has ended.
type service struct {
	class     *shaper.Class // of every session, whatever the rules say; nil except for Probe
	upstreams *upstream.Group

	// Safe for concurrent use.
	terms  atomic.Pointer[terms] // replaced by a reload
	stats  stats.Listener
	gate   gate                 // bounds the sessions (max_sessions)
	turn   atomic.Uint32        // of the addresses of bind
	faults [numFaults]ratelimit // of sessions, in the log
	relays relayCount           // of SOCKS clients
}

// newService returns a service without a policy; put gives it one. class may be nil.
func (s *Server) newService(class *shaper.Class) *service {
	sv := &service{class: class}
	sv.upstreams = upstream.NewGroup(upstream.GroupConfig{Names: s.names, Log: s.log, Ctx: s.ctx, Wait: &s.wg,
		Dial: func(ctx context.Context, name string, to netip.AddrPort) (net.Conn, error) {
			return s.dialCheck(ctx, sv.terms.Load(), name, to)
		}})
	return sv
}

// put puts a listener in force.
func (sv *service) put(t terms) {
	t.leads, t.relayed = sv.upstreams.Set(&t.Listener), t.Relayed()
	sv.terms.Store(&t)
}
