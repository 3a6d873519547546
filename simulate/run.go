package simulate

import (
	"net/netip"
	"time"

	"shaper/policy"
	"shaper/shaper"
)

// A run is one shaper in a simulation: a member, if that is of a fleet. A sender sends an item, as a
// parcel or as a message of a link. The item enters its class, and the tree of that class lets it
// go.
type run struct {
	*simulation
	number     int // counted from 0
	member     int // of a fleet, counted from 1; 0: there is no fleet
	classifier *policy.Classifier
	protocols  map[string]policy.Protocol // by the name of the listener
	classes    []*class                   // in the order of the policy
	byName     map[string]*class
	senders    []*sender
	sessions   map[session]uint64         // numbers of connections, for classes with a bucket for each
	binds      map[string][]netip.Addr    // our addresses, by the name of the listener
	bound      map[policy.Conn]netip.Addr // those of connections, for classes with a bucket for each
	turn       int                        // of our addresses

	lastSession  uint64
	freeParcels  *parcel
	freeMessages *message // messages that may be used again
	unsaid       bool     // rules look at messages, and an arrival does not say what they look at
	err          error    // from Departures, or from a source
}

// newRun returns a run that has read the first arrivals. It has no classes yet.
func newRun(of *simulation, number int, sources []Source) (*run, error) {
	r := &run{simulation: of, number: number, classifier: policy.Compile(of.policy), protocols: map[string]policy.Protocol{},
		sessions: map[session]uint64{}, binds: map[string][]netip.Addr{}, bound: map[policy.Conn]netip.Addr{}}
	if r.stores != nil {
		r.member = number + 1
	}
	for _, l := range r.policy.Listeners {
		r.protocols[l.Name], r.binds[l.Name] = l.Protocol, l.Bind
	}
	for i, source := range sources {
		s := &sender{Source: source, run: r}
		s.rank, s.do = rankOf(ofSenders, number, i), s.send
		if err := s.read(); err != nil {
			return nil, err
		}
		r.senders = append(r.senders, s)
	}
	return r, nil
}

// makeClasses makes the classes of the policy, as schedules say it at the start. In a fleet, they
// join it.
func (r *run) makeClasses(scheduled []policy.Class) {
	r.byName = make(map[string]*class, len(r.policy.Classes))
	trees := map[*shaper.Class]*tree{}
	var members map[string]shaper.Member
	if r.stores != nil {
		members = r.join(scheduled)
	}
	for i, made := range shaper.NewSharedTree(r.start, scheduled, members) {
		root := made
		for root.Parent() != nil {
			root = root.Parent()
		}
		if trees[root] == nil {
			t := &tree{root: root}
			t.rank, t.do = rankOf(ofTrees, r.number, len(trees)), func() error { return r.release(t) }
			trees[root] = t
		}
		c := newClass(r.policy.Classes[i])
		c.Class, c.tree = made, trees[root]
		if r.stores != nil {
			c.sum = &r.sums[i].tally
		}
		r.classes = append(r.classes, c)
		r.byName[c.conf.Name] = c
	}
	for _, c := range r.classes {
		c.parent = r.byName[c.conf.Parent]
		if _, ok := c.Status().Tokens(r.start); ok && r.Curves && r.stores == nil {
			c.level = newLevel()
		}
	}
}

// watch notes the levels of all token buckets until a time, before anything happens then.
func (r *run) watch(until time.Time) {
	for _, c := range r.classes {
		if c.level == nil {
			continue
		}
		c.level.pass(until.Sub(r.start), func(after time.Duration) float64 {
			tokens, _ := c.Status().Tokens(r.start.Add(after))
			return tokens
		})
	}
}

// reschedule puts in force what schedules change now.
func (r *run) reschedule(scheduled []policy.Class) {
	for i, c := range r.classes {
		if c.conf.HasSchedule() {
			c.Set(r.now, scheduled[i])
			r.expect(c.tree)
		}
	}
}
