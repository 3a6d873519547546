package conn

import (
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"shaper/buffer"
	"shaper/policy"
	"shaper/shaper"
	"shaper/sock"
	"shaper/stats"
	"shaper/unit"
)

// way is one direction of a session of datagrams.
type way struct {
	session *udpSession

	dir        stats.Direction
	class      atomic.Pointer[shaper.Class]  // nil: nothing is limited
	joins      atomic.Pointer[shaper.Class]  // class, until it has been quit
	shadow     atomic.Pointer[shaper.Source] // sends copies of all datagrams; nil: there is none
	sock.Route                               // that datagrams take
	turn       *way                          // of echo: the way back, which datagrams go instead

	pending atomic.Int64  // trains that wait for their class
	held    atomic.Int64  // their payload
	moved   atomic.Uint64 // bytes that have left
	active  atomic.Bool   // something moved since the janitor looked
}

func (w *way) init(t *udpSession, dir stats.Direction, class *shaper.Class) {
	w.session, w.dir = t, dir
	w.class.Store(class)
	w.joins.Store(class)
}

// move puts the way into another class, which it has joined, unless its session
// ends meanwhile.
func (w *way) move(now time.Time, class *shaper.Class) {
	w.class.Store(class)
	w.joins.Swap(class).Quit(now)
	if w.session.ended.Load() {
		w.quit(now)
	}
}

// quit leaves the class. What comes all the same is limited by it as before.
func (w *way) quit(now time.Time) {
	w.joins.Swap(nil).Quit(now)
	w.shadow.Store(nil)
}

// costOf returns the cost of all datagrams of a train.
func costOf(t sock.Train) shaper.Cost {
	return shaper.Cost{Bytes: int64(len(t.Payload)), Packets: t.Packets()}
}

// datagrams is a train that waits for its class.
type datagrams struct {
	sock.Train
	item  shaper.Item
	way   *way
	class *shaper.Class  // that it entered; nil: none
	buf   *buffer.Buffer // of the payload
}

// It does not compile if policy.Holds is too little.
const _ = policy.MessageHolds - buffer.Min - unsafe.Sizeof(datagrams{}) - unsafe.Sizeof(buffer.Buffer{})

var datagramsPool = sync.Pool{New: func() any { return new(datagrams) }}

// newDatagrams copies a train into a buffer of about its size: what waits counts
// with the memory it holds.
func newDatagrams(w *way, t sock.Train) *datagrams {
	d := datagramsPool.Get().(*datagrams)
	d.way, d.class = w, w.class.Load()
	d.buf = buffer.Get(len(t.Payload))
	d.Train = sock.Train{Payload: d.buf.Bytes[:copy(d.buf.Bytes, t.Payload)], Size: t.Size}
	d.item = shaper.Item{Cost: costOf(t), Held: policy.Holds(int64(len(t.Payload))), Owner: d, Settles: true}
	return d
}

func (d *datagrams) release() {
	d.buf.Put()
	d.Train, d.buf, d.way, d.class = sock.Train{}, nil, nil, nil
	datagramsPool.Put(d)
}

// offer has a train enter its class. What leaves at once is added to out, which
// the caller sends before it uses the payload's memory again; the rest waits, or
// is dropped.
func (w *way) offer(t sock.Train, out *outgoing) {
	w.active.Store(true)
	class := w.class.Load()
	if shadow := w.shadow.Load(); shadow != nil {
		shadow.Send(time.Now(), costOf(t))
	}
	most := mostTogether(class)
	for more := true; more; more = len(t.Payload) > 0 {
		var head sock.Train
		head, t = t.Cut(most)
		if class == nil || class.Pass(time.Now(), costOf(head)) {
			w.add(parcel{Train: head, way: w, class: class}, out)
			continue
		}
		w.send(out) // else the pacer could let this out before those
		w.enter(newDatagrams(w, head), out)
	}
}

// mostTogether returns how many bytes of datagrams may leave a class as one:
// where datagrams are counted, by the class or one above it, each leaves on its
// own.
func mostTogether(class *shaper.Class) int {
	switch {
	case class == nil:
		return sock.MaxTrain
	case class.Counts(unit.Bytes) && !class.Counts(unit.Packets):
		return int(class.Piece())
	}
	return 0
}

// enter has datagrams that cannot leave at once wait, or drops those that have
// no room.
func (w *way) enter(d *datagrams, out *outgoing) {
	verdict := shaper.Leaves
	if class := d.class; class != nil { // what waits is the pacer's, and may have left before Enter returns
		w.pending.Add(1)
		w.held.Add(int64(len(d.Payload)))
		verdict = class.Enter(time.Now(), &d.item)
		if verdict == shaper.Waits {
			w.entered(class)
			return
		}
		w.pending.Add(-1)
		w.held.Add(-int64(len(d.Payload)))
	}
	switch {
	case verdict == shaper.Leaves: // meanwhile they can
		w.add(d.parcel(), out)
	case d.item.Cost.Packets > 1:
		w.enterApart(d, out)
	case verdict == shaper.Full:
		d.drop(stats.QueueFull)
	case verdict == shaper.TooLong:
		d.drop(stats.MaxWait)
	}
}

