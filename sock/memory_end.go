package sock

import (
	"net/netip"
	"sync"

	"golang.org/x/sys/unix"
)

// MemoryEnd is an End in memory. Bytes that are written arrive at once if the reader has
// room for them; until then they stay with the writer. Any number of goroutines may use it.
// A test can do more with it than an End allows: Interrupt, Break, WriteUrgent.
type MemoryEnd struct {
	// Set by newLink.
	link  *sync.Mutex // of both ends; a poller's lock is taken after it
	peer  *MemoryEnd
	local netip.AddrPort
	unix  bool // it behaves like a unix socket, which knows no reset

	// They guard themselves; the poller's lock guards Due.
	watched
	noPipes
	Due

	// link guards the fields below.
	state     linkState
	failure   failure // why the end is down, until it is reported
	in        stream  // arrived, and not read
	out       stream  // written, and not arrived
	ended     bool    // CloseWrite or Close was called
	peerEnded bool    // the peer's end of the stream has arrived, after in
	closed    bool
	wantsRoom bool        // a write has found no room
	passed    [ops]uint64 // bytes ever read and written
	options   optionValues
	faults    faults // for the operations to come
	changed   func() // called when something happens, with link held; nil: nobody waits
}

// stream is bytes on their way, one of which may be urgent.
type stream struct {
	bytes  []byte
	urgent int // how many bytes are before the urgent one, plus one; 0: none is urgent
}

// failure is an error that is reported once; the zero failure is none.
type failure struct{ err error }

// take returns the error, and nil from then on.
func (f *failure) take() error {
	err := f.err
	f.err = nil
	return err
}

// optionValues are the values of options, as Set has set them.
type optionValues [options]int

// roomIn returns how many bytes may have arrived and not be read.
func (o *optionValues) roomIn() int {
	if n := o[ReceiveBuffer]; n > 0 {
		return n
	}
	return roomIn
}

// writable reports whether an end with so many unsent bytes counts as writable. UnsentLow counts
// only here: once an end is writable, a write may go beyond it, as in the kernel.
func (o *optionValues) writable(unsent int) bool {
	if low := o[UnsentLow]; low > 0 {
		return 2*unsent < low
	}
	return 3*(roomOut-unsent) >= roomOut
}

type linkState uint8

const (
	linkUp linkState = iota
	linkConnecting
	linkDown // refused, reset or broken; see failure
)

// Op is an operation of an end: see Interrupt and Passed.
type Op uint8

const (
	OnRead Op = iota
	OnWrite
	ops
)

// The room of an end, in bytes. That of the kernel is of about this size on a network.
const (
	roomIn  = 64 << 10
	roomOut = 64 << 10
)

// NewLink returns the two ends of a connection.
func NewLink() (one, other *MemoryEnd) { return newLink(netip.AddrPort{}, netip.AddrPort{}) }

// newLink is NewLink with the addresses of the ends.
func newLink(one, other netip.AddrPort) (*MemoryEnd, *MemoryEnd) {
	mu := new(sync.Mutex)
	a, b := &MemoryEnd{link: mu, local: one}, &MemoryEnd{link: mu, local: other}
	a.peer, b.peer = b, a
	return a, b
}

// faults are the errors that Interrupt has set for each operation.
type faults [ops][]error

// next returns the error of the next operation of a kind; nil: it does not fail.
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

// Interrupt makes the next operations fail without effect, each with one of the errors:
// EINTR, or EAGAIN, after which the poller reports what the end is ready for.
func (e *MemoryEnd) Interrupt(op Op, errs ...error) {
	e.link.Lock()
	defer e.link.Unlock()
	e.faults[op] = append(e.faults[op], errs...)
}

// Break takes this end down with an error, as the kernel does when it gives up. The other
// end does not notice.
func (e *MemoryEnd) Break(err error) {
	e.link.Lock()
	defer e.link.Unlock()
	if !e.closed {
		e.fail(err)
	}
}

// WriteUrgent writes a byte of urgent data (MSG_OOB in send(2)). It needs no room.
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

// read is Read with link held.
func (e *MemoryEnd) read(p []byte) (int, error) {
	if err := e.faults.next(OnRead, e); err != nil {
		return 0, err
	}
	if n := e.in.read(p); n > 0 {
		e.passed[OnRead] += uint64(n)
		e.peer.move()
		return n, nil
	}
	return e.nothing()
}

// Peek implements End.
func (e *MemoryEnd) Peek(p []byte) (int, error) {
	e.link.Lock()
	defer e.link.Unlock()
	in := e.in // a copy: what it reads stays
	if n := in.read(p); n > 0 {
		return n, nil
	}
	return e.nothing()
}

// nothing returns why there is nothing to read. link is held.
func (e *MemoryEnd) nothing() (int, error) {
	switch {
	case e.closed:
		return 0, unix.EBADF
	case e.peerEnded:
		return 0, nil
	case e.failure.err != nil:
		return 0, e.failure.take()
	case e.state == linkDown:
		return 0, nil
	}
	return 0, unix.EAGAIN
}

// read takes bytes out of the stream. It stops before the urgent byte; the next read skips
// that, since it is not part of the stream.
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

// take moves n bytes from the beginning of another stream to the end of this one. Only the
// last urgent byte stays urgent.
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

// drop removes the first n bytes. None of them may be urgent.
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

