package fleet

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
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
	id                                  string
	seen, fence, recover, pause, shares int64
	shortest, longest                   int64  // horizons of members; 0: nobody has told
	left                                string // who has left last, and the numbers of these calls
	lost                                bool
	paused                              map[string]int64 // until when keys pause
	pauses                              int64            // how many pauses of keys there have been
	named                               [64]string       // the keys of the last ones
	members                             map[string]*modelMember
	buckets                             map[string]*modelBucket
	many                                int // with so many buckets, sweep looks which have expired
}

type modelMember struct {
	seq, share int64
	until      int64 // when it is silent
	horizon    int64 // 0: it has not told
}

type modelBucket struct {
	expires int64
	grants  map[string]*modelGrant
	line    []waiting // members that wait; the one whose last slot is the longest ago comes first
	lineEnd int64     // when the line expires
	at      int64

	// Slots.
	us, rem, owed int64
	last          *modelGrant // nil: it was given back

	// Windows.
	carry, till        int64
	from, used, before int64

	// A sliding log.
	total, oldest, ahead int64
	grains               map[int64]int64
}

type waiting struct {
	member string
	since  int64 // its last slot
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
	quo, rem, parts int64 // a period
	depth           int64

	// Its windows, and what the member knows of the present one.
	limit, window, offset, from, to int64
	known, left, spent              int64
	heard                           int64

	// What the model adds.
	now    int64
	class  *modelClass
	bucket *modelBucket
	reach  int64 // no slot begins later after its grant
	silent int64 // the shares of silent members
	quiet  int64 // until then nothing leaves of the bucket
}

