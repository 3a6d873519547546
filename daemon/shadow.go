package daemon

import (
	"fmt"
	"net/http"
	"sync"
	"time"

	"shaper/policy"
	"shaper/shaper"
	"shaper/stats"
)

// Shadow is a policy that runs beside the one in force, on copies of its traffic. It computes
// what the policy would do and does nothing of it.
type Shadow struct {
	File     string        `json:"file"` // "": no policy runs in the shadow
	Hash     string        `json:"hash,omitempty"`
	Since    time.Time     `json:"since,omitzero"`
	By       string        `json:"by,omitempty"` // who started it
	Warnings policy.Errors `json:"warnings"`
	Notes    []string      `json:"notes"`   // what the numbers leave out
	Classes  []Divergence  `json:"classes"` // in the order of the file
}

// Divergence is what a class of the policy in the shadow would have done since that began,
// and what the class of the same name in force has done in that time.
type Divergence struct {
	Name   string            `json:"name"`
	Parent string            `json:"parent,omitempty"`
	Rate   stats.RateReading `json:"rate"` // its ceil, or its rate if it has no ceil
	stats.ShadowReading
	Live *Live `json:"live,omitempty"` // nil: the policy in force has no such class
}

// Live is what a class in force has done while the policy ran in the shadow.
type Live struct {
	Rate    stats.RateReading `json:"rate"`
	Delayed uint64            `json:"delayed"`
	Dropped uint64            `json:"dropped"` // dropped or refused
	WaitP50 stats.Seconds     `json:"wait_p50_seconds"`
	WaitP99 stats.Seconds     `json:"wait_p99_seconds"`
}

// candidate is the policy in the shadow, if there is one. mu guards all of it, and comes before
// the locks of conn and shaper.
type candidate struct {
	mu     sync.Mutex
	force  *shaper.Shaper // what is in force beside it
	shadow Shadow
	trial  *shaper.Trial
	before map[string]stats.ClassReading // the classes in force when it began, by name
}

func (d *daemon) serveShadow(caller, *http.Request) (any, error) {
	d.candidate.mu.Lock()
	defer d.candidate.mu.Unlock()
	return d.candidate.read(), nil
}

// read returns the reading of the candidate; the zero one if there is none. The caller holds mu.
func (c *candidate) read() Shadow {
	s, now := c.shadow, time.Now()
	s.Classes, s.Notes, s.Warnings = []Divergence{}, append([]string{}, s.Notes...), append(policy.Errors{}, s.Warnings...)
	if s.File == "" {
		return s
	}
	c.trial.CatchUp(now)
	for _, class := range c.trial.Classes() {
		s.Classes = append(s.Classes, c.divergence(class))
	}
	if note := c.notePauses(); note != "" {
		s.Notes = append(s.Notes, note)
	}
	return s
}

// notePauses returns a note if providers have said "too fast" since the candidate began; else "".
// They might not have said so to what the candidate would have sent. The caller holds mu.
func (c *candidate) notePauses() string {
	n := uint64(0)
	for _, class := range c.force.Classes() {
		if class.Parent() != nil { // its parent counts the same signals
			continue
		}
		for signal, now := range class.Stats.Throttled.Read() {
			n += growth(now, c.before[class.Name()].Throttled[signal])
		}
	}
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("providers have said \"too fast\" %d times: the shadow computes no pauses, and neither adapt nor learn nor retry", n)
}

// noteListeners returns a note for each listener of a policy that gets no copies.
func noteListeners(p, inForce *policy.Policy) (notes []string) {
	for _, l := range p.Listeners {
		live, ok := inForce.Listener(l.Name)
		switch {
		case !ok:
			notes = append(notes, fmt.Sprintf("listener %q is not in force and gets no copies", l.Name))
		case live.Protocol != l.Protocol:
			notes = append(notes, fmt.Sprintf("listener %q is in force with protocol %q, not %q, and gets no copies", l.Name, live.Protocol, l.Protocol))
		}
	}
	return notes
}

