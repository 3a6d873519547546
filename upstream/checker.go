package upstream

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"shaper/policy"
)

// A checker checks the addresses of a group, in a goroutine of its own: all of them if the
// listener has health, and otherwise those that sessions could not reach, until they are back, and those in doubt.
type checker struct{ stop context.CancelFunc }

// startChecks starts the checker if there is something to check. mu is held.
func (g *Group) startChecks() {
	if g.checker != nil || g.resting || g.Ctx.Err() != nil || !g.hasToCheck() {
		return
	}
	ctx, cancel := context.WithCancel(g.Ctx)
	c, set := &checker{cancel}, g.set
	g.checker = c
	g.Wait.Go(func() { g.check(ctx, c, set) })
}

// stopChecks stops the checker, but does not wait for it. mu is held.
func (g *Group) stopChecks() {
	if g.checker != nil {
		g.checker.stop()
		g.checker = nil
	}
}

// hasToCheck reports whether there is something to check. mu is held.
func (g *Group) hasToCheck() bool {
	return g.set.checksAll() || len(g.toCheck()) > 0
}

// checksAll reports whether the checks concern all addresses.
func (s *Set) checksAll() bool { return s.conf.Health != policy.Health{} }

// terms returns how addresses are checked.
func (s *Set) terms() policy.Health {
	if s.checksAll() {
		return s.conf.Health
	}
	return policy.DefaultHealth
}

// toCheck returns the targets to check. One that is not up is among them also if the name does
// not have its address any more: it may have it again. mu is held.
func (g *Group) toCheck() (all []*Target) {
	for _, e := range g.set.entries {
		addrs := g.renew(e)
		for _, t := range e.targets {
			wanted := t.state != Up || t.doubted || g.set.checksAll() && slices.Contains(addrs, t.address)
			if wanted && !e.isBuiltin() && g.set.canDial(t.address) {
				all = append(all, t)
			}
		}
	}
	return all
}

// check is the goroutine of a checker.
func (g *Group) check(ctx context.Context, c *checker, s *Set) {
	terms := s.terms()
	timer := time.NewTimer(0)
	defer timer.Stop()
	if !s.checksAll() {
		timer.Reset(time.Duration(terms.Every)) // a session has just failed
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		g.checkOnce(ctx, terms)
		g.mu.Lock()
		if g.checker == c && !g.hasToCheck() {
			g.stopChecks()
		}
		g.mu.Unlock()
		every := time.Duration(terms.Every)
		timer.Reset(every - rand.N(every/10+1)) // so that listeners do not check together
	}
}

// checkOnce checks all that there is to check, at the same time.
func (g *Group) checkOnce(ctx context.Context, terms policy.Health) {
	g.mu.Lock()
	all := g.toCheck()
	g.mu.Unlock()
	var wg sync.WaitGroup
	for _, t := range all {
		wg.Go(func() {
			within, cancel := context.WithTimeout(ctx, time.Duration(terms.Timeout))
			defer cancel()
			err := g.ask(within, t, terms)
			if ctx.Err() == nil && !lacksMeans(err) {
				g.checked(t, err, terms)
			}
		})
	}
	wg.Wait()
}

// checked notes and logs the result of a check.
func (g *Group) checked(t *Target, err error, terms policy.Health) {
	g.mu.Lock()
	defer g.mu.Unlock()
	rise := terms.Rise
	if g.set.triesOnly() {
		rise = t.checksBeforeTry(terms)
	}
	if !t.checked(time.Now(), err, rise, terms.Fall) {
		return
	}
	about := []any{"listener", g.set.conf.Name, "upstream", t.entry.upstream, "address", t.name()}
	switch {
	case t.state != Up:
		g.Log.Warn("an upstream is down", append(about, "err", err)...)
	case g.set.triesOnly():
		g.Log.Info("an upstream is tried again", about...)
	default:
		g.Log.Info("an upstream is back", about...)
	}
}
