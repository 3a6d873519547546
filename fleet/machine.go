package fleet

import (
	"time"

	"shaper/limit"
)

// A Machine is one member of a class, without sockets and clocks. Its caller
//
//   - asks Poll for calls until there is none, and sends each of them to the store;
//   - hands over each answer with Answer, and with Fail what was not answered within the deadline;
//   - comes again at Wake, or when a Lease has been told by Take or Want;
//   - looks at a Lease again when Answer or Poll says that it has changed.
//
// Times are those of the member's monotonic clock. The Machine keeps to the following:
//
//   - Only a grant of the store lets anything leave, or the member's share. The share holds from the
//     moment at which the store deducts it from what it grants to others, and until the hold ends.
//   - A call that is lost goes again with the same number, and gets the same grant.
//   - A grant is not used if the store's clock does not fit what was known of it.
//   - A member that has just come waits until all grants have ended that were made before.
//
// A Machine is not safe for concurrent use.
type Machine struct {
	class   Class
	current *Class   // class, for calls: it never changes
	late    lateness // of class
	member  string   // its name
	changed func(*Lease, time.Time)

	link      link
	absence   absence // of the store
	seq       int64
	mode      Mode
	busyUntil time.Time // until then something has just left
	waiting   int       // leases for which something waits

	leases    map[string]*Lease
	gone      Counts // of leases that were forgotten
	alarms    alarms
	owing     int           // leases whose use of the share the store does not know yet
	recover   Stamp         // until then the member tells the store what it knows of its windows
	recovered time.Time     // then the store knows that of all members
	silent    int64         // the shares of silent members, in millionths, as the store has said last
	silence   time.Time     // since when there are any
	vague     time.Duration // how wrong the clock may have been at a grant whose slots end at vagueTill
	vagueTill time.Time
	pauses    pauses
	overdue   time.Duration // by how much an item has left too late, and the store does not know
	longest   time.Duration // deadline of all members; 0: not known
	woke      time.Time     // when the machine was suspended last; answers to calls before say nothing
}

// NewMachine returns a member of a class. first is the first of its numbers; a member that comes again
// under the same name needs a larger one. changed is called when a Lease may let more leave than
// it has said, or something sooner; it may be nil.
func NewMachine(class Class, member string, fallback Fallback, first int64, changed func(*Lease, time.Time)) (*Machine, error) {
	if err := class.Check(); err != nil {
		return nil, err
	}
	if changed == nil {
		changed = func(*Lease, time.Time) {}
	}
	m := &Machine{
		class: class, current: &class, late: class.lateness(), member: member, changed: changed,
		link: link{tooVague: class.timing().tooVague()}, seq: first, leases: map[string]*Lease{},
	}
	m.absence = absence{machine: m, fallback: fallback}
	return m, nil
}

// Lease returns the lease of a key; "" is the class itself.
func (m *Machine) Lease(key string) *Lease {
	l := m.leases[key]
	if l == nil {
		l = &Lease{hand: hand{machine: m, keyed: key != "", floor: m.pauses.class}, key: key, number: m.seq, paused: m.pauses.class}
		if m.class.Algorithm != Slots {
			l.open = &open{}
		}
		m.leases[key] = l
	}
	l.unused = false
	return l
}

// Forget drops a lease that nobody uses any more, when nothing is in hand any more and the store
// knows all of it.
func (m *Machine) Forget(l *Lease) {
	l.unused, l.next = true, nil
	l.want(0)
	m.wake(l, time.Time{})
}

// Poll returns the next call to send at now; false if there is none. The caller owns the Call.
func (m *Machine) Poll(now time.Time) (c Call, ok bool) {
	m.shift(now)
	if c, ok = m.contact(now); ok {
		return c, true
	}
	for l := m.alarms.next(now); l != nil; l = m.alarms.next(now) {
		if c, ok = l.poll(now); !ok {
			m.sweep(l, now)
			continue
		}
		if m.mode != OnShare || c.Op == Keep {
			return c, true
		}
		r := m.absence.heir.Do(m.link.clock.stamp(now), &c)
		if k, wait := m.absence.incur(now, l, &c, &r); wait {
			return k, true
		}
		if l.asked = false; c.Op == Back {
			m.wake(l, now)
			continue
		}
		l.granted(now, &c, &r, true)
	}
	return Call{}, false
}