// divergence reads a class of the candidate, and the class of the same name in force. The
// caller holds mu.
func (c *candidate) divergence(class *shaper.Class) Divergence {
	conf := class.Policy()
	one := Divergence{Name: conf.Name, Parent: conf.Parent, Rate: readRate(conf.Limit()), ShadowReading: class.Stats.ReadShadow()}
	if live := c.force.Class(conf.Name); live != nil {
		one.Live = since(readClass(live, time.Now(), shaper.Waiting{}), c.before[conf.Name])
	}
	return one
}

// since returns what a class has done between the reading before and the reading c.
func since(c, before stats.ClassReading) *Live {
	wait := c.Wait.Since(before.Wait)
	l := &Live{Rate: c.Rate, Delayed: growth(c.Overlimits, before.Overlimits), Dropped: growth(lostToLimits(c), lostToLimits(before)),
		WaitP50: stats.Seconds(wait.Quantile(0.50)), WaitP99: stats.Seconds(wait.Quantile(0.99))}
	if c.Ceil != nil {
		l.Rate = *c.Ceil
	}
	return l
}

// growth returns by how much a counter has grown. If it is smaller than before, the class is a
// new one whose counter began at 0.
func growth(now, before uint64) uint64 {
	if before > now {
		return now
	}
	return now - before
}

// lostToLimits returns how many items a class has dropped or refused because of its limits: a
// full queue or max_wait.
func lostToLimits(c stats.ClassReading) (n uint64) {
	for _, reason := range []stats.Reason{stats.QueueFull, stats.MaxWait} {
		n += c.Dropped[reason].Items + c.Refused[reason].Items
	}
	return n
}

// serveStartShadow starts a policy in the shadow. It replaces one that runs there.
func (d *daemon) serveStartShadow(by caller, r *http.Request) (any, error) {
	ask, err := policyText(r)
	if err != nil {
		return nil, err
	}
	p, warnings, err := ask.parseAs(ask.File)
	if err != nil {
		return nil, err
	}
	d.candidate.mu.Lock()
	defer d.candidate.mu.Unlock()
	changes := append(d.candidate.shadow.changes("-"), d.candidate.start(d, by, p, warnings).changes("+")...)
	d.keeper.note(by, Record{What: "shadow started", Changes: changes})
	return d.candidate.read(), nil
}

// start makes a policy the candidate, and returns its shadow. The caller holds mu.
func (c *candidate) start(d *daemon, by caller, p *policy.Policy, warnings policy.Errors) Shadow {
	now := time.Now()
	c.shadow = Shadow{File: p.Path, Hash: p.Hash, Since: now, By: by.String(), Warnings: warnings,
		Notes: noteListeners(p, d.keeper.view.Load().policy)}
	c.trial, c.before = shaper.NewTrial(now, p.Classes), map[string]stats.ClassReading{}
	for _, class := range c.force.Classes() {
		c.before[class.Name()] = readClass(class, now, shaper.Waiting{})
	}
	d.server.Shadow(p, c.trial)
	return c.shadow
}

// serveStopShadow ends the policy in the shadow and returns its last reading.
func (d *daemon) serveStopShadow(by caller, _ *http.Request) (any, error) {
	c := &d.candidate
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.shadow.File == "" {
		return nil, &Error{Code: CodeState, Message: "no policy runs in the shadow"}
	}
	last := c.read()
	d.server.Shadow(nil, nil)
	d.keeper.note(by, Record{What: "shadow stopped", Changes: c.shadow.changes("-")})
	c.shadow, c.trial, c.before = Shadow{}, nil, nil
	return last, nil
}

// changes returns that the policy begins ("+") or ends ("-") to run; nothing if there is none.
func (s Shadow) changes(op string) []policy.Change {
	if s.File == "" {
		return nil
	}
	c := policy.Change{Op: op, What: "shadow", Name: s.File}
	if c.New = s.Hash; op == "-" {
		c.Old, c.New = s.Hash, ""
	}
	return []policy.Change{c}
}

// String returns the file and hash of the policy.
func (s Shadow) String() string { return fmt.Sprintf("%s  %s", s.File, s.Hash) }
