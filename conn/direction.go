package conn

import (
	"cmp"
	"time"

	"golang.org/x/sys/unix"

	"shaper/shaper"
	"shaper/sock"
	"shaper/stats"
	"shaper/unit"
)

// direction is one direction of a session: a flow through a class, from one side to the other.
// It alone reads, writes, ends and cuts. Its carrier holds what it has read and not yet
// written. The lock of the session guards it.
type direction struct {
	session  *tcpSession
	src, dst *side
	carrier  carrier
	flow     shaper.Flow

	moved         uint64 // bytes written
	receiveBuffer int32  // SO_RCVBUF of src, as the class wants it; 0: the kernel chooses
	active        bool   // something has moved since the janitor last looked
	towards       stats.Direction

	waiting bool // for the class: what the carrier has asked for or, before the relay, the connection
	busy    bool // since the last item left, src has had bytes and dst room; see shaper.Item
	stalled bool // dst has had no room since the last item left

	unsettled bool // the class has let the connection go, and does not know yet that it has departed

	ended bool         // src has no more bytes, or none that are of use
	fault stats.Result // why src has ended; OK: its peer has ended it
	done  bool         // dst has been told of the end
	shut  bool         // dst takes nothing more, since it is down
}

// A carrier holds what a direction has read and not yet written. There are two kinds: a
// stream carries bytes, a lane carries messages.
type carrier interface {
	unloader
	// load reads from an end, as its Read does: n is 0 with an error. drained says that nothing
	// more is there.
	load(from sock.End) (n int, drained bool, err error)
	// refused drops what the class has refused, and returns how many bytes that is.
	refused() int
	// drop drops everything, and counts it.
	drop(reason stats.Reason)
	// held returns how many bytes it holds.
	held() int
}

// An unloader holds what is to be written next.
type unloader interface {
	// unload writes to an end, as its Write does.
	unload(to sock.End) (n int, err error)
	// remaining returns how many bytes are still to be written.
	remaining() int
}

func (d *direction) init(t *tcpSession, towards stats.Direction, class *shaper.Class) {
	d.session, d.towards = t, towards
	d.src, d.dst = &t.client, &t.upstream
	if towards == stats.Downstream {
		d.src, d.dst = d.dst, d.src
	}
	d.flow.Init(class, d)
}

// Leave implements shaper.Owner: the class lets go what the direction waited for. The pacer
// calls it, and with that moves the item and offers the next one. So a session that only its
// class holds up needs nobody else.
func (d *direction) Leave(now time.Time) {
	t := d.session
	defer t.server.rescue(t)
	t.mu.Lock()
	defer t.mu.Unlock()
	d.waiting = false
	if t.stage < cutting {
		if verdict := d.flow.Turn(time.Now); verdict != shaper.Leaves {
			d.act(verdict)
			return
		}
	}
	t.driver.granted(d, now)
}

// read lets the carrier read. It returns false if there is nothing to read now, or nothing
// more, or if the session has ended.
func (d *direction) read() bool {
	if d.ended || !d.src.Readable {
		return false
	}
	d.sizeReceiveBuffer()
	n, drained, err := d.carrier.load(d.src.end)
	for err == unix.EINTR {
		n, drained, err = d.carrier.load(d.src.end)
	}
	switch {
	case err == unix.EAGAIN:
		d.src.Readable = false
		return false
	case err != nil:
		d.broken(d.src.reason(err))
		return false
	case n == 0:
		d.ended = true
		return false
	}
	d.src.Readable = !drained || d.src.Ends || d.src.Urgent
	d.active = true
	return true
}

// broken follows a read that has failed: src is down. What came before is passed on first, if it is of an
// answer, or if TLS was cut. What a client has sent before its reset is of no use.
func (d *direction) broken(reason error) {
	d.src.noteBroken(reason)
	if d.towards == stats.Downstream || isCut(reason) {
		d.ended, d.fault = true, resultOf(reason)
		return
	}
	d.session.fail(resultOf(reason))
}

// noteBroken notes that the end is down: the poller does not tell of a fault that a read or a write has taken.
// An end whose TLS was cut tells of it itself, whenever it is asked.
func (s *side) noteBroken(reason error) { s.Broken = s.Broken || !isCut(reason) }

// write writes what o holds. It returns false if dst has no room for all of it, or if the
// session has ended.
func (d *direction) write(o unloader) bool {
	for d.dst.Writable && o.remaining() > 0 {
		n, err := o.unload(d.dst.end)
		switch {
		case err == unix.EINTR:
		case err == unix.EAGAIN:
			d.dst.Writable = false
		case err != nil:
			d.dst.Writable = false
			d.unwritten(d.dst.reason(err))
			return false
		default:
			d.moved += uint64(n)
			d.session.service.stats.Sent[d.towards].Bytes.Add(uint64(n))
			d.active = true
		}
	}
	return o.remaining() == 0
}

// unwritten follows a write that has failed: dst takes nothing more. What dst has sent before, the other
// direction passes on: an upstream that resets the connection has often answered. Then that direction ends
// the session with the fault.
func (d *direction) unwritten(reason error) {
	other, result := d.opposite(), resultOf(reason)
	d.shut = true
	d.dst.noteBroken(reason)
	switch {
	case isCut(reason) && !other.done && !other.shut: // the other direction reads the cut
	case d.towards == stats.Downstream || other.shut: // what dst has sent is of no use, or nobody would read it
		d.session.finish(result)
	case other.done:
		other.cutOff(result)
	default:
		other.fault = cmp.Or(other.fault, result) // the kernel tells of a reset once: now a read sees a clean end
	}
}

