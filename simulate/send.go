package simulate

import (
	"shaper/policy"
	"shaper/shaper"
	"shaper/unit"
)

// send has the next item of an arrival enter its class.
func (s *sender) send() error {
	if !s.begun && !s.begin() {
		return s.read()
	}
	if s.isMessage() {
		return s.post()
	}
	p := s.run.parcel()
	s.bucket = s.class.Join(s.run.now, s.conn)
	*p = parcel{item: shaper.Item{Cost: s.take(), Patient: s.stream, Settles: true, Owner: p},
		class: s.class, bucket: s.bucket, arrived: s.run.now, sender: s, conn: s.arrival.Conn}
	if p.item.Held = p.item.Cost.Bytes; p.item.Cost.Packets > 0 { // as in the proxy
		p.item.Held = policy.Holds(p.item.Cost.Bytes)
	}
	s.run.enter(p)
	switch {
	case s.run.err != nil:
		return s.run.err
	case p.holds:
		s.run.agenda.remove(&s.event)
	case s.left == 0:
		return s.read()
	}
	return nil
}

// begin finds the class of an arrival; false if it costs nothing there.
func (s *sender) begin() bool {
	if conn := s.arrival.Conn; s.way[0] == nil || conn != s.last {
		decision := s.run.classifier.Classify(conn)
		s.last, s.way = conn, [2]*class{s.run.byName[decision.Class], s.run.byName[decision.ReturnClass]}
		s.rules, s.ofMessage = s.run.classifier.Messages(conn), nil
		s.protocol = s.run.protocols[conn.Listener]
	}
	// Responses are bytes: nobody tells one from the next to count it.
	s.stream = s.protocol == policy.TCP || s.protocol == policy.HTTP && s.arrival.Returns
	s.class = s.classOf(&s.arrival)
	if s.class == nil {
		return false
	}
	if s.conn = s.last; s.class.conf.Per.By == policy.ByConnection {
		s.conn.Session = s.run.sessionOf(s)
	}
	s.left = s.arrival.Bytes
	s.begun = true
	if s.protocol != policy.UDP && s.class.Counts(unit.Connections) {
		return s.arrival.Opens
	}
	return !s.arrival.Bare && (!s.stream || s.left > 0)
}

// classOf returns the class of an arrival of the connection that was classified last.
func (s *sender) classOf(a *Arrival) *class {
	switch {
	case a.Returns:
		return s.way[1]
	case len(s.rules) == 0:
		return s.way[0]
	case a.Message.IsZero():
		s.run.unsaid = true
	}
	if s.ofMessage == nil || a.Message != s.said {
		s.said, s.ofMessage = a.Message, s.way[0]
		if i := s.rules.First(a.Message.Message()); i >= 0 {
			s.ofMessage = s.run.byName[s.rules[i].Class]
		}
	}
	return s.ofMessage
}

// sessionOf returns the number of the connection that a sender's arrival is of: a
// client's address, port and listener are one. It stays open to the end.
func (r *run) sessionOf(s *sender) uint64 {
	key := session{s.class, s.last}
	id, known := r.sessions[key]
	if !known {
		id = r.nextSession()
		r.sessions[key] = id
		conn := s.last
		conn.Session = id
		s.class.Join(r.now, conn)
	}
	return id
}

// isMessage reports whether the arrival goes through the exchange of its connection.
func (s *sender) isMessage() bool {
	return s.protocol.HasMessages() && !s.stream && !s.class.Counts(unit.Connections)
}

// post sends the arrival as a message. A source that holds sends nothing more until that
// has been read.
func (s *sender) post() error {
	l := s.link()
	l.post(&s.arrival)
	switch {
	case s.run.err != nil:
		return s.run.err
	case s.Holds && l.holds():
		s.left, s.held = 0, l
		s.run.agenda.remove(&s.event)
		return nil
	}
	return s.read()
}

// take returns what the next item of the arrival costs: a connection, a
// datagram, a message, or a piece of a stream as the class cuts it.
func (s *sender) take() shaper.Cost {
	cost := shaper.Cost{Bytes: s.left, Messages: s.arrival.Messages}
	s.arrival.Messages = 0
	switch {
	case s.class.Counts(unit.Connections):
		s.left = 0
		return shaper.Cost{Connections: 1}
	case s.stream:
		cost.Bytes = min(cost.Bytes, s.bucket.Piece())
	default:
		cost.Packets = 1
	}
	s.left -= cost.Bytes
	return cost
}
