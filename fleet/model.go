package fleet

import (
	"maps"
	"math"
)

// A Model is a store in memory. It computes what reserve.lua does, step by step: for simulations,
// for tests, and for a member that is on its own. The zero Model is an empty store. It is not
// safe for concurrent use.
type Model struct {
	// ID names the store. A Model with another ID fences what it knows, as another server does.
	ID      string
	classes map[string]*modelClass
}

type modelClass struct {
	id                            string
	seen                          int64 // the last time of which the store is sure
	fence, recover, pause, shares int64
	expires                       int64
	moved                         int64  // by how much slots of the class itself have moved
	shortest, longest             int64  // horizons of members; 0: nobody has told
	left                          string // who has left last, and the numbers of these calls
	lost                          bool
	blank                         bool // and all that the store knows it has heard since
	had                           bool // and somebody has said since that it has a share
	paused                        keyPauses
	members                       map[string]*modelMember
	buckets                       map[string]*modelBucket
	many                          int // with so many buckets, sweep looks which have expired
}

type modelBucket struct {
	expires int64
	grants  map[string]*modelGrant
	line    []waiting // members that wait; the one whose last slot is the longest ago comes first
	lineEnd int64     // when the line expires
	at      int64

	// Slots.
	next slotTime
	owed int64
	full int64 // when the burst of each member is there again

	// Windows.
	carry, till        int64
	from, used, before int64
	service            service

	// A sliding log.
	total, oldest, ahead int64
	grains               map[int64]int64
}

type modelGrant struct{ number, units, first, rem, span, till int64 }

// A step is one call on its way through the model.
type step struct {
	// What the call says of the member.
	member                          string
	seq, fenced, sent, grace, share int64

	// The terms of the class.
	horizon, fencing, hold, recovery, turn int64

	// What the call asks of the bucket.
	number, kind, wanted, need, lead int64

	// The slots of the class.
	period period
	depth  int64

	// Its windows, and what the member knows of the present one.
	limit, window, offset, from, to int64
	known, lasts                    int64
	heard                           int64
	spent                           []Use

	// What the model adds.
	now     int64
	class   *modelClass
	bucket  *modelBucket
	reach   int64 // no slot begins later after its grant
	silent  int64 // the shares of silent members
	lasting int64 // of members that are known: after a loss, most others are claimed within a moment
	quiet   int64 // until then nothing leaves of the bucket
}

func newStep(now Stamp, c *Call) *step {
	n := c.numbers()
	return &step{
		seq: n[0], fenced: n[1], sent: n[2], grace: n[3], share: n[4],
		horizon: n[5], fencing: n[6], hold: n[7], recovery: n[8], turn: n[9],
		number: n[10], kind: n[11], wanted: n[12], need: n[13], lead: n[14], period: period{n[15], n[16], n[17]},
		depth: n[18], limit: n[19], window: n[20], offset: n[21], from: n[22], to: n[23],
		known: n[24], lasts: n[25], heard: n[26], spent: c.Spent,
		now: int64(now), member: c.Member,
	}
}

// Do answers a call at a time of the store's clock.
func (m *Model) Do(now Stamp, c *Call) Reply {
	s := newStep(now, c)
	s.class, s.bucket = m.find(c, s.now)
	target := s.enter(m.ID)
	switch c.Op {
	case Pause:
		s.pause(c.Key)
	case Leave:
		s.leave()
	}
	key, paused := s.tell(c.Key)
	g, used := s.serve(c.Op)
	s.class.expires = max(s.now+2*s.hold, s.class.pause)
	r := Reply{
		Heard: s.heard, Paused: key, PausedTill: Stamp(paused),
		Now: now, Members: int64(len(s.class.members)), Share: target, Silent: s.lasting, Recover: Stamp(s.class.recover), Pause: Stamp(s.class.pause),
		Shortest: s.class.shortest, Longest: s.class.longest,
		Units: g.units, First: Stamp(g.first), Rem: g.rem, Span: g.span, Till: Stamp(g.till), Used: used, Moved: Stamp(s.class.moved),
	}
	if s.kind == int64(Slots) {
		r.Line = int64(len(s.bucket.line))
	}
	return r
}

