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
