// Package exchangetest is a host for an exchange, in memory and in virtual time. It is for
// tests.
package exchangetest

import (
	"io"
	"time"

	"shaper/exchange"
	"shaper/shaper"
	"shaper/stats"
)

// A Host is a connection between a client and a provider. Whoever changes Up or Down calls
// Drive afterwards.
type Host struct {
	Machine  *exchange.Exchange
	Now      time.Time
	Tick     time.Duration // how much time passes each time the exchange asks for it
	Up, Down Stream
	Over     bool         // the connection has ended
	Result   stats.Result // how it ended
	Lingers  bool         // the client was told that the connection ends
	Retired  bool         // it has ended because it was old

	again bool
}

// New returns the host of a connection that begins at now. It sets Host, Up and Down of the
// Config.
func New(now time.Time, c exchange.Config) *Host {
	h := &Host{Now: now}
	h.Up, h.Down = Stream{host: h, Room: -1}, Stream{host: h, Room: -1}
	c.Host, c.Up, c.Down = h, &h.Up, &h.Down
	h.Machine = exchange.New(c)
	return h
}

// Drive sets the time, and drives the exchange until it has nothing to do.
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

// Linger implements exchange.Host.
func (h *Host) Linger(stats.Result) { h.Lingers = true }

// Close implements exchange.Host. Whoever retires a connection finishes it.
func (h *Host) Close(result stats.Result) {
	if result == stats.Aged {
		h.Retired = true
	} else {
		h.Finish(result)
	}
}

// Finish ends the connection with a result, unless it has ended before.
func (h *Host) Finish(result stats.Result) {
	if !h.Over {
		h.Over, h.Result = true, result
		h.Machine.Quit(h.Now, stats.Reset)
	}
}

// A Stream is one direction of the connection.
type Stream struct {
	In   []byte // what the sender has sent and the exchange has not read
	Ends error  // what follows In: io.EOF or exchange.ErrCut; nil: more may come
	Most int    // bytes that one Read returns at most; 0: any number

	Got   []byte         // what was written to the receiver
	Room  int            // bytes that the receiver still takes; -1: any number
	Dead  bool           // the next write fails
	Told  bool           // End was called
	Fault error          // the error of Break
	Heard func(p []byte) // is called with what is written; may be nil
	Cost  shaper.Cost    // the sum of all that Sent was told

	host *Host
	read bool // Read has returned Ends
	shut bool // a write has failed
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
func (s *Stream) Writable() bool { return s.Room != 0 && !s.shut }

// Write implements exchange.Direction.
func (s *Stream) Write(p []byte) (int, time.Time) {
	if s.Dead {
		s.shut = true
		return 0, s.host.Now
	}
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

// Shut implements exchange.Direction.
func (s *Stream) Shut() bool { return s.shut }

// End implements exchange.Direction. A fault ends the connection, and so do the ends of both
// directions.
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
