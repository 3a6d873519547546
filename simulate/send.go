package simulate

import (
	"shaper/policy"
	"shaper/shaper"
	"shaper/unit"
)

// send sends the next item of the arrival: it enters its class.
func (s *sender) send() error {
	if !s.begun && !s.begin() {
		return s.read()
	}
	if s.isMessage() {
		return s.post()
	}
	p := s.run.newParcel()
	s.bucket = s.class.Join(s.run.now, s.joinAs)
	patient := s.stream || s.class.Counts(unit.Connections) // the proxy stops reading, or dials later
	*p = parcel{item: shaper.Item{Cost: s.take(), Patient: patient, Settles: true, Owner: p},
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
	case s.remaining == 0:
		return s.read()
	}
	return nil
}

// begin finds the class of the arrival. It returns false if the arrival is ignored.
func (s *sender) begin() bool {
	if conn := s.arrival.Conn; s.classes[0] == nil || conn != s.lastConn {
		decision := s.run.classifier.Classify(conn)
		s.lastConn, s.classes = conn, [2]*class{s.run.byName[decision.Class], s.run.byName[decision.ReturnClass]}
		s.rules, s.messageClass = s.run.classifier.Messages(conn), nil
		s.protocol = s.run.protocols[conn.Listener]
	}
	// Responses are bytes, as in the proxy, which does not count them.
	s.stream = s.protocol == policy.TCP || s.protocol == policy.HTTP && s.arrival.Returns
	s.class = s.classOf(&s.arrival)
	if s.class == nil {
		return false
	}
	if s.joinAs = s.lastConn; s.class.conf.Per.Has(policy.ByConnection) {
		s.joinAs.Session = s.run.sessionOf(s)
	}
	if s.class.conf.Per.Has(policy.ByBind) {
		s.joinAs.Bind = s.bindOf()
	}
	s.remaining = s.arrival.Bytes
	s.begun = true
	if s.protocol != policy.UDP && s.class.Counts(unit.Connections) {
		return s.arrival.Opens
	}
	return !s.arrival.Bare && (!s.stream || s.remaining > 0)
}

// classOf returns the class of an arrival on lastConn.
func (s *sender) classOf(a *Arrival) *class {
	switch {
	case a.Returns:
		return s.classes[1]
	case len(s.rules) == 0:
		return s.classes[0]
	case a.Message.IsZero():
		s.run.unsaid = true
	}
	if s.messageClass == nil || a.Message != s.lastFields {
		s.lastFields, s.messageClass = a.Message, s.classes[0]
		if i := s.rules.First(a.Message.Message()); i >= 0 {
			s.messageClass = s.run.byName[s.rules[i].Class]
		}
	}
	return s.messageClass
}

// sessionOf returns the number of the connection that an arrival belongs to: one for each
// client address, port and listener. It stays open to the end.
func (r *run) sessionOf(s *sender) uint64 {
	key := session{s.class, s.lastConn}
	id, known := r.sessions[key]
	if !known {
		id = r.nextSession()
		r.sessions[key] = id
		conn := s.lastConn
		conn.Session = id
		s.class.Join(r.now, conn)
	}
	return id
}

// isMessage reports whether the arrival passes through the exchange of a link.
func (s *sender) isMessage() bool {
	return s.protocol.HasMessages() && !s.stream && !s.class.Counts(unit.Connections)
}

// post sends the arrival as a message. If the source holds, it sends nothing more until the
// link has read it.
func (s *sender) post() error {
	l := s.link()
	l.post(&s.arrival)
	switch {
	case s.run.err != nil:
		return s.run.err
	case s.Holds && l.holds():
		s.remaining, s.heldBy = 0, l
		s.run.agenda.remove(&s.event)
		return nil
	}
	return s.read()
}

// take takes the next item off the arrival, and returns its cost: a connection, a datagram, a
// message, or a piece of a stream.
func (s *sender) take() shaper.Cost {
	cost := shaper.Cost{Bytes: s.remaining, Messages: s.arrival.Messages}
	s.arrival.Messages = 0
	switch {
	case s.class.Counts(unit.Connections):
		s.remaining = 0
		return shaper.Cost{Connections: 1}
	case s.stream:
		cost.Bytes = min(cost.Bytes, s.bucket.Piece())
	default:
		cost.Packets = 1
	}
	s.remaining -= cost.Bytes
	return cost
}
