package simulate

import (
	"iter"
	"net/netip"

	"shaper/policy"
	"shaper/unit"
)

// bindOf returns the address of ours from which the connection of an arrival leaves. An arrival
// that is a connection chooses one, as do a SYN and the first of a client. Any other Opens only if its
// class counted connections.
func (s *sender) bindOf() netip.Addr {
	r := s.run
	bound, known := r.bound[s.lastConn]
	if !known || s.arrival.Opens && (s.arrival.Bare || s.class.Counts(unit.Connections)) {
		bound = r.choose(s.lastConn, s.classes)
		r.bound[s.lastConn] = bound
	}
	return bound
}

// choose returns the address of ours from which a connection leaves, as the proxy chooses it. It
// is invalid if the listener has no bind.
func (r *run) choose(conn policy.Conn, classes [2]*class) netip.Addr {
	for _, c := range classes {
		if c != nil && c.Buckets().Per(policy.ByBind) {
			return c.Buckets().Soonest(r.now, conn, r.ours(conn))
		}
	}
	for from := range r.ours(conn) {
		return from
	}
	return netip.Addr{}
}

// ours iterates over the addresses of ours that reach the destination of a connection, beginning
// with the one whose turn it is.
func (r *run) ours(conn policy.Conn) iter.Seq[netip.Addr] {
	all, first := r.binds[conn.Listener], r.turn
	r.turn++
	return func(yield func(netip.Addr) bool) {
		for i := range all {
			from := all[(first+i)%len(all)]
			if policy.Reaches(from, conn.Destination.Addr()) && !yield(from) {
				return
			}
		}
	}
}
