package fleet

// An earmark is units of a window that others leave to one member, whose item needs several at once. Room in a window comes unit by
// unit: members whose items need fewer would have each, before there are enough for that item.
type earmark struct {
	member string
	units  int64
	till   int64 // then the member has missed its turn
}

// A service is how far the members of a window have been served, in units, as in start-time fair queueing (Goyal, Vin and Cheng,
// 1996), and what is earmarked for one that is behind.
type service struct {
	at      int64            // where the grant began that began the farthest of all
	had     map[string]int64 // where the last grant of each member ended
	earmark earmark
}

// others returns how many units the member that calls leaves to another one: none if it tells what has left already. A member for
// which nothing waits any more needs none. left is how many the other may get while the window goes on.
func (v *service) others(s *step, left int64) int64 {
	m := &v.earmark
	if m.member == s.member && s.wanted == 0 && s.need == 0 {
		*m = earmark{}
	}
	if m.member == s.member || s.need == 0 || !m.valid(s, left) {
		return 0
	}
	return m.units
}

// valid reports whether others leave what is earmarked. If the member may get too few while the window goes on, it waits for the
// next window, and others use what is left of this one. A member that is silent does not come for them.
func (m *earmark) valid(s *step, left int64) bool {
	owner := s.class.members[m.member]
	return s.now <= m.till && m.units <= left && owner != nil && owner.until >= s.now
}

// unserved leaves units to the member that calls, which asks again at retry, if its item needs several, and it is behind: another
// has got more, by all that the item needs. The member that has been served the least far comes first. What has left already takes no
// turn: it changes nothing.
func (v *service) unserved(s *step, retry, left int64) {
	if s.need == 0 {
		return
	}
	m, had := &v.earmark, v.had[s.member]
	if m.member != s.member && m.valid(s, left) && v.had[m.member] <= had {
		return
	}
	*m = earmark{}
	if s.need > 1 && s.need <= s.most() && had+s.need <= v.at {
		*m = earmark{s.member, s.need, retry + s.turn}
	}
}

// served notes that the member that calls gets units. It stays behind by no more than it wants at once.
func (v *service) served(s *step, units int64) {
	if units == 0 {
		return
	}
	from := max(v.had[s.member], v.at-s.wanted)
	v.had[s.member], v.at = from+units, max(v.at, from)
	if v.earmark.member == s.member && s.need > 0 {
		v.earmark = earmark{}
	}
}
