package fleet

import "time"

// heed makes the shortest deadline of all members hold for this one too, as the store does. This member then has to know
// the store's clock as well as that deadline asks: the others fence by it.
func (m *Machine) heed(r *Reply) {
	m.longest = time.Duration(r.Longest) * time.Microsecond
	shortest := time.Duration(r.Shortest) * time.Microsecond
	if shortest == m.class.shortest {
		return
	}
	m.class.shortest = shortest
	class := m.class
	m.current, m.link.tooVague = &class, class.timing().tooVague()
	for _, l := range m.leases {
		if l.reduced != nil {
			class := *l.reduced
			class.shortest = shortest
			l.reduced = &class
		}
	}
}

// fence returns for how long what others hold still counts if the store has lost it. Until the store has known the deadline
// of the member for some time, and so has granted no further ahead, the slots of others may be as far ahead as any.
func (m *Machine) fence(now time.Time) time.Duration {
	t, k := m.class.ownTiming(), &m.link
	if m.class.terms == nil && (!k.isKnown(now) || now.Before(k.known.Add(2*maxDeadline))) {
		return 2 * maxDeadline
	}
	return t.horizon + t.transit
}

// reach returns how far from now the last slot may be that the store has granted to others. Since the store knows this
// member, it grants no further ahead than the policy of this member allows; before, it may have.
func (m *Machine) reach(now time.Time) time.Duration {
	return max(m.class.ownTiming().horizon, m.link.known.Add(maxDeadline).Sub(now))
}
