package conn

import (
	"time"

	"golang.org/x/sys/unix"

	"shaper/shaper"
	"shaper/sock"
	"shaper/stats"
	"shaper/unit"
)

// direction is one way of a session: its flow through a class, its two sockets and its
// counters. Nothing else reads, writes, ends or cuts. What it has read and not yet
// written is with its carrier. The lock of the session guards it.
type direction struct {
	session  *tcpSession
	way      stats.Direction
	flow     shaper.Flow
	src, dst *side
	carrier  carrier

	waiting bool         // for the class, with what the carrier has asked for or, at first, the connection
	busy    bool         // src has had bytes since the last item left, and dst room for that
	ended   bool         // src has no more bytes to read, or none that are of use
	fault   stats.Result // why that is no end which its peer has sent; OK: it is one
	done    bool         // dst has been told

	receiveBuffer int // SO_RCVBUF of src, as far as the class wants one; 0: the kernel's

	moved  uint64 // bytes written
	active bool   // something moved since the janitor looked
}

// A carrier has what a direction has read and not yet written. There are two kinds: a
// stream carries bytes, a lane messages.
type carrier interface {
	unloader
	// load reads what is there from an end, as its Read does. drained says that there
	// surely is no more.
	load(from sock.End) (n int, drained bool, err error)
	// refused gives up what the class has refused, and returns how many bytes that is.
	refused() int
	// drop gives up everything, and counts it.
	drop(reason stats.Reason)
	// held returns how many bytes are read and not yet written.
	held() int
}

// unloader is what is to be written next.
type unloader interface {
	// unload writes to an end, as its Write does.
	unload(to sock.End) (n int, err error)
	// remaining returns how many bytes are still to be written.
	remaining() int
}

func (d *direction) init(t *tcpSession, way stats.Direction, class *shaper.Class) {
	d.session, d.way = t, way
	d.src, d.dst = &t.client, &t.upstream
	if way == stats.Downstream {
		d.src, d.dst = d.dst, d.src
	}
	d.flow.Init(class, d)
}

// Leave implements shaper.Owner: what waited for the class may go. The pacer moves it,
// and the next item enters the class. So a session that only its class holds up needs
// nobody else.
func (d *direction) Leave(now time.Time) {
	t := d.session
	defer t.server.rescue(t)
	t.mu.Lock()
	defer t.mu.Unlock()
	d.waiting = false
	t.driver.granted(d, now)
}

// read lets the carrier read what is there. It returns false if there is nothing, or no
// more.
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

// broken ends the session, since src is down. If TLS has been cut, what came before is passed
// on first.
func (d *direction) broken(reason error) {
	if isCut(reason) {
		d.ended, d.fault = true, resultOf(reason)
		return
	}
	d.session.fail(resultOf(reason))
}

// write writes o as dst takes it; false if dst has no room for all, or the session has
// ended.
func (d *direction) write(o unloader) bool {
	for d.dst.Writable && o.remaining() > 0 {
		n, err := o.unload(d.dst.end)
		switch {
		case err == unix.EINTR:
		case err == unix.EAGAIN:
			d.dst.Writable = false
		case err != nil:
			d.session.finish(resultOf(d.dst.reason(err)))
			return false
		default:
			d.moved += uint64(n)
			d.session.service.stats.Sent[d.way].Bytes.Add(uint64(n))
			d.active = true
		}
	}
	return o.remaining() == 0
}

// end passes on that src has ended, as it has: by an end or by a fault. Everything that
// came before is written.
func (d *direction) end() {
	if d.fault != stats.OK {
		d.cutOff(d.fault)
		return
	}
	d.done = true
	if t := d.session; t.up.done && t.down.done {
		t.finish(stats.OK)
	} else if err := d.dst.end.CloseWrite(); err != nil {
		t.finish(resultOf(d.dst.reason(err)))
	}
}

// Bounds of the wait for what came before a cut to arrive.
const (
	lastWords     = 5 * time.Second
	lastWordsPoll = 5 * time.Millisecond
)

// cutOff ends the session when what has been written to dst has arrived. A reset would
// discard it, and who closes without a close_notify has often said all there was.
func (d *direction) cutOff(result stats.Result) {
	t := d.session
	t.stage, t.driver = cutting, over{}
	t.up.carrier.drop(lossOf(result))
	t.down.carrier.drop(lossOf(result))
	d.dst.endWhenSent(result, time.Now().Add(lastWords))
}

// endWhenSent ends the session when what has been written to the side has arrived, or at a
// time.
func (s *side) endWhenSent(result stats.Result, by time.Time) {
	if s.Broken || s.end.Failure() != nil || s.end.Unsent() == 0 || !time.Now().Before(by) {
		s.session.finish(result)
		return
	}
	time.AfterFunc(lastWordsPoll, func() {
		s.session.do(func(*tcpSession) { s.endWhenSent(result, by) })
	})
}

// ask offers an item to the class.
func (d *direction) ask(now time.Time, cost shaper.Cost) { d.judge(d.flow.Ask(now, cost, d.busy)) }

// judge does what the class says: its item waits, or may go; or else the session
// ends.
func (d *direction) judge(verdict shaper.Verdict) {
	d.waiting = verdict == shaper.Waits
	switch verdict {
	case shaper.Full:
		d.refuse(stats.QueueFull)
	case shaper.TooLong:
		d.refuse(stats.MaxWait)
	}
}

// refuse counts what the class has refused, for which the session ends.
func (d *direction) refuse(reason stats.Reason) {
	d.flow.Class().CountRefused(reason, int64(d.carrier.refused()))
	d.session.finish(stats.Overflow)
}

// join moves the direction into another class, with what waits.
func (d *direction) join(class *shaper.Class) {
	verdict := d.flow.Move(time.Now(), class)
	if !d.waiting || verdict == shaper.Waits {
		return
	}
	if d.judge(verdict); d.session.stage != ended {
		d.session.poller.Revisit(d.session)
	}
}

// count counts what has left a class, nil for none. The listener counts bytes when they
// are written, and connections when they begin to dial.
func (d *direction) count(class *shaper.Class, cost shaper.Cost) {
	if class != nil {
		class.CountSent(d.way, cost)
	}
	d.session.service.stats.Sent[d.way].Messages.Add(uint64(cost.Messages))
}

// quit leaves the class. What was read and will not be written counts as dropped.
func (d *direction) quit(now time.Time, reason stats.Reason) {
	if d.waiting && d.flow.Cancel(now) {
		d.waiting = false
	}
	d.carrier.drop(reason)
	d.flow.Class().Quit(now)
	d.flow.Mirror(nil)
}

// sizeReceiveBuffer follows the rate of the class.
func (d *direction) sizeReceiveBuffer() {
	n := receiveBufferOf(d.flow.Class().Counting(unit.Bytes))
	if n == d.receiveBuffer {
		return
	}
	d.receiveBuffer = n
	if n == 0 {
		n = fastReceiveBuffer // once set, the kernel tunes it no more
	}
	d.src.end.Set(sock.ReceiveBuffer, max(n, minSegments*d.src.end.Get(sock.Segment)))
}