// Wake returns when to call Poll again.
func (m *Machine) Wake(now time.Time) time.Time {
	at := limit.Never
	if len(m.alarms) > 0 {
		at = m.alarms[0].due
	}
	if t := m.contactAt(now); t.Before(at) {
		at = t
	}
	if t := m.absence.changesAt(); m.link.down && t.After(now) && t.Before(at) {
		at = t
	}
	return at
}

// contact returns what keeps the store and the member informed: pings, beats and pauses.
func (m *Machine) contact(now time.Time) (c Call, ok bool) {
	if now.Before(m.contactAt(now)) {
		return c, false
	}
	k := &m.link
	if k.down {
		k.pinging, k.pingAt = true, now.Add(pingEvery)
		return Call{Op: Ping, Class: m.current, at: now}, true
	}
	k.beating = true
	if c, ok = m.tellPause(now); ok {
		return c, true
	}
	if c, ok = m.tellLateness(now); ok {
		return c, true
	}
	return m.call(now, Beat, ""), true
}

// contactAt returns when contact has something to send.
func (m *Machine) contactAt(now time.Time) time.Time {
	k := &m.link
	switch {
	case k.down && k.pinging, !k.down && k.beating, !k.down && m.owing > 0 && k.informed():
		return limit.Never
	case k.down:
		return k.pingAt
	case len(m.pauses.untold) > 0 || m.overdue > 0 || k.lastSent.IsZero():
		return now
	case k.telling:
		return limit.Never
	case !k.proved: // it may have lost what the member knows, and asks for that only for a while
		return now
	}
	return k.lastSent.Add(m.grace(k.lastSent) / 2)
}

// grace returns how long after a call is sent the member counts as present. While something waits, that
// leaves time for two round trips: of this call, and of the next call.
func (m *Machine) grace(now time.Time) time.Duration {
	if m.waiting > 0 || now.Before(m.busyUntil) {
		return m.class.timing().busy + 2*m.link.rtt
	}
	return m.class.timing().idle
}

// call returns a call with what each call says about the member.
func (m *Machine) call(now time.Time, op Op, key string) Call {
	m.seq++
	k := &m.link
	seq := m.seq
	if k.telling || m.owing > 0 {
		seq = 0 // the store goes on to hold the share back until it knows how much of it was used
	}
	c := Call{
		Op: op, Class: m.current, Key: key, Member: m.member, Seq: seq, Fenced: k.fenced, Grace: m.grace(now),
		Share: k.share, Heard: m.pauses.heard, Fence: k.fence(now, &m.class), Lead: k.lead(m.current), at: now,
	}
	if k.clock.known() {
		c.Sent = k.clock.earliest(now)
	}
	if m.mode != OnShare && seq > 0 {
		k.send(now, c.Grace)
	}
	return c
}

// Answer takes the store's answer to a call, received at now. The answer of a Ping is empty.
func (m *Machine) Answer(now time.Time, c *Call, r *Reply) {
	k := &m.link
	switch c.Op {
	case Ping:
		m.back(now)
		return
	case Keep:
		m.absence.isKept(now, c)
		return
	}
	if c.Op == Beat || c.Op == Pause || c.Op == Move {
		k.beating = false
	}
	if k.down || c.at.Before(m.woke) { // a late answer of the time before
		m.Fail(now, c)
		return
	}
	k.heard(c)
	if m.class.Algorithm == Slots && c.Seq > 0 && k.known.IsZero() && r.Share > 0 {
		k.fenced = true // who had the name before may have used this share, and the store does not know
	}
	informed, joined := k.informed(), !k.joined.IsZero()
	usable := k.answered(now, c, r)
	m.heed(r) // also if answers take too long: others may let them take longer now
	if k.vague(now) {
		m.Fail(now, c)
		return
	}
	m.hear(now, c, r)
	if m.silent == 0 {
		m.silence = now
	}
	m.silent = r.Silent
	if r.Recover > r.Now {
		m.testify(now, r)
	}
	if !informed {
		m.absence.wakeWaiting(now, !joined)
	}
	if l := m.leases[c.Key]; l != nil && (c.Op == Take || c.Op == Back) {
		deliver(now, l, c, r, usable)
	}
	m.hearMoves(now, r)
}