// find returns the class and the bucket of a call; new ones if there are none, or they have expired.
func (m *Model) find(c *Call, now int64) (*modelClass, *modelBucket) {
	if m.classes == nil {
		m.classes = map[string]*modelClass{}
	}
	class := m.classes[c.Class.Name]
	switch {
	case class == nil:
		class = &modelClass{members: map[string]*modelMember{}, buckets: map[string]*modelBucket{}}
		m.classes[c.Class.Name] = class
	case now >= class.expires:
		*class = modelClass{members: map[string]*modelMember{}, buckets: class.buckets, paused: keyPauses{until: class.paused.until}}
	}
	b := class.buckets[c.Key]
	switch {
	case b == nil:
		class.sweep(now)
		b = newModelBucket()
		class.buckets[c.Key] = b
	case b.expires > 0 && now >= b.expires:
		line, end := b.line, b.lineEnd
		*b = *newModelBucket()
		b.line, b.lineEnd = line, end
	}
	if now >= b.lineEnd {
		b.line = nil
	}
	return class, b
}

// sweep forgets buckets that have expired, whenever there are twice as many as remained the last time.
func (c *modelClass) sweep(now int64) {
	if len(c.buckets) < c.many {
		return
	}
	maps.DeleteFunc(c.buckets, func(_ string, b *modelBucket) bool { return now >= b.expires && now >= b.lineEnd })
	c.many = max(2*len(c.buckets), 64)
}

func newModelBucket() *modelBucket {
	return &modelBucket{grants: map[string]*modelGrant{}, grains: map[int64]int64{}, service: service{had: map[string]int64{}}}
}

// pause notes that the provider wants nothing of a key for a time, or of the class.
func (s *step) pause(key string) {
	c := s.class
	if key == "" {
		c.pause = max(c.pause, s.now+s.wanted)
		return
	}
	c.paused.add(s.now, key, s.now+s.wanted)
}

// tell returns a key that pauses, and until when: the one that the call asks for, or the next that the member has
// not heard of.
func (s *step) tell(key string) (string, int64) {
	c := s.class
	till := c.paused.of(s.now, key)
	s.quiet = max(c.pause, till)
	if till == 0 && s.heard != c.paused.many {
		s.heard, key = c.paused.next(s.heard)
		till = c.paused.of(s.now, key)
	}
	if till == 0 {
		key = ""
	}
	return key, till
}

// serve does what the call asks of its bucket.
func (s *step) serve(op Op) (g modelGrant, used int64) {
	g = s.refused(0)
	had := s.bucket.grants[s.member]
	switch {
	case op == Take && had != nil && had.number >= s.number:
		if had.number == s.number {
			g, used = *had, s.usedOnly()
		}
	case op == Take:
		g, used = s.take()
		if g.units > 0 || len(s.spent) > 0 {
			kept := g
			s.bucket.grants[s.member] = &kept
		}
	case op == Back && had != nil:
		s.giveBack(had)
	case op == Move:
		s.moveSlots()
	}
	return g, used
}

func (s *step) take() (g modelGrant, used int64) {
	switch Algorithm(s.kind) {
	case Slots:
		return s.takeSlots(), 0
	case SlidingLog:
		return s.takeLog()
	}
	return s.takeWindow()
}

// usedOnly returns how much of the window is used, and takes no more of the window: for a call that comes again,
// and gets what it got before.
func (s *step) usedOnly() (used int64) {
	if s.kind == int64(Slots) {
		return 0
	}
	s.wanted, s.need, s.spent = 0, 0, nil
	_, used = s.take()
	return used
}

// giveBack takes back units of a window that the member has got.
func (s *step) giveBack(had *modelGrant) {
	switch {
	case s.kind == int64(Slots), had.number >= s.number:
	case s.kind == int64(SlidingLog):
		s.giveBackLog(had)
	default:
		s.giveBackWindow(had)
	}
}

// refused grants nothing. The member asks again at retry.
func (s *step) refused(retry int64) modelGrant { return modelGrant{number: s.number, till: retry} }

// expiry returns when the store forgets what makes no difference any more after some microseconds: 10 s later, in whole
// milliseconds, as PEXPIRE does.
func (s *step) expiry(after int64) int64 {
	return s.now + (int64(math.Ceil(float64(after)/1000))+10000)*1000
}
