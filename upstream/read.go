package upstream

import (
	"time"

	"shaper/stats"
)

// Read returns each address of the upstreams in force. An upstream whose name is not resolved
// has one reading without an address.
func (s *Set) Read(now time.Time) (all []stats.UpstreamReading) {
	g := s.group
	g.mu.Lock()
	defer g.mu.Unlock()
	for i, e := range s.entries {
		about := stats.UpstreamReading{Listener: s.conf.Name, Upstream: e.upstream, Number: i + 1, Weight: e.weight, State: "unresolved"}
		addrs := e.literal
		if addrs == nil {
			var expires time.Time
			var err error
			if addrs, expires, err = g.Names.Seen(e.upstream); err != nil {
				about.Error = err.Error()
			}
			if addrs != nil {
				remaining := stats.Seconds(max(expires.Sub(now), 0))
				about.TTL = &remaining
			}
		}
		if len(addrs) == 0 {
			all = append(all, about)
			continue
		}
		for _, at := range addrs {
			one := g.target(e, at).read(about, s.chooses)
			if !s.canDial(at) {
				one.State = "unusable"
			}
			all = append(all, one)
		}
		e.forget(addrs)
	}
	return all
}

// read returns a reading of the target, whose upstream is described already. The lock of the
// group is held.
func (t *Target) read(r stats.UpstreamReading, checked bool) stats.UpstreamReading {
	r.State, r.Since = "unchecked", t.since
	if checked {
		r.State = t.state.String()
	}
	if t.address.IsValid() {
		r.Address = t.address.String()
	}
	r.Weight *= int(max(t.address.Weight, 1))
	r.Sessions, r.InFlight, r.Failures = t.sessions.Load(), t.inFlight.Load(), t.failures
	if t.err != nil {
		r.Error = t.err.Error()
	}
	return r
}
