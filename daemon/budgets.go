package daemon

import (
	"time"

	"shaper/shaper"
	"shaper/state"
	"shaper/stats"
)

// openState returns the state file of a policy: the current one if the path is the same, else a
// new one, which the caller puts in force or discards. It is nil if the policy has none.
func (s *liveEngine) openState(key string) (*state.File, error) {
	path := stateFile(key)
	switch {
	case path == "":
		return nil, nil
	case s.state != nil && s.state.Path() == path:
		return s.state, nil
	}
	return state.Open(path, state.Options{Log: s.log})
}

// discardState gives up a new state file, of a policy that does not come into force.
func (s *liveEngine) discardState(fresh *state.File) {
	if fresh != nil && fresh != s.state {
		fresh.Discard()
	}
}

// replaceState makes the classes keep their budgets in a file from now on; nil: in none. At the
// start of the daemon they go on from what the file holds. Later they remember more than that
// themselves.
func (s *liveEngine) replaceState(fresh *state.File) {
	old, now := s.state, time.Now()
	if old == fresh && s.resumed {
		return
	}
	switch {
	case fresh == nil:
		s.shaper.Keep(nil)
	default:
		if !s.resumed {
			resume(now, s.shaper, fresh)
		}
		s.shaper.Keep(fresh)
		fresh.Start()
	}
	s.resumed = true
	s.mu.Lock()
	s.state = fresh
	s.mu.Unlock()
	if old != nil {
		old.Close(s.shaper.Leases(now))
	}
}

// resume makes classes go on from what the last process has kept.
func resume(now time.Time, classes *shaper.Shaper, file *state.File) {
	if leases, trusted := file.Found(); trusted {
		classes.Resume(now, leases)
	} else {
		classes.Exhaust(now)
	}
}

// readState returns where the budgets are kept, and how writing went.
func (s *liveEngine) readState() stats.StateReading {
	s.mu.Lock()
	file := s.state
	s.mu.Unlock()
	if file == nil {
		return stats.StateReading{}
	}
	return file.Read()
}
