package conn

import (
	"errors"
	"io"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"shaper/shaper"
	"shaper/stats"
)

// half is one direction of a session: read, know n, wait for n, write.
type half struct {
	session  *tcpSession
	way      stats.Direction
	flow     *shaper.Flow
	src, dst stream

	cargo   cargo
	busy    bool // the bytes were there when they were asked for, and dst had room for those before
	stalled bool // dst had no room
	err     error
	ended   error // of a read by the pacer: for the next by run
	failed  error // of a write by the pacer, likewise

	// How read and write try: those that wait do until the descriptor is
	// ready, the others once. They are kept, so that nothing is allocated.
	waitRead, tryRead, waitWrite, tryWrite func(fd uintptr) (done bool)

	receiveBuffer int // SO_RCVBUF of src, as far as the class wants one; 0: the kernel's

	moved   atomic.Uint64 // bytes written
	held    atomic.Int64  // bytes read that wait for their class
	waiting atomic.Bool   // for the class
	active  atomic.Bool   // something moved since the janitor looked
	done    atomic.Bool
	shut    atomic.Bool // dst has been, or is being, told the end
}

func (h *half) init(t *tcpSession, way stats.Direction, class *shaper.Class) {
	h.session, h.way = t, way
	h.waitRead, h.tryRead = h.readOnce, func(fd uintptr) bool { h.readOnce(fd); return true }
	h.waitWrite, h.tryWrite = h.writeOnce, func(fd uintptr) bool { h.writeOnce(fd); return true }
	h.flow = shaper.NewFlow(class)
	h.cargo.pipes, h.cargo.refused = t.server.pipes, &t.service.stats.SpliceRefused
}

// relay starts to move bytes in both directions. Each has a goroutine of its
// own, with a small stack: the one that has dialled has grown a large one.
func (t *tcpSession) relay() error {
	client, err := newStream(t.client, "")
	if err != nil {
		return err
	}
	t.up.src, t.up.dst = client, t.upstream
	t.down.src, t.down.dst = t.upstream, client
	t.up.flow.OnLeave, t.down.flow.OnLeave = t.up.onLeave, t.down.onLeave
	setUserTimeout(client.raw, time.Duration(t.conf.IdleTimeout))
	setUserTimeout(t.upstream.raw, time.Duration(t.conf.IdleTimeout))
	t.running.Add(2)
	t.server.wg.Go(t.up.serve)
	t.server.wg.Go(t.down.serve)
	return nil
}

func (h *half) serve() { h.session.guard(h.run) }

// run relays until the source has ended cleanly and that has been passed on.
// Else it ends the session, counts the bytes it held as dropped, and returns
// why.
func (h *half) run() (err error) {
	defer func() {
		if err != nil {
			h.session.abort(resultOf(err))
		}
		h.discard() // nothing after a clean end
		h.done.Store(true)
	}()
	for {
		if err := h.read(h.waitRead); err == io.EOF {
			if h.wasReset() {
				return unix.ECONNRESET
			}
			h.shut.Store(true)
			return h.dst.conn.CloseWrite()
		} else if err != nil {
			return err
		}
		if err := h.wait(); err != nil {
			return err
		}
		if err := h.write(h.waitWrite); err != nil {
			return err
		}
	}
}

// onLeave goes once around the loop of run, for as long as nothing has to be
// waited for but the class. The pacer calls it, while run waits: in a session
// that only its class holds up, no goroutine has to wake another.
func (h *half) onLeave(now time.Time) (waits bool) {
	defer h.session.server.rescue(h.session) // and then run finds it ended
	if h.failed = h.write(h.tryWrite); h.failed != nil || h.cargo.n > 0 {
		return false
	}
	if h.ended = h.read(h.tryRead); h.ended != nil || h.cargo.n == 0 {
		return false
	}
	h.held.Store(int64(h.cargo.n))
	return h.flow.Again(now, shaper.Cost{Bytes: int64(h.cargo.n)}, h.busy)
}

// read takes what is there, at most a piece of the class.
func (h *half) read(try func(fd uintptr) bool) error {
	if h.ended != nil {
		return h.ended
	}
	h.sizeReceiveBuffer()
	h.busy, h.stalled = !h.stalled, false
	if err := h.src.raw.Read(try); err != nil {
		return err
	}
	switch {
	case h.err == unix.EAGAIN: // it has not waited
		return nil
	case h.err == nil && h.cargo.n == 0:
		return io.EOF
	}
	return h.err
}

