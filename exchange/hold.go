package exchange

import "time"

// noteRetry notes how many messages the class of m lets be kept, and returns its lists.
func (m *message) noteRetry() *classBacklog {
	b := m.lane.backlog.of(m.tag)
	if m.lane.isUp() && m.class != nil {
		b.most = m.class.Messages().Retry().InFlight
	}
	return b
}

// hold makes a message wait in the connection, and not in the queue of its class.
func (m *message) hold(b *classBacklog) {
	m.held, m.at = b.most > 0, m.lane.x.now
	m.lane.backlog.add(m, missed)
	m.lane.backlog.departed(m.tag)
}

// exceeds reports whether as many messages of its connection wait as the queue of their class has room for. They
// count here if the queue does not know of some of them.
func (m *message) exceeds(b *classBacklog) bool {
	room := m.class.Policy().Queue
	n := int(room.Items.N)
	return n > 0 && b.waiting.n >= n || room.Bytes > 0 && b.waiting.bytes+int(m.payload.n) > int(room.Bytes)
}

// heldTooLong reports whether a message was held for longer than it may wait.
func (m *message) heldTooLong() bool {
	most := time.Duration(m.class.Policy().MaxWait)
	return most > 0 && m.lane.x.now.Sub(m.at) > most && !m.makesWait()
}

// makesWait reports whether the sender has to wait if the class has no room.
func (m *message) makesWait() bool { return m.lane.x.protocol.makesWait(m.class, m.refusable) }
