package conn

import (
	"time"

	"shaper/shaper"
	"shaper/sock"
	"shaper/stats"
)

// stream is a direction that carries bytes: read, know n, wait for n, write.
type stream struct {
	direction
	cargo   sock.Cargo
	stalled bool // dst had no room
}

func (s *stream) init(t *tcpSession, way stats.Direction, class *shaper.Class) {
	s.direction.init(t, way, class, s)
	s.cargo.Init(t.server.pipes, &t.service.stats.SpliceRefused)
}

// Turns: what one direction moves before others have theirs.
const (
	turnBytes = shaper.MaxPiece
	minTurn   = 16 << 10 // what an item counts at least: small ones take time, too
)

// It does not compile if a piece of a class does not fit into a cargo.
const _ = uint(sock.Most - shaper.MaxPiece)

// move moves bytes until src has none, dst has no room, they wait for the class, or the
// turn is over: of so many bytes, or the item that exceeds them.
func (s *stream) move(turn int) {
	for s.session.stage == relaying && !s.waiting && !s.done {
		if turn <= 0 {
			s.session.poller.Revisit(s.session)
			return
		}
		if s.left() > 0 && !s.flush() || !s.next() {
			return
		}
		turn -= max(s.cargo.Len(), minTurn)
	}
}

// granted implements carrier.
func (s *stream) granted() { s.move(1) }

// next reads what is there, at most a piece of the class, and offers it to the class;
// false if there is nothing, or no more.
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
	if s.src.Urgent { // splice would never get past it
		s.cargo.CopyNext()
	}
	drained, err = s.cargo.Load(from, most)
	return s.cargo.Len(), drained, err
}

// flush writes the cargo as dst takes it; false if dst has no room for all.
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

// left implements unloader.
func (s *stream) left() int { return s.cargo.Left() }

// held implements carrier.
func (s *stream) held() int { return s.cargo.Left() }

// refused implements carrier.
func (s *stream) refused() int {
	n := s.cargo.Len()
	s.cargo.Clear()
	return n
}

// drop implements carrier.
func (s *stream) drop(reason stats.Reason) {
	if class, lost := s.flow.Class(), s.cargo.Left(); class != nil && lost > 0 {
		class.CountDropped(reason, 1, int64(lost))
	}
	s.cargo.Clear()
}