// deliver gives a lease the answer to its Take or Back. usable says whether the lease may use what the
// store grants.
func deliver(now time.Time, l *Lease, c *Call, r *Reply, usable bool) {
	m := l.machine
	l.asked, l.repeat = false, false
	if len(c.Spent) > 0 {
		if l.spent = l.spent[len(c.Spent):]; len(l.spent) == 0 {
			m.owing = max(m.owing-1, 0)
		}
	}
	switch {
	case c.Op == Back:
	case usable:
		l.granted(now, c, r, false)
	default:
		l.retry = time.Time{}
	}
	m.wake(l, now)
}

// Fail says that a call was not answered in time, or by an error.
func (m *Machine) Fail(now time.Time, c *Call) {
	if !m.link.down {
		m.absence.began = now
	}
	m.link.heard(c)
	m.link.failed(now, m.class.deadline())
	m.overdue = 0
	if c.Op == Ping {
		return
	}
	if l := m.leases[c.Key]; l != nil && (c.Op == Take || c.Op == Back) {
		if l.asked, l.repeat = false, c.Op == Take; c.Known > 0 {
			l.usage.told = 0
		}
		m.wake(l, now)
	}
}

// back goes on with the store, which has answered a ping.
func (m *Machine) back(now time.Time) {
	if m.link.down && m.mode == OnShare && m.class.burst() > 1 {
		m.link.fenced = true // what the share let leave has used the burst
	}
	m.link.down, m.link.pinging, m.link.backAt = false, false, now
	m.absence.before += max(now.Sub(m.absence.began), 0)
	m.shift(now)
}

// shift changes the mode if another one holds at now.
func (m *Machine) shift(now time.Time) {
	mode := m.absence.mode(now)
	m.absence.hopeless = m.absence.isHopeless(now)
	if mode == m.mode {
		return
	}
	was := m.mode
	m.mode, m.owing = mode, 0
	if mode == OnShare {
		m.absence.inherit(now)
	}
	for _, l := range m.leases {
		m.absence.withdraw(l)
		if was == OnShare {
			l.drop(now, true)
			l.unheard = true
		}
		if !l.asked { // what the store is being told stays until that has ended
			l.spent.lapse(now)
		}
		if mode == FromStore && len(l.spent) > 0 {
			m.owing++
		}
		l.retry = time.Time{}
		m.wake(l, now)
	}
}

// testify tells a store that has lost what it knew what the member knows of pauses, and has seen of the windows.
func (m *Machine) testify(now time.Time, r *Reply) {
	if m.recover != r.Recover {
		m.repeatPauses(now)
	}
	m.recover, m.recovered = r.Recover, now.Add(r.Recover.Sub(r.Now))
	if m.class.Algorithm == Slots {
		return
	}
	for _, l := range m.leases {
		if l.usage.isNews(now, m.recover) {
			m.wake(l, now)
		}
	}
}

// Leave returns the last call of the member: its share goes to the others.
func (m *Machine) Leave(now time.Time) Call {
	c := m.call(now, Leave, "")
	c.Seq = m.seq // the store ignores what is older
	return c
}

// wake makes Poll look at a lease from now on, unless a call of the lease is on its way.
func (m *Machine) wake(l *Lease, now time.Time) {
	if !l.asked {
		m.alarms.set(l, now)
	}
}

// Status is what people want to know of a Machine.
type Status struct {
	Mode       Mode
	Members    int64
	Share      float64       // of the member
	ClockError time.Duration // how far slots may be wrong
	RoundTrip  time.Duration
	Away       time.Duration // how long the store has been away, all in all
	// Shortest and Longest are the deadlines of all members, between 50 ms and 250 ms; 0: not known.
	Shortest, Longest time.Duration
}

// Status returns the state at now.
func (m *Machine) Status(now time.Time) Status {
	s := Status{Mode: m.absence.mode(now), Members: m.link.members, Share: float64(m.link.share) / whole, RoundTrip: m.link.rtt, Away: m.absence.before, Shortest: m.class.shortest, Longest: m.longest}
	if m.link.clock.known() {
		s.ClockError = m.link.clock.error(now)
		if now.Before(m.vagueTill) {
			s.ClockError = max(s.ClockError, m.vague)
		}
	}
	if m.link.down {
		s.Away += now.Sub(m.absence.began)
	}
	return s
}
