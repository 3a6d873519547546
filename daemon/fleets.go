package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"shaper/fleet"
	"shaper/fleet/limits"
	"shaper/policy"
	"shaper/shaper"
	"shaper/stats"
)

// fleets make the process a member of fleets: one member for each limit of each class that is shared.
// Changes of the policy call prepare and enforce, one at a time.
type fleets struct {
	tell    func(class, key string)  // that something has changed
	unshare func(shaper.Member) bool // see Shaper.Unshare
	log     *slog.Logger
	stores  map[string]store // of the policy in force, by name. Only changes touch it
	names   memberNames      // of the members of this process. Only changes touch it
	leaving sync.WaitGroup   // members that say goodbye
	patient context.Context  // until it ends, they say it again if the store does not hear them
	hurry   func()           // ends it

	mu          sync.Mutex             // held to write the fields below, and to read them outside changes
	memberships map[string]*membership // by class; a new map for each policy
	stay        map[string]*membership // of classes that are gone and in which somebody is, by class
	looks       *time.Timer            // goes off to look whether somebody still is; nil: it has not been set
	calling     []*membership          // all whose members may still call their store, also those that say goodbye
	called      map[string]calls       // what the members of all others have called, by fleet of the policy in force
}

// newFleets returns fleets without members.
func newFleets(tell func(class, key string), unshare func(shaper.Member) bool, log *slog.Logger) *fleets {
	s := &fleets{tell: tell, unshare: unshare, log: log, called: map[string]calls{}}
	s.patient, s.hurry = context.WithCancel(context.Background())
	return s
}

// readStores reads what the fleets of a policy need. The error joins one for each file.
func (s *fleets) readStores(p *policy.Policy) (map[string]store, error) {
	var errs []error
	stores := map[string]store{}
	for _, f := range p.Fleets {
		one, warnings, err := readStore(f)
		if warnings != nil {
			s.log.Warn(warnings.Error())
		}
		if joined, ok := err.(interface{ Unwrap() []error }); ok {
			errs = append(errs, joined.Unwrap()...)
		}
		stores[f.Name] = one
	}
	return stores, errors.Join(errs...)
}

// enforce returns what the process has of each shared class, and puts it in force. A class whose
// store, algorithms and windows are what they were stays a member, also if it was gone. The caller gives the result to
// the classes, moves the sessions, and then calls leave with the others.
func (s *fleets) enforce(stores map[string]store, classes []policy.Class) (all map[string]shaper.Member, old []*membership) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stores = stores
	maps.DeleteFunc(s.called, func(fleet string, _ calls) bool { _, is := stores[fleet]; return !is })
	for _, one := range s.calling {
		one.reach(stores)
	}
	memberships := map[string]*membership{}
	for _, c := range classes {
		if c.Shared == "" {
			continue
		}
		of, wanted := stores[c.Shared], shaper.Limits(c)
		one := cmp.Or(s.memberships[c.Name], s.stay[c.Name])
		if was := one; was == nil || was.name != s.names.base || !was.store.same(&of) || !was.fits(wanted) {
			one = s.join(c.Name, of, wanted)
			one.pauseLike(was)
		}
		if memberships[c.Name] = one; all == nil {
			all = map[string]shaper.Member{}
		}
		all[c.Name] = one
	}
	for name, was := range s.memberships {
		if memberships[name] != was {
			old = append(old, was)
		}
	}
	for name, was := range s.stay {
		if memberships[name] != nil { // the class has come back
			delete(s.stay, name)
		}
		if memberships[name] != nil && memberships[name] != was {
			old = append(old, was)
		}
	}
	s.memberships = memberships
	return all, old
}

// leave ends memberships. It does not wait for the store. A class that is gone stays a member while somebody is in it: otherwise
// this process would let out as much of it as all members together may.
func (s *fleets) leave(old []*membership) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range old {
		s.leaveUnused(one)
	}
	s.lookLater()
}

// leaveUnused ends the memberships of a class that nobody uses. The lock is held.
func (s *fleets) leaveUnused(one *membership) {
	if s.unshare(one) {
		if s.stay == nil {
			s.stay = map[string]*membership{}
		}
		s.stay[one.class] = one
		return
	}
	delete(s.stay, one.class)
	s.end(one)
}

// end ends the memberships of a class.
func (s *fleets) end(one *membership) {
	s.leaving.Go(func() {
		var members sync.WaitGroup
		for _, m := range one.members {
			members.Go(func() { m.Close(s.patient) })
		}
		members.Wait()
		s.keepCalls(one)
	})
}

// keepCalls keeps what members that have left have called: the totals of a fleet never go back while the policy has it.
func (s *fleets) keepCalls(one *membership) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calling = slices.DeleteFunc(s.calling, func(m *membership) bool { return m == one })
	fleet := one.store.conf.Name
	if _, is := s.stores[fleet]; !is {
		return
	}
	s.called[fleet] = s.called[fleet].plus(one.calls())
}

// callsOf returns all calls to the store of a fleet. The lock is held.
func (s *fleets) callsOf(fleet string) calls {
	n := s.called[fleet]
	for _, one := range s.calling {
		if one.store.conf.Name == fleet {
			n = n.plus(one.calls())
		}
	}
	return n
}

// lookAgain is how long a class that is gone may stay a member although nobody uses it any more.
const lookAgain = time.Second

// lookLater looks whether somebody is in the classes that are gone, in a while and then again. The lock is held.
func (s *fleets) lookLater() {
	switch {
	case len(s.stay) == 0:
	case s.looks != nil:
		s.looks.Reset(lookAgain)
	default:
		s.looks = time.AfterFunc(lookAgain, s.look)
	}
}

// look ends the memberships of the classes that are gone and that nobody uses any more.
func (s *fleets) look() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range s.stay {
		s.leaveUnused(one)
	}
	s.lookLater()
}

