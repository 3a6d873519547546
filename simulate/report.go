package simulate

import (
	"fmt"
	"time"

	"shaper/policy"
	"shaper/stats"
	"shaper/unit"
)

// A Report is the result of a simulation.
type Report struct {
	Policy string `json:"policy"` // the file's path
	Hash   string `json:"policy_hash"`
	// Period is how long the simulation took in virtual time, from start. Rates and utilisation
	// are averages over it, and over what the last item to leave takes of the limit if that is
	// longer: 3 items at 0, 50 and 100 ms are 20 a second, and not 30.
	Period  stats.Seconds `json:"seconds"`
	start   time.Time
	Classes []Class  `json:"classes"` // in the order of the policy
	Notes   []string `json:"notes"`   // what was not simulated, and why
	// Of a fleet: Classes has what all members did together, and Members what each of them did.
	Members    []*Report     `json:"members,omitempty"`
	StoreDelay stats.Seconds `json:"store_delay_seconds,omitempty"`
}

// Class says what a class and all beneath it did.
//
// Each offered item has left, was dropped, was refused, or waits at the end.
type Class struct {
	Name        string                             `json:"name"`
	Parent      string                             `json:"parent,omitempty"`
	Algorithm   string                             `json:"algorithm"`
	Limit       stats.RateReading                  `json:"limit"` // the rate, or the ceil if the class has one
	Offered     Amount                             `json:"offered"`
	Left        Amount                             `json:"left"`
	Dropped     map[stats.Reason]stats.LossReading `json:"dropped"` // datagrams
	Refused     map[stats.Reason]stats.LossReading `json:"refused"` // connections, messages, and pieces of streams
	Waiting     Amount                             `json:"waiting"` // at the end
	MostWaiting Amount                             `json:"most_waiting"`
	// How long the items that left had waited. Quantiles are up to 9.1 % too long, as in
	// `shaper classes`; the maximum is exact.
	WaitP50     stats.Seconds     `json:"wait_p50_seconds"`
	WaitP99     stats.Seconds     `json:"wait_p99_seconds"`
	WaitMax     stats.Seconds     `json:"wait_max_seconds"`
	Reached     stats.RateReading `json:"rate_reached"`
	Utilisation float64           `json:"utilisation"` // the rate reached divided by the limit; 0 if the limit is 0

	Shared *Shared `json:"shared,omitempty"` // nil: there is no fleet, or the class is not shared

	curve *curve
	level *level
	kind  unit.Kind
}

// Shared says what the members of a fleet did with a shared class, or what one of them did.
type Shared struct {
	Gap            *stats.Seconds `json:"smallest_gap_seconds"` // between two departures; null: there were no two, or each key has its own
	CallsPerSecond float64        `json:"store_calls_per_second"`
}

// Class returns the class with a name.
func (r *Report) Class(name string) (Class, bool) {
	for _, c := range r.Classes {
		if c.Name == name {
			return c, true
		}
	}
	return Class{}, false
}

// Course returns what the class did over time, in at most 1024 steps. It is empty if the class was
// offered nothing, or if the run had no Curves.
func (c *Class) Course() Course {
	course := c.curve.course()
	if c.level != nil {
		course.LevelStep, course.Level = stats.Seconds(c.level.step), c.level.tokens
	}
	return course
}

func newReport(p *policy.Policy, start time.Time, period time.Duration) *Report {
	return &Report{start: start, Policy: p.Path, Hash: p.Hash, Period: stats.Seconds(period), Classes: []Class{}, Notes: []string{}}
}

// add adds what classes did, of so many members of a fleet; 0: there is none.
func (r *Report) add(classes []*class, members int) {
	for _, c := range classes {
		one := c.report(r.start, time.Duration(r.Period))
		if c.conf.Shared == "" {
			one.Utilisation /= float64(max(members, 1))
		} else if members > 0 {
			one.Shared = c.shared(time.Duration(r.Period))
		}
		r.Classes = append(r.Classes, one)
	}
}

