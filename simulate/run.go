package simulate

import (
	"math"
	"net/netip"
	"time"

	"shaper/policy"
	"shaper/shaper"
)

// A run is a simulation in progress. A sender sends an item, as a parcel or as a message of a
// link. The item enters its class, and the tree of that class lets it go.
type run struct {
	Options
	policy     *policy.Policy
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
	agenda       agenda
	changes      time.Time // when the schedule of a class changes it; zero: never
	start, end   time.Time
	now          time.Time
	freeParcels  *parcel
	freeMessages *message // messages that may be used again
	unsaid       bool     // rules look at messages, and an arrival does not say what they look at
	err          error    // from Departures, or from a source
}

func newRun(p *policy.Policy, sources []Source, o Options) (*run, error) {
	r := &run{Options: o, policy: p, classifier: policy.Compile(p), protocols: map[string]policy.Protocol{},
		sessions: map[session]uint64{}, binds: map[string][]netip.Addr{}, bound: map[policy.Conn]netip.Addr{}}
	for _, l := range p.Listeners {
		r.protocols[l.Name], r.binds[l.Name] = l.Protocol, l.Bind
	}
	first := time.Time{}
	for i, source := range sources {
		s := &sender{Source: source, run: r}
		s.rank, s.do = len(p.Classes)+i, s.send
		if err := s.read(); err != nil {
			return nil, err
		}
		if s.place > 0 && (first.IsZero() || s.at.Before(first)) {
			first = s.at
		}
		r.senders = append(r.senders, s)
	}
	r.start = first.Truncate(time.Second)
	r.now = r.start
	r.end = r.start.Add(math.MaxInt64) // 292 years; what leaves later never does
	if o.For > 0 {
		r.end = r.start.Add(o.For)
	}
	r.makeClasses()
	return r, nil
}

// makeClasses makes the classes of the policy.
func (r *run) makeClasses() {
	r.byName = make(map[string]*class, len(r.policy.Classes))
	trees := map[*shaper.Class]*tree{}
	scheduled, changes := r.policy.Scheduled(r.start)
	r.changes = changes
	for i, made := range shaper.NewTree(r.start, scheduled.Classes) {
		root := made
		for root.Parent() != nil {
			root = root.Parent()
		}
		if trees[root] == nil {
			t := &tree{root: root}
			t.rank, t.do = len(trees), func() error { return r.release(t) }
			trees[root] = t
		}
		c := &class{Class: made, conf: r.policy.Classes[i], tree: trees[root]}
		c.tally.kind = c.conf.Rate.Kind()
		r.classes = append(r.classes, c)
		r.byName[c.conf.Name] = c
	}
	for _, c := range r.classes {
		c.parent = r.byName[c.conf.Parent]
	}
}

// run does all events in the order of time. At one moment, items leave before others arrive.
func (r *run) run() error {
	for e := r.agenda.first(); e != nil && e.at.Before(r.end); e = r.agenda.first() {
		if !r.changes.IsZero() && !r.changes.After(e.at) {
			r.reschedule()
			continue
		}
		r.now = e.at
		if err := e.do(); err != nil {
			return err
		}
	}
	return nil
}

// reschedule puts in force what schedules change now.
func (r *run) reschedule() {
	r.now = r.changes
	scheduled, changes := r.policy.Scheduled(r.now)
	r.changes = changes
	for i, c := range r.classes {
		if c.conf.HasSchedule() {
			c.Set(r.now, scheduled.Classes[i])
			r.expect(c.tree)
		}
	}
}
