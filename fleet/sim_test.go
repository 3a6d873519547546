package fleet

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"shaper/limit"
)

// A sim is a fleet in virtual time: members with machines, a network that delays, loses and doubles,
// and a store whose clock jumps and which forgets. Events happen one after the other.
type sim struct {
	t       testing.TB
	r       *rand.Rand
	class   Class
	now     time.Duration // real time
	events  simEvents
	count   int // events so far
	members []*simMember
	ledger  ledger
	sizes   int64 // items have 1 to sizes units

	// The store.
	store   func(Stamp, *Call) (Reply, error)
	model   *Model
	skew    time.Duration // of its clock
	setAt   time.Duration // when its clock was set last
	down    bool
	refuses bool // all calls but pings
	epoch   int  // of its data: another epoch is another server
	backup  *Model

	// The network.
	delay  time.Duration // one way, on average
	steady bool          // it is always the same
	lose   float64       // of the messages
	double float64

	writes   time.Duration // how long a disk takes for what a member keeps, at most
	lateness time.Duration // of departures, on average
	pauses   float64       // how often a departure is much too late
	losing   float64       // of the items come too late to be sent
	stuck    float64       // of the items leave some time after their turn
	longest  time.Duration // that this takes
	renumber bool          // the mutant that repeats without the number
}

type simEvent struct {
	at time.Duration
	do func()
}

// simEvents is a heap. That of the standard library allocates for each event.
type simEvents []simEvent

func (e *simEvents) push(event simEvent) {
	*e = append(*e, event)
	all := *e
	for at := len(all) - 1; at > 0; {
		above := (at - 1) / 2
		if all[above].at <= all[at].at {
			return
		}
		all[at], all[above] = all[above], all[at]
		at = above
	}
}

// pop removes the first event. There is one.
func (e *simEvents) pop() simEvent {
	all := *e
	first, last := all[0], len(all)-1
	all[0], all[last] = all[last], simEvent{}
	all = all[:last]
	*e = all
	for at, next := 0, 1; next < last; next = 2*at + 1 {
		if next+1 < last && all[next+1].at < all[next].at {
			next++
		}
		if all[at].at <= all[next].at {
			break
		}
		all[at], all[next] = all[next], all[at]
		at = next
	}
	return first
}

// A simMember is a member with a queue of items.
type simMember struct {
	sim     *sim
	name    string
	machine *Machine
	lease   *Lease
	ppm     int64 // how fast its clock runs
	zero    time.Time
	queue   int64           // of items
	costs   []int64         // of the next of them
	since   time.Duration   // when the item that waits came
	waits   []time.Duration // of the items that came by arrive
	greedy  bool
	size    int64 // of each item; 0: as the sim says
	cut     bool  // it does not reach the store
	server  int   // the epoch of that to which it is connected
	asleep  bool  // SIGSTOP
	wakeAt  time.Duration
	slot    time.Time     // which the item that waits has got
	leaveAt time.Duration // when the member wakes up for it
	sends   bool          // an item has had its turn and has not left yet
	calls   int
	heard   time.Duration   // when the store gave the last answer that has arrived
	disk    map[string]Debt // what its ledger has kept
}

func newSim(t testing.TB, class Class, members int, seed uint64) *sim {
	s := &sim{t: t, r: rand.New(rand.NewPCG(seed, 1)), class: class, delay: 200 * time.Microsecond, writes: 5 * time.Millisecond, lateness: 10 * time.Microsecond, model: &Model{ID: "0"}, skew: 20 * 365 * 24 * time.Hour}
	s.store = func(now Stamp, c *Call) (Reply, error) { return s.model.Do(now, c), nil }
	s.sizes = 1
	s.ledger = ledger{sim: s}
	for i := range members {
		s.join(fmt.Sprint("m", i))
	}
	return s
}

func (s *sim) join(name string) *simMember {
	m := s.member(name, 1, map[string]Debt{})
	s.members = append(s.members, m)
	return m
}

// member returns a member that has a ledger.
func (s *sim) member(name string, first int64, disk map[string]Debt) *simMember {
	m := &simMember{sim: s, name: name, server: s.epoch, ppm: s.r.Int64N(200) - 100, zero: time.Unix(s.r.Int64N(1e9), 0), disk: disk}
	var err error
	if m.machine, err = NewMachine(s.class, name, Fallback{}, first, nil); err != nil {
		s.t.Fatal(err)
	}
	var debts []Debt
	for _, key := range slices.Sorted(maps.Keys(disk)) {
		d := disk[key]
		d.Until = m.local().Add(d.Until.Sub(time.Time{}) - s.now)
		debts = append(debts, d)
	}
	m.machine.absence.keep(m.local(), debts)
	m.lease = m.machine.Lease("")
	s.after(0, m.pump)
	return m
}

