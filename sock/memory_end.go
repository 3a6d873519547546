package sock

import (
	"net/netip"
	"sync"

	"golang.org/x/sys/unix"
)

// MemoryEnd is an End in memory. What is written waits with the writer while the reader has
// no room for it, and otherwise with the reader. A test may do more with it than an End can:
// Interrupt, Break, WriteUrgent.
type MemoryEnd struct {
	link  *sync.Mutex // guards what follows, of both ends; it comes before that of a poller
	peer  *MemoryEnd
	local netip.AddrPort
	watched
	noPipes
	Due

	state   linkState
	err     error  // why it is down, until that has been told
	in      stream // what has arrived, and is not read
	out     stream // what was written, and has not arrived
	ended   bool   // nothing more is written
	hears   bool   // the end of the other one has arrived, behind in
	closed  bool
	waits   bool         // a write has found no room
	passed  [ops]uint64  // bytes that were ever read and written
	options [options]int // what Set has set
	faults  faults       // of the operations to come
	changed func()       // something has happened; nil: nobody waits for that
}

// stream is bytes on their way, one of which may be urgent.
type stream struct {
	bytes  []byte
	urgent int // how many bytes are before the urgent one, plus one; 0: there is none
}

type linkState uint8

const (
	linkUp linkState = iota
	linkConnecting
	linkDown // a reset has come, or whatever err says
)

// Op is an operation that Interrupt lets fail.
type Op uint8

const (
	OnRead Op = iota
	OnWrite
	ops
)

// Room of an end, in bytes. The kernel's is about as large on a network.
const (
	roomIn  = 64 << 10
	roomOut = 64 << 10
)

// NewLink returns the two ends of a connection.
func NewLink() (one, other *MemoryEnd) { return newLink(netip.AddrPort{}, netip.AddrPort{}) }

func newLink(one, other netip.AddrPort) (*MemoryEnd, *MemoryEnd) {
	mu := new(sync.Mutex)
	a, b := &MemoryEnd{link: mu, local: one}, &MemoryEnd{link: mu, local: other}
	a.peer, b.peer = b, a
	return a, b
}

// faults are what Interrupt wants of each operation.
type faults [ops][]error

// next returns what is wanted of an operation on an end now; nil: nothing.
func (f *faults) next(op Op, e *MemoryEnd) error {
	if len(f[op]) == 0 {
		return nil
	}
	err := f[op][0]
	if f[op] = f[op][1:]; err == unix.EAGAIN {
		e.happened()
	}
	return err
}

// Interrupt lets the next operations fail, with an error each, and have no other effect:
// EINTR, or EAGAIN, after which the poller tells again.
func (e *MemoryEnd) Interrupt(op Op, errs ...error) {
	e.link.Lock()
	defer e.link.Unlock()
	e.faults[op] = append(e.faults[op], errs...)
}

// Break takes the connection down at this end, as the kernel does when it gives up. The
// other end learns nothing.
func (e *MemoryEnd) Break(err error) {
	e.link.Lock()
	defer e.link.Unlock()
	if !e.closed {
		e.fail(err)
	}
}

// WriteUrgent writes a byte of urgent data (MSG_OOB in send(2)).
func (e *MemoryEnd) WriteUrgent(b byte) error {
	e.link.Lock()
	defer e.link.Unlock()
	if err := e.mayWrite(); err != nil {
		return err
	}
	e.out.bytes = append(e.out.bytes, b)
	e.out.urgent = len(e.out.bytes)
	e.move()
	return nil
}

// Other returns the other end of the connection.
func (e *MemoryEnd) Other() *MemoryEnd { return e.peer }

// Passed returns how many bytes were ever read from the end, or written to it. Urgent ones
// do not count.
func (e *MemoryEnd) Passed(op Op) uint64 {
	e.link.Lock()
	defer e.link.Unlock()
	return e.passed[op]
}

// Read implements End.
func (e *MemoryEnd) Read(p []byte) (int, error) {
	e.link.Lock()
	defer e.link.Unlock()
	return e.read(p)
}

