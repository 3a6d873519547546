package conn

import (
	"maps"
	"slices"
	"time"

	"shaper/shaper"
	"shaper/stats"
)

// session is a session of either kind, as the registry knows it. All methods are safe for
// concurrent use. Only turnsBetween may be called with the server's lock held.
type session interface {
	// info returns a snapshot of the session.
	info() Session
	// unwritten returns how many bytes were read but not yet written.
	unwritten() int64
	// abort resets the session. It returns false if the session has ended already.
	abort(stats.Result) bool
	// tend ends the session if it has been idle for too long. The janitor calls it.
	tend(now time.Time)
	// turnsBetween returns once in how many periods the janitor must check the session.
	turnsBetween() uint64
	// reclassify moves the session out of the gone classes, by the rules of by. The caller holds the lock of the
	// routes.
	reclassify(by *routes, gone map[*shaper.Class]bool)
	// mirror sends copies of the traffic to a policy in the shadow, instead of the one
	// before; nil for none. The caller holds the lock of the routes.
	mirror(by *shadow)
	// remark sets the mark of what the session sends upstream again.
	remark()
}

// registered is a session in the registry.
type registered struct {
	session
	// turns is what turnsBetween returned when the session began. The janitor reads it at each turn,
	// so it stands here: to ask every session would fetch each of them into the cache. It becomes
	// less only when the session's socket closes.
	turns uint64
}

// add adds a session. It returns false if the server is stopping.
func (s *Server) add(one session, id uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping.Load() {
		return false
	}
	s.sessions[id] = registered{one, one.turnsBetween()}
	return true
}

// remove removes a session that has ended.
func (s *Server) remove(id uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sessions, id)
	if len(s.sessions) == 0 { // awaitSessions checks the tunnels
		s.idle.Broadcast()
	}
}

// all returns the open sessions, in the order in which they began.
func (s *Server) all() []session {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]session, 0, len(s.sessions))
	for _, id := range slices.Sorted(maps.Keys(s.sessions)) {
		all = append(all, s.sessions[id].session)
	}
	return all
}