// keep writes a debt to the disk, which takes a while. The disk counts by real time.
func (m *simMember) keep(c Call) {
	d := Debt{Key: c.Key, Units: c.Wanted, Until: time.Time{}.Add(m.sim.now + c.Lasts)}
	m.sim.after(time.Duration(m.sim.r.Int64N(int64(m.sim.writes))), func() {
		if m.asleep {
			return
		}
		m.disk[c.Key] = d
		m.machine.Answer(m.local(), &c, &Reply{})
		m.pump()
	})
}

func (s *sim) after(d time.Duration, do func()) {
	s.events.push(simEvent{s.now + max(d, 0), do})
}

// run lets a time pass.
func (s *sim) run(d time.Duration) {
	end := s.now + d
	for len(s.events) > 0 && s.events[0].at <= end {
		e := s.events.pop()
		s.now = e.at
		s.count++
		e.do()
	}
	s.now = end
}

// setClock sets the store's clock forward.
func (s *sim) setClock(d time.Duration) { s.skew, s.setAt = s.skew+d, s.now }

func (s *sim) stamp() Stamp { return Stamp((s.now + s.skew).Microseconds()) }

// restart makes the store another one, which knows what it knew at the last backup; nothing if there is none. It ends
// all connections.
func (s *sim) restart() {
	s.epoch++
	s.model, s.backup = s.backup, nil
	if s.model == nil {
		s.model = &Model{}
	}
	s.model.ID = fmt.Sprint(s.epoch)
}

func (s *sim) latency() time.Duration {
	if s.steady {
		return s.delay
	}
	return time.Duration(float64(s.delay) * (0.5 + s.r.ExpFloat64()/2))
}

// carry brings a message to the other side, or does not.
func (s *sim) carry(m *simMember, do func()) {
	if m.cut || s.down || s.r.Float64() < s.lose {
		return
	}
	s.after(s.latency(), do)
	if s.r.Float64() < s.double {
		s.after(s.latency()+time.Duration(s.r.Int64N(int64(30*time.Millisecond))), do)
	}
}

// local returns the time of the member's clock.
func (m *simMember) local() time.Time {
	return m.zero.Add(m.sim.now + m.sim.now/1_000_000*time.Duration(m.ppm))
}

// until returns how long it really is until a local time.
func (m *simMember) until(t time.Time) time.Duration {
	d := t.Sub(m.local())
	return d - d/1_000_000*time.Duration(m.ppm) + time.Microsecond
}

const simDeadline = 50 * time.Millisecond

// send brings a call to the store and the answer back. The machine hears of exactly one end of it.
func (m *simMember) send(c Call) {
	s := m.sim
	m.calls++
	ended, server := false, m.server
	end := func(do func()) func() {
		return func() {
			if m.asleep {
				return
			}
			if !ended {
				ended = true
				do()
				m.pump()
			}
		}
	}
	s.carry(m, func() {
		if s.down {
			return
		}
		if server != s.epoch { // the server has closed the connection; the next call connects again
			m.server = s.epoch
			s.carry(m, end(func() { m.machine.Fail(m.local(), &c) }))
			return
		}
		if c.Op == Ping {
			s.carry(m, end(func() { m.machine.Answer(m.local(), &c, &Reply{}) }))
			return
		}
		if s.refuses {
			s.carry(m, end(func() { m.machine.Fail(m.local(), &c) }))
			return
		}
		r, err := s.store(s.stamp(), &c)
		if err != nil {
			s.t.Fatal(err)
		}
		at := s.now
		s.carry(m, end(func() {
			m.heard = max(m.heard, at)
			m.machine.Answer(m.local(), &c, &r)
		}))
	})
	s.after(max(simDeadline, m.machine.class.Deadline), func() {
		if m.asleep && !ended {
			ended = true
			m.machine.Fail(m.local(), &c)
			return
		}
		end(func() { m.machine.Fail(m.local(), &c) })()
	})
}

// pump does all that is due for the member.
func (m *simMember) pump() {
	if m.asleep {
		return
	}
	s := m.sim
	if m.greedy {
		m.queue = 1000
	}
	now := m.local()
	if m.queue > 0 {
		m.want(now)
	}
	for c, ok := m.machine.Poll(now); ok; c, ok = m.machine.Poll(now) {
		if s.renumber && c.Op == Take && m.lease.repeat {
			m.lease.number++
			c.Number = m.lease.number
		}
		if c.Op == Keep {
			m.keep(c)
		} else {
			m.send(c)
		}
	}
	m.depart(now)
	if at := m.machine.Wake(now); at != limit.Never {
		m.wakeIn(m.until(at))
	}
}

