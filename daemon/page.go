package daemon

import (
	"context"
	"net"
	"slices"
	"strings"
	"time"

	"shaper/policy"
	"shaper/shaper"
	"shaper/stats"
	"shaper/web"
)

// page is the daemon as the dashboard and `shaper top` see it. It implements [web.Source] with what the control
// socket answers, without what may be secret: whoever reaches daemon.http sees it.
type page struct{ d *daemon }

// Hosts returns the names in daemon.http_hosts, and that in daemon.http.
func (p page) Hosts() []string {
	conf := p.d.keeper.view.Load().policy.Daemon
	own, _, _ := net.SplitHostPort(conf.HTTP)
	if own == "" {
		return conf.HTTPHosts
	}
	return append(slices.Clone(conf.HTTPHosts), strings.ToLower(own))
}

// Summary stands above each view of the dashboard.
type Summary struct {
	Version    string    `json:"version"`
	State      string    `json:"state"`
	Started    time.Time `json:"started"`
	PolicyHash string    `json:"policy_hash"`
	ReloadOK   bool      `json:"reload_ok"` // the last one
	Sessions   int64     `json:"sessions"`  // open now
}

// Summary implements [web.Source].
func (p page) Summary() any {
	v := p.d.keeper.view.Load()
	s := Summary{Version: p.d.Version, State: p.d.state(), Started: p.d.started, PolicyHash: v.policy.Hash, ReloadOK: v.outcome.OK}
	for _, l := range p.d.server.Listeners() {
		s.Sessions += l.Open
	}
	return s
}

// Classes implements [web.Source].
func (p page) Classes() []web.Class {
	now, live, set := time.Now(), p.d.shaper.Classes(), p.d.keeper.view.Load().setClasses()
	waiting := p.d.shaper.Waiting(now, nil)
	all := make([]web.Class, len(live))
	for i, c := range live {
		all[i] = rowOf(c, p.d.meter.rate(c), now, waiting[c])
		all[i].Set = set[c.Name()]
	}
	return all
}

// Samples implements [web.Source].
func (p page) Samples() []web.Sample { return samplesOf(p.d.shaper.Classes()) }

// samplesOf reads a few counters of each class, and no more: it is called all the time.
func samplesOf(live []*shaper.Class) []web.Sample {
	all := make([]web.Sample, len(live))
	for i, c := range live {
		kind := c.Rate().Kind()
		dropped, refused := c.Stats.Lost()
		all[i] = web.Sample{Name: c.Name(), Unit: kind.String(), Sent: amountIn(sentBy(c), kind), Lost: dropped + refused, Items: c.Backlog().Items}
	}
	return all
}

// rowOf returns a class as the tree shows it. perSecond is what it sent in the last second, and waiting what waits in it and
// beneath it. It reads no more than the tree shows: a page asks for all classes, again and again.
func rowOf(c *shaper.Class, perSecond float64, now time.Time, waiting shaper.Waiting) web.Class {
	conf := c.Policy().Shown(now)
	limit, backlog, waits := conf.Limit(), c.Backlog(), c.Stats.Wait.Read()
	row := web.Class{
		Name: conf.Name, Parent: conf.Parent, Rate: conf.Rate.String(), Shadow: conf.Shadow, Now: c.Rate().Like(perSecond),
		Items: backlog.Items, Bytes: backlog.Bytes, Oldest: stats.Seconds(waiting.Oldest), WaitsFor: waiting.For,
		P50: stats.Seconds(waits.Quantile(0.50)), P99: stats.Seconds(waits.Quantile(0.99)), Drain: stats.Seconds(waiting.Drain),
		Throttled: c.Stats.Throttled.Sum(),
	}
	if limit != conf.Rate {
		row.Ceil = limit.String()
	}
	if limit := limit.PerSecond(); limit > 0 {
		row.Load = perSecond / limit
	}
	row.Dropped, row.Refused = c.Stats.Lost()
	if conf.Rate.Kind().OfMessages() {
		row.PausedUntil, _ = c.Provider().Signals(now)
	}
	return row
}

// Class implements [web.Source].
func (p page) Class(name string) (reading any, why string, ok bool) {
	w, ok := p.d.why(name)
	class := p.d.shaper.Class(name)
	if !ok || class == nil {
		return nil, "", false
	}
	return p.d.readClasses([]*shaper.Class{class}, class)[0], w.String(), true
}

// list is a list that may be cut.
type list[T any] struct {
	Total int `json:"total"`
	Rows  []T `json:"rows"`
}

// mostSessions bounds the sessions that the dashboard shows.
const mostSessions = 500

// List implements [web.Source].
func (p page) List(name string) any {
	switch name {
	case "sessions":
		rows, open := p.d.server.Busiest(mostSessions)
		return list[Session]{open, append([]Session{}, rows...)}
	case "upstreams":
		all := p.d.server.Upstreams()
		return list[Upstream]{len(all), append([]Upstream{}, all...)}
	case "fleet":
		all := p.d.engine.fleets.readPeers(context.Background()) // takes no longer than a call may
		for i := range all {
			for j := range all[i].Classes {
				all[i].Classes[j].Peers = nil // the page shows shapers
			}
		}
		return list[Fleet]{len(all), append([]Fleet{}, all...)}
	case "changes":
		return publicHistory(p.d.keeper.history.read())
	case "system":
		s := p.d.status()
		s.Classes, s.Warnings, s.Reload.Error = nil, nil, "" // the texts quote the policy
		return s
	}
	return nil
}

// publicHistory returns the changes, the latest first, without values that may be secret.
func publicHistory(all History) list[Record] {
	slices.Reverse(all)
	for i := range all {
		r := &all[i]
		r.Changes = slices.Clone(r.Changes)
		for j := range r.Changes {
			if c := &r.Changes[j]; !isPublic(*c) {
				c.Old, c.New = "", ""
			}
		}
		if r.Error != "" {
			r.Error = "shaper history says why"
		}
	}
	return list[Record]{len(all), all}
}

// isPublic reports whether the values of a change cannot be secret. A rule may hold the key of a client
// (header:NAME), and other sections name the files of passwords and private keys.
func isPublic(c policy.Change) bool {
	switch c.What {
	case "class", "tc":
		return true
	case "rule":
		return false
	}
	return c.Key != "" && !slices.Contains([]string{"users", "tls", "upstream_tls", "username", "password_file", "sentinel_username", "sentinel_password_file"}, c.Key)
}
