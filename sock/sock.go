package sock

import (
	"net"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Network makes ends of connections.
type Network interface {
	// Listen binds an address: network is "tcp", "tcp4" or "tcp6".
	Listen(network, address string) (Listener, error)
	// Dial begins to connect to an address, from a local address if one is given. mark is
	// that of what is sent (SO_MARK); 0: none. The poller tells that the end is writable
	// when the attempt has come to an end, and Failure says how.
	Dial(to netip.AddrPort, from netip.Addr, mark uint32) (End, error)
	// Pair returns the ends of a connection within the process; the second one waits.
	Pair() (End, net.Conn, error)
	// NewPollers returns pollers that run at the same time.
	NewPollers() ([]*Poller, error)
	// NewPipes returns what moves bytes without a copy; nil: nothing does.
	NewPipes() Pipes
}

// Listener accepts connections.
type Listener interface {
	Source
	// Accept returns the next connection, and the address it comes from; EAGAIN if there
	// is none now, EBADF if the listener is closed. It may be called by many.
	Accept() (End, netip.AddrPort, error)
	Addr() net.Addr
	// Close stops listening. Before, the poller is to remove the listener: the kernel has
	// it open elsewhere if it was passed to this process.
	Close() error
}

// End is one end of a connection of bytes. Nothing here waits. One goroutine at a time may
// use it; after Close or Reset none may. Errors are those of the kernel: EAGAIN, EINTR,
// ECONNRESET, EPIPE, ETIMEDOUT and others.
type End interface {
	Source
	// Read reads what is there. No bytes and no error are the end.
	Read(p []byte) (int, error)
	// Write writes what there is room for.
	Write(p []byte) (int, error)
	// CloseWrite tells the other end that nothing more comes.
	CloseWrite() error
	// Close closes the end. What has been written still arrives.
	Close()
	// Reset closes the end with a reset, so that the other one sees no clean end. What has
	// been written and has not arrived is discarded.
	Reset()
	// Failure returns why the connection is down, or could not be made, once; nil: it is
	// up, or Read or Write have told. It names no operation.
	Failure() error
	// AtEnd reports whether there is nothing to read before an end that has come.
	AtEnd() bool
	// Unsent returns how many bytes were written and have not arrived.
	Unsent() int
	// Local returns the address of this end; invalid for one of a pair.
	Local() netip.AddrPort
	// Set sets an option, if the end has it; Get returns its value, or 0.
	Set(o Option, value int)
	Get(o Option) int

	// fill moves at most n bytes into an empty pipe, drain out of it; EINVAL: the end has
	// nothing to do with pipes.
	fill(p *pipe, n int) (int, error)
	drain(p *pipe, n int) (int, error)
}

// Option is something that can be set of an end.
type Option uint8

const (
	ReceiveBuffer Option = iota // bytes, of which the kernel doubles what it is given (socket(7))
	SendBuffer                  // the same of what is written
	UnsentLow                   // above so many bytes that have not been sent the end is not writable (TCP_NOTSENT_LOWAT)
	UserTimeout                 // milliseconds after which a dead peer is given up (RFC 5482)
	Mark                        // of packets (SO_MARK)
	Segment                     // bytes: the largest of the connection. Some 1,400 on most networks, 64 KiB on the loopback device; 0 for what is not TCP
	options
)

// Events are news of an end. Each is told once, when it comes about: who reads or writes
// does so until EAGAIN, and is told when there is more to do.
type Events uint32

const (
	Readable Events = unix.EPOLLIN
	Writable Events = unix.EPOLLOUT
	Ended    Events = unix.EPOLLRDHUP // the other end has sent an end, or a reset
	Broken   Events = unix.EPOLLERR   // the connection is down
	HungUp   Events = unix.EPOLLHUP   // both ways have ended
	Urgent   Events = unix.EPOLLPRI   // there is urgent data

	// All are the events that an end is watched for.
	All = Readable | Writable | Ended | Urgent
	// OnlyBroken is for a watcher that neither reads nor writes. The kernel tells Broken
	// in any case.
	OnlyBroken Events = 0
)

// State is what events have told of an end.
type State struct {
	Readable, Writable bool
	Ends               bool // the other end has sent an end, or a reset: reads tell which
	Broken             bool // the connection is down
	Urgent             bool // there has been urgent data (tcp(7)), at which reads stop short of what is behind
}

// Note notes events.
func (s *State) Note(e Events) {
	s.Readable = s.Readable || e&(Readable|Ended|Broken|HungUp) != 0
	s.Writable = s.Writable || e&(Writable|Broken|HungUp) != 0
	s.Ends = s.Ends || e&(Ended|Broken|HungUp) != 0
	s.Broken = s.Broken || e&Broken != 0
	s.Urgent = s.Urgent || e&Urgent != 0
}
