package fleet

import (
	"time"

	"shaper/limit"
	"shaper/unit"
)

// A Fallback says what a class does while the store is away. The zero Fallback is the share of the member.
type Fallback struct {
	Stop bool      // nothing leaves
	Rate unit.Rate // a rate of its own, whatever others do; the zero Rate: the share
}

// A Machine is one member of a class, without sockets and clocks. Its caller
//
//   - asks Poll for calls until there is none, and sends each of them to the store;
//   - hands over each answer with Answer, and with Fail what was not answered within the deadline;
//   - comes again at Wake, or when a Lease has been told by Take or Want;
//   - looks at a Lease again when Answer or Poll says that it has changed.
//
// Times are those of the member's monotonic clock. The Machine keeps to the following:
//
//   - Only a grant of the store lets anything leave, or the member's share. It counts from the moment at
//     which the store, too, deducts it from what it grants, and ends after the hold.
//   - A call that is lost goes again with the same number, and gets the same grant.
//   - A grant is not used if the store's clock does not fit what was known of it.
//   - A member that has just come waits until all grants have ended that were made before.
//
// A Machine is not safe for concurrent use.
type Machine struct {
	class    Class
	current  *Class // class, for calls: it never changes
	late     lateness
	member   string
	fallback Fallback
	changed  func(*Lease, time.Time)

	link      link
	seq       int64
	mode      Mode
	busyUntil time.Time // until then something has just left
	waiting   int       // leases for which something waits
	away      time.Time // when the present absence of the store began
	spell     time.Duration

	leases    map[string]*Lease
	gone      Counts // of leases that were forgotten
	alarms    alarms
	owing     int    // leases whose use of the share the store does not know yet
	recover   Stamp  // until then the store has to hear what the member knows of its windows
	rivals    int64  // how many members want the next slot
	heir      *Model // hands out the share while the store is away
	heirSince time.Time
	own       Class         // the class at that share, or at the rate of the fallback
	vague     time.Duration // how wrong the clock may have been at a grant whose slots end at vagueTill
	vagueTill time.Time
	pauses    pauses
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
	return &Machine{
		class: class, current: &class, late: class.lateness(), member: member, fallback: fallback, changed: changed,
		link: link{tooVague: class.timing().tooVague()}, seq: first, leases: map[string]*Lease{}, rivals: 1,
	}, nil
}

// Lease returns the lease of a key; "" is the class itself.
func (m *Machine) Lease(key string) *Lease {
	l := m.leases[key]
	if l == nil {
		l = &Lease{hand: hand{machine: m, floor: m.pauses.class}, key: key, number: m.seq, paused: m.pauses.class}
		m.leases[key] = l
	}
	l.unused = false
	return l
}

// Forget drops a lease that nobody uses any more, when nothing is in hand any more and the store
// knows all of it.
func (m *Machine) Forget(l *Lease) {
	l.unused, l.need = true, 0
	l.want(0)
	m.wake(l, time.Time{})
}

// Poll returns the next call to send at now; false if there is none. A Call stays the caller's.
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
		if m.mode != OnShare {
			return c, true
		}
		r := m.heir.Do(m.link.clock.stamp(now), &c)
		l.asked = false
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
	if t := m.shiftAt(); m.link.down && t.After(now) && t.Before(at) {
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
	return m.call(now, Beat, ""), true
}

// contactAt returns when contact has something to send.
func (m *Machine) contactAt(now time.Time) time.Time {
	k := &m.link
	switch {
	case k.down && k.pinging, !k.down && k.beating, !k.down && m.owing > 0:
		return limit.Never
	case k.down:
		return k.pingAt
	case len(m.pauses.untold) > 0 || k.lastSent.IsZero():
		return now
	case k.telling:
		return limit.Never
	}
	return k.lastSent.Add(m.grace(k.lastSent) / 2)
}

// grace returns how long after a call the member counts as present. A call that arrives says when it was sent, and the
// next one is on its way for as long.
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
		Share: k.share, Heard: m.pauses.heard, Lead: k.lead(m.current), at: now,
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
	if c.Op == Ping {
		m.back(now)
		return
	}
	if c.Op == Beat || c.Op == Pause {
		k.beating = false
	}
	if k.down { // a late answer of the time before
		m.Fail(now, c)
		return
	}
	k.heard(c)
	usable := k.answered(now, c, r)
	if k.vague(now) { // answers take too long
		m.Fail(now, c)
		return
	}
	m.hear(now, c, r)
	if r.Recover > r.Now {
		m.testify(now, r.Recover)
	}
	l := m.leases[c.Key]
	if l == nil || c.Op != Take && c.Op != Back {
		return
	}
	l.asked, l.repeat = false, false
	if c.Spent > 0 {
		l.spent = 0
		m.owing = max(m.owing-1, 0)
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
		m.away = now
	}
	m.link.heard(c)
	m.link.failed(now)
	if c.Op == Ping {
		return
	}
	if l := m.leases[c.Key]; l != nil && (c.Op == Take || c.Op == Back) {
		l.asked, l.repeat = false, c.Op == Take
		m.wake(l, now)
	}
}

