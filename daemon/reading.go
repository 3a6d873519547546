package daemon

import (
	"os"
	"path/filepath"
	"time"

	"shaper/conn"
	"shaper/policy"
	"shaper/shaper"
	"shaper/stats"
)

// The states of a daemon.
const (
	Running  = "running"
	Draining = "draining" // it accepts nothing, and open sessions go on
)

// Status is the whole daemon at one moment.
type Status struct {
	stats.Status
	PID      int           `json:"pid"`
	State    string        `json:"state"`
	Control  string        `json:"control"`              // the path of the control socket
	HTTP     string        `json:"http"`                 // the address of the dashboard, metrics and health, as bound; "" if they are off
	Rollback time.Time     `json:"rollback_at,omitzero"` // when the last reload is undone if nobody confirms it; zero: never
	Sets     []Set         `json:"sets"`                 // the sets over the policy file
	Warnings policy.Errors `json:"warnings"`             // of the policy file
}

// Class is a class at one moment.
type Class struct {
	stats.ClassReading
	Now stats.RateReading `json:"now"` // what it and those beneath it sent in the last whole second
	Set bool              `json:"set"` // `shaper set` has changed it
	// Schedule is what the class's schedule says now; nil if it has none.
	Schedule *Schedule `json:"schedule,omitempty"`
}

// Schedule is what the schedule of a class says at one moment.
type Schedule struct {
	Limit string    `json:"limit"`          // in force
	At    string    `json:"at,omitempty"`   // what holds, as `shaper check` prints it; "" if nothing does
	Until time.Time `json:"until,omitzero"` // when the limit changes; zero: never
}

// schedules returns what the schedules of a policy say at now, by class.
func schedules(p *policy.Policy, now time.Time) map[string]*Schedule {
	all := map[string]*Schedule{}
	for _, c := range p.Classes {
		if len(c.At) == 0 {
			continue
		}
		s := &Schedule{Limit: c.LimitAt(now).String()}
		if holds := c.InForce(now); holds != nil {
			s.At = holds.String()
		}
		s.Until = c.NextChange(now)
		all[c.Name] = s
	}
	return all
}

// Session is an open session.
type Session = conn.Session

// Upstream is an address of an upstream.
type Upstream = stats.UpstreamReading

// Fleet is a store that shapers share, as the daemon sees it.
type Fleet = stats.FleetReading

// status returns the state of the daemon with all classes.
func (d *daemon) status() Status {
	v := d.keeper.view.Load()
	s := Status{Status: d.reading(), PID: os.Getpid(), State: d.state(),
		Rollback: v.rollback, Sets: append([]Set{}, v.sets...), Warnings: append(policy.Errors{}, v.warnings...)}
	s.Control, s.HTTP = absolute(v.policy.Daemon.Control), d.engine.httpAddress()
	if s.State == Draining { // see keeper.expire
		s.Rollback = time.Time{}
	}
	return s
}

// state returns Running or Draining.
func (d *daemon) state() string {
	if d.draining.Load() {
		return Draining
	}
	return Running
}

// reading returns what the metrics show.
func (d *daemon) reading() stats.Status {
	v := d.keeper.view.Load()
	s := stats.Status{
		Version:    d.Version,
		Started:    d.started,
		Policy:     absolute(d.Path),
		PolicyHash: v.policy.Hash,
		Reload:     v.outcome,
		Listeners:  d.server.Listeners(),
	}
	now := time.Now()
	waiting := d.shaper.Waiting(now, nil)
	for _, c := range d.shaper.Classes() {
		s.Classes = append(s.Classes, readClass(c, now, waiting[c]))
	}
	s.Pacers = stats.ReadPacers(d.shaper.Lateness())
	s.Pacers.Punctual = d.shaper.Punctual()
	seen := d.engine.kernel.read()
	s.Kernel, s.Kept = seen.classes, seen.kept
	if s.Budgets = d.engine.readState(); s.Budgets.Path != "" {
		s.Budgets.Path = absolute(s.Budgets.Path)
	}
	s.Fleets = d.engine.fleets.read()
	for i := range s.Classes {
		d.engine.fleets.mark(&s.Classes[i])
	}
	waits := d.shaper.Backlog()
	s.Totals = stats.Total(waits.Items, waits.Bytes, d.shaper.Lost(), d.server.Carried())
	return s
}

// absolute returns an absolute path, or the path itself if the working directory is unknown.
func absolute(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return path
}

// classes returns all classes with their current rates, sorted by name.
func (d *daemon) classes() []Class { return d.readClasses(d.shaper.Classes(), nil) }

// readClasses returns some classes with their current rates, all of them at or beneath the class top if that is not nil.
func (d *daemon) readClasses(some []*shaper.Class, top *shaper.Class) []Class {
	v, at := d.keeper.view.Load(), time.Now()
	set, scheduled, waiting := v.setClasses(), schedules(v.policy, at), d.shaper.Waiting(at, top)
	all := make([]Class, 0, len(some)) // a reading is large
	for _, c := range some {
		limit, now := c.Rate(), d.meter.rate(c)
		reading := readClass(c, at, waiting[c])
		d.engine.fleets.mark(&reading)
		all = append(all, Class{
			ClassReading: reading,
			Now:          stats.RateReading{Text: limit.Like(now), PerSecond: now, Unit: limit.Kind().String()},
			Set:          set[c.Name()],
			Schedule:     scheduled[c.Name()],
		})
	}
	return all
}
