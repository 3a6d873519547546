package fleet

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
)

// A modelMember is what the store knows of a member.
type modelMember struct {
	seq, share int64
	joined     int64 // since when it knows the store's clock
	until      int64 // when it is silent
	horizon    int64 // 0: it has not told
	moved      int64 // the number of its last Move
}

// leastJump is how far the clock has to be set forward for that to show, in microseconds.
const leastJump = 2_000_000

// setBack returns how far the clock was set back since the store was sure of the time; less than 0: it was set forward. That shows if nobody
// has called for a while, although this call was sent about when the last one came. A newcomer cannot say so.
func (s *step) setBack() int64 {
	gap := s.now - s.class.seen
	if gap < 0 {
		return -gap
	}
	if forward := min(gap, s.now-s.sent); s.sent > 0 && forward > leastJump {
		return -forward
	}
	return 0
}

// keepAway keeps what the store has measured as far away as it was if the clock was set back by so much. But who was to call by now is
// silent from now on: the store may also have stood still, and then that member uses its share. What a newcomer has fenced since the
// clock was set is no further away than by that fence.
func (c *modelClass) keepAway(s *step, back int64) {
	c.seen, c.pause = c.seen-back, c.pause-back
	c.fence = min(c.fence-back, max(c.fence, s.now+s.fencing))
	c.recover = min(c.recover-back, max(c.recover, s.now+s.recovery))
	for _, m := range c.members {
		m.joined -= back
		m.until = min(m.until-back, max(m.until, s.now-1))
	}
	c.paused.setBack(back)
}

// doubts reports whether the store does not know how much time has passed: nobody has called for a while, and this member is a newcomer.
// Others have some time to say that the clock was set, until the newcomer has known it for some time. Meanwhile the store removes nobody
// that has a share.
func (c *modelClass) doubts(s *step) bool {
	m := c.members[s.member]
	fresh := s.sent == 0 || m == nil || s.now-m.joined <= leastJump
	return fresh && s.now-c.seen > leastJump
}

// enter begins each call: it finds out what was lost, and which members are there. It returns the share of the
// member.
func (s *step) enter(id string) (target int64) {
	c := s.class
	if c.id == "" {
		c.seen = s.now
	}
	if back := s.setBack(); back != 0 {
		c.keepAway(s, back)
	}
	doubts := c.doubts(s)
	other := c.id == "" || c.id != id
	if s.fenced == 1 || other {
		c.fence, c.recover = s.now+s.fencing, s.now+s.recovery
	}
	if other {
		c.lost, c.blank = true, c.id == ""
	}
	c.had = c.lost && (c.had || s.share > 0)
	if c.id = id; !doubts {
		c.seen = s.now
	}
	were := len(c.members)
	for name, m := range c.members {
		if m.until < s.now-s.hold && (!doubts || m.share == 0) {
			c.remove(name)
		}
	}
	gone := len(c.members) < were
	c.holdBack(s.now)
	target = s.present()
	s.tellHorizon(gone)
	for name, m := range c.members {
		if m.until < s.now && name != s.member {
			s.silent += m.share
		}
	}
	s.lasting = s.silent
	if c.lost && c.shares > 0 { // they have not said so yet
		s.silent += max(whole-c.shares, 0)
	}
	return target
}

func (c *modelClass) remove(member string) {
	if m := c.members[member]; m != nil {
		c.shares -= m.share
		delete(c.members, member)
	}
}

// holdBack keeps the shares of members that have not come back after a loss, under the name "", until they claim them. Until
// then, shares has those of members that have left, too.
func (c *modelClass) holdBack(now int64) {
	if !c.lost || now < c.recover {
		return
	}
	missing, had := whole-c.shares, c.shares > 0 || c.had // else there were no members
	c.lost, c.shares = false, 0
	for _, m := range c.members {
		c.shares += m.share
	}
	if !had || missing <= 1000 {
		return
	}
	m := &modelMember{share: missing, until: now - 1}
	if before := c.members[""]; before != nil {
		m.share += before.share
	}
	c.members[""] = m
	c.shares += missing
}

// claim takes the share of a member that has come back from what is held back.
func (c *modelClass) claim(share int64) {
	absent := c.members[""]
	if absent == nil {
		return
	}
	n := min(absent.share, share)
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
	case m == nil && s.seq <= c.final(s.member): // also a late call of a member that has left
		return 0
	case m == nil:
		m = &modelMember{joined: s.now}
		c.members[s.member] = m
	case s.sent == 0:
		m.joined = s.now
	}
	if s.seq <= m.seq {
		return m.share
	}
	if m.share == 0 {
		c.claim(s.share)
	}
	at := s.now
	if s.sent > 0 {
		at = min(s.sent, s.now)
	}
	others := c.shares - m.share
	target = max(0, min(c.part(s, m), whole-others))
	// If the clock was set forward, and the member has not heard yet, its next call has to say that it is there.
	m.seq, m.until, m.share = s.seq, max(at+s.grace, s.now-1), max(s.share, target)
	c.shares = others + m.share
	return target
}

// part returns what a member gets of the whole if others have left so much. During a recovery each keeps what it has: what it gave up would
// seem to be of a member that has not come back; see holdBack. Who comes again under its name has what it said before. If the store has
// that from before the loss, it may have been less by then.
func (c *modelClass) part(s *step, m *modelMember) int64 {
	switch {
	case s.now >= c.recover:
		return whole / int64(len(c.members))
	case c.lost && c.blank:
		return max(s.share, m.share)
	}
	return s.share
}

// maxLeft bounds the text that names who has left last.
const maxLeft = 1000

// leave notes that the member has left, unless it has come again under its name.
func (s *step) leave() {
	c := s.class
	if m := c.members[s.member]; m == nil || s.seq != m.seq {
		return
	}
	shares := c.shares
	if c.remove(s.member); c.lost {
		c.shares = shares // else it would seem to be of a member that has not come back; see holdBack
	}
	c.heed(s.now, s.horizon)
	c.left = fmt.Sprintf("\n%s %d%s", s.member, s.seq, c.left)
	c.left = c.left[:min(len(c.left), maxLeft)]
}

// final returns the number of the call by which a member has left; 0 if it has not left of late.
func (c *modelClass) final(member string) (seq int64) {
	if _, after, ok := strings.Cut(c.left, "\n"+member+" "); ok {
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
		c.heed(s.now, s.horizon)
	}
	s.reach = min(s.horizon, c.shortest)
}

// heed lets no slot begin later after its grant than the shortest horizon of all members: each of them fences a store that
// has lost its grants by its own. What was granted before a member with a shorter one came has to end first. own is the horizon
// of the member that calls.
func (c *modelClass) heed(now, own int64) {
	was, low, high := c.shortest, int64(0), int64(0)
	for _, m := range c.members {
		if h := m.horizon; h > 0 {
			low, high = min(cmp.Or(low, h), h), max(high, h)
		}
	}
	if c.shortest, c.longest = cmp.Or(low, own), cmp.Or(high, own); c.shortest < was {
		c.fence = max(c.fence, now+2*was)
	}
}
