package fleet

// An earmark is units of a window that others leave to one member, whose item needs several at once. Room in a window comes unit by
// unit: members whose items need fewer would have each, before there are enough for that item.
type earmark struct {
	member string
	units  int64
	till   int64 // then the member has missed its turn
}

// A service is how far the members of a window have been served, in units, as in start-time fair queueing (Goyal, Vin and Cheng,
// 1996).
type service struct {
	at  int64            // where the grant began that began the farthest of all
	had map[string]int64 // where the last grant of each member ended
}

// count notes that a member that wants so many units gets some. It stays behind by no more than it wants at once.
func (v *service) count(member string, wanted, units int64) {
	from := max(v.had[member], v.at-wanted)
	v.had[member], v.at = from+units, max(v.at, from)
}

// behind reports whether another has got more than the member, by all that its item needs.
func (v *service) behind(member string, need int64) bool { return v.had[member]+need <= v.at }

// others returns how many units are earmarked for another member. left is how many it may get while the window goes on. If these
// are too few, it waits for the next window, and others use what is left of this one.
func (s *step) others(left int64) int64 {
	m := &s.bucket.earmark
	if m.member == s.member || s.now > m.till || m.units > left {
		return 0
	}
	return m.units
}

// earmark leaves units to the member that calls, which asks again at retry, if its item needs several, it is behind, and no
// other has an earmark.
func (s *step) earmark(retry int64) {
	m := &s.bucket.earmark
	if m.member != s.member && s.now <= m.till {
		return
	}
	*m = earmark{}
	if s.need > 1 && s.bucket.service.behind(s.member, s.need) {
		*m = earmark{s.member, s.need, retry + s.turn}
	}
}

// served notes that the member that calls gets units.
func (s *step) served(units int64) {
	if units == 0 {
		return
	}
	b := s.bucket
	b.service.count(s.member, s.wanted, units)
	if b.earmark.member == s.member {
		b.earmark = earmark{}
	}
}
