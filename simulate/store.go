package simulate

import (
	"time"

	"shaper/fleet"
	"shaper/policy"
)

// stores are what the stores of all fleets of a policy have. Each answers after a delay.
type stores struct {
	delay  time.Duration
	fleets map[string]policy.Fleet
	byName map[string]*store
}

func newStores(p *policy.Policy, delay time.Duration) *stores {
	s := &stores{delay: delay, fleets: map[string]policy.Fleet{}, byName: map[string]*store{}}
	for _, f := range p.Fleets {
		s.fleets[f.Name] = f
	}
	return s
}

// store returns what the store has of a class of a fleet: each limit is one.
func (s *stores) store(class fleet.Class) *store {
	of := s.byName[class.Name]
	if of == nil {
		of = &store{model: fleet.Model{ID: "simulated"}, delay: s.delay, ahead: aheadOf(class)}
		s.byName[class.Name] = of
	}
	return of
}

// A store is what the store of a fleet has of one class.
type store struct {
	model fleet.Model
	delay time.Duration
	ahead time.Duration // its clock of ours
}

// aheadOf returns how far the store's clock is ahead: by whole windows, and so far that it shows no
// time before 1970, which the protocol does not know.
func aheadOf(class fleet.Class) time.Duration {
	if class.Window == 0 || class.Window > time.Hour {
		return max(class.Window, time.Hour)
	}
	return time.Hour.Truncate(class.Window)
}

// adopt returns the class with the windows of the store's clock.
func (s *store) adopt(class fleet.Class) fleet.Class {
	if bounds := class.Bounds; bounds != nil {
		class.Bounds = func(t time.Time) (from, to time.Time) {
			from, to = bounds(t.Add(-s.ahead))
			return from.Add(s.ahead), to.Add(s.ahead)
		}
	}
	return class
}

// do answers a call. A ping changes nothing.
func (s *store) do(now time.Time, c *fleet.Call) fleet.Reply {
	if c.Op == fleet.Ping {
		return fleet.Reply{}
	}
	return s.model.Do(fleet.Stamp(now.Add(s.ahead).UnixMicro()), c)
}
