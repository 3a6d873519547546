package conn

import (
	"maps"
	"slices"
	"sync"
	"time"

	"shaper/shaper"
	"shaper/stats"
)

// session is a session of either kind, as the registry knows it. All methods are safe for
// concurrent use. Only turnsBetween may be called with the registry's lock held.
type session interface {
	// info returns a snapshot of the session.
	info() Session
	// unwritten returns how many bytes were read but not yet written.
	unwritten() int64
	// abort resets the session. It returns false if the session has ended already.
	abort(stats.Result) bool
	// tend ends the session if it has been idle for too long. The janitor calls it.
	tend(now time.Time)
	// turnsBetween returns once in how many periods the janitor must check the session.
	turnsBetween() uint64
	// reclassify moves the session out of the gone classes, by the rules of by. It returns what the caller calls when all that
	// waits in the gone classes has moved, too; nil: nothing. The caller holds the lock of the routes.
	reclassify(by *routes, gone map[*shaper.Class]bool) (settle func())
	// mirror sends copies of the traffic to a policy in the shadow, instead of the one
	// before; nil for none. The caller holds the lock of the routes.
	mirror(by *shadow)
	// remark sets the mark of what the session sends upstream again.
	remark()
}

// registered is a session in the registry.
type registered struct {
	session
	// turns is what turnsBetween returned when the session began. The janitor reads it at each turn,
	// so it stands here: to ask every session would fetch each of them into the cache. It becomes
	// less only when the session's socket closes.
	turns uint64
}

// registry is what has to end before the server has stopped: the open sessions, and the tunnels, of
// which some still send for sessions that have ended. Once it is closed, no session comes in; those
// that are open may still make tunnels. All methods but init are safe for concurrent use. The caller may
// hold the locks that come before the registry's; see Server.
type registry struct {
	mu      sync.Mutex            // guards the fields below
	closed  bool                  // no session comes in any more
	open    map[uint64]registered // the open sessions, by id
	tunnels map[*tunnel]bool      // those that are not closed
	idle    sync.Cond             // on mu: the last session or the last tunnel has ended
}

func (r *registry) init() {
	r.open, r.tunnels, r.idle.L = map[uint64]registered{}, map[*tunnel]bool{}, &r.mu
}

// add adds a session. It returns false if the registry is closed.
func (r *registry) add(one session, id uint64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return false
	}
	r.open[id] = registered{one, one.turnsBetween()}
	return true
}

// remove removes a session that has ended.
func (r *registry) remove(id uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if delete(r.open, id); len(r.open) == 0 { // await checks the tunnels
		r.idle.Broadcast()
	}
}

// addTunnel adds a tunnel.
func (r *registry) addTunnel(tn *tunnel) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tunnels[tn] = true
}

// removeTunnel removes a tunnel that is closed.
func (r *registry) removeTunnel(tn *tunnel) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if delete(r.tunnels, tn); len(r.tunnels) == 0 { // await checks the sessions
		r.idle.Broadcast()
	}
}

// close lets no more sessions in.
func (r *registry) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
}

// await waits until all sessions have ended and all tunnels have sent their last bytes.
func (r *registry) await() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.open) > 0 || len(r.tunnels) > 0 {
		r.idle.Wait()
	}
}

// find returns an open session. It returns false if none has this id.
func (r *registry) find(id uint64) (one session, found bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	entry, found := r.open[id]
	return entry.session, found
}

// all returns the open sessions, in the order in which they began.
func (r *registry) all() []session {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]session, 0, len(r.open))
	for _, id := range slices.Sorted(maps.Keys(r.open)) {
		all = append(all, r.open[id].session)
	}
	return all
}

// openTunnels returns the tunnels that are not closed, in any order.
func (r *registry) openTunnels() []*tunnel {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Keys(r.tunnels))
}

// due appends the sessions to batch that the janitor has to check in a turn. If the server stops, these
// are all. closes says that a socket of datagrams closes. Its sessions have to be checked in each turn from
// then on, so due asks all sessions once more how often they are checked.
func (r *registry) due(batch []session, turn uint64, stops, closes bool) []session {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, one := range r.open {
		if (id+turn)%one.turns == 0 || stops || closes && one.turnsBetween() == 1 {
			batch = append(batch, one.session)
		}
	}
	return batch
}

// remark sets the marks of all open sessions again. It takes their locks, so the caller may hold only that
// of the routing.
func (r *registry) remark() {
	for _, one := range r.all() {
		one.remark()
	}
}
