package daemon

import (
	"syscall"

	"shaper/policy"
)

// spareDescriptors are those that are not sessions': listeners, the pacer, the
// pollers, the control socket and its clients, scrapes, lookups of names, and both
// ends of the 64 pipes that conn splices through.
const spareDescriptors = 2*maxConnections + 128 + 2*64

// descriptorsFor returns how many descriptors a policy needs at most, with all
// of its sessions open.
func descriptorsFor(p *policy.Policy) uint64 {
	n := uint64(spareDescriptors)
	for _, l := range p.Listeners {
		n += uint64(l.MaxSessions)*perSession(l) + uint64(len(l.Listen))
	}
	return n
}

// perSession returns the descriptors of one session.
func perSession(l policy.Listener) uint64 {
	builtin := l.Upstream[0] == policy.Echo || l.Upstream[0] == policy.Discard
	switch {
	case l.Protocol == policy.UDP && builtin:
		return 0
	case l.Protocol == policy.UDP:
		return 1 // towards the upstream; clients share the listener's
	case builtin:
		return 3 + tunnels(l) // the client, and both ends of a socket pair
	}
	return 2 + tunnels(l)
}

// tunnels returns the descriptors of TLS in a session: both ends of a socket pair for
// each side that has it.
func tunnels(l policy.Listener) (n uint64) {
	if l.TLS != nil {
		n += 2
	}
	if l.UpstreamTLS != nil {
		n += 2
	}
	return n
}

// checkDescriptors warns where sessions will find no descriptor before they
// reach max_sessions, and again only where that has changed. Go has raised the soft limit to the hard one at the start.
func (s *sockets) checkDescriptors(p *policy.Policy) {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		s.log.Warn("the limit of descriptors is not known", "err", err)
		return
	}
	now := descriptorNeed{limit.Cur, descriptorsFor(p)}
	if now.needed > now.limit && now != s.warned {
		s.log.Warn("TOO FEW DESCRIPTORS for max_sessions of all listeners: raise LimitNOFILE (ulimit -n), or lower max_sessions",
			"limit", now.limit, "needed", now.needed)
	}
	s.warned = now
}

// descriptorNeed is how many descriptors there may be, and how many a policy
// needs.
type descriptorNeed struct{ limit, needed uint64 }
