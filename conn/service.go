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

// service is a listener of the policy, to which its sockets lead. It lives until the policy no
// longer has its name and its last session has ended.
type service struct {
	class     *shaper.Class // of every session, whatever the rules say; nil except for Probe
	upstreams *upstream.Group

	// Safe for concurrent use.
	terms  atomic.Pointer[terms] // replaced by a reload
	stats  stats.Listener
	gate   gate                 // bounds the sessions (max_sessions)
	turns  [2]atomic.Uint32     // whose turn it is of the addresses of bind: towards IPv6, and towards IPv4
	lost   lostAddrs            // addresses of bind that this machine did not have lately
	faults [numFaults]ratelimit // bounds how often each fault is logged
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

// countFailure counts a failed attempt to reach an upstream. It does not count a lack of descriptors, which
// is not the upstream's fault.
func (sv *service) countFailure(name string, err error) {
	if !lacksDescriptors(err) {
		sv.stats.Failed.Add(name, upstream.FailureOf(err))
	}
}

// withdraw takes the listener out of force: clients of an entry may go nowhere new.
func (sv *service) withdraw() {
	t := *sv.terms.Load()
	t.Allow, t.relayed = nil, nil
	sv.terms.Store(&t)
	sv.upstreams.Rest()
}

// put puts a listener in force.
func (sv *service) put(t terms) {
	t.leads, t.relayed = sv.upstreams.Set(&t.Listener), t.Relayed()
	sv.terms.Store(&t)
	sv.upstreams.Start() // checks use the terms
}
