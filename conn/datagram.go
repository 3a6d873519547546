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

// udpDirection is one direction of a UDP session. It is safe for concurrent use.
type udpDirection struct {
	// Set when the session begins, and read by all.
	session    *udpSession
	towards    stats.Direction
	echo       *udpDirection // nil unless the upstream is echo: the other direction, which datagrams take
	sock.Route               // on which datagrams leave

	// Safe for concurrent use.
	class  atomic.Pointer[shaper.Class]  // nil: nothing limits it
	joined atomic.Pointer[shaper.Class]  // the class that is still to be quit; nil: none
	shadow atomic.Pointer[shaper.Source] // sends copies of all datagrams; nil: there is none

	// entering is held while datagrams of the socket enter the class, and from when the direction moves to another class until those
	// have moved that wait in the last one: what comes meanwhile would overtake them. It is taken before the lock of a tree.
	entering sync.Mutex

	pending atomic.Int64  // trains that wait for their class
	held    atomic.Int64  // bytes of their payload
	moved   atomic.Uint64 // bytes that have left
	active  atomic.Bool   // something has moved since the janitor last looked
}

func (ud *udpDirection) init(t *udpSession, towards stats.Direction, class *shaper.Class) {
	ud.session, ud.towards = t, towards
	ud.class.Store(class)
	ud.joined.Store(class)
}

// move moves the direction into a class that the session has joined. If the session ends
// meanwhile, it quits that class, too. The caller unlocks entering when what waits has moved.
func (ud *udpDirection) move(now time.Time, class *shaper.Class) {
	ud.entering.Lock()
	ud.class.Store(class)
	ud.joined.Swap(class).Quit(now)
	if ud.session.ended.Load() {
		ud.quit(now)
	}
}

// quit quits the class. The class still limits datagrams that come after that.
func (ud *udpDirection) quit(now time.Time) {
	ud.joined.Swap(nil).Quit(now)
	ud.shadow.Store(nil)
}

// costOf returns the cost of all datagrams of a train.
func costOf(t sock.Train) shaper.Cost {
	return shaper.Cost{Bytes: int64(len(t.Payload)), Packets: t.Packets()}
}

// datagrams is a train that waits for its class. The class owns the train, and then whoever takes
// it out of the class.
type datagrams struct {
	sock.Train
	item      shaper.Item
	direction *udpDirection
	class     *shaper.Class  // that it has entered; nil: none
	buf       *buffer.Buffer // of the payload
}

// This does not compile if policy.Holds counts too little.
const _ = policy.MessageHolds - buffer.Min - unsafe.Sizeof(datagrams{}) - unsafe.Sizeof(buffer.Buffer{})

var datagramsPool = sync.Pool{New: func() any { return new(datagrams) }}

// newDatagrams copies a train into a buffer of about its size, since what waits is charged for
// the memory that it holds.
func newDatagrams(ud *udpDirection, t sock.Train) *datagrams {
	d := datagramsPool.Get().(*datagrams)
	d.direction, d.class = ud, ud.class.Load()
	d.buf = buffer.Get(len(t.Payload))
	d.Train = sock.Train{Payload: d.buf.Bytes[:copy(d.buf.Bytes, t.Payload)], Size: t.Size}
	d.item = shaper.Item{Cost: costOf(t), Held: policy.Holds(int64(len(t.Payload))), Owner: d, Settles: true}
	return d
}

// release gives the memory of d back. Nobody may use d after that.
func (d *datagrams) release() {
	d.buf.Put()
	d.Train, d.buf, d.direction, d.class = sock.Train{}, nil, nil, nil
	datagramsPool.Put(d)
}

// offer offers a train to the class. It adds what may leave at once to out, which the caller
// must send before it uses the memory of the payload again. The rest waits or is dropped.
func (ud *udpDirection) offer(t sock.Train, out *outgoing) {
	ud.active.Store(true)
	class := ud.class.Load()
	if shadow := ud.shadow.Load(); shadow != nil {
		shadow.Send(time.Now(), costOf(t))
	}
	most := trainLimit(class)
	for more := true; more; more = len(t.Payload) > 0 {
		var head sock.Train
		head, t = t.Cut(most)
		if p := (parcel{Train: head, direction: ud, class: class}); p.passes() {
			ud.add(p, out)
			continue
		}
		ud.send(out) // first, so that the pacer cannot let this one overtake those
		ud.enter(newDatagrams(ud, head), out)
	}
}

