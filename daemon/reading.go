package daemon

import (
	"os"
	"path/filepath"
	"time"

	"shaper/conn"
	"shaper/policy"
	"shaper/shaper"
	"shaper/stats"
	"shaper/unit"
)

// The states of a daemon.
const (
	Running  = "running"
	Draining = "draining" // stopped accepting; open sessions go on
)

// Status is the whole daemon at one moment.
type Status struct {
	stats.Status
	PID      int           `json:"pid"`
	State    string        `json:"state"`
	Control  string        `json:"control"`              // the path of the control socket
	HTTP     string        `json:"http"`                 // where metrics are, as bound; "" if they are off
	Rollback time.Time     `json:"rollback_at,omitzero"` // when the last reload is undone unless confirmed
	Sets     []Set         `json:"sets"`                 // what was set over the policy file
	Warnings policy.Errors `json:"warnings"`             // of the policy file
}

// Class is a class at one moment.
type Class struct {
	stats.ClassReading
	Now stats.RateReading `json:"now"` // what it and those beneath it sent in the last whole second
	Set bool              `json:"set"` // it differs from the policy file by `shaper set`
}

// Session is an open session.
type Session = conn.Session

// Status returns what the daemon is doing.
func (d *daemon) status() Status {
	v := d.keeper.view.Load()
	s := Status{Status: d.reading(), PID: os.Getpid(), State: Running,
		Rollback: v.rollback, Sets: append([]Set{}, v.sets...), Warnings: append(policy.Errors{}, v.warnings...)}
	if d.draining.Load() {
		s.State = Draining
	}
	s.Control, s.HTTP = absolute(v.policy.Daemon.Control), d.sockets.httpAddress()
	return s
}

// reading is what the metrics are made of.
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
	for _, c := range d.shaper.Classes() {
		s.Classes = append(s.Classes, readClass(c))
	}
	s.Kernel = d.sockets.kernel.read()
	s.Totals = stats.Total(s.Classes, s.Listeners)
	return s
}

func absolute(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return path
}

// readClass reads the counters of a class and the policy that is in force for it.
func readClass(c *shaper.Class) stats.ClassReading {
	conf := c.Policy()
	now := time.Now()
	r := c.Stats.Read()
	r.Name, r.Algorithm = conf.Name, string(conf.Algorithm)
	backlog := c.Backlog()
	r.BacklogItems, r.BacklogBytes = backlog.Items, backlog.Bytes
	_, drain := c.Drain(now)
	r.Drain = stats.Seconds(drain)
	r.Sessions = c.Sessions()
	if conf.Rate.Kind() == unit.Messages {
		r.InFlight = c.InFlight()
		r.PausedUntil, r.Share = c.Feedback(now)
	}
	r.Per, r.Keys = conf.Per.String(), c.Keys(now)
	r.Parent, r.Priority, r.Weight = conf.Parent, conf.Priority, conf.Weight
	if shadow := c.Shadow(now); shadow != nil {
		would := shadow.ReadShadow()
		r.Shadow = &would
	}
	r.Rate = readRate(conf.Rate)
	if limit := conf.Limit(); limit != conf.Rate {
		ceil := readRate(limit)
		r.Ceil = &ceil
	}
	if conf.Algorithm.HasBurst() {
		r.Burst = conf.Burst.String()
	}
	if conf.Algorithm.HasWindow() {
		r.Window = unit.FormatDuration(conf.WindowInForce())
	}
	return r
}

func readRate(r unit.Rate) stats.RateReading {
	return stats.RateReading{Text: r.String(), PerSecond: r.PerSecond(), Unit: r.Kind().String()}
}

// classes reads all classes, with their current rates.
func (d *daemon) classes() []Class {
	set := d.keeper.view.Load().setClasses()
	all := []Class{}
	for _, c := range d.shaper.Classes() {
		limit, now := c.Rate(), d.meter.rate(c)
		all = append(all, Class{
			ClassReading: readClass(c),
			Now:          stats.RateReading{Text: limit.Like(now), PerSecond: now, Unit: limit.Kind().String()},
			Set:          set[c.Name()],
		})
	}
	return all
}
