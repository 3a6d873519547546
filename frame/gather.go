package frame

import "time"

// A format is a protocol whose messages are gathered whole.
type format interface {
	// length returns the length of the message that p begins with. If p is too short to tell,
	// it returns a number of bytes above len(p) that the message has at least.
	length(p []byte) (int, Reason)
	// describe sets m to what a whole message says. m is zero before.
	describe(p []byte, m *Message)
}

// A gatherer scans messages that are gathered whole.
type gatherer struct {
	protocol Protocol
	format   format
	open     bool // the end of the stream may end a message
	offset   int64
	need     int
	message  Message
}

func (g *gatherer) Next(p []byte) (int, Event, error) {
	n, reason := g.format.length(p)
	if reason != fine {
		return 0, More, &Error{g.protocol, reason, g.offset}
	}
	if n > len(p) {
		g.need = n
		return 0, More, nil
	}
	return n, g.found(p[:n]), nil
}

func (g *gatherer) found(p []byte) Event {
	g.message = Message{}
	g.format.describe(p, &g.message)
	g.offset += int64(len(p))
	return Whole
}

func (g *gatherer) End(p []byte) (Event, error) {
	switch {
	case len(p) == 0:
		return More, nil
	case g.open:
		return g.found(p), nil
	}
	return More, &Error{g.protocol, CutShort, g.offset + int64(len(p))}
}

func (g *gatherer) Message() *Message { return &g.message }
func (g *gatherer) Need() int         { return g.need }
func (g *gatherer) Opaque() int64     { return 0 }
func (g *gatherer) Skip(int64) Event  { panic("frame: a message that is gathered was skipped") }

// A silent link is one in which nothing is refused and no response is matched to a request.
type silent struct{ up, down gatherer }

func (s *silent) Up() Scanner                                            { return &s.up }
func (s *silent) Down() Scanner                                          { return &s.down }
func (s *silent) Read([]byte, *Message)                                  {}
func (s *silent) Room() bool                                             { return true }
func (s *silent) Sent(*Message, time.Time)                               {}
func (s *silent) Again()                                                 {}
func (s *silent) Refuse(*Message, bool) bool                             { panic("frame: this protocol cannot refuse") }
func (s *silent) Due() (m Message, ok bool)                              { return m, false }
func (s *silent) AppendRefusal(dst []byte, _ *Message, _ Refusal) []byte { return dst }
func (s *silent) InFlight() int                                          { return 0 }
func (s *silent) Expire(time.Time, func(uint16))                         {}
func (s *silent) Drop(func(uint16))                                      {}