func (h *half) readOnce(fd uintptr) bool {
	piece := int64(shaper.MaxPiece)
	if class := h.flow.Class(); class != nil {
		piece = class.Piece()
	}
	for {
		switch h.err = h.cargo.load(fd, int(piece)); h.err {
		case unix.EINTR:
		case unix.EAGAIN:
			h.busy = false
			return false
		default:
			return true
		}
	}
}

// wasReset reports whether what reads as an end is none: the kernel reports a
// reset once, and the other half may have been told by its write. Then the
// connection is down in both directions, though we have not ended ours.
func (h *half) wasReset() (yes bool) {
	if !h.src.remote.IsValid() { // built in
		return false
	}
	closed := h.src.raw.Control(func(fd uintptr) {
		yes = eventsOf(fd)&(unix.POLLHUP|unix.POLLERR) != 0
	})
	return closed != nil || yes && !h.other().shut.Load()
}

func (h *half) other() *half {
	if h == &h.session.up {
		return &h.session.down
	}
	return &h.session.up
}

// wait returns when the class lets the bytes go.
func (h *half) wait() error {
	h.held.Store(int64(h.cargo.n))
	return h.waitFor(shaper.Cost{Bytes: int64(h.cargo.n)})
}

func (h *half) waitFor(cost shaper.Cost) error {
	h.waiting.Store(true)
	defer h.waiting.Store(false)
	err := h.flow.Wait(h.session.ctx, cost, h.busy)
	switch {
	case errors.Is(err, shaper.ErrQueueFull):
		h.refused(stats.QueueFull)
	case errors.Is(err, shaper.ErrTooLong):
		h.refused(stats.MaxWait)
	}
	return err
}

// refused counts what the class has refused, for which the session ends.
func (h *half) refused(reason stats.Reason) {
	if class := h.flow.Class(); class != nil {
		class.Stats.Refused[reason].Add(int64(h.cargo.n))
	}
	h.cargo.clear() // else discard counts it as dropped, too
}

// write writes all of the bytes, as the peer takes them; those that it takes
// now, where it may not wait.
func (h *half) write(try func(fd uintptr) bool) error {
	if h.failed != nil {
		return h.failed
	}
	h.err = nil
	if err := h.dst.raw.Write(try); err != nil {
		return err
	}
	if h.err != nil || h.cargo.left() > 0 {
		return h.err
	}
	h.held.Store(0)
	h.cargo.clear()
	return nil
}

func (h *half) writeOnce(fd uintptr) bool {
	for h.cargo.left() > 0 {
		n, err := h.cargo.unload(fd)
		switch err {
		case nil:
			h.left(n, 0, 0)
		case unix.EINTR:
		case unix.EAGAIN:
			h.stalled = true
			return false
		default:
			h.err = err
			return true
		}
	}
	return true
}

// left counts what has left.
func (h *half) left(bytes, packets, connections int) {
	h.active.Store(true)
	h.moved.Add(uint64(bytes))
	if class := h.flow.Class(); class != nil {
		sent := &class.Stats.Sent[h.way]
		sent.Bytes.Add(uint64(bytes))
		sent.Packets.Add(uint64(packets))
		sent.Connections.Add(uint64(connections))
	}
}

// discard counts the bytes that were read and will not be written.
func (h *half) discard() {
	if lost := h.cargo.left(); lost > 0 {
		if class := h.flow.Class(); class != nil {
			class.Stats.Dropped[lossOf(stats.Result(h.session.ended.Load()))].Add(int64(lost))
		}
	}
	h.held.Store(0)
	h.cargo.clear()
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
	setReceiveBuffer(h.src.raw, max(n, minSegments*segmentOf(h.src.raw)))
}

// lossOf tells from how a session ended why its bytes were dropped.
func lossOf(r stats.Result) stats.Reason {
	switch r {
	case stats.TimedOut:
		return stats.Timeout
	case stats.ByOperator:
		return stats.Closed
	case stats.Drained:
		return stats.Stopped
	case stats.Overflow:
		return stats.QueueFull
	}
	return stats.Reset
}
