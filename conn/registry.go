package conn

import (
	"maps"
	"slices"
	"time"

	"shaper/shaper"
	"shaper/stats"
)

// session is what the registry knows of a session, whatever its protocol.
type session interface {
	info() Session
	abort(stats.Result) bool // resets it, and it then ends by itself; false where it ends already
	tend(now time.Time)      // called by the janitor, now and then
	patient() bool           // it need not be looked at often
	reclassify(by *routes, gone map[*shaper.Class]bool)
	mirror(by *shadow)
	remark()
}

// add enters a session into the registry; false when the server stops.
func (s *Server) add(one session, id uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping {
		return false
	}
	s.sessions[id] = one
	return true
}

func (s *Server) remove(id uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sessions, id)
	if len(s.sessions) == 0 { // and perhaps no tunnel either
		s.idle.Broadcast()
	}
}

// all returns the open sessions, in the order in which they began.
func (s *Server) all() []session {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]session, 0, len(s.sessions))
	for _, id := range slices.Sorted(maps.Keys(s.sessions)) {
		all = append(all, s.sessions[id])
	}
	return all
}
