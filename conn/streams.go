package conn

import (
	"time"

	"shaper/policy"
	"shaper/shaper"
	"shaper/sock"
	"shaper/stats"
)

// streams is the relay of bytes.
type streams struct{ up, down stream }

// begin begins the relay of bytes of a session, and returns it. It holds nothing yet.
func (s *streams) begin(t *tcpSession) *streams {
	s.up.init(&t.up)
	s.down.init(&t.down)
	return s
}

// drive implements driver.
func (s *streams) drive() {
	s.up.move(turnBytes)
	s.down.move(turnBytes)
}

// changed implements driver.
func (s *streams) changed(*side) { s.drive() }

// granted implements driver.
func (s *streams) granted(d *direction, _ time.Time) {
	if d == s.up.direction {
		s.up.move(1)
	} else {
		s.down.move(1)
	}
}

// finish implements part.
func (s *streams) finish(result stats.Result) { s.quit(time.Now(), dropReason(result)) }

// quit implements relay.
func (s *streams) quit(now time.Time, reason stats.Reason) {
	s.up.quit(now, reason)
	s.down.quit(now, reason)
}

// belong implements relay.
func (s *streams) belong(now time.Time, from, to *shaper.Class) {
	s.up.join(to)
	from.Quit(now)
}

func (*streams) reach(string) {}

// age implements relay. Nobody knows a boundary in a stream, so its end must not look clean.
func (s *streams) age(time.Time, bool) { s.up.session.finish(stats.Aged) }

func (*streams) drain(time.Time, bool)                                           {}
func (*streams) flush()                                                          {}
func (*streams) tend(time.Time) (waits, rests bool)                              { return false, true }
func (*streams) reroute(time.Time, *routes, policy.Conn, map[*shaper.Class]bool) {}
func (*streams) copyTo(*copies)                                                  {}

// stream carries the bytes of a direction: it reads n bytes, waits until the class lets n
// leave, and writes them.
type stream struct {
	*direction
	cargo sock.Cargo
}

func (s *stream) init(d *direction) {
	s.direction, d.carrier = d, s
	t := d.session
	pipes := t.server.pipes
	if e := t.entrance(); e != nil && e.forwarded != nil { // every byte is looked at
		pipes = nil
	}
	s.cargo.Init(pipes, &t.service.stats.SpliceRefused)
}

// Turns: how much one direction moves before others have theirs.
const (
	turnBytes = shaper.MaxPiece
	minTurn   = 16 << 10 // the least that an item counts: small ones take time, too
)

// This does not compile if a piece of a class does not fit into a cargo.
const _ = uint(sock.Most - shaper.MaxPiece)

// move moves bytes until src has none, dst has no room, or they wait for the class. It stops
// after the item with which it has moved turn bytes; then another turn follows.
func (s *stream) move(turn int) {
	for s.session.stage == relaying && !s.waiting && !s.done {
		if turn <= 0 {
			s.session.poller.Revisit(s.session)
			return
		}
		if s.remaining() > 0 && !s.flush() || !s.next() {
			return
		}
		turn -= max(s.cargo.Len(), minTurn)
	}
}

// next reads at most a piece of the class, and offers it to the class. It returns false if
// there is nothing to read now, or nothing more.
func (s *stream) next() bool {
	switch {
	case s.read():
		s.ask(time.Now(), shaper.Cost{Bytes: int64(s.cargo.Len())})
		return true
	case s.ended:
		s.end()
	default:
		s.busy = false
	}
	return false
}

// load implements carrier.
func (s *stream) load(from sock.End) (n int, drained bool, err error) {
	most := shaper.MaxPiece
	if class := s.flow.Class(); class != nil {
		most = int(class.Piece())
	}
	if s.src.Urgent { // splice never gets past urgent data
		s.cargo.CopyNext()
	}
	drained, err = s.cargo.Load(from, most)
	return s.cargo.Len(), drained, err
}

// flush writes the cargo. It returns false if dst has no room for all of it.
func (s *stream) flush() bool {
	if !s.write(s) {
		s.stalled = true
		return false
	}
	s.cargo.Clear()
	s.busy, s.stalled = s.src.Readable && !s.stalled, false
	return true
}

// unload implements unloader.
func (s *stream) unload(to sock.End) (n int, err error) {
	if n, err = s.cargo.Unload(to); n > 0 {
		s.count(s.flow.Class(), shaper.Cost{Bytes: int64(n)})
	}
	return n, err
}

// remaining implements unloader.
func (s *stream) remaining() int { return s.cargo.Remaining() }

// held implements carrier.
func (s *stream) held() int { return s.cargo.Remaining() }

// refused implements carrier.
func (s *stream) refused() int {
	n := s.cargo.Len()
	s.cargo.Clear()
	return n
}

// drop implements carrier.
func (s *stream) drop(reason stats.Reason) {
	if class, lost := s.flow.Class(), s.cargo.Remaining(); class != nil && lost > 0 {
		class.Tally().Dropped(reason, 1, int64(lost))
	}
	s.cargo.Clear()
}