func newStep(now Stamp, c *Call) *step {
	n := c.numbers()
	return &step{
		seq: n[0], fenced: n[1], sent: n[2], grace: n[3], share: n[4],
		horizon: n[5], fencing: n[6], hold: n[7], recovery: n[8], turn: n[9],
		number: n[10], kind: n[11], wanted: n[12], need: n[13], lead: n[14], quo: n[15], rem: n[16], parts: n[17],
		depth: n[18], limit: n[19], window: n[20], offset: n[21], from: n[22], to: n[23],
		known: n[24], left: n[25], spent: n[26], heard: n[27],
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
	r := Reply{
		Heard: s.heard, Paused: key, PausedTill: Stamp(paused),
		Now: now, Members: int64(len(s.class.members)), Share: target, Recover: Stamp(s.class.recover), Pause: Stamp(s.class.pause),
		Shortest: s.class.shortest, Longest: s.class.longest,
		Units: g.units, First: Stamp(g.first), Rem: g.rem, Span: g.span, Till: Stamp(g.till), Used: used,
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
		class = &modelClass{members: map[string]*modelMember{}, buckets: map[string]*modelBucket{}, paused: map[string]int64{}}
		m.classes[c.Class.Name] = class
	case now >= max(class.seen+2*c.Class.timing().hold.Microseconds(), class.pause):
		*class = modelClass{members: map[string]*modelMember{}, buckets: class.buckets, paused: class.paused}
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

// sweep forgets buckets that have expired, whenever there are twice as many as it left the last time.
func (c *modelClass) sweep(now int64) {
	if len(c.buckets) < c.many {
		return
	}
	maps.DeleteFunc(c.buckets, func(_ string, b *modelBucket) bool { return now >= b.expires && now >= b.lineEnd })
	c.many = max(2*len(c.buckets), 64)
}

func newModelBucket() *modelBucket {
	return &modelBucket{grants: map[string]*modelGrant{}, grains: map[int64]int64{}}
}

// enter begins each call: it finds out what was lost, and which members are there. It returns the share of the
// member.
func (s *step) enter(id string) (target int64) {
	c := s.class
	if back := c.seen - s.now; back > 0 {
		c.fence, c.recover, c.pause = c.fence-back, c.recover-back, c.pause-back
		for _, m := range c.members {
			m.until -= back
		}
		for key := range c.paused {
			c.paused[key] -= back
		}
	}
	other := c.id == "" || c.id != id
	if s.fenced == 1 || other {
		c.fence, c.recover = s.now+s.fencing, s.now+s.recovery
	}
	c.lost = c.lost || other
	c.id, c.seen = id, s.now
	were := len(c.members)
	for name, m := range c.members {
		if m.until < s.now-s.hold {
			c.remove(name)
		}
	}
	gone := len(c.members) < were
	s.claim()
	target = s.present()
	s.tellHorizon(gone)
	for name, m := range c.members {
		if m.until < s.now && name != s.member {
			s.silent += m.share
		}
	}
	if c.lost && c.shares > 0 { // they have not said so yet
		s.silent += whole - c.shares
	}
	return target
}

func (c *modelClass) remove(member string) {
	if m := c.members[member]; m != nil {
		c.shares -= m.share
		delete(c.members, member)
	}
}

// claim holds back the shares of members that have not come back after a loss, until they come.
func (s *step) claim() {
	c := s.class
	if c.lost && s.now >= c.recover {
		c.lost = false
		if c.shares > 0 && c.shares < whole-1000 {
			c.members[""] = &modelMember{share: whole - c.shares, until: s.now - 1}
			c.shares = whole
		}
	}
	absent, m := c.members[""], c.members[s.member]
	if absent == nil || s.share == 0 || m != nil && m.share > 0 {
		return
	}
	n := min(absent.share, s.share)
	absent.share, c.shares = absent.share-n, c.shares-n
	if absent.share == 0 {
		delete(c.members, "")
	}
}

// present notes that the member is there, and returns its share.
func (s *step) present() (target int64) {
	c := s.class
	m := c.members[s.member]
	switch {
	case m != nil && s.seq <= m.seq:
		return m.share
	case m == nil && s.seq <= s.final(): // also a late call of a member that has left
		return 0
	case m == nil:
		m = &modelMember{}
		c.members[s.member] = m
	}
	at := s.now
	if s.sent > 0 {
		at = min(s.sent, s.now)
	}
	others := c.shares - m.share
	target = max(0, min(whole/int64(len(c.members)), whole-others))
	if s.now < c.recover {
		target = min(target, s.share)
	}
	m.seq, m.until, m.share = s.seq, at+s.grace, max(s.share, target)
	c.shares = others + m.share
	return target
}

// maxLeft bounds the text that names who has left last.
const maxLeft = 1000

// leave notes that the member has left, unless it has come again under its name.
func (s *step) leave() {
	c := s.class
	if m := c.members[s.member]; m == nil || s.seq != m.seq {
		return
	}
	c.remove(s.member)
	s.heed()
	c.left = fmt.Sprintf("\n%s %d%s", s.member, s.seq, c.left)
	c.left = c.left[:min(len(c.left), maxLeft)]
}

// final returns the number of the call by which the member has left; 0 if it has not left of late.
func (s *step) final() (seq int64) {
	if _, after, ok := strings.Cut(s.class.left, "\n"+s.member+" "); ok {
		number, _, _ := strings.Cut(after, "\n")
		seq, _ = strconv.ParseInt(number, 10, 64)
	}
	return seq
}

// tellHorizon notes how far ahead the policy of the member lets slots be granted. gone says that others are not there any more.
func (s *step) tellHorizon(gone bool) {
	c := s.class
	if c.shortest == 0 {
		c.shortest, c.longest = s.horizon, s.horizon
	}
	if m := c.members[s.member]; m != nil && m.seq == s.seq && (m.horizon != s.horizon || s.horizon < c.shortest) {
		m.horizon, gone = s.horizon, true
	}
	if gone {
		s.heed()
	}
	s.reach = min(s.horizon, c.shortest)
}

// heed lets no slot begin later after its grant than the shortest horizon of all members: each of them fences a store that
// has lost its grants by its own. What was granted before a member with a shorter one came has to end first.
func (s *step) heed() {
	c := s.class
	was, low, high := c.shortest, int64(0), int64(0)
	for _, m := range c.members {
		if h := m.horizon; h > 0 {
			low, high = min(cmp.Or(low, h), h), max(high, h)
		}
	}
	if c.shortest, c.longest = cmp.Or(low, s.horizon), cmp.Or(high, s.horizon); c.shortest < was {
		c.fence = max(c.fence, s.now+2*was)
	}
}

// maxPaused bounds how many keys pause at once.
const maxPaused = 1024

// pause notes that the provider wants nothing of a key for a time, or of the class.
func (s *step) pause(key string) {
	c := s.class
	if key == "" {
		c.pause = max(c.pause, s.now+s.wanted)
		return
	}
	c.paused[key] = max(c.paused[key], s.now+s.wanted)
	keys := slices.SortedFunc(maps.Keys(c.paused), func(a, b string) int {
		return cmp.Or(cmp.Compare(c.paused[a], c.paused[b]), cmp.Compare(a, b))
	})
	for i, k := range keys {
		if c.paused[k] <= s.now || len(keys)-i > maxPaused {
			delete(c.paused, k)
		}
	}
	c.pauses++
	c.named[c.pauses%int64(len(c.named))] = key
}

// tell returns a key that pauses, and until when: the one that the call asks for, or the next that the member has
// not heard of.
func (s *step) tell(key string) (string, int64) {
	c := s.class
	till := s.pauseOf(key)
	s.quiet = max(c.pause, till)
	if till == 0 && s.heard != c.pauses {
		if s.heard > c.pauses { // that was another store
			s.heard = 0
		}
		s.heard = max(s.heard, c.pauses-int64(len(c.named))) + 1
		key = c.named[s.heard%int64(len(c.named))]
		till = s.pauseOf(key)
	}
	if till == 0 {
		key = ""
	}
	return key, till
}

// pauseOf returns until when a key pauses; 0 if it does not.
func (s *step) pauseOf(key string) int64 {
	if till := s.class.paused[key]; till > s.now {
		return till
	}
	return 0
}

// serve does what the call asks of its bucket.
func (s *step) serve(op Op) (g modelGrant, used int64) {
	g = s.refused(0)
	had := s.bucket.grants[s.member]
	switch {
	case op == Take && had != nil && had.number >= s.number:
		if had.number == s.number {
			g = *had
		}
	case op == Take:
		g, used = s.take()
		if g.units > 0 || s.spent > 0 {
			kept := g
			s.bucket.grants[s.member] = &kept
			if g.units > 0 {
				s.bucket.last = &kept
			}
		}
	case op == Back && had != nil:
		s.giveBack(had)
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

func (s *step) giveBack(had *modelGrant) {
	slots := s.kind == int64(Slots)
	switch {
	case slots && had.number == s.number && s.wanted <= had.units:
		s.giveBackSlots(had)
	case slots || had.number >= s.number:
	case s.kind == int64(SlidingLog):
		s.giveBackLog(had)
	default:
		s.giveBackWindow(had)
	}
}

func (s *step) refused(retry int64) modelGrant { return modelGrant{number: s.number, till: retry} }

// advance returns the slot n periods after a slot.
func (s *step) advance(us, rem, n int64) (int64, int64) {
	sum := rem + n*s.rem
	return us + n*s.quo + sum/s.parts, sum % s.parts
}

// takeSlots grants departure times, one period apart.
func (s *step) takeSlots() modelGrant {
	b := s.bucket
	us, rem := b.us, b.rem
	if b.at > s.now {
		us -= b.at - s.now
		b.us, b.at = us, s.now
	}
	if rem >= s.parts { // of a member with another rate
		us, rem = us+1, 0
	}
	gap := int64(math.Ceil(float64(s.quo) + float64(s.rem)/float64(s.parts)))
	if start := max(s.now+s.lead-s.depth, s.class.fence+gap, s.quiet); us < start {
		us, rem = start, 0
	}
	f := whole - s.silent
	if f < whole/64 {
		return s.refused(s.now + s.reach)
	}
	period := (float64(s.quo) + float64(s.rem)/float64(s.parts)) * (float64(whole) / float64(f))
	block := max(min(float64(s.wanted), math.Floor(float64(s.reach)/2/period)), 1)
	free, ahead := us-s.reach+int64(math.Ceil((block-1)*period)), b.place(s.member, s.lastSlot())
	if s.now <= free+ahead*s.turn {
		return s.wait(max(free+ahead*s.turn, s.now) + 1)
	}
	b.leaveLine(s.member, int(ahead))

	lastToo := int64(0) // items of several units need whole blocks: then the slot that begins last within reach counts, too
	if s.need > 1 {
		lastToo = 1
	}
	k := max(min(s.wanted, max(1, int64(math.Floor(float64(s.now+s.reach-us)/period))+lastToo)), s.need)
	skip := int64(0)
	if f < whole {
		b.owed += k * (whole - f)
		skip, b.owed = b.owed/f, b.owed%f
	}
	g := modelGrant{number: s.number, units: k, first: us, rem: rem, span: k + skip}
	b.us, b.rem = s.advance(us, rem, k+skip)
	b.at = s.now
	b.expires = s.now + (int64(math.Ceil(float64(max(b.us+s.depth-s.now, 0))/1000))+10000)*1000
	return g
}

// lastSlot returns when the last block of the member began; 0 if it had none.
func (s *step) lastSlot() int64 {
	if g := s.bucket.grants[s.member]; g != nil {
		return g.first
	}
	return 0
}

// place returns how many members wait before this one.
func (b *modelBucket) place(member string, last int64) (ahead int64) {
	for i, w := range b.line {
		if w.member == member {
			return int64(i)
		}
		if w.since < last {
			ahead++
		}
	}
	return ahead
}

// leaveLine removes a member and the first ahead others, which have missed their turns.
func (b *modelBucket) leaveLine(member string, ahead int) {
	b.line = slices.DeleteFunc(b.line, func(w waiting) bool { return w.member == member })
	b.line = b.line[min(ahead, len(b.line)):]
}

// wait puts the member in the line for the next slot that comes within the horizon.
func (s *step) wait(retry int64) modelGrant {
	b := s.bucket
	if !slices.ContainsFunc(b.line, func(w waiting) bool { return w.member == s.member }) {
		b.line = append(b.line, waiting{s.member, s.lastSlot()})
		slices.SortFunc(b.line, func(a, o waiting) int {
			return cmp.Or(cmp.Compare(a.since, o.since), cmp.Compare(a.member, o.member))
		})
	}
	b.lineEnd = s.now + (int64(math.Ceil(float64(retry-s.now)/1000))+10000)*1000
	return s.refused(retry)
}

// giveBackSlots takes back the last units of the last block that anybody got.
func (s *step) giveBackSlots(g *modelGrant) {
	b := s.bucket
	if b.last != g || b.at > s.now {
		return
	}
	k := g.units - s.wanted
	span := (k*g.span + g.units - 1) / g.units
	b.us, b.rem = s.advance(g.first, g.rem, span)
	g.units, g.span = k, span
	if k == 0 {
		b.last = nil
	}
}