// trainLimit returns how many bytes of datagrams may leave a class as one train. If the class,
// or one above it, counts datagrams, each leaves alone, and the limit is 0.
func trainLimit(class *shaper.Class) int {
	switch {
	case class == nil:
		return sock.MaxTrain
	case class.Counts(unit.Bytes) && !class.Counts(unit.Packets):
		return int(class.Piece())
	}
	return 0
}

// enter makes d wait for its class, or drops it if there is no room. If a train of several
// does not fit, they enter one by one.
func (ud *udpDirection) enter(d *datagrams, out *outgoing) {
	verdict := shaper.Leaves
	if class := d.class; class != nil { // once d waits it is the pacer's, and may leave before Enter returns
		ud.pending.Add(1)
		ud.held.Add(int64(len(d.Payload)))
		verdict = class.Enter(time.Now(), &d.item)
		if verdict == shaper.Waits {
			ud.entered(class)
			return
		}
		ud.pending.Add(-1)
		ud.held.Add(-int64(len(d.Payload)))
	}
	switch {
	case verdict == shaper.Leaves: // now it may
		ud.add(d.parcel(), out)
	case d.item.Cost.Packets > 1:
		ud.enterApart(d, out)
	case verdict == shaper.Full:
		d.drop(stats.QueueFull)
	case verdict == shaper.TooLong:
		d.drop(stats.MaxWait)
	}
}

// entered checks whether a class that datagrams have just entered is still the right one. abort or
// reclassify may have taken the others out of it just before.
func (ud *udpDirection) entered(class *shaper.Class) {
	if ud.session.ended.Load() {
		ud.dropPending(stats.Reset)
	}
	if ud.class.Load() != class {
		reenter(class)
	}
}

// enterApart makes the datagrams of a train enter one by one, as far as there is room.
func (ud *udpDirection) enterApart(d *datagrams, out *outgoing) {
	for rest := d.Train; len(rest.Payload) > 0; {
		var one sock.Train
		one, rest = rest.Cut(0)
		ud.send(out)
		ud.enter(newDatagrams(ud, one), out)
	}
	d.release()
}

// add adds a parcel to out, and sends out if it is full.
func (ud *udpDirection) add(p parcel, out *outgoing) {
	if out.add(p); len(out.parcels) == sock.BatchSize {
		ud.send(out)
	}
}

// Leave implements shaper.Owner: the class lets d go. Sending does not wait: if the socket has
// no room, d is dropped.
func (d *datagrams) Leave(time.Time) {
	if d.item.HasPerished(time.Now) && d.waitsAgain() {
		return
	}
	ud := d.waitsNoMore().direction
	defer ud.session.socket.server.rescue(ud.session)
	if d.item.Verdict() == shaper.TooLong {
		d.drop(stats.MaxWait)
		return
	}
	ud.active.Store(true)
	out := getOutgoing()
	out.add(d.parcel())
	ud.send(out)
	out.release()
}

// waitsAgain reports whether d, whose turn has come to nothing, waits for the next one.
func (d *datagrams) waitsAgain() bool {
	ud, class := d.direction, d.class // once d waits it is the pacer's
	defer ud.session.socket.server.rescue(ud.session)
	if d.item.Return(time.Now(), class) != shaper.Waits {
		return false
	}
	ud.entered(class)
	return true
}

// send sends what is in out, and empties it.
func (ud *udpDirection) send(out *outgoing) {
	if ud.echo != nil {
		ud.sendBack(out)
	} else {
		out.batch.Send(&ud.Route)
	}
	now := time.Now()
	for i := range out.parcels {
		out.parcels[i].departed(now, out.batch.Lost(i))
	}
	out.clear()
}

// sendBack offers what is in out to the class of the other direction, as echo does.
func (ud *udpDirection) sendBack(out *outgoing) {
	back := getOutgoing()
	for i := range out.parcels {
		ud.echo.offer(out.parcels[i].Train, back)
	}
	ud.echo.send(back)
	back.release()
}

