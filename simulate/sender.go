package simulate

import (
	"errors"
	"io"

	"shaper/policy"
	"shaper/shaper"
)

// A sender is a source in a run. Its event is the next item.
type sender struct {
	event
	Source
	run *run

	// The next arrival.
	arrival   Arrival
	ended     bool   // there is none
	begun     bool   // the rest of it is being sent
	remaining int64  // bytes of it that are not sent
	class     *class // that it enters
	stream    bool   // it is bytes, which leave in pieces
	joinAs    policy.Conn
	bucket    *shaper.Class // the class, or one of its buckets

	// The last connection that was classified. Most send more than once.
	lastConn policy.Conn
	classes  [2]*class // upstream and downstream; nil: that direction is not shaped
	rules    policy.MessageRules
	protocol policy.Protocol

	// The last message that rules classified.
	lastFields   policy.Fields
	messageClass *class // nil: there was none

	// For protocols with messages.
	clients    map[policy.Conn]*client
	lastClient *client // of the last message
	heldBy     *link   // the link that has not read what was sent; nil: none
}

// A session is a connection in a class with a bucket for each.
type session struct {
	class *class
	conn  policy.Conn
}

// read reads the next arrival of the source, if there is one.
func (s *sender) read() error {
	err := s.Next(&s.arrival)
	if errors.Is(err, io.EOF) {
		s.ended = true
		s.run.agenda.remove(&s.event)
		return nil
	}
	if err != nil {
		return err
	}
	at := s.arrival.At
	if at.After(s.run.lastArrival) {
		s.run.lastArrival = at
	}
	if at.Before(s.run.now) { // the source was held
		at = s.run.now
	}
	s.begun = false
	s.run.agenda.set(&s.event, at)
	return nil
}

// resume goes on after the sender was held.
func (s *sender) resume() {
	if s.remaining > 0 {
		s.run.agenda.set(&s.event, s.run.now)
	} else if err := s.read(); err != nil {
		s.run.err = err
	}
}
