package conn

import (
	"time"

	"golang.org/x/sys/unix"

	"shaper/shaper"
	"shaper/stats"
)

// half is one direction of a session: read, know n, wait for n, write. The lock
// of the session guards it.
type half struct {
	session  *tcpSession
	way      stats.Direction
	flow     shaper.Flow
	src, dst *sock

	cargo   cargo
	waiting bool // for the class, with the cargo or, at first, the connection
	busy    bool // src has had bytes since the last item left, and dst room for that
	stalled bool // dst had no room
	done    bool // src has ended, and dst has been told

	receiveBuffer int // SO_RCVBUF of src, as far as the class wants one; 0: the kernel's

	moved  uint64 // bytes written
	active bool   // something moved since the janitor looked
}

func (h *half) init(t *tcpSession, way stats.Direction, class *shaper.Class) {
	h.way = way
	h.src, h.dst = &t.client, &t.upstream
	if way == stats.Downstream {
		h.src, h.dst = h.dst, h.src
	}
	h.flow.Init(class, h)
	h.cargo.pipes, h.cargo.refused = t.server.pipes, &t.service.stats.SpliceRefused
}

// Turns: what one direction moves before others have theirs.
const (
	turnBytes = shaper.MaxPiece
	minTurn   = 16 << 10 // what an item counts at least: small ones take time, too
)

// move moves bytes until src has none, dst has no room, the class has them wait,
// or the turn is over: of so many bytes, or the item that exceeds them.
func (h *half) move(turn int) {
	for h.session.stage == relaying && !h.waiting && !h.done {
		if turn <= 0 {
			h.session.poller.revisit(h.session)
			return
		}
		if h.cargo.left() > 0 && !h.write() || !h.read() {
			return
		}
		turn -= max(h.cargo.n, minTurn)
	}
}

// Leave implements shaper.Owner: what waited for the class may go. The pacer
// moves it, and has the next item enter the class: so a session that only its
// class holds up needs nobody else.
func (h *half) Leave(now time.Time) {
	t := h.session
	defer t.server.rescue(t)
	t.mu.Lock()
	defer t.mu.Unlock()
	h.waiting = false
	switch t.stage {
	case opening:
		t.dial()
	case relaying:
		if t.granted(h); t.ending {
			h.flow.Left(now)
		}
	case ended:
		h.flow.Left(now)
	}
}

// read takes what is there, at most a piece of the class, and has it enter the
// class; false when there is nothing, or no more.
func (h *half) read() bool {
	if !h.src.readable {
		h.busy = false
		return false
	}
	h.sizeReceiveBuffer()
	most := shaper.MaxPiece
	if class := h.flow.Class(); class != nil {
		most = int(class.Piece())
	}
	if h.src.urgent { // splice would never get past it
		h.cargo.plenty = false
	}
	drained, err := h.cargo.load(h.src.fd, most)
	for err == unix.EINTR {
		drained, err = h.cargo.load(h.src.fd, most)
	}
	switch {
	case err == unix.EAGAIN:
		h.src.readable, h.busy = false, false
		return false
	case h.cargo.n == 0 && h.src.cut():
		h.cutOff(h.src.result(nil))
		return false
	case err != nil:
		h.session.finish(resultOf(err))
		return false
	case h.cargo.n == 0:
		h.finish()
		return false
	}
	h.src.readable = !drained || h.src.ends || h.src.urgent
	h.ask(time.Now(), shaper.Cost{Bytes: int64(h.cargo.n)})
	return true
}

// finish passes on that src has ended.
func (h *half) finish() {
	h.done = true
	if h.session.up.done && h.session.down.done {
		h.session.finish(stats.OK)
	} else if err := h.dst.end(); err != nil {
		h.session.finish(h.dst.result(err))
	}
}

// ask has an item enter the class.
func (h *half) ask(now time.Time, cost shaper.Cost) { h.judge(h.flow.Ask(now, cost, h.busy)) }

// judge does what the class says: its item waits, or may go; or else the session
// ends.
func (h *half) judge(verdict shaper.Verdict) {
	h.waiting = verdict == shaper.Waits
	switch verdict {
	case shaper.Full:
		h.refuse(stats.QueueFull)
	case shaper.TooLong:
		h.refuse(stats.MaxWait)
	}
}

// refuse counts what the class has refused, for which the session ends.
func (h *half) refuse(reason stats.Reason) {
	h.flow.Class().Stats.Refused[reason].Add(int64(h.cargo.n))
	h.cargo.clear() // else it would count as dropped, too
	h.session.finish(stats.Overflow)
}

// join moves the direction into another class, with what waits.
func (h *half) join(class *shaper.Class) {
	verdict := h.flow.Move(time.Now(), class)
	if !h.waiting || verdict == shaper.Waits {
		return
	}
	if h.judge(verdict); h.session.stage != ended {
		h.session.poller.revisit(h.session)
	}
}

// write writes the cargo as dst takes it; false where that has no room for all.
func (h *half) write() bool {
	for h.dst.writable {
		n, err := h.cargo.unload(h.dst.fd)
		switch {
		case err == unix.EINTR:
		case err == unix.EAGAIN:
			h.dst.writable, h.stalled = false, true
		case err != nil:
			h.session.finish(h.dst.result(err))
			return false
		default:
			h.left(shaper.Cost{Bytes: int64(n)})
		}
		if h.cargo.left() == 0 {
			h.cargo.clear()
			h.busy, h.stalled = h.src.readable && !h.stalled, false
			return true
		}
	}
	return false
}

// left counts what has left.
func (h *half) left(cost shaper.Cost) {
	h.active = true
	h.moved += uint64(cost.Bytes)
	if class := h.flow.Class(); class != nil {
		sent := &class.Stats.Sent[h.way]
		sent.Bytes.Add(uint64(cost.Bytes))
		sent.Connections.Add(uint64(cost.Connections))
	}
}

// quit leaves the class. The bytes that were read, and will not be written, count
// as dropped.
func (h *half) quit(reason stats.Reason) {
	now := time.Now()
	if h.waiting && h.flow.Cancel(now) {
		h.waiting = false
	}
	if lost := h.cargo.left(); lost > 0 {
		if class := h.flow.Class(); class != nil {
			class.Stats.Dropped[reason].Add(int64(lost))
		}
	}
	h.cargo.clear()
	h.flow.Class().Quit(now)
	h.flow.Mirror(nil)
}

// sizeReceiveBuffer follows the rate of the class.
func (h *half) sizeReceiveBuffer() {
	n := receiveBufferOf(h.flow.Class())
	if n == h.receiveBuffer {
		return
	}
	h.receiveBuffer = n
	if n == 0 {
		n = fastReceiveBuffer // once set, the kernel tunes it no more
	}
	h.src.setReceiveBuffer(max(n, minSegments*h.src.segment()))
}
