package sock

import (
	"errors"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Network makes ends and listeners. Any number of goroutines may use it.
type Network interface {
	// Listen listens at an address; network is "tcp", "tcp4" or "tcp6".
	Listen(network, address string) (Listener, error)
	// ListenUnix listens at the name of a unix socket: see BindUnix.
	ListenUnix(name string, who Access) (Listener, error)
	// Dial begins to connect to an address. The poller reports that the end is writable when
	// the attempt is over; then Failure returns nil if it has succeeded. The error is
	// ErrNoPort if no port of ours is free for this connection.
	Dial(to netip.AddrPort, from Local) (End, error)
	// DialUnix connects to the name of a unix socket, at once. The error is EAGAIN if the
	// listener has no room for one more connection now.
	DialUnix(name string) (End, error)
	// Pair returns the two ends of a connection within the process. Operations of the
	// net.Conn wait.
	Pair() (End, net.Conn, error)
	// NewPollers returns pollers; each of them needs a goroutine for Run.
	NewPollers() ([]*Poller, error)
	// NewPipes returns pipes that move bytes without a copy; nil if the network has none.
	NewPipes() Pipes
}

// Local is our side of a connection that is dialled. The zero Local leaves it to the kernel.
type Local struct {
	Addr    netip.Addr // invalid: the kernel chooses
	Foreign bool       // Addr need not be an address of this machine (IP_TRANSPARENT in ip(7))
	Mark    uint32     // of packets (SO_MARK); 0: none
	Unicast bool       // datagrams to a broadcast address are refused
}

// ErrNoPort says that every local port towards an address is in use, or was until a minute ago
// (TIME_WAIT).
var ErrNoPort = errors.New("no local port is free")

// Listener accepts connections.
type Listener interface {
	Source
	// Accept returns the next connection, and the address it comes from, which is invalid
	// for a unix socket. It does not wait: the error is EAGAIN if there is none now, and EBADF
	// if the listener is closed. Any number of goroutines may call it.
	Accept() (End, netip.AddrPort, error)
	Addr() net.Addr
	// Intercept makes the listener accept connections to any address that nftables leads to it,
	// and mark their packets. It may be called again. undo, which is never nil, makes the listener
	// what it was before.
	Intercept(mark uint32) (undo func(), err error)
	// Permit changes who may connect to a unix socket that ListenUnix has bound to a file. It
	// does nothing to other listeners.
	Permit(who Access) error
	// IsGone reports whether somebody has removed the file of a unix socket that ListenUnix has
	// bound, so that nobody can connect. It is false for other listeners.
	IsGone() bool
	// Close stops listening. Call Remove of the poller first: if the listener was passed to
	// this process, the kernel has it open elsewhere.
	Close() error
}

// End is one end of a byte stream. Its methods never wait. One goroutine at a time may use
// it; after Close or Reset none may. Errors are those of the kernel: EAGAIN, EINTR,
// ECONNRESET, EPIPE, ETIMEDOUT and others.
type End interface {
	Source
	// Read reads what is there. No bytes and no error are the end of the stream.
	Read(p []byte) (int, error)
	// Peek is Read, but what it returns stays to be read.
	Peek(p []byte) (int, error)
	// Write writes as much as there is room for.
	Write(p []byte) (int, error)
	// CloseWrite sends the end of the stream.
	CloseWrite() error
	// Close closes the end. What was written still arrives.
	Close()
	// Reset closes the end with a reset, so that the other end sees no clean end. What was
	// written and has not arrived is discarded. Unix sockets have no reset: the other end
	// sees a clean end, unless something that it has written was not read.
	Reset()
	// Failure returns why the connection is down or could not be made. It returns an error
	// only once, and only if Read and Write have not returned it. It names no operation.
	Failure() error
	// AtEnd reports whether the end of the stream has come and nothing before it is unread.
	AtEnd() bool
	// Unsent returns how many bytes were written and have not arrived.
	Unsent() int
	// Local returns the address of this end; it is invalid for a unix socket.
	Local() netip.AddrPort
	// Set sets an option, if the end has it. Get returns the value of an option, or 0.
	Set(o Option, value int)
	Get(o Option) int

	// fill moves at most n bytes from the end into an empty pipe, drain from a pipe to the
	// end. They return EINVAL if the end cannot use pipes.
	fill(p *pipe, n int) (int, error)
	drain(p *pipe, n int) (int, error)
}

// Option is an option of an end.
type Option uint8

const (
	ReceiveBuffer Option = iota // bytes; the kernel doubles the value (socket(7))
	SendBuffer                  // bytes; the kernel doubles the value
	UnsentLow                   // bytes: while more are unsent, the end is not writable (TCP_NOTSENT_LOWAT)
	UserTimeout                 // milliseconds until a silent peer is given up (RFC 5482)
	KeepAlive                   // 1: a peer that says nothing is asked whether it is there (tcp(7))
	KeepIdle                    // seconds of silence before the first such question
	KeepInterval                // seconds between them
	Mark                        // of packets (SO_MARK)
	Segment                     // bytes: the largest segment; some 1,400 on most networks, 64 KiB on the loopback device, 0 if the end is not TCP
	Transparent                 // 1: the address of the end may be any (IP_TRANSPARENT)
	options
)

// Events are news of a source. Each is reported once, when it happens: a watcher reads or
// writes until EAGAIN, and the next event reports that there is more to do.
type Events uint32

const (
	Readable Events = unix.EPOLLIN
	Writable Events = unix.EPOLLOUT
	Ended    Events = unix.EPOLLRDHUP // the other end has ended the stream or reset it
	Broken   Events = unix.EPOLLERR   // the connection is down
	HungUp   Events = unix.EPOLLHUP   // both directions have ended
	Urgent   Events = unix.EPOLLPRI   // there is urgent data

	// All are the events of interest to a watcher that reads and writes.
	All = Readable | Writable | Ended | Urgent
	// OnlyBroken is for a watcher that neither reads nor writes. Broken and HungUp are
	// reported in any case.
	OnlyBroken Events = 0
)

// State is what events have reported of an end and its user has not acted on yet.
type State struct {
	Readable, Writable bool
	Ends               bool // the other end has ended the stream or reset it; a read tells which
	Broken             bool // the connection is down
	Urgent             bool // there was urgent data (tcp(7)); reads stop where it was
}

// Note adds events to the state.
func (s *State) Note(e Events) {
	s.Readable = s.Readable || e&(Readable|Ended|Broken|HungUp) != 0
	s.Writable = s.Writable || e&(Writable|Broken|HungUp) != 0
	s.Ends = s.Ends || e&(Ended|Broken|HungUp) != 0
	s.Broken = s.Broken || e&Broken != 0
	s.Urgent = s.Urgent || e&Urgent != 0
}
