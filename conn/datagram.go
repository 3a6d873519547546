package conn

import (
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"shaper/shaper"
	"shaper/stats"
)

// way is one direction of a session of datagrams.
type way struct {
	session *udpSession

	dir   stats.Direction
	class atomic.Pointer[shaper.Class] // nil: nothing is limited
	raw   syscall.RawConn              // that datagrams leave by; nil: nowhere
	to    *peer                        // nil: that of the connected socket
	turn  *way                         // of echo: the way back, which datagrams go instead

	pending atomic.Int64  // datagrams that wait for their class
	held    atomic.Int64  // their payload
	moved   atomic.Uint64 // bytes that have left
	active  atomic.Bool   // something moved since the janitor looked
}

func (w *way) init(t *udpSession, dir stats.Direction, class *shaper.Class) {
	w.session, w.dir = t, dir
	w.class.Store(class)
}

// datagram is a datagram that waits for its class, or leaves in a batch.
type datagram struct {
	item  shaper.Item
	way   *way
	class *shaper.Class // that it entered; nil: none
	buf   *buffer
	n     int // bytes of payload
}

var datagrams = sync.Pool{New: func() any {
	d := new(datagram)
	d.item.Owner, d.item.Settles = d, true
	return d
}}

// newDatagram copies a payload into a buffer of about its size: what waits
// counts with the memory it holds.
func newDatagram(w *way, payload []byte) *datagram {
	d := datagrams.Get().(*datagram)
	d.way, d.class = w, w.class.Load()
	d.buf = getBuffer(len(payload))
	d.n = copy(d.buf.bytes, payload)
	d.item.Cost = shaper.Cost{Bytes: int64(d.n), Packets: 1}
	d.item.Held = int64(len(d.buf.bytes)) + int64(unsafe.Sizeof(*d))
	return d
}

func (d *datagram) payload() []byte { return d.buf.bytes[:d.n] }

func (d *datagram) release() {
	d.buf.put()
	d.buf, d.way, d.class = nil, nil, nil
	datagrams.Put(d)
}

// offer has a datagram enter its class. If it leaves at once it is added to
// out, which the caller sends; else it waits, or is dropped.
func (w *way) offer(payload []byte, out *outgoing) {
	w.active.Store(true)
	w.enter(newDatagram(w, payload), out)
}

func (w *way) enter(d *datagram, out *outgoing) {
	verdict := shaper.Leaves
	if d.class != nil {
		w.pending.Add(1) // before it enters: it may leave before Enter returns
		w.held.Add(int64(d.n))
		verdict = d.class.Enter(time.Now(), &d.item)
		if verdict == shaper.Waits {
			if w.session.ended.Load() { // abort may have looked before
				w.dropPending(stats.Reset)
			}
			return
		}
		w.pending.Add(-1)
		w.held.Add(-int64(d.n))
	}
	switch verdict {
	case shaper.Full:
		d.drop(stats.QueueFull)
	case shaper.TooLong:
		d.drop(stats.MaxWait)
	default:
		out.add(d, w.to)
		if out.n == batchSize {
			w.send(out)
		}
	}
}

// Leave implements shaper.Owner: the datagram's time has come. Sending does
// not wait: where the socket has no room the datagram is dropped.
func (d *datagram) Leave(time.Time) {
	w := d.waitsNoMore().way
	defer w.session.socket.server.rescue(w.session)
	w.active.Store(true)
	out := getOutgoing()
	out.add(d, w.to)
	w.send(out)
	out.release()
}

// send sends a batch and empties it.
func (w *way) send(out *outgoing) {
	out.failed = 0
	switch {
	case w.turn != nil:
		w.sendBack(out)
	case w.raw != nil:
		out.flush(w.raw)
	}
	now := time.Now()
	for i, d := range out.datagrams[:out.n] {
		if d.class != nil { // else the item has entered none since its last use
			d.item.Left(now)
		}
		if out.failed&(1<<i) != 0 {
			d.drop(stats.Reset)
		} else {
			d.sent()
		}
	}
	out.clear()
}

func (w *way) sendBack(out *outgoing) {
	back := getOutgoing()
	for _, d := range out.datagrams[:out.n] {
		w.turn.offer(d.payload(), back)
	}
	w.turn.send(back)
	back.release()
}

// sent counts a datagram that has left.
func (d *datagram) sent() {
	d.way.moved.Add(uint64(d.n))
	if d.class != nil {
		sent := &d.class.Stats.Sent[d.way.dir]
		sent.Packets.Add(1)
		sent.Bytes.Add(uint64(d.n))
	}
	d.release()
}

// drop counts a datagram that will not leave.
func (d *datagram) drop(reason stats.Reason) {
	if d.class != nil {
		d.class.Stats.Dropped[reason].Add(int64(d.n))
	}
	d.release()
}

// dropPending drops what waits in the class of a way.
func (w *way) dropPending(reason stats.Reason) {
	class := w.class.Load()
	if class == nil || w.pending.Load() == 0 {
		return
	}
	for _, it := range class.Evict(time.Now(), func(it *shaper.Item) bool {
		d, ok := it.Owner.(*datagram)
		return ok && d.way == w
	}) {
		it.Owner.(*datagram).waitsNoMore().drop(reason)
	}
}

// reenter has the datagrams that wait in a class enter the one that their
// session is in now.
func reenter(class *shaper.Class) {
	out := getOutgoing()
	defer out.release()
	for _, it := range class.Evict(time.Now(), func(it *shaper.Item) bool {
		_, ok := it.Owner.(*datagram)
		return ok
	}) {
		d := it.Owner.(*datagram).waitsNoMore()
		w := d.way
		d.class = w.class.Load()
		w.enter(d, out)
		w.send(out)
	}
}

// waitsNoMore takes the datagram out of the counts of what waits.
func (d *datagram) waitsNoMore() *datagram {
	d.way.pending.Add(-1)
	d.way.held.Add(-int64(d.n))
	return d
}
