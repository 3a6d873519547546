// Package exchangetest is a host for an exchange, in memory and in virtual time.
package exchangetest

import (
	"io"
	"time"

	"shaper/exchange"
	"shaper/shaper"
	"shaper/stats"
)

// Host is a connection between a client and a provider. Whoever uses it makes the exchange
// of it, and calls Drive whenever something has happened to Up or Down.
type Host struct {
	Machine  *exchange.Exchange
	Now      time.Time
	Tick     time.Duration // that passes whenever the exchange asks for the time
	Up, Down Stream
	Over     bool         // the connection has ended
	Result   stats.Result // how
	Lingers  bool         // the client has been told that the connection ends

	again bool
}

// New returns the host of a connection that begins at now. Config lacks the exchange's
// own: Host, Up and Down.
func New(now time.Time, c exchange.Config) *Host {
	h := &Host{Now: now}
	h.Up, h.Down = Stream{host: h, Room: -1}, Stream{host: h, Room: -1}
	c.Host, c.Up, c.Down = h, &h.Up, &h.Down
	h.Machine = exchange.New(c)
	return h
}

// Drive drives the exchange at a time until it has nothing to do.
func (h *Host) Drive(now time.Time) {
	h.Now = now
	for h.again = true; h.again && !h.Over; {
		h.again = false
		h.Machine.Drive(now)
	}
}

// Time implements exchange.Host.
func (h *Host) Time() time.Time {
	h.Now = h.Now.Add(h.Tick)
	return h.Now
}

// Turn implements exchange.Host.
func (h *Host) Turn(now time.Time, turn exchange.Turn) {
	h.Now = now
	turn.Take(now)
	if h.again {
		h.Drive(now)
	}
}

// Revisit implements exchange.Host.
func (h *Host) Revisit() { h.again = true }

// Fail implements exchange.Host.
func (h *Host) Fail(result stats.Result) {
	h.Machine.Flush()
	h.Finish(result)
}

// Cut implements exchange.Host.
func (h *Host) Cut(result stats.Result) { h.Finish(result) }

// Linger implements exchange.Host.
func (h *Host) Linger() { h.Lingers = true }

// Finish ends the connection.
func (h *Host) Finish(result stats.Result) {
	if !h.Over {
		h.Over, h.Result = true, result
		h.Machine.Quit(h.Now, stats.Reset)
	}
}

// Stream is one direction of the connection.
type Stream struct {
	In   []byte // what the sender has sent, and the exchange has not read
	Ends error  // what follows: io.EOF or exchange.ErrCut; nil: more may come
	Most int    // bytes that are read at once; 0: any number

	Got   []byte         // what the receiver has
	Room  int            // bytes that the receiver still takes; -1: any number
	Told  bool           // the receiver has been told that nothing more comes
	Fault error          // what the exchange says of bytes that are no message
	Heard func(p []byte) // is called with what the receiver gets; may be nil
	Cost  shaper.Cost    // of all that was counted

	host *Host
	read bool // Ends has been read
}

// Readable implements exchange.Direction.
func (s *Stream) Readable() bool { return len(s.In) > 0 || s.Ends != nil && !s.read }

// Read implements exchange.Direction.
func (s *Stream) Read(p []byte) (int, error) {
	if len(s.In) == 0 {
		s.read = s.Ends != nil
		return 0, s.Ends
	}
	if s.Most > 0 {
		p = p[:min(len(p), s.Most)]
	}
	n := copy(p, s.In)
	s.In = s.In[n:]
	return n, nil
}

// Writable implements exchange.Direction.
func (s *Stream) Writable() bool { return s.Room != 0 }

// Write implements exchange.Direction.
func (s *Stream) Write(p []byte) (int, time.Time) {
	if s.Room >= 0 {
		p = p[:min(len(p), s.Room)]
		s.Room -= len(p)
	}
	s.Got = append(s.Got, p...)
	if s.Heard != nil {
		s.Heard(p)
	}
	return len(p), s.host.Now
}

// End implements exchange.Direction: a fault ends the connection, and so do two ends.
func (s *Stream) End() {
	s.Told = true
	switch h := s.host; {
	case s.Fault != nil:
		h.Finish(stats.Unframed)
	case s.Ends != io.EOF && s.Ends != nil:
		h.Finish(stats.ResetByPeer)
	case h.Up.Told && h.Down.Told:
		h.Finish(stats.OK)
	}
}

// Break implements exchange.Direction.
func (s *Stream) Break(err error) { s.Fault = err }

// Sent implements exchange.Direction.
func (s *Stream) Sent(_ *shaper.Class, cost shaper.Cost) {
	s.Cost.Bytes += cost.Bytes
	s.Cost.Messages += cost.Messages
}