// write is Write with link held.
func (e *MemoryEnd) write(p []byte) (int, error) {
	if err := e.mayWrite(); err != nil {
		return 0, err
	}
	if err := e.faults.next(OnWrite, e); err != nil {
		return 0, err
	}
	written := 0
	for len(p) > 0 && e.state == linkUp {
		n := min(roomOut-len(e.out.bytes), len(p))
		if n <= 0 {
			break
		}
		e.out.bytes = append(e.out.bytes, p[:n]...)
		written, p = written+n, p[n:]
		e.passed[OnWrite] += uint64(n)
		e.move()
	}
	if written == 0 && len(p) > 0 {
		e.wantsRoom = true
		return 0, unix.EAGAIN
	}
	return written, nil
}

// mayWrite returns an error if the end cannot write now. link is held.
func (e *MemoryEnd) mayWrite() error {
	switch {
	case e.closed:
		return unix.EBADF
	case e.failure.err != nil:
		return e.failure.take()
	case e.ended || e.state == linkDown || e.unix && e.peer.closed:
		return unix.EPIPE
	case e.state == linkConnecting:
		return unix.EAGAIN
	}
	return nil
}

// move delivers to the peer what it has room for, and then the end of the stream. link is
// held.
func (e *MemoryEnd) move() {
	to := e.peer
	if to.closed {
		if len(e.out.bytes) > 0 && e.state == linkUp {
			e.reset() // the kernel's answer for a closed socket
		}
		return
	}
	n := max(min(to.options.roomIn()-len(to.in.bytes), len(e.out.bytes)), 0)
	to.in.take(&e.out, n)
	ends := e.ended && len(e.out.bytes) == 0 && !to.peerEnded && e.state == linkUp
	to.peerEnded = to.peerEnded || ends
	if n > 0 || ends {
		to.happened()
	}
	if n > 0 && e.wantsRoom && e.options.writable(len(e.out.bytes)) {
		e.wantsRoom = false
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
	e.happened() // both ways may have ended
	return nil
}

// Close implements End. If there are unread bytes, it resets the other end.
func (e *MemoryEnd) Close() {
	e.link.Lock()
	defer e.link.Unlock()
	if !e.closed {
		e.close()
	}
}

// close is Close with link held.
func (e *MemoryEnd) close() {
	unread := len(e.in.bytes) > 0 || e.unix && len(e.peer.out.bytes) > 0
	e.leave()
	if unread && e.state == linkUp {
		e.state, e.out = linkDown, stream{}
		e.peer.reset()
		return
	}
	e.ended = true
	e.move()
	e.peer.move() // what was on its way here finds the end closed
	if e.unix {
		e.peer.happened() // it can write no more
	}
}

// Reset implements End.
func (e *MemoryEnd) Reset() {
	e.link.Lock()
	defer e.link.Unlock()
	if e.closed {
		return
	}
	if e.unix {
		e.close()
		return
	}
	over := e.state != linkUp || e.ended && len(e.out.bytes) == 0 && e.peerEnded
	e.leave()
	e.state, e.out = linkDown, stream{}
	if !over {
		e.peer.reset()
	}
}

// leave closes the end for its user, and drops what is unread. link is held.
func (e *MemoryEnd) leave() {
	e.closed, e.in = true, stream{}
	e.unwatch(nil)
	if e.changed != nil {
		e.changed()
	}
}

// reset takes the end down as an arriving reset does. What has arrived before can still be
// read. link is held.
func (e *MemoryEnd) reset() {
	if e.state != linkUp {
		return
	}
	if e.peerEnded && !e.ended {
		e.fail(unix.EPIPE)
	} else {
		e.fail(unix.ECONNRESET)
	}
}

// fail takes the end down with an error. link is held.
func (e *MemoryEnd) fail(err error) {
	e.state, e.failure.err, e.out = linkDown, err, stream{}
	e.happened()
}

// Failure implements End.
func (e *MemoryEnd) Failure() error {
	e.link.Lock()
	defer e.link.Unlock()
	return e.failure.take()
}

// AtEnd implements End.
func (e *MemoryEnd) AtEnd() bool {
	e.link.Lock()
	defer e.link.Unlock()
	return len(e.in.bytes) == 0 && (e.peerEnded || e.state == linkDown && e.failure.err == nil)
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

// noPipes is part of an end that cannot use pipes.
type noPipes struct{}

func (noPipes) fill(*pipe, int) (int, error)  { return 0, unix.EINVAL }
func (noPipes) drain(*pipe, int) (int, error) { return 0, unix.EINVAL }

// happened wakes whoever waits for a change of the end. link is held.
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
	heard := e.peerEnded || e.state == linkDown
	over := e.state == linkDown || e.ended && e.peerEnded || e.unix && e.peer.closed
	for _, one := range []struct {
		is     bool
		events Events
	}{
		{heard, Readable | Ended},
		{len(e.in.bytes) > 0 && !(len(e.in.bytes) == 1 && e.in.urgent == 1), Readable},
		{over || e.state == linkUp && (e.ended || e.options.writable(len(e.out.bytes))), Writable},
		{e.failure.err != nil, Broken},
		{over, HungUp},
		{e.in.urgent > 0, Urgent},
	} {
		if one.is {
			events |= one.events
		}
	}
	return events
}

// Turn implements Turner. It reports to the watcher what the end is ready for.
func (e *MemoryEnd) Turn() { e.report(e.ready()) }

// watch implements Source.
func (e *MemoryEnd) watch(p *Poller, events Events, key uint64) error {
	e.begin(p, events, key, e)
	return nil
}
