package simulate

import (
	"errors"
	"io"

	"shaper/policy"
	"shaper/shaper"
)

// A sender is a source at work; its event is its next item.
type sender struct {
	event
	Source
	run     *run
	arrival Arrival
	begun   bool  // of the arrival some has been sent
	left    int64 // bytes of it that have not

	last      policy.Conn         // that was classified last: most send more than once
	rules     policy.MessageRules // of that
	said      policy.Fields       // of the message that was classified last
	ofMessage *class              // the class of that; nil: there was none
	way       [2]*class           // its classes, there and back; nil: that way nothing is shaped
	class     *class              // that of the arrival
	conn      policy.Conn         // of the arrival, as a bucket is found by it
	bucket    *shaper.Class       // of the class, that the arrival is for
	protocol  policy.Protocol
	stream    bool // it is bytes over TCP, cut as the class cuts them

	clients map[policy.Conn]*client // of protocols with messages
	from    *client                 // of the last message
	held    *link                   // that has not read what was sent; nil: none holds the sender
}

// A session is a connection as a class with a bucket for each sees it.
type session struct {
	class *class
	conn  policy.Conn
}

// read takes the next arrival of the source, if there is one.
func (s *sender) read() error {
	err := s.Next(&s.arrival)
	if errors.Is(err, io.EOF) {
		s.run.agenda.remove(&s.event)
		return nil
	}
	if err != nil {
		return err
	}
	at := s.arrival.At
	if at.Before(s.run.now) { // it was held back
		at = s.run.now
	}
	s.begun = false
	s.run.agenda.set(&s.event, at)
	return nil
}

// resume goes on with what was held back.
func (s *sender) resume() {
	if s.left > 0 {
		s.run.agenda.set(&s.event, s.run.now)
	} else if err := s.read(); err != nil {
		s.run.err = err
	}
}