// depart lets what may leave now leave, and comes again when the next may.
func (m *simMember) depart(now time.Time) {
	s := m.sim
	for m.queue > 0 && !m.sends {
		cost := m.next()[0]
		at := m.lease.Next(now, 0, cost)
		if at == limit.Never {
			m.want(now)
			return
		}
		if at.After(now) && !at.Equal(m.slot) {
			late := time.Duration(s.r.ExpFloat64() * float64(s.lateness))
			if s.r.Float64() < s.pauses {
				late += time.Duration(s.r.Int64N(int64(20 * time.Millisecond)))
			}
			m.slot, m.leaveAt = at, s.now+m.until(at)+late
		}
		if at.After(now) || at.Equal(m.slot) && s.now < m.leaveAt { // what else happens does not wake it up
			m.wakeIn(max(m.leaveAt-s.now, m.until(at)))
			return
		}
		m.lease.Take(now, now, cost)
		m.judge(now)
		switch {
		case s.stuck > 0 && s.r.Float64() < s.stuck:
			m.sendLate(cost)
		case s.r.Float64() < s.losing:
			m.lost(now, cost)
		default:
			s.ledger.record(m, cost)
		}
		m.costs = append(m.costs[1:], m.cost(s.r.Int64N(s.sizes)))
		m.queue--
		if m.greedy {
			m.queue++
		} else {
			m.waits = append(m.waits, s.now-m.since)
			m.since = s.now
		}
	}
}

// judge holds the member to its ledger: that has all that counts, for as long as it counts.
func (m *simMember) judge(now time.Time) {
	counts, kept := m.lease.spent.units(now), m.disk[m.lease.key]
	if counts == 0 {
		return
	}
	lasts := m.lease.spent.until().Sub(now)
	lasts -= lasts / fastest // this clock may be the slower one
	if has := kept.Until.Sub(time.Time{}) - m.sim.now; counts > kept.Units || lasts > has {
		m.sim.t.Errorf("%s has used %d of its share that count for %v, and its ledger has %d for %v", m.name, counts, lasts, kept.Units, has)
	}
}

// sendLate lets an item leave some time after its turn.
func (m *simMember) sendLate(cost int64) {
	m.sends = true
	m.sim.after(time.Duration(m.sim.r.Int64N(int64(m.sim.longest))), func() {
		m.sends = false
		m.sim.ledger.record(m, cost)
		m.sim.ledger.late = append(m.sim.ledger.late, len(m.sim.ledger.all)-1)
		m.lease.Left(m.local())
		m.pump()
	})
}

// lost lets an item have its turn and not leave. The member may hear of that only when others have left since.
func (m *simMember) lost(then time.Time, cost int64) {
	if m.sim.r.IntN(2) == 0 {
		m.lease.Lost(then, cost)
		return
	}
	m.sim.after(time.Duration(m.sim.r.Int64N(int64(3*time.Millisecond))), func() { m.lease.Lost(then, cost) })
}

func (m *simMember) want(now time.Time) {
	next := m.next()
	units := (m.queue - int64(len(next))) * (m.cost(0) + m.cost(m.sim.sizes-1)) / 2
	for _, n := range next {
		units += n
	}
	m.lease.Want(now, units, next...)
}

// next returns the costs of the next items in the queue, as many as a member knows.
func (m *simMember) next() []int64 {
	for n := int64(len(m.costs)); n < simKnown; n++ {
		m.costs = append(m.costs, m.cost(n%m.sim.sizes))
	}
	return m.costs[:min(m.queue, simKnown)]
}

// cost returns what an item costs, if more is what it costs beyond 1.
func (m *simMember) cost(more int64) int64 {
	if m.size > 0 {
		return m.size
	}
	return 1 + more
}

const simKnown = 32

// wakeIn pumps the member then, unless it pumps sooner anyway.
func (m *simMember) wakeIn(d time.Duration) {
	s := m.sim
	at := s.now + max(d, time.Microsecond)
	if m.wakeAt > s.now && m.wakeAt <= at {
		return
	}
	m.wakeAt = at
	s.after(at-s.now, m.pump)
}

// arrive lets items come one by one, each long after the other.
func (m *simMember) arrive(mean time.Duration) {
	m.sim.after(mean/2+time.Duration(m.sim.r.Int64N(int64(mean))), func() {
		if m.queue++; m.queue == 1 {
			m.since = m.sim.now
		}
		m.pump()
		m.arrive(mean)
	})
}
