package upstream

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"sync"
	"time"
)

// A Lookup finds the addresses of an upstream that is a name. known are those that the last one has found.
// If there are none, somebody may wait, so it does without what comes late. See [Resolver.Lookup].
type Lookup func(ctx context.Context, upstream string, known []Address) (Answer, error)

// An Answer is what a lookup has found.
type Answer struct {
	Addresses []Address     // at least one, in the order in which to try them
	TTL       time.Duration // how long they hold
}

// Names knows the addresses of the upstreams that are names. The first who needs a name makes
// it look the name up. From then on it looks the name up again before its TTL ends, so nobody
// waits for that. If that fails, the last answer goes on being used. At most one lookup of a
// name runs at a time. Any number of goroutines may use it.
type Names struct {
	log  *slog.Logger
	ctx  context.Context // of all lookups
	stop context.CancelFunc
	wg   sync.WaitGroup // lookups

	mu     sync.Mutex // guards the fields below, and all of each name
	lookup Lookup
	names  map[string]*name
	has    func(upstream string) bool // whether the policy has a name; nil: it has all
	closed bool
}

// A name is an upstream that Names has been asked for.
type name struct {
	upstream string
	answer   []Address // the last one; nil: there was none
	expires  time.Time // when the TTL of answer ends
	asked    time.Time // when the last lookup began
	err      error     // of the last lookup
	failed   int       // lookups that have failed in a row
	missed   time.Time // when the last of them ended
	again    *time.Timer
	running  *search // nil: none
}

// A search is a lookup that runs.
type search struct {
	cancel  context.CancelFunc
	over    chan struct{} // closed at its end
	err     error         // set before that
	waiting int           // those who wait for it
}

// Bounds of names.
const (
	minTTL   = time.Second
	maxTTL   = 5 * time.Minute
	patience = 10 * time.Second // for one lookup
	// After a lookup has failed, the next one comes after minRetry; after each further
	// failure, after twice as long, up to maxRetry.
	minRetry = time.Second
	maxRetry = 16 * time.Second
	// maxForeign bounds how many names are kept if some are of no policy.
	maxForeign = 4096
)

// NewNames returns Names that knows none. Close ends it.
func NewNames(lookup Lookup, log *slog.Logger) *Names {
	n := &Names{log: log, lookup: lookup, names: map[string]*name{}}
	n.ctx, n.stop = context.WithCancel(context.Background())
	return n
}

// Close ends all lookups and waits for them.
func (n *Names) Close() {
	n.mu.Lock()
	n.closed = true
	n.forget(func(string) bool { return false })
	n.mu.Unlock()
	n.stop()
	n.wg.Wait()
}

// Use replaces the lookup.
func (n *Names) Use(lookup Lookup) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lookup = lookup
}

// Keep forgets all names but those that a policy has. Sessions may ask for others: those of an
// older policy, and those whose clients choose. Such a name is kept until its TTL ends, and is not
// looked up again before somebody asks for it.
func (n *Names) Keep(has func(upstream string) bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.has = has
	n.forget(has)
}

// forget is Keep with mu held. A lookup that runs goes on for those who wait for it.
func (n *Names) forget(has func(upstream string) bool) {
	for upstream, one := range n.names {
		if has(upstream) {
			continue
		}
		if one.again != nil {
			one.again.Stop()
		}
		delete(n.names, upstream)
	}
}

// Known returns the addresses of a name, and none if they are not known. It never waits. If
// they are not known, it starts a lookup, but at most one in minRetry. The caller must not
// change what it returns.
func (n *Names) Known(upstream string) []Address {
	n.mu.Lock()
	defer n.mu.Unlock()
	one := n.name(upstream)
	if one.answer == nil && time.Since(one.asked) >= minRetry {
		n.ask(one)
	}
	return one.answer
}

// Seen is Known, but starts no lookup. It also returns when the TTL of the addresses ends, and
// why the last lookup has failed, if it has.
func (n *Names) Seen(upstream string) (known []Address, expires time.Time, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if one := n.names[upstream]; one != nil {
		return one.answer, one.expires, one.err
	}
	return nil, time.Time{}, nil
}

// Find returns the addresses of a name. If they are not known, it waits for a lookup, until ctx
// ends. After a lookup has failed, only one session waits for the next, which begins minRetry
// later at the earliest: the others get the last error at once, so that they can go on to another
// upstream. The caller must not change what it returns.
func (n *Names) Find(ctx context.Context, upstream string) ([]Address, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	one := n.name(upstream)
	if one.answer != nil {
		return one.answer, nil
	}
	if one.failed > 0 && (one.running != nil || time.Since(one.missed) < minRetry) {
		return nil, one.err
	}
	if n.ask(one); one.running == nil {
		return nil, context.Canceled // Close has been called
	}
	return n.await(ctx, one, one.running)
}

