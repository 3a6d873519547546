package daemon

import (
	"syscall"

	"shaper/policy"
)

// spareDescriptors are the descriptors that belong to no session: those of listeners, the
// pacer, the pollers, the control socket and its clients, scrapes and name lookups, and both
// ends of the 64 pipes that conn splices through.
const spareDescriptors = 2*maxConnections + 128 + 2*64

// descriptorsFor returns how many descriptors a process may have to have for a policy, when every listener
// has max_sessions. UDP sessions hold half of them at most; see conn.
func descriptorsFor(p *policy.Policy) uint64 {
	n, udp := uint64(spareDescriptors), uint64(0)
	for _, l := range p.Listeners {
		sessions := uint64(l.MaxSessions) * perSession(l)
		n += sessions + uint64(len(l.Listen))
		if l.Protocol == policy.UDP {
			udp += sessions
		}
	}
	return max(n, 2*udp)
}

// perSession returns how many descriptors a session of a listener needs.
func perSession(l policy.Listener) uint64 {
	builtin := len(l.Upstream) > 0 && (l.Upstream[0] == policy.Echo || l.Upstream[0] == policy.Discard)
	switch {
	case l.Protocol == policy.UDP && builtin:
		return 0
	case l.Protocol == policy.UDP && l.Mode.IsEntry():
		return 2 // to the upstream, and that which answers come from; or the two of a SOCKS client
	case l.Protocol == policy.UDP:
		return 1 // to the upstream; clients share the socket of the listener
	case builtin:
		return 3 + tunnels(l) // the client's, and both ends of a socket pair
	}
	return 2 + tunnels(l)
}

// tunnels returns how many descriptors TLS needs in a session: both ends of a socket pair for
// each side with TLS.
func tunnels(l policy.Listener) (n uint64) {
	if l.TLS != nil {
		n += 2
	}
	if l.UpstreamTLS != nil {
		n += 2
	}
	return n
}

// checkDescriptors warns if the process runs out of descriptors before the listeners reach
// max_sessions. It repeats the warning only if the numbers have changed. It reads the soft
// limit, which Go raises to the hard one at the start.
func (s *liveEngine) checkDescriptors(p *policy.Policy) {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		s.log.Warn("cannot read the limit of descriptors", "err", err)
		return
	}
	now := descriptorNeed{limit.Cur, descriptorsFor(p)}
	if now.needed > now.limit && now != s.warned {
		s.log.Warn("TOO FEW DESCRIPTORS for max_sessions of all listeners: raise LimitNOFILE (ulimit -n), or lower max_sessions",
			"limit", now.limit, "needed", now.needed)
	}
	s.warned = now
}

// descriptorNeed is how many descriptors the process may have, and how many a policy needs.
type descriptorNeed struct{ limit, needed uint64 }
