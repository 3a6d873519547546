package fleet

import "time"

// heed makes the shortest deadline of all members that of this one, as the store does. Its clock has to be as good as that
// asks for: the others fence by it.
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

// fence returns how long what others hold goes on to count if the store has lost it. As long as the store has not known
// the deadline of the member, and granted no further ahead, nobody knows how far ahead the slots of others are.
func (m *Machine) fence(now time.Time) time.Duration {
	t, k := m.class.ownTiming(), &m.link
	if m.class.terms == nil && (!k.isKnown(now) || now.Before(k.known.Add(2*maxDeadline))) {
		return 2 * maxDeadline
	}
	return t.horizon + t.transit
}

// reach returns for how long from now on others may have slots that the store has granted by now. They have no longer
// ones than the policy of this member says, unless they got them before it came.
func (m *Machine) reach(now time.Time) time.Duration {
	return max(m.class.ownTiming().horizon, m.link.known.Add(maxDeadline).Sub(now))
}