// entered looks whether a class that datagrams have just entered is still the
// right one: abort or reclassify may have looked into it before.
func (w *way) entered(class *shaper.Class) {
	if w.session.ended.Load() {
		w.dropPending(stats.Reset)
	}
	if w.class.Load() != class {
		reenter(class)
	}
}

// enterApart has those of a train enter for which there is room.
func (w *way) enterApart(d *datagrams, out *outgoing) {
	for rest := d.Train; len(rest.Payload) > 0; {
		var one sock.Train
		one, rest = rest.Cut(0)
		w.send(out)
		w.enter(newDatagrams(w, one), out)
	}
	d.release()
}

// add puts a parcel with those that leave together, and sends them when there is
// no room for more.
func (w *way) add(p parcel, out *outgoing) {
	if out.add(p); len(out.parcels) == sock.BatchSize {
		w.send(out)
	}
}

// Leave implements shaper.Owner: the datagram's time has come. Sending does
// not wait: where the socket has no room the datagram is dropped.
func (d *datagrams) Leave(time.Time) {
	w := d.waitsNoMore().way
	defer w.session.socket.server.rescue(w.session)
	w.active.Store(true)
	out := getOutgoing()
	out.add(d.parcel())
	w.send(out)
	out.release()
}

// send sends what is in out, and empties it.
func (w *way) send(out *outgoing) {
	if w.turn != nil {
		w.sendBack(out)
	} else {
		out.batch.Send(&w.Route)
	}
	now := time.Now()
	for i := range out.parcels {
		out.parcels[i].left(now, out.batch.Lost(i))
	}
	out.clear()
}

func (w *way) sendBack(out *outgoing) {
	back := getOutgoing()
	for i := range out.parcels {
		w.turn.offer(out.parcels[i].Train, back)
	}
	w.turn.send(back)
	back.release()
}

// parcel is a train that leaves.
type parcel struct {
	sock.Train
	way    *way
	class  *shaper.Class // that it has passed; nil: none
	waited *datagrams    // that it is; nil: it leaves from where it was read
}

func (d *datagrams) parcel() parcel {
	return parcel{Train: d.Train, way: d.way, class: d.class, waited: d}
}

// outgoing is parcels that leave a way together.
type outgoing struct {
	batch   *sock.Batch
	parcels []parcel // as in the batch
}

var outgoings = sync.Pool{New: func() any {
	return &outgoing{sock.NewBatch(), make([]parcel, 0, sock.BatchSize)}
}}

func getOutgoing() *outgoing { return outgoings.Get().(*outgoing) }

// add appends a parcel, for which there must be room.
func (out *outgoing) add(p parcel) {
	out.batch.Add(p.Train)
	out.parcels = append(out.parcels, p)
}

// clear empties the batch. What it held is somebody else's by then.
func (out *outgoing) clear() {
	out.batch.Clear()
	clear(out.parcels)
	out.parcels = out.parcels[:0]
}

// release gives the batch, which is empty, back.
func (out *outgoing) release() { outgoings.Put(out) }

// left counts what has left and what has not, and gives back what held it.
func (p *parcel) left(now time.Time, lost sock.Loss) {
	sent := costOf(p.Train)
	sent.Bytes -= lost.Bytes
	sent.Packets -= lost.Packets
	p.way.moved.Add(uint64(sent.Bytes))
	p.way.session.service.stats.Sent[p.way.dir].Add(sent.Volume())
	if p.class != nil {
		p.class.CountSent(p.way.dir, sent)
		if lost.Packets > 0 {
			p.class.CountDropped(stats.Reset, lost.Packets, lost.Bytes)
		}
	}
	switch {
	case p.waited != nil:
		p.waited.item.Left(now)
		p.waited.release()
	case p.class != nil:
		p.class.Left(now)
	}
}

// drop counts datagrams that will not leave.
func (d *datagrams) drop(reason stats.Reason) {
	if d.class != nil {
		d.class.CountDropped(reason, d.item.Cost.Packets, d.item.Cost.Bytes)
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
		d, ok := it.Owner.(*datagrams)
		return ok && d.way == w
	}) {
		it.Owner.(*datagrams).waitsNoMore().drop(reason)
	}
}

// reenter has the datagrams that wait in a class enter the one that their
// session is in now.
func reenter(class *shaper.Class) {
	out := getOutgoing()
	defer out.release()
	for _, it := range class.Evict(time.Now(), func(it *shaper.Item) bool {
		_, ok := it.Owner.(*datagrams)
		return ok
	}) {
		d := it.Owner.(*datagrams).waitsNoMore()
		w := d.way
		d.class = w.class.Load()
		if d.item.Cost.Packets > 1 { // that one may want each by itself
			w.enterApart(d, out)
		} else {
			w.enter(d, out)
		}
		w.send(out)
	}
}

// waitsNoMore takes the datagram out of the counts of what waits.
func (d *datagrams) waitsNoMore() *datagrams {
	d.way.pending.Add(-1)
	d.way.held.Add(-int64(len(d.Payload)))
	return d
}

// mirror has copies of all datagrams sent by a source of a trial, too; nil for none.
func (w *way) mirror(s *shaper.Source) { w.shadow.Store(s) }