// holds reports whether the direction has read what it has not written.
func (d *direction) holds() bool { return d.waiting || d.carrier.held() > 0 }

// opposite returns the other direction of the session.
func (d *direction) opposite() *direction {
	if d == &d.session.up {
		return &d.session.down
	}
	return &d.session.up
}

// end passes the end of src on to dst: as an end, or as a fault. Everything that came before
// it is written.
func (d *direction) end() {
	if d.fault != stats.OK {
		d.cutOff(d.fault)
		return
	}
	d.done = true
	if t := d.session; t.up.done && t.down.done {
		t.finish(stats.OK)
	} else if err := d.dst.end.CloseWrite(); err != nil {
		d.unwritten(d.dst.reason(err))
	}
}

// cutTimeout bounds how long a session waits until what it has written arrives. It looks after firstLook, and
// then after twice the pause each time, up to lastLook: thousands of sessions may wait at once.
const (
	cutTimeout = 5 * time.Second
	firstLook  = 5 * time.Millisecond
	lastLook   = 250 * time.Millisecond
)

// cutOff ends the session with a fault when what it has written to dst has arrived. A reset
// before that would discard it, and a peer that closes TLS without a close_notify has often
// said everything.
func (d *direction) cutOff(result stats.Result) {
	t := d.session
	t.stage, t.driver = cutting, over{}
	now := time.Now()
	t.up.discard(now, dropReason(result))
	t.down.discard(now, dropReason(result))
	d.endWhenSent(result, now.Add(cutTimeout), firstLook)
}

// endWhenSent ends the session when what it has written to dst has arrived, or at the given time. If it has not
// arrived yet, endWhenSent looks again after a pause. A peer whose bytes cannot be framed may still read, so what was
// written to it arrives too.
func (d *direction) endWhenSent(result stats.Result, by time.Time, pause time.Duration) {
	if d.dst.hasAll() && (result != stats.Unframed || d.src.hasAll()) || !time.Now().Before(by) {
		d.session.finish(result)
		return
	}
	time.AfterFunc(min(pause, time.Until(by)), func() {
		d.session.do(func(*tcpSession) { d.endWhenSent(result, by, min(2*pause, lastLook)) })
	})
}

// hasAll reports whether what was written to the side has arrived, or never will.
func (s *side) hasAll() bool {
	s.Broken = s.Broken || s.end.Failure() != nil // it tells of a failure once
	return s.Broken || s.end.Unsent() == 0
}

// ask offers an item to the class. After that the direction waits, or the item may leave, or the
// session has ended.
func (d *direction) ask(now time.Time, cost shaper.Cost) { d.act(d.flow.Ask(now, cost, d.busy)) }

// act does what the class has decided.
func (d *direction) act(verdict shaper.Verdict) {
	d.waiting = verdict == shaper.Waits
	switch verdict {
	case shaper.Leaves:
		if d.session.stage == opening { // if the session ends before it dials, the class has to know
			d.unsettled = true
		}
	case shaper.Full:
		d.refuse(stats.QueueFull)
	case shaper.TooLong:
		d.refuse(stats.MaxWait)
	}
}

// departed tells the class, once, that the connection has departed, or never will.
func (d *direction) departed() {
	if d.unsettled {
		d.unsettled = false
		d.flow.Left(time.Now())
	}
}

// refuse counts what the class has refused, and ends the session.
func (d *direction) refuse(reason stats.Reason) {
	d.flow.Class().Tally().Refused(reason, int64(d.carrier.refused()))
	d.session.finish(stats.Overflow)
}

// join moves the direction into another class, and what waits with it. The session has joined that
// class already, and the caller quits the old one.
func (d *direction) join(class *shaper.Class) {
	verdict := d.flow.Move(time.Now(), class)
	if !d.waiting || verdict == shaper.Waits {
		return
	}
	if d.act(verdict); d.session.stage != ended {
		d.session.poller.Revisit(d.session)
	}
}

// count counts what has left a class, which may be nil. For the listener it counts messages only:
// write counts bytes, and the dial counts connections.
func (d *direction) count(class *shaper.Class, cost shaper.Cost) {
	if class != nil {
		class.Tally().Sent(d.towards, cost)
	}
	d.session.service.stats.Sent[d.towards].Add(shaper.Cost{Messages: cost.Messages}.Volume())
}

// discard drops what was read but not written, which counts as dropped, and waits for the class no more.
func (d *direction) discard(now time.Time, reason stats.Reason) {
	if d.waiting && d.flow.Cancel(now) {
		d.waiting = false
	}
	d.carrier.drop(reason)
}

// quit quits the class, and discards.
func (d *direction) quit(now time.Time, reason stats.Reason) {
	d.discard(now, reason)
	d.flow.Class().Quit(now)
	d.flow.Mirror(nil)
}

// sizeReceiveBuffer sizes the receive buffer of src to the rate of the class.
func (d *direction) sizeReceiveBuffer() {
	n := receiveBufferOf(d.flow.Class().Counting(unit.Bytes))
	if int32(n) == d.receiveBuffer {
		return
	}
	d.receiveBuffer = int32(n)
	if n == 0 {
		n = fastReceiveBuffer // the kernel no longer tunes a size that was set
	}
	d.src.end.Set(sock.ReceiveBuffer, max(n, minSegments*d.src.end.Get(sock.Segment)))
}