func (e *MemoryEnd) read(p []byte) (int, error) {
	if err := e.faults.next(OnRead, e); err != nil {
		return 0, err
	}
	n := e.in.read(p)
	switch {
	case n > 0:
		e.passed[OnRead] += uint64(n)
		e.peer.move()
		return n, nil
	case e.closed:
		return 0, unix.EBADF
	case e.hears:
		return 0, nil
	case e.err != nil:
		return 0, e.takeErr()
	case e.state == linkDown:
		return 0, nil
	}
	return 0, unix.EAGAIN
}

// read takes bytes out. It stops short of the urgent byte, which it skips at first: that
// one is outside of the stream.
func (s *stream) read(p []byte) int {
	if s.urgent == 1 {
		s.bytes, s.urgent = s.bytes[1:], 0
	}
	from := s.bytes
	if s.urgent > 0 {
		from = from[:s.urgent-1]
	}
	n := copy(p, from)
	s.drop(n)
	return n
}

// take moves n bytes from the beginning of another stream to the end of this one. A byte is
// urgent until another one is.
func (s *stream) take(from *stream, n int) {
	if u := from.urgent; u > 0 && u <= n {
		if s.urgent == 1 {
			s.drop(1)
		}
		s.urgent, from.urgent = len(s.bytes)+u, 0
	}
	s.bytes = append(s.bytes, from.bytes[:n]...)
	from.drop(n)
}

// drop takes n bytes out, of which none is urgent.
func (s *stream) drop(n int) {
	s.bytes = s.bytes[n:]
	if s.urgent > 0 {
		s.urgent -= n
	}
}

// Write implements End.
func (e *MemoryEnd) Write(p []byte) (int, error) {
	e.link.Lock()
	defer e.link.Unlock()
	return e.write(p)
}

func (e *MemoryEnd) write(p []byte) (int, error) {
	if err := e.mayWrite(); err != nil {
		return 0, err
	}
	if err := e.faults.next(OnWrite, e); err != nil {
		return 0, err
	}
	written := 0
	for len(p) > 0 && e.state == linkUp {
		n := min(e.room(), len(p))
		if n <= 0 {
			break
		}
		e.out.bytes = append(e.out.bytes, p[:n]...)
		written, p = written+n, p[n:]
		e.passed[OnWrite] += uint64(n)
		e.move()
	}
	if written == 0 && len(p) > 0 {
		e.waits = true
		return 0, unix.EAGAIN
	}
	return written, nil
}

// mayWrite returns why nothing can be written, if there is a reason.
func (e *MemoryEnd) mayWrite() error {
	switch {
	case e.closed:
		return unix.EBADF
	case e.err != nil:
		return e.takeErr()
	case e.ended || e.state == linkDown:
		return unix.EPIPE
	case e.state == linkConnecting:
		return unix.EAGAIN
	}
	return nil
}

func (e *MemoryEnd) takeErr() error {
	err := e.err
	e.err = nil
	return err
}

// room returns for how many bytes there is room to be written.
func (e *MemoryEnd) room() int { return roomOut - len(e.out.bytes) }

// hasRoom reports whether there is room for so much that it is worth to tell. UnsentLow is
// about that only: the kernel, too, lets a piece grow that it has begun.
func (e *MemoryEnd) hasRoom() bool {
	if low := e.options[UnsentLow]; low > 0 {
		return 2*len(e.out.bytes) < low
	}
	return 3*e.room() >= roomOut
}

// move lets what was written arrive, as far as there is room, and the end behind it.
func (e *MemoryEnd) move() {
	to := e.peer
	if to.closed {
		if len(e.out.bytes) > 0 && e.state == linkUp {
			e.reset() // the kernel answers so for a socket that is closed
		}
		return
	}
	room := roomIn
	if n := to.options[ReceiveBuffer]; n > 0 {
		room = n
	}
	n := max(min(room-len(to.in.bytes), len(e.out.bytes)), 0)
	to.in.take(&e.out, n)
	ends := e.ended && len(e.out.bytes) == 0 && !to.hears && e.state == linkUp
	to.hears = to.hears || ends
	if n > 0 || ends {
		to.happened()
	}
	if n > 0 && e.waits && e.hasRoom() {
		e.waits = false
		e.happened()
	}
}

// CloseWrite implements End.
func (e *MemoryEnd) CloseWrite() error {
	e.link.Lock()
	defer e.link.Unlock()
	if e.closed || e.state == linkDown {
		return unix.ENOTCONN
	}
	e.ended = true
	e.move()
	e.happened() // it may have hung up
	return nil
}

