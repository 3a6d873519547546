package simulate

import (
	"fmt"
	"slices"
	"time"

	"shaper/fleet"
	"shaper/fleet/limits"
	"shaper/policy"
	"shaper/shaper"
	"shaper/unit"
)

// A member is what one shaper of a fleet has of a shared class: it implements shaper.Member. It has a
// node for each limit of the class.
type member struct {
	conf  policy.Class
	fleet policy.Fleet
	nodes []*node
}

// join makes the run a member of each shared class. It returns the members by the names of the classes.
func (r *run) join(scheduled []policy.Class) map[string]shaper.Member {
	members := map[string]shaper.Member{}
	count := 0
	for _, conf := range scheduled {
		if conf.Shared == "" {
			continue
		}
		m := &member{conf: conf, fleet: r.stores.fleets[conf.Shared]}
		for i, limit := range limits.All(conf.Name, shaper.Limits(conf), m.fleet) {
			m.nodes = append(m.nodes, r.newNode(m, i, limit, count))
			count++
		}
		members[conf.Name] = m
	}
	return members
}

// Budget implements shaper.Member.
func (m *member) Budget(i int, key string) shaper.Budget {
	return &budget{m.nodes[i].machine.Lease(key), m.nodes[i]}
}

// Set implements shaper.Member.
func (m *member) Set(all []shaper.Limit) {
	for i, limit := range limits.All(m.conf.Name, all, m.fleet) {
		n := m.nodes[i]
		n.machine.Set(n.run.now, n.store.adopt(limit), limits.Fallback(m.fleet.Fallback, i))
		n.look()
	}
}

// Slow implements shaper.Member. No provider says anything in a simulation.
func (m *member) Slow(string, time.Duration) {}

// PausedUntil implements shaper.Member.
func (m *member) PausedUntil(key string) time.Time { return m.nodes[0].machine.Pausing(key) }

// Secret implements shaper.Member. All members hash alike, and each time.
func (m *member) Secret() *[32]byte { return new([32]byte) }

// A budget is a lease that lets its node look whether there is something to do.
type budget struct {
	*fleet.Lease
	node *node
}

// Want implements shaper.Budget.
func (b *budget) Want(now time.Time, units int64, next ...int64) {
	b.Lease.Want(now, units, next...)
	b.node.look()
}

// Hold implements shaper.Budget.
func (b *budget) Hold(now, until time.Time) {
	b.Lease.Hold(now, until)
	b.node.look()
}

// Take implements limit.Limiter.
func (b *budget) Take(since, now time.Time, n int64) {
	b.Lease.Take(since, now, n)
	b.node.look()
}

// Left implements shaper.Budget.
func (b *budget) Left(now time.Time) {
	b.Lease.Left(now)
	b.node.look()
}

// SetRate implements limit.Limiter.
func (b *budget) SetRate(now time.Time, rate unit.Rate, burst int64) {
	b.Lease.SetRate(now, rate, burst)
	b.node.look()
}

// Forget implements shaper.Budget.
func (b *budget) Forget() {
	b.node.machine.Forget(b.Lease)
	b.node.look()
}

// A node drives a machine of package fleet, as a fleet.Member does, in virtual time. Its own event is when
// to look at the machine again.
type node struct {
	event
	run     *run
	of      *member
	store   *store
	machine *fleet.Machine
	told    []string // keys of the leases that have changed

	couriers [maxCalls]courier
	queue    []fleet.Call // for which there is no courier
}

// maxCalls is how many calls of a node are on their way at once, as in package fleet.
const maxCalls = 4

// A courier carries one call after the other.
type courier struct {
	event   // the next that happens to the call
	node    *node
	carries bool
	call    fleet.Call
	sent    time.Time
	reply   fleet.Reply
	failed  bool
}

// newNode makes the run a member of limit i of a class. It is node number count of the run.
func (r *run) newNode(m *member, i int, class fleet.Class, count int) *node {
	n := &node{run: r, of: m, store: r.stores.store(class)}
	n.rank, n.do = rankOf(ofNodes, r.number, count), n.poll
	for w := range n.couriers {
		n.couriers[w].node, n.couriers[w].rank = n, rankOf(ofCalls, r.number, count*maxCalls+w)
	}
	changed := func(l *fleet.Lease, _ time.Time) {
		n.told = append(n.told, l.Key())
		r.agenda.set(&n.event, r.now)
	}
	var err error
	n.machine, err = fleet.NewMachine(n.store.adopt(class), fmt.Sprint("member", r.number+1), limits.Fallback(m.fleet.Fallback, i), 1, changed)
	if err != nil {
		panic(fmt.Sprintf("simulate: joining the fleet of class %s: %v", m.conf.Name, err)) // the policy was checked
	}
	n.look()
	return n
}

// look sets when to look at the machine again.
func (n *node) look() {
	at := n.machine.Wake(n.run.now)
	if at.Before(n.run.now) || len(n.told) > 0 {
		at = n.run.now
	}
	n.run.agenda.set(&n.event, at)
}

// poll sends the calls that are due, and tells the class what has changed.
func (n *node) poll() error {
	now := n.run.now
	for c, ok := n.machine.Poll(now); ok; c, ok = n.machine.Poll(now) {
		n.queue = append(n.queue, c)
	}
	n.send()
	told := n.told
	n.told = nil
	n.look()
	slices.Sort(told)
	for _, key := range slices.Compact(told) {
		c := n.run.byName[n.of.conf.Name]
		c.Told(now, key)
		n.run.expect(c.tree)
	}
	return nil
}

// send sends the calls for which there are couriers.
func (n *node) send() {
	for i := range n.couriers {
		w := &n.couriers[i]
		if w.carries {
			continue
		}
		if len(n.queue) == 0 {
			return
		}
		w.carries, w.call = true, n.queue[0]
		n.queue = n.queue[1:]
		w.send()
	}
}

// send sends the call. Half of the delay passes until it is at the store. It fails if the whole delay is longer
// than a call may take; the store carries it out all the same.
func (w *courier) send() {
	n := w.node
	now := n.run.now
	if c := n.run.byName[n.of.conf.Name]; c != nil && !now.Before(n.run.start) {
		c.call()
	}
	w.sent, w.do = now, w.arrive
	n.run.agenda.set(&w.event, now.Add(min(n.store.delay/2, w.deadline())))
}

// pingTakes is how many deadlines a ping may take, as patientTakes in package fleet.
const pingTakes = 5

func (w *courier) deadline() time.Duration {
	deadline := time.Duration(w.node.of.fleet.Deadline)
	if w.call.Op == fleet.Ping {
		deadline *= pingTakes
	}
	return deadline
}

// arrive lets the store answer the call.
func (w *courier) arrive() error {
	n := w.node
	w.reply = n.store.do(n.run.now, &w.call)
	w.failed, w.do = n.store.delay > w.deadline(), w.end
	n.run.agenda.set(&w.event, w.sent.Add(min(n.store.delay, w.deadline())))
	return nil
}

// end hands the answer to the machine, or says that there was none in time.
func (w *courier) end() error {
	n := w.node
	n.run.agenda.remove(&w.event)
	if w.carries = false; w.failed {
		n.machine.Fail(n.run.now, &w.call)
	} else {
		n.machine.Answer(n.run.now, &w.call, &w.reply)
	}
	return n.poll()
}
