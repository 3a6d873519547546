package simulate

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"shaper/policy"
	"shaper/stats"
)

// A simulation is what happens in one virtual time: to one shaper, or to all members of a fleet.
type simulation struct {
	Options
	policy *policy.Policy
	runs   []*run
	stores *stores  // of a fleet; nil: there is none
	sums   []*class // what all members of a fleet do, in the order of the policy

	agenda      agenda
	changes     time.Time // when the schedule of a class changes it; zero: never
	start, end  time.Time
	now         time.Time
	lastArrival time.Time // the latest that was read
	lastLeft    time.Time // the latest departure; zero: there was none
	cut         bool      // it ended although items waited; see patience
}

// newSimulation returns a simulation that is about to begin. Each run has sources of its own.
func newSimulation(p *policy.Policy, o Options, sources [][]Source, stores *stores) (*simulation, error) {
	s := &simulation{Options: o, policy: p, stores: stores}
	for i, own := range sources {
		r, err := newRun(s, i, own)
		if err != nil {
			return nil, err
		}
		s.runs = append(s.runs, r)
	}
	s.begin()
	if stores != nil {
		for _, conf := range p.Classes {
			s.sums = append(s.sums, newClass(conf))
		}
	}
	scheduled, changes := p.Scheduled(s.start)
	s.changes = changes
	for _, r := range s.runs {
		r.makeClasses(scheduled.Classes)
	}
	return s, nil
}

// warmUp is how long the members of a fleet have known each other when the workload begins.
const warmUp = 5 * time.Second

// begin sets when the simulation begins and ends: it begins at a whole second.
func (s *simulation) begin() {
	if first := s.agenda.first(); first != nil {
		s.start = first.at.Truncate(time.Second)
	}
	s.now = s.start
	s.end = s.start.Add(math.MaxInt64) // 292 years; what leaves later never does
	if s.For > 0 {
		s.end = s.start.Add(s.For)
	}
	if s.stores != nil {
		s.now = s.start.Add(-warmUp)
	}
}

// play does all events in the order of time. At one moment, items leave before others arrive.
func (s *simulation) play() error {
	steps := 0
	for e := s.agenda.first(); e != nil && e.at.Before(s.end); e = s.agenda.first() {
		if steps++; s.MaxSteps > 0 && steps > s.MaxSteps {
			return ErrTooLong
		}
		if !s.changes.IsZero() && !s.changes.After(e.at) {
			s.reschedule()
			continue
		}
		s.watch(e.at)
		s.now = e.at
		if err := e.do(); err != nil {
			return err
		}
		if s.stores != nil && s.For == 0 && s.isOver() {
			return nil
		}
	}
	if s.For > 0 {
		s.watch(s.end)
	}
	return nil
}

// watch notes the levels of all token buckets until a time.
func (s *simulation) watch(until time.Time) {
	for _, r := range s.runs {
		r.watch(until)
	}
}

// patience is how long a simulated fleet goes on after the last arrival or departure, if something waits: a day may
// have 25 hours. It never comes to an end by itself, since its members keep in touch with the store.
const patience = 25 * time.Hour

// isOver reports whether nothing arrives any more, and nothing waits.
func (s *simulation) isOver() bool {
	for _, r := range s.runs {
		for _, sender := range r.senders {
			if !sender.ended {
				return false
			}
		}
	}
	for _, c := range s.sums {
		if c.waiting.Items > 0 {
			s.cut = s.now.Sub(s.lastArrival) > patience && s.now.Sub(s.lastLeft) > patience
			return s.cut
		}
	}
	return true
}

// reschedule puts in force what schedules change now.
func (s *simulation) reschedule() {
	s.watch(s.changes)
	s.now = s.changes
	scheduled, changes := s.policy.Scheduled(s.now)
	s.changes = changes
	for _, r := range s.runs {
		r.reschedule(scheduled.Classes)
	}
}

// report returns what the simulation has come to: that of its only run, or of a fleet.
func (s *simulation) report() *Report {
	period := s.now.Sub(s.start)
	if s.For > 0 {
		period = s.For
	}
	report := newReport(s.policy, s.start, period)
	report.Notes = append(report.Notes, LeftOut(s.policy, s.stores != nil)...)
	if slices.ContainsFunc(s.runs, func(r *run) bool { return r.unsaid }) {
		report.Notes = append(report.Notes, "rules look at messages, and the workload does not say what is in some of them: for these, "+strings.Join(policy.FieldNames(), ", ")+" are empty")
	}
	if s.cut {
		report.Notes = append(report.Notes, fmt.Sprintf("the simulation ended with items that wait, since none came or left for %d hours; --for makes it longer", int(patience.Hours())))
	}
	if s.stores == nil {
		report.add(s.runs[0].classes, 0)
		return report
	}
	report.add(s.sums, len(s.runs))
	report.StoreDelay = stats.Seconds(s.stores.delay)
	for _, r := range s.runs {
		own := newReport(s.policy, s.start, period)
		own.add(r.classes, 1)
		report.Members = append(report.Members, own)
	}
	return report
}