// Close implements End. If something has not been read, the other end is reset.
func (e *MemoryEnd) Close() {
	e.link.Lock()
	defer e.link.Unlock()
	if e.closed {
		return
	}
	unread := len(e.in.bytes) > 0
	e.leave()
	if unread && e.state == linkUp {
		e.state, e.out = linkDown, stream{}
		e.peer.reset()
		return
	}
	e.ended = true
	e.move()
	e.peer.move() // what was on its way here meets a closed end
}

// Reset implements End.
func (e *MemoryEnd) Reset() {
	e.link.Lock()
	defer e.link.Unlock()
	if e.closed {
		return
	}
	over := e.state != linkUp || e.ended && len(e.out.bytes) == 0 && e.hears
	e.leave()
	e.state, e.out = linkDown, stream{}
	if !over {
		e.peer.reset()
	}
}

// leave closes the end for its user.
func (e *MemoryEnd) leave() {
	e.closed, e.in = true, stream{}
	e.unwatch(nil)
	if e.changed != nil {
		e.changed()
	}
}

// reset is what a reset that arrives does: what has arrived before can still be read.
func (e *MemoryEnd) reset() {
	if e.state != linkUp {
		return
	}
	if e.hears && !e.ended {
		e.fail(unix.EPIPE)
	} else {
		e.fail(unix.ECONNRESET)
	}
}

// fail takes the end down.
func (e *MemoryEnd) fail(err error) {
	e.state, e.err, e.out = linkDown, err, stream{}
	e.happened()
}

// Failure implements End.
func (e *MemoryEnd) Failure() error {
	e.link.Lock()
	defer e.link.Unlock()
	return e.takeErr()
}

// AtEnd implements End.
func (e *MemoryEnd) AtEnd() bool {
	e.link.Lock()
	defer e.link.Unlock()
	return len(e.in.bytes) == 0 && (e.hears || e.state == linkDown && e.err == nil)
}

// Unsent implements End.
func (e *MemoryEnd) Unsent() int {
	e.link.Lock()
	defer e.link.Unlock()
	return len(e.out.bytes)
}

// Local implements End.
func (e *MemoryEnd) Local() netip.AddrPort { return e.local }

// Set implements End.
func (e *MemoryEnd) Set(o Option, value int) {
	e.link.Lock()
	defer e.link.Unlock()
	if e.options[o] = value; !e.closed {
		e.peer.move()
	}
}

// Get implements End.
func (e *MemoryEnd) Get(o Option) int {
	e.link.Lock()
	defer e.link.Unlock()
	return e.options[o]
}

// noPipes is part of an end that has nothing to do with pipes.
type noPipes struct{}

func (noPipes) fill(*pipe, int) (int, error)  { return 0, unix.EINVAL }
func (noPipes) drain(*pipe, int) (int, error) { return 0, unix.EINVAL }

// happened tells whoever waits for news of the end.
func (e *MemoryEnd) happened() {
	e.news(e)
	if e.changed != nil {
		e.changed()
	}
}

// ready returns what the end is ready for (tcp_poll in net/ipv4/tcp.c).
func (e *MemoryEnd) ready() (events Events) {
	e.link.Lock()
	defer e.link.Unlock()
	heard := e.hears || e.state == linkDown
	for _, one := range []struct {
		is     bool
		events Events
	}{
		{heard, Readable | Ended},
		{len(e.in.bytes) > 0 && !(len(e.in.bytes) == 1 && e.in.urgent == 1), Readable},
		{e.state == linkDown || e.state == linkUp && (e.ended || e.hasRoom()), Writable},
		{e.err != nil, Broken},
		{e.state == linkDown || e.ended && e.hears, HungUp},
		{e.in.urgent > 0, Urgent},
	} {
		if one.is {
			events |= one.events
		}
	}
	return events
}

// Turn implements Turner: it tells the watcher what the end is ready for.
func (e *MemoryEnd) Turn() { e.tell(e.ready()) }

func (e *MemoryEnd) watch(p *Poller, events Events, key uint64) error {
	e.begin(p, events, key, e)
	return nil
}