// back goes on with the store, which has answered a ping.
func (m *Machine) back(now time.Time) {
	if m.link.down && m.mode == OnShare && m.class.burst() > 1 {
		m.link.fenced = true // what the share let leave has used the burst
	}
	m.link.down, m.link.pinging = false, false
	m.spell += max(now.Sub(m.away), 0)
	m.shift(now)
}

// shift changes the mode when that is due.
func (m *Machine) shift(now time.Time) {
	mode := m.modeAt(now)
	if mode == m.mode {
		return
	}
	was := m.mode
	m.mode, m.owing = mode, 0
	if mode == OnShare {
		m.inherit(now)
	}
	for _, l := range m.leases {
		if was == OnShare {
			l.drop(now, true)
			l.raise(l.tookAt.Add(m.class.Rate.Time(1)))
		}
		if l.lapse(now); mode == FromStore && l.spent > 0 {
			m.owing++
		}
		l.retry = time.Time{}
		m.wake(l, now)
	}
}

// modeAt returns the mode that holds at now.
func (m *Machine) modeAt(now time.Time) Mode {
	from := m.shareFrom()
	switch {
	case !m.link.down:
		return FromStore
	case from.IsZero() || now.Before(from):
		return Stopped
	case m.fallback.Rate.Kind() == 0 && !now.Before(m.link.silentAt.Add(m.class.timing().hold)):
		return Stopped
	}
	return OnShare
}

// shareFrom returns from when the member has a share if the store is away; zero if it has none.
func (m *Machine) shareFrom() time.Time {
	switch {
	case m.fallback.Stop:
		return time.Time{}
	case m.fallback.Rate.Kind() != 0:
		return m.away
	case m.link.share == 0:
		return time.Time{}
	}
	return m.link.silentAt
}

// shiftAt returns when the mode changes next if the store stays away; a time that has passed if it does not.
func (m *Machine) shiftAt() time.Time {
	if m.mode == OnShare {
		return m.link.silentAt.Add(m.class.timing().hold)
	}
	return m.shareFrom()
}

// inherit makes a store of the member's own, with its share. The first slots of that come after all
// that the real store may have granted to others.
func (m *Machine) inherit(now time.Time) {
	m.setOwn(now)
	m.heir, m.heirSince = &Model{ID: "share"}, now
}

// setOwn makes the class at the share of the member, or at the rate of the fallback.
func (m *Machine) setOwn(now time.Time) {
	m.own = m.class.atShare(m.link.share)
	if m.fallback.Rate.Kind() != 0 {
		m.own = m.class
		m.own.Rate = m.fallback.Rate
	}
	t := m.class.timing()
	t.recovery = 0
	if m.class.Algorithm == Slots {
		t.transit = m.class.Late + m.doubt(now)
	}
	m.own.terms = &t
	m.own.Burst = m.class.Burst * m.link.share / whole
}

// doubt returns how far the times of a grant may be wrong. It is 0 for a rate of the fallback: a member keeps to that
// by its own clock, also if it has never known that of the store.
func (m *Machine) doubt(now time.Time) time.Duration {
	if m.mode == OnShare && m.fallback.Rate.Kind() != 0 {
		return 0
	}
	return m.link.clock.error(now)
}

// spoilt returns how much of the present window the member's own store has to count as used: all of it
// if the window began before, since others may have used what was left.
func (m *Machine) spoilt(now time.Time, from Stamp) int64 {
	since := m.link.clock.stamp(m.heirSince)
	began := m.link.clock.stamp(now).Add(-m.class.Window)
	switch {
	case m.class.Algorithm == Slots:
		return 0
	case from > 0:
		began = from
	case m.class.Algorithm == FixedWindow:
		w := Stamp(m.class.Window.Microseconds())
		began += w - (began+Stamp(m.class.offset()))%w
	}
	if began > since {
		return 0
	}
	return m.own.Limit()
}

// testify tells a store that has lost what it knew of the windows what the member has seen.
func (m *Machine) testify(now time.Time, until Stamp) {
	m.recover = until
	if m.class.Algorithm == Slots {
		return
	}
	for _, l := range m.leases {
		if now.Before(l.usedUntil) && l.told != until {
			m.wake(l, now)
		}
	}
}

// Leave returns the last call of the member: its share goes to the others.
func (m *Machine) Leave(now time.Time) Call { return m.call(now, Leave, "") }

// wake looks at a lease at the next Poll.
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
}

// Status returns the state at now.
func (m *Machine) Status(now time.Time) Status {
	s := Status{Mode: m.modeAt(now), Members: m.link.members, Share: float64(m.link.share) / whole, RoundTrip: m.link.rtt, Away: m.spell}
	if m.link.clock.known() {
		s.ClockError = m.link.clock.error(now)
		if now.Before(m.vagueTill) {
			s.ClockError = max(s.ClockError, m.vague)
		}
	}
	if m.link.down {
		s.Away += now.Sub(m.away)
	}
	return s
}
