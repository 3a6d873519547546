package fleet

import "math"

// carried returns how much of the window members have seen used before the store lost it, and
// until when all of that counts: in a sliding window until the next one begins, in which it fades.
func (s *step) carried(at int64) (carry, till int64) {
	carry, till = s.bucket.carry, s.bucket.till
	if back := at - s.now; back > 0 {
		till -= back
		s.bucket.service.earmark.till -= back
	}
	if s.now >= till {
		carry, till = 0, 0
	}
	counts := s.lasts
	if s.kind == int64(SlidingWindow) {
		counts -= s.window
	}
	if s.now < s.class.recover && counts > 0 {
		carry, till = max(carry, s.known), max(till, s.now+counts)
	}
	return carry, till
}

// least returns how many units there have to be. What needs none has left already.
func (s *step) least() int64 { return max(s.need, min(s.wanted, 1)) }

// most returns how many units of a window may be used: the shares of silent members are held back.
func (s *step) most() int64 {
	return s.limit - int64(math.Ceil(float64(s.limit)*float64(s.silent)/whole))
}

// soon is when to ask again if what others have not used yet is in the way, in microseconds.
const soon = 1_000_000

// relent has a member that was refused because of the shares of silent ones, or of what is earmarked for another, ask again soon: the
// silent may be back at any time, and the other may want nothing any more.
func (s *step) relent(g *modelGrant, taken, others int64) {
	if s.silent > 0 && s.limit-taken >= s.least() || others > 0 && s.most()-taken >= s.least() {
		g.till = min(g.till, s.now+soon)
	}
}

// keep stores what each window has, and lets it expire when it makes no difference any more.
func (s *step) keep(at, carry, till, ttl int64) {
	b := s.bucket
	b.at, b.carry, b.till = at, carry, till
	b.expires = s.expiry(max(ttl, till-s.now))
}

// takeWindow grants units of a fixed or a sliding window.
func (s *step) takeWindow() (g modelGrant, used int64) {
	from, to, ok := s.bounds()
	if !ok {
		return s.refused(s.now + 1000), 0
	}
	b := s.bucket
	from, to = s.turnTo(from, to)
	carry, till := s.carriedWindow(from)
	weight := b.weight(to-s.now, s.window)
	taken := max(b.used+weight, carry)
	may := s.most() - max(b.used, carry)
	others := b.service.others(s, may)
	room := s.most() - taken - others
	switch {
	case s.now < s.class.recover:
		g = s.refused(s.class.recover)
	case room < s.least():
		g = s.refused(to)
		left := s.most() - b.used - others - s.least()
		if b.before > 0 && left > 0 {
			fades := to - int64(math.Floor(float64(s.window)*(float64(left)/float64(b.before))))
			g.till = min(to, max(fades, s.now+min(s.turn, max(s.window/32, 1000))))
		}
		if till > 0 && left >= weight {
			g.till = till
		}
		s.relent(&g, taken, others)
		b.service.unserved(s, g.till, may)
	default:
		k := min(s.wanted, room)
		b.service.served(s, k)
		b.used += k
		if till > 0 {
			carry += k
		}
		g = modelGrant{number: s.number, units: k, first: from, till: to}
	}
	ttl := to - s.now
	if s.kind == int64(SlidingWindow) {
		ttl += s.window
	}
	s.keep(s.now, carry, till, ttl)
	return g, max(b.used+weight, carry)
}

// bounds returns the present window. It returns false if the window of the call is not the
// present window.
func (s *step) bounds() (from, to int64, ok bool) {
	if s.from != 0 {
		return s.from, s.to, s.now >= s.from && s.now < s.to
	}
	from = s.now - (s.now+s.offset)%s.window
	return from, from + s.window, true
}

