package daemon

import (
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"shaper/fleet"
	"shaper/fleet/limits"
	"shaper/shaper"
	"shaper/stats"
)

// A membership is what this process has of a shared class, as a member of its fleet: it implements shaper.Member.
type membership struct {
	// Set by join.
	class   string
	name    string // of its members, apart from a number
	store   store
	members []*fleet.Member
	since   time.Time

	limits atomic.Pointer[[]shaper.Limit] // in force, one for each member
}

// calls counts calls to stores, and those of them that have failed.
type calls struct{ all, failed uint64 }

func (n calls) plus(more calls) calls { return calls{n.all + more.all, n.failed + more.failed} }

// limit returns limit i, as it is in force.
func (s *membership) limit(i int) *shaper.Limit { return &(*s.limits.Load())[i] }

// fits reports whether the members can take other limits.
func (s *membership) fits(all []shaper.Limit) bool {
	in := *s.limits.Load()
	if len(all) != len(in) {
		return false
	}
	for i, l := range all {
		was := in[i]
		if l.Algorithm != was.Algorithm || l.Window != was.Window || l.Calendar != was.Calendar || l.Rate.Kind() != was.Rate.Kind() {
			return false
		}
	}
	return true
}

// Budget implements shaper.Member.
func (s *membership) Budget(i int, key string) shaper.Budget { return s.members[i].Budget(key) }

// Set implements shaper.Member.
func (s *membership) Set(all []shaper.Limit) {
	if !s.fits(all) {
		return // another membership follows
	}
	for i, limit := range limits.All(s.class, all, s.store.conf) {
		s.members[i].Set(limit, limits.Fallback(s.store.conf.Fallback, i)) // it fits
	}
	s.limits.Store(&all)
}

// reach makes the members reach their store as the policy now says, if that is still the store of a fleet: members that leave may have
// to say so with the new password.
func (s *membership) reach(stores map[string]store) {
	if now, is := stores[s.store.conf.Name]; is && now.isServerOf(&s.store) {
		for _, m := range s.members {
			m.Reach(now.reach)
		}
	}
}

// pauseLike pauses the class as it was before a reload; nil: there was none. A limit that is new on the store knows of no pause.
func (s *membership) pauseLike(was *membership) {
	if was == nil {
		return
	}
	if wait := time.Until(was.PausedUntil("")); wait > 0 {
		s.Slow("", wait)
	}
}

// Slow implements shaper.Member. All limits know of a pause: other shapers may have only one of them, and a reload may take any
// of them away.
func (s *membership) Slow(key string, wait time.Duration) {
	for _, m := range s.members {
		m.Slow(key, wait)
	}
}

// PausedUntil implements shaper.Member.
func (s *membership) PausedUntil(key string) (until time.Time) {
	for _, m := range s.members {
		if of := m.PausedUntil(key); of.After(until) {
			until = of
		}
	}
	return until
}

// Secret implements shaper.Member.
func (s *membership) Secret() *[32]byte { return &s.store.secret }

// read adds what the process has of limit i of a class to the reading of the fleet.
func (s *membership) read(i int, of *stats.FleetReading) {
	m := s.members[i]
	status, err := m.Status()
	counts, leased := m.Counts()
	made, _ := m.Calls()
	l := s.limit(i)
	r := stats.SharedReading{
		Class: s.class, Limit: l.Rate.String(), Member: m.Name(), Mode: status.Mode.String(), Members: status.Members,
		Share: status.Share, Leased: leased, Calls: uint64(made), Age: stats.Seconds(time.Since(s.since)),
		Shortest: stats.Seconds(status.Shortest), Longest: stats.Seconds(status.Longest),
		Used: uint64(counts.Used), Expired: uint64(counts.Expired), Returned: uint64(counts.Returned), Fallback: stats.Seconds(status.Away),
	}
	if err != nil {
		r.Error = err.Error()
	}
	of.Classes = append(of.Classes, r)
	of.Up = of.Up && err == nil && status.Members > 0
	of.Members = max(of.Members, status.Members)
	of.CallTime = max(of.CallTime, stats.Seconds(status.RoundTrip))
	of.ClockError = max(of.ClockError, stats.Seconds(status.ClockError))
	if late := stats.Seconds(l.Late); late > 0 && (of.Headroom == 0 || late < of.Headroom) {
		of.Headroom = late
	}
}

// calls returns the calls of all members.
func (s *membership) calls() (n calls) {
	for _, m := range s.members {
		all, failed := m.Calls()
		n = n.plus(calls{uint64(all), uint64(failed)})
	}
	return n
}

// mode says where the budget of a class comes from now: that of its limits which has the least.
func (s *membership) mode() fleet.Mode {
	status, _ := s.worst()
	return status.Mode
}

// worst returns the status of the limit that has the least, and why the store is away.
func (s *membership) worst() (status fleet.Status, failed error) {
	for i, m := range s.members {
		if is, err := m.Status(); i == 0 || is.Mode > status.Mode {
			status, failed = is, err
		}
	}
	return status, failed
}

// describe says where the budget of a class lives, for people.
func (s *membership) describe() string {
	status, err := s.worst()
	return fmt.Sprintf("fleet %s (%s), ", s.store.conf.Name, strings.Join(s.store.conf.Address, ", ")) + describe(status, err)
}

// describe says where a budget comes from. Failed is why the store is away; nil if nobody knows.
func describe(status fleet.Status, failed error) string {
	last := ""
	if failed != nil {
		last = "; the last call: " + failed.Error()
	}
	switch {
	case status.Mode == fleet.OnShare:
		return "which is away: this shaper uses its share or the fallback" + last
	case status.Mode == fleet.Stopped:
		return "which is away: nothing leaves" + last
	case status.Members == 1:
		return "with this shaper as the only member"
	}
	return fmt.Sprintf("with %d members", status.Members)
}
