package upstream

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"shaper/policy"
	"shaper/stats"
)

// A Group is the upstreams of a listener, through all reloads. Any number of goroutines may use
// it.
type Group struct {
	GroupConfig

	mu      sync.Mutex // guards the fields below, and those of entries and targets that say so; that of Names comes after it
	set     *Set       // in force
	checker *checker   // nil: nothing is checked
	resting bool       // since Set or Rest, until Start
}

// GroupConfig is what a group works with.
type GroupConfig struct {
	Names *Names
	Log   *slog.Logger
	Dial  Dial            // of checks
	Ctx   context.Context // ends the checks
	Wait  *sync.WaitGroup // of the goroutines of checks
}

// Dial connects to an address of an upstream for a check, with TLS if the listener has it.
type Dial func(ctx context.Context, upstream string, to netip.AddrPort) (net.Conn, error)

// A Set is the upstreams of a listener as one policy has them. Nobody changes it.
type Set struct {
	group   *Group
	conf    *policy.Listener
	entries []*entry
	chooses bool // sessions do not simply try one after the other
}

// NewGroup returns a group without upstreams; Set gives it some.
func NewGroup(c GroupConfig) *Group { return &Group{GroupConfig: c} }

// Set puts the upstreams of a listener in force. What is known of an address stays. Checks rest until Start.
func (g *Group) Set(l *policy.Listener) *Set {
	g.mu.Lock()
	defer g.mu.Unlock()
	before := g.set
	s := &Set{group: g, conf: l, chooses: l.Health != policy.Health{}}
	switch l.Balance {
	case policy.RoundRobin, policy.LeastConnections, policy.LeastInFlight:
		s.chooses = true
	}
	for i, upstream := range upstreamsOf(l) {
		e := before.entry(upstream, s.entries)
		e.weight = l.WeightOf(i)
		s.entries = append(s.entries, e)
		s.chooses = s.chooses || isService(upstream)
	}
	g.set = s
	g.rest()
	if s.chooses {
		for _, e := range s.entries {
			g.renew(e)
		}
	}
	return s
}

// Start lets the checks begin. The caller has made ready what Dial needs for the upstreams in force.
func (g *Group) Start() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.resting = false; g.set.chooses {
		g.startChecks()
	}
}

// Chosen is the upstream that stands for all that the clients of a listener choose.
const Chosen = "(chosen)"

// upstreamsOf returns the upstreams of a listener.
func upstreamsOf(l *policy.Listener) []string {
	if l.Mode.IsEntry() {
		return []string{Chosen}
	}
	return l.Upstream
}

// Upstreams returns the upstreams, in their order.
func (s *Set) Upstreams() (all []string) {
	for _, e := range s.entries {
		all = append(all, e.upstream)
	}
	return all
}

// entry returns an entry for an upstream, but none of those that are taken. s may be nil.
func (s *Set) entry(upstream string, taken []*entry) *entry {
	if s != nil {
		for _, e := range s.entries {
			if e.upstream == upstream && !slices.Contains(taken, e) {
				return e
			}
		}
	}
	e := &entry{upstream: upstream}
	if at, known := Literal(upstream); known {
		e.literal = []Address{at}
	}
	return e
}

// Rest ends all checks, until Start.
func (g *Group) Rest() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.rest()
}

// rest is Rest. mu is held.
func (g *Group) rest() {
	g.stopChecks()
	g.resting = true
}

// First returns the first known address of the first upstream, and an invalid one if there is
// none. It starts no lookup.
func (s *Set) First() netip.AddrPort {
	e := s.entries[0]
	addrs := e.literal
	if addrs == nil {
		addrs, _, _ = s.group.Names.Seen(e.upstream)
	}
	if len(addrs) == 0 {
		return netip.AddrPort{}
	}
	return addrs[0].AddrPort
}

// Failed notes that a session could not reach an address, or got no answer from it. If the group
// chooses, and at least half of the addresses stay, it ejects the address until checks reach it
// again. t may be nil.
func (t *Target) Failed(now time.Time, err error) {
	if t == nil || !TellsOfTarget(err) {
		return
	}
	g := t.group
	g.mu.Lock()
	defer g.mu.Unlock()
	t = t.counter()
	t.failures++
	t.err = err
	if !g.set.chooses || t.state != Up || !g.canSpare(t) {
		return
	}
	t.noteTry(now)
	t.set(now, Ejected)
	g.Log.Warn("an upstream is ejected", "listener", g.set.conf.Name, "upstream", t.entry.upstream, "address", t.name(), "err", err)
	g.startChecks()
}

// Doubted notes that a session has reached another address of the same host while this one did not answer. It may be
// slow, and not dead. So if the group chooses, checks find out: they go on until one succeeds, or as many have failed as
// take an address out. t may be nil.
func (t *Target) Doubted() {
	if t == nil {
		return
	}
	g := t.group
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.set.chooses {
		t.doubted = true
		g.startChecks()
	}
}

// TellsOfTarget reports whether an error says something of the address, and not of us.
func TellsOfTarget(err error) bool {
	if lacksMeans(err) { // a handshake, too, may fail by that
		return false
	}
	switch FailureOf(err) {
	case stats.NotServed, stats.Unreachable, stats.NoAnswer, stats.DialReset, stats.NoTLS:
		return true
	}
	return false
}

// canSpare reports whether at least half of the addresses that sessions can get would still be up without
// one of them. mu is held.
func (g *Group) canSpare(one *Target) bool {
	var all []*Target
	for _, e := range g.set.entries {
		all = g.set.targetsAt(all, e, g.addresses(e))
	}
	up := 0
	for _, t := range all {
		if t.state == Up && t != one {
			up++
		}
	}
	return 2*up >= len(all)
}