// turnTo makes a window the present one of the bucket. It returns the present one, which is a later
// one if the clock was set back.
func (s *step) turnTo(from, to int64) (int64, int64) {
	b := s.bucket
	switch was := b.from; {
	case b.expires == 0:
	case was > from:
		from, to = was, to+was-from
	case was < from:
		if s.kind == int64(SlidingWindow) && was+s.window == from {
			b.before = b.used
		} else {
			b.before = 0
		}
		b.used = 0
	}
	b.from = from
	return from, to
}

// carriedWindow counts the units that the member has used without asking, in the window in which they have left. It
// returns what carried does, these units included.
func (s *step) carriedWindow(from int64) (carry, till int64) {
	b, at := s.bucket, s.now
	if b.expires > 0 {
		at = b.at
	}
	carry, till = s.carried(at)
	if s.kind == int64(SlidingWindow) && s.now < s.class.recover && s.lasts > 0 {
		b.used = max(b.used, s.known)
	}
	for _, use := range s.spent {
		if s.kind == int64(SlidingWindow) && s.now >= from && s.now-use.Age.Microseconds() < from {
			b.before += use.Units
		} else {
			b.used += use.Units
		}
		if till > 0 {
			carry += use.Units
		}
	}
	return carry, till
}

// weight returns how many units of the window before this one still count, when so much of this one is left.
func (b *modelBucket) weight(left, window int64) int64 {
	if b.before <= 0 {
		return 0
	}
	return int64(math.Ceil(float64(b.before)*(float64(min(left, window))/float64(window)) + 0.001))
}

// giveBackWindow takes units back, if their window is still the present one.
func (s *step) giveBackWindow(g *modelGrant) {
	b := s.bucket
	if b.from != s.from {
		return
	}
	b.used, b.carry = max(b.used-s.wanted, 0), max(b.carry-s.wanted, 0)
	*g = s.refused(0)
}

// takeLog grants units of a sliding log.
func (s *step) takeLog() (g modelGrant, used int64) {
	b := s.bucket
	grain := (s.window + 255) / 256
	was := s.now
	if b.expires > 0 {
		was = b.at
	}
	carry, till := s.carried(was - b.ahead)
	at := max(s.now+b.ahead, was)
	b.ahead = at - s.now
	b.forget((at-s.window+grain-1)/grain - 1)
	ttl := grain + 2*s.lead
	count := func(part, n int64) {
		if n == 0 || part < b.oldest {
			return
		}
		b.total += n
		b.grains[part] += n
		if till > 0 {
			carry += n
		}
	}
	for _, use := range s.spent {
		count((at+ttl-use.Age.Microseconds())/grain, use.Units)
	}
	taken := max(b.total, carry)
	others := b.service.others(s, s.most())
	room := s.most() - taken - others
	switch {
	case s.now < s.class.recover:
		g = s.refused(s.class.recover)
	case room < s.least():
		g = s.refused(max((b.oldest+1)*grain+s.window-b.ahead, s.now+1000))
		s.relent(&g, taken, others)
		b.service.unserved(s, g.till, s.most())
	default:
		k := min(s.wanted, room)
		b.service.served(s, k)
		g = modelGrant{number: s.number, units: k, first: (at + ttl) / grain, till: s.now + ttl}
		count(g.first, k)
	}
	s.keep(at, carry, till, s.window+2*grain+ttl)
	return g, max(b.total, carry)
}

// forget drops the grains before first.
func (b *modelBucket) forget(first int64) {
	for ; b.oldest < first; b.oldest++ {
		if b.total == 0 {
			b.oldest = first
			return
		}
		b.total -= b.grains[b.oldest]
		delete(b.grains, b.oldest)
	}
}

// giveBackLog takes units back, if their grain still has them.
func (s *step) giveBackLog(g *modelGrant) {
	b := s.bucket
	if n, ok := b.grains[s.from]; !ok || n < s.wanted {
		return
	}
	b.grains[s.from] -= s.wanted
	b.total, b.carry = b.total-s.wanted, max(b.carry-s.wanted, 0)
	*g = s.refused(0)
}