// await waits for a lookup. If the last one that waits gives up, it ends the lookup: the next one
// must not wait for a resolver that hangs. mu is held before and after, but not while await waits.
func (n *Names) await(ctx context.Context, one *name, s *search) ([]Address, error) {
	s.waiting++
	n.mu.Unlock()
	select {
	case <-s.over:
	case <-ctx.Done():
	}
	n.mu.Lock()
	if s.waiting--; s.waiting == 0 && one.running == s && one.answer == nil {
		s.cancel()
		one.running = nil
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			one.fail(ctx.Err())
		}
		n.dropForeign(one)
	}
	switch {
	case one.answer != nil:
		return one.answer, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	}
	return nil, s.err
}

// name returns the name of an upstream. mu is held.
func (n *Names) name(upstream string) *name {
	one := n.names[upstream]
	if one == nil {
		one = &name{upstream: upstream}
		n.names[upstream] = one
	}
	return one
}

// ask starts a lookup, unless one runs. mu is held.
func (n *Names) ask(one *name) {
	if one.running != nil || n.closed {
		return
	}
	ctx, cancel := context.WithTimeout(n.ctx, patience)
	s := &search{cancel: cancel, over: make(chan struct{})}
	one.asked, one.running = time.Now(), s
	lookup, known := n.lookup, one.answer
	n.wg.Go(func() {
		defer cancel()
		answer, err := n.protected(ctx, lookup, one.upstream, known)
		n.mu.Lock()
		defer n.mu.Unlock()
		if one.running == s { // otherwise nobody wants it any more
			one.running = nil
			n.note(one, answer, err)
		}
		s.err = err
		close(s.over)
	})
}

var errPanicked = errors.New("the lookup has panicked; the log says where")

// protected calls a lookup. A panic is an error.
func (n *Names) protected(ctx context.Context, lookup Lookup, upstream string, known []Address) (answer Answer, err error) {
	defer func() {
		if p := recover(); p != nil {
			n.log.Error("lookup panicked", "upstream", upstream, "panic", p, "stack", string(debug.Stack()))
			err = errPanicked
		}
	}()
	return lookup(ctx, upstream, known)
}

// note keeps what a lookup has found, and plans the next one. If it has failed, the last
// answer stays. mu is held.
func (n *Names) note(one *name, answer Answer, err error) {
	if err == nil {
		one.err = nil
		if one.failed > 0 && one.answer != nil {
			n.log.Info("a name is looked up again", "upstream", one.upstream)
		}
		ttl := min(max(answer.TTL, minTTL), maxTTL)
		one.answer, one.expires, one.failed = slices.Clip(answer.Addresses), time.Now().Add(ttl), 0
		n.plan(one, ttl)
		return
	}
	one.fail(err)
	if one.answer == nil {
		n.dropForeign(one)
		return // whoever needs it asks
	}
	if one.failed == 1 && n.ctx.Err() == nil {
		n.log.Warn("a name cannot be looked up; its last addresses stay in use", "upstream", one.upstream, "err", err)
	}
	n.plan(one, min(minRetry<<min(one.failed-1, 10), maxRetry))
}

// fail notes that a lookup has failed, or that nobody waits for it any longer.
func (one *name) fail(err error) {
	one.err, one.missed = err, time.Now()
	one.failed++
}

// isForeign reports whether no policy has the name. mu is held.
func (n *Names) isForeign(one *name) bool { return n.has != nil && !n.has(one.upstream) }

// dropForeign forgets a name that no policy has. mu is held.
func (n *Names) dropForeign(one *name) {
	if n.isForeign(one) && n.names[one.upstream] == one {
		delete(n.names, one.upstream)
	}
}

// plan starts the next lookup after a time, or up to a tenth sooner, so that names do not come
// together. If no policy has the name, plan forgets it then instead. mu is held.
func (n *Names) plan(one *name, after time.Duration) {
	if len(n.names) > maxForeign {
		n.dropForeign(one)
	}
	if n.closed || n.names[one.upstream] != one {
		return
	}
	after -= rand.N(after/10 + 1)
	one.again = time.AfterFunc(after, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.dropForeign(one); n.names[one.upstream] == one {
			n.ask(one)
		}
	})
}