// farewell is how long a process that ends waits for a store that does not hear its members. A store that has just come back empty
// hears only after 1.5 s what they have used of their shares, and until then they do not leave.
const farewell = 2 * time.Second

// close ends all memberships. It takes at most farewell.
func (s *fleets) close() {
	s.mu.Lock()
	for _, one := range s.memberships {
		s.end(one)
	}
	for _, one := range s.stay {
		s.end(one)
	}
	s.memberships, s.stay = nil, nil
	s.mu.Unlock()
	defer time.AfterFunc(farewell, s.hurry).Stop()
	s.leaving.Wait()
}

// of returns what the process has of a class; nil if that is not shared.
func (s *fleets) of(class string) *membership {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.memberships[class]
}

// mark says where the budget of a class lives.
func (s *fleets) mark(c *stats.ClassReading) {
	if one := s.of(c.Name); one != nil {
		c.Shared, c.Mode = one.store.conf.Name, one.mode().String()
	}
}

// read returns all fleets that some class uses, in the order of their names.
func (s *fleets) read() (all []stats.FleetReading) {
	s.mu.Lock()
	defer s.mu.Unlock()
	byName := map[string]*stats.FleetReading{}
	for _, class := range slices.Sorted(maps.Keys(s.memberships)) {
		one := s.memberships[class]
		r := byName[one.store.conf.Name]
		if r == nil {
			r = &stats.FleetReading{Name: one.store.conf.Name, Addresses: one.store.conf.Address, Up: true}
			byName[r.Name] = r
		}
		for i := range one.members {
			one.read(i, r)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		r, n := byName[name], s.callsOf(name)
		r.Calls, r.Failures = n.all, n.failed
		all = append(all, *r)
	}
	return all
}

// readPeers is read with what the stores say of all members. It asks all stores at once, and takes at
// most the deadline of a call.
func (s *fleets) readPeers(ctx context.Context) []stats.FleetReading {
	all := s.read()
	var asked sync.WaitGroup
	for _, f := range all {
		for i := range f.Classes {
			r := &f.Classes[i]
			if m := s.member(r.Class, r.Member); m != nil && r.Mode == fleet.FromStore.String() {
				asked.Go(func() { r.Peers = readPeersOf(ctx, m) })
			}
		}
	}
	asked.Wait()
	for i := range all {
		all[i].Shapers = shapersOf(&all[i])
	}
	return all
}

// member returns the member of a name; nil if it has just left.
func (s *fleets) member(class, name string) *fleet.Member {
	if one := s.of(class); one != nil {
		for _, m := range one.members {
			if m.Name() == name {
				return m
			}
		}
	}
	return nil
}

// readPeersOf returns all members of the class of a member; none if the store does not answer.
func readPeersOf(ctx context.Context, m *fleet.Member) (all []stats.PeerReading) {
	peers, _ := m.Peers(ctx)
	for _, p := range peers {
		all = append(all, stats.PeerReading{Name: p.Name, Share: p.Share, Age: stats.Seconds(p.Age), Seen: stats.Seconds(p.Seen), Silent: p.Silent, Deadline: stats.Seconds(p.Deadline)})
	}
	return all
}

// join makes the process a member of a class: of each of its limits. The lock is held.
func (s *fleets) join(class string, of store, all []shaper.Limit) *membership {
	one := &membership{class: class, name: s.names.base, store: of, since: time.Now()}
	one.limits.Store(&all)
	s.calling = append(s.calling, one)
	for i, limit := range limits.All(class, all, of.conf) {
		reach, err := fleet.NewStore(of.reach)
		if err == nil {
			var m *fleet.Member
			name, ledger := s.names.of(i, &limit)
			m, err = fleet.Join(limit, name, limits.Fallback(of.conf.Fallback, i), reach, ledger, func(key string) { s.tell(class, key) })
			one.members = append(one.members, m)
		}
		if err != nil { // the policy was checked
			panic(fmt.Sprintf("daemon: joining the fleet of class %s: %v", class, err))
		}
		one.members[i].Watch(func(was, is fleet.Status, err error) {
			if is.Mode != was.Mode || err != nil {
				s.logMode(one, i, is.Mode, err)
			}
			if is.Shortest != was.Shortest || is.Longest != was.Longest {
				s.logDeadlines(one, i, &was, &is)
			}
		})
	}
	s.log.Info("joined a fleet", "class", class, "fleet", of.conf.Name, "limits", len(all))
	return one
}

// logMode logs that the budget of a class comes from somewhere else than before, or that the store is away for another reason.
func (s *fleets) logMode(one *membership, i int, mode fleet.Mode, err error) {
	args := []any{"class", one.class, "limit", one.limit(i).Rate.String(), "fleet", one.store.conf.Name, "mode", mode.String()}
	switch mode {
	case fleet.FromStore:
		s.log.Info("the store is back", args...)
	case fleet.OnShare:
		s.log.Warn("the store is away: this shaper has its share, or the fallback", append(args, "err", err)...)
	default:
		s.log.Warn("the store is away: nothing leaves", append(args, "err", err)...)
	}
}

// logDeadlines logs that the members of a class have different deadlines, and that they have one again.
func (s *fleets) logDeadlines(one *membership, i int, was, is *fleet.Status) {
	args := []any{"class", one.class, "limit", one.limit(i).Rate.String(), "fleet", one.store.conf.Name, "shortest", is.Shortest}
	switch {
	case is.Shortest < is.Longest:
		s.log.Warn("shapers of a fleet have different deadlines: the shortest holds for all", append(args, "longest", is.Longest)...)
	case was.Shortest < was.Longest:
		s.log.Info("all shapers of a fleet have the same deadline", args...)
	}
}