// parcel is a train that leaves.
type parcel struct {
	sock.Train
	direction *udpDirection
	class     *shaper.Class // that has let it go; nil: none
	passed    time.Time     // when the class let it go, if it has not waited
	waited    *datagrams    // that it comes from; nil: it has not waited
}

// passes reports whether a parcel may leave without waiting.
func (p *parcel) passes() bool {
	if p.class == nil {
		return true
	}
	p.passed = time.Now()
	return p.class.Pass(p.passed, costOf(p.Train))
}

func (d *datagrams) parcel() parcel {
	return parcel{Train: d.Train, direction: d.direction, class: d.class, waited: d}
}

// outgoing is a batch of parcels that leave a direction together. One goroutine owns it.
type outgoing struct {
	batch   *sock.Batch
	parcels []parcel // in the order of the batch
}

var outgoings = sync.Pool{New: func() any {
	return &outgoing{sock.NewBatch(), make([]parcel, 0, sock.BatchSize)}
}}

func getOutgoing() *outgoing { return outgoings.Get().(*outgoing) }

// add appends a parcel. There must be room.
func (out *outgoing) add(p parcel) {
	out.batch.Add(p.Train)
	out.parcels = append(out.parcels, p)
}

// clear empties the batch. The memory of its parcels belongs to others by now.
func (out *outgoing) clear() {
	out.batch.Clear()
	clear(out.parcels)
	out.parcels = out.parcels[:0]
}

// release gives an empty batch back.
func (out *outgoing) release() { outgoings.Put(out) }

// departed counts what was sent and what was lost, tells the class, and releases the memory.
func (p *parcel) departed(now time.Time, lost sock.Loss) {
	sent := costOf(p.Train)
	sent.Bytes -= lost.Bytes
	sent.Packets -= lost.Packets
	p.direction.moved.Add(uint64(sent.Bytes))
	p.direction.session.service.stats.Sent[p.direction.towards].Add(sent.Volume())
	if p.class != nil {
		p.class.Tally().Sent(p.direction.towards, sent)
		if lost.Packets > 0 {
			p.class.Tally().Dropped(stats.Reset, lost.Packets, lost.Bytes)
		}
	}
	switch {
	case p.waited != nil:
		p.waited.item.Left(now)
		p.waited.release()
	case p.class != nil:
		p.class.Left(now, p.passed, costOf(p.Train))
	}
}

// drop counts d as dropped, and releases it.
func (d *datagrams) drop(reason stats.Reason) {
	if d.class != nil {
		d.class.Tally().Dropped(reason, d.item.Cost.Packets, d.item.Cost.Bytes)
	}
	d.release()
}

// dropPending drops what waits for the class.
func (ud *udpDirection) dropPending(reason stats.Reason) {
	class := ud.class.Load()
	if class == nil || ud.pending.Load() == 0 {
		return
	}
	for _, it := range class.Evict(time.Now(), func(it *shaper.Item) bool {
		d, ok := it.Owner.(*datagrams)
		return ok && d.direction == ud
	}) {
		it.Owner.(*datagrams).waitsNoMore().drop(reason)
	}
}

// reenter moves the datagrams that wait in a class to the present class of their session. Those whose session
// stays keep their place.
func reenter(class *shaper.Class) {
	out := getOutgoing()
	defer out.release()
	for _, it := range class.Evict(time.Now(), func(it *shaper.Item) bool {
		d, ok := it.Owner.(*datagrams)
		return ok && d.class != d.direction.class.Load()
	}) {
		d := it.Owner.(*datagrams).waitsNoMore()
		ud := d.direction
		d.class = ud.class.Load()
		d.item.First, d.item.Accepted = false, false // it has had its turn in another class
		if d.item.Cost.Packets > 1 {                 // the new class may count datagrams
			ud.enterApart(d, out)
		} else {
			ud.enter(d, out)
		}
		ud.send(out)
	}
}

// waitsNoMore removes d from the counts of what waits, and returns it.
func (d *datagrams) waitsNoMore() *datagrams {
	d.direction.pending.Add(-1)
	d.direction.held.Add(-int64(len(d.Payload)))
	return d
}

// mirror sends copies of all datagrams through a source of a trial; nil ends that.
func (ud *udpDirection) mirror(s *shaper.Source) { ud.shadow.Store(s) }