// shared returns what a fleet did with the class.
func (c *class) shared(period time.Duration) *Shared {
	s := &Shared{}
	if period > 0 {
		s.CallsPerSecond = float64(c.calls) / period.Seconds()
	}
	if c.departed.Items > 1 && c.conf.Per == (policy.Per{}) {
		gap := stats.Seconds(c.gap)
		s.Gap = &gap
	}
	return s
}

func (c *class) report(start time.Time, period time.Duration) Class {
	limit, waits := c.conf.Limit(), c.waits.Read()
	quantile := func(q float64) stats.Seconds { return stats.Seconds(min(waits.Quantile(q), c.longest)) }
	reached, seconds := 0., period.Seconds()
	if c.departed.Items > 0 && !limit.IsZero() {
		seconds = max(seconds, c.last.Sub(start).Seconds()+float64(c.lastCost)/limit.PerSecond())
	}
	if seconds > 0 {
		reached = float64(c.departed.units) / seconds
	}
	r := Class{
		Name: c.conf.Name, Parent: c.conf.Parent, Algorithm: string(c.conf.Algorithm),
		Limit:   stats.RateReading{Text: limit.String(), PerSecond: limit.PerSecond(), Unit: c.kind.String()},
		Offered: c.offered, Left: c.departed, Waiting: c.waiting, MostWaiting: c.most,
		Dropped: c.dropped.read(), Refused: c.refused.read(),
		WaitP50: quantile(0.50), WaitP99: quantile(0.99), WaitMax: stats.Seconds(c.longest),
		Reached: stats.RateReading{Text: limit.Like(reached), PerSecond: reached, Unit: c.kind.String()},
		curve:   c.curve, level: c.level, kind: c.kind,
	}
	if !limit.IsZero() {
		r.Utilisation = reached / limit.PerSecond()
	}
	return r
}

// read returns the losses for every reason, including those without any.
func (l *lost) read() map[stats.Reason]stats.LossReading {
	all := map[stats.Reason]stats.LossReading{}
	for reason, a := range l {
		all[stats.Reason(reason)] = stats.LossReading{Items: a.Items, Bytes: a.Bytes}
	}
	return all
}

// LeftOut says which keys of a policy a simulation does not obey, and why. It returns nothing
// if it obeys all. A fleet obeys shared, a single shaper does not.
func LeftOut(p *policy.Policy, fleet bool) (notes []string) {
	for _, c := range p.Classes {
		note := func(uses bool, key, why string) {
			if uses {
				notes = append(notes, fmt.Sprintf("class.%s.%s is not simulated: %s", c.Name, key, why))
			}
		}
		note(c.InFlight > 0, "in_flight", "nobody answers")
		note(c.OnThrottle != policy.OnThrottle{}, "on_throttle", "no provider says that the client is too fast")
		note(c.Adapt, "adapt", "no provider says that the client is too fast")
		note(c.Learn != policy.Learn{}, "learn", "no provider says that the client is too fast")
		note(c.Retry != policy.Retry{}, "retry", "no provider says that the client is too fast")
		note(c.ThrottledBy != nil, "throttled_by", "nobody answers")
		note(c.Hints, "hints", "no provider says how much remains of its limit")
		note(c.MaxConnections > 0, "max_connections", "how long a session stays open is not known")
		note(c.Shared != "" && !fleet, "shared", "the class has its whole budget, as if no other shaper sent; --members simulates a fleet")
		note(c.Per.Has(policy.ByUser) || c.Per.Has(policy.ByServerName), "per", "no client says anything at an entry")
		note(c.Shadow, "shadow", "what the class would do is not computed, and it limits nothing")
	}
	for i, r := range p.Rules {
		if len(r.User)+len(r.ServerName) > 0 {
			notes = append(notes, fmt.Sprintf("rule[%d] matches nothing: no client says anything at an entry", i+1))
		}
	}
	return notes
}
