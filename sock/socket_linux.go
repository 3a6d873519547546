package sock

import (
	"net"
	"net/netip"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Kernel is the network of the kernel. Its ends are TCP sockets and unix sockets; a pair is
// unix sockets.
type Kernel struct{}

// Socket is an End of the kernel, which owns its descriptor.
type Socket struct {
	Descriptor       // negative: closed
	holds      nagle // whether the kernel may hold back small segments
}

// nagle says whether the kernel may hold back a small segment while another is not acknowledged
// (TCP_NODELAY in tcp(7)).
type nagle uint8

const (
	never  nagle = iota // it holds back nothing
	second              // it would hold back the second write
	next                // it would hold back the next write
)

// aSegment is how many bytes at most a first write may have that leaves at once by itself.
const aSegment = 1 << 10

// Descriptor is the descriptor of a socket that does not block.
type Descriptor int

// NoSocket returns a closed Socket.
func NoSocket() *Socket { return &Socket{Descriptor: -1} }

// Read implements End.
func (d Descriptor) Read(p []byte) (int, error) { return readNow(int(d), p) }

// Peek implements End.
func (d Descriptor) Peek(p []byte) (int, error) { return peekNow(int(d), p) }

// Write implements End.
func (d Descriptor) Write(p []byte) (int, error) { return sendNow(int(d), p) }

// CloseWrite implements End.
func (d Descriptor) CloseWrite() error { return shutdownNow(int(d)) }

func (d Descriptor) fill(p *pipe, n int) (int, error)  { return p.fill(int(d), n) }
func (d Descriptor) drain(p *pipe, n int) (int, error) { return p.drain(int(d), n) }

// Write implements End.
func (s *Socket) Write(p []byte) (int, error) {
	s.hurry(len(p))
	return s.Descriptor.Write(p)
}

func (s *Socket) drain(p *pipe, n int) (int, error) {
	s.hurry(n)
	return s.Descriptor.drain(p, n)
}

// hurry makes a write of n bytes leave at once. A connection that carries only one small request
// is spared the system call.
func (s *Socket) hurry(n int) {
	switch {
	case s.holds == never:
	case s.holds == second && n <= aSegment:
		s.holds = next
	default:
		setNow(int(s.Descriptor), unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
		s.holds = never
	}
}

// Close implements End.
func (s *Socket) Close() {
	if s.Descriptor >= 0 {
		closeNow(int(s.Descriptor))
		s.Descriptor = -1
	}
}

// Reset implements End.
func (s *Socket) Reset() {
	if s.Descriptor >= 0 {
		s.Abandon()
		s.Close()
	}
}

// Abandon makes the next close a reset.
func (d Descriptor) Abandon() { lingerNow(int(d)) }

// File moves the descriptor into a file. The Socket is closed then.
func (s *Socket) File(name string) *os.File {
	f := os.NewFile(uintptr(s.Descriptor), name)
	s.Descriptor = -1
	return f
}

// Failure implements End.
func (d Descriptor) Failure() error {
	if code := getNow(int(d), unix.SOL_SOCKET, unix.SO_ERROR); code != 0 {
		return syscall.Errno(code)
	}
	return nil
}

// AtEnd implements End.
func (d Descriptor) AtEnd() bool {
	var peeked [1]byte
	n, err := d.Peek(peeked[:])
	return n == 0 && err == nil
}

// Unsent implements End (SIOCOUTQ in tcp(7)).
func (d Descriptor) Unsent() int {
	n, err := unix.IoctlGetInt(int(d), unix.SIOCOUTQ)
	if err != nil {
		return 0
	}
	return n
}

// Local implements End.
func (d Descriptor) Local() netip.AddrPort { return localOf(int(d)) }

// optionNames are the levels and names of the options for the kernel.
var optionNames = [options][2]int{
	ReceiveBuffer: {unix.SOL_SOCKET, unix.SO_RCVBUF},
	SendBuffer:    {unix.SOL_SOCKET, unix.SO_SNDBUF},
	UnsentLow:     {unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT},
	UserTimeout:   {unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT},
	KeepAlive:     {unix.SOL_SOCKET, unix.SO_KEEPALIVE},
	KeepIdle:      {unix.IPPROTO_TCP, unix.TCP_KEEPIDLE},
	KeepInterval:  {unix.IPPROTO_TCP, unix.TCP_KEEPINTVL},
	Mark:          {unix.SOL_SOCKET, unix.SO_MARK},
	Segment:       {unix.IPPROTO_TCP, unix.TCP_MAXSEG},
	Transparent:   {unix.IPPROTO_IP, unix.IP_TRANSPARENT},
}

// Set implements End. If the kernel refuses, all goes on without the option.
func (d Descriptor) Set(o Option, value int) {
	setNow(int(d), optionNames[o][0], optionNames[o][1], value)
}

// Get implements End.
func (d Descriptor) Get(o Option) int { return getNow(int(d), optionNames[o][0], optionNames[o][1]) }

// watch implements Source.
func (d Descriptor) watch(p *Poller, events Events, key uint64) error {
	return p.sleeper.add(int(d), events, key)
}

func (d Descriptor) unwatch(p *Poller) { p.sleeper.remove(int(d)) }

// Dial implements Network.
func (Kernel) Dial(to netip.AddrPort, from Local) (End, error) {
	s, err := newTCP(to, from)
	if err != nil {
		return nil, err
	}
	switch err := connectNow(int(s.Descriptor), to); err {
	case nil, unix.EINPROGRESS, unix.EINTR:
		return s, nil
	case unix.EADDRNOTAVAIL:
		s.Close()
		if from.Addr.IsValid() || HasSource(to) {
			return nil, ErrNoPort
		}
		return nil, os.NewSyscallError("connect", err)
	default:
		s.Close()
		return nil, os.NewSyscallError("connect", err)
	}
}

// HasSource reports whether this machine has an address and a route to send packets to another
// address. It sends none.
func HasSource(to netip.AddrPort) bool {
	fd, err := unix.Socket(familyOf(to.Addr()), unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer closeNow(fd)
	return connectNow(fd, to) == nil
}

// BindLate makes the kernel choose the port of a bound socket when it connects. Then it can use
// a port for several peers, and one of them in spite of TIME_WAIT with another. If the kernel
// refuses, it chooses the port at once.
func (d Descriptor) BindLate() { setNow(int(d), unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1) }

// DialUnix implements Network.
func (Kernel) DialUnix(name string) (End, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: name}); err != nil {
		closeNow(fd)
		return nil, os.NewSyscallError("connect", err)
	}
	return &Socket{Descriptor: Descriptor(fd)}, nil
}

// newTCP returns a socket to connect to an address from our side.
func newTCP(to netip.AddrPort, from Local) (*Socket, error) {
	fd, err := socketNow(familyOf(to.Addr()))
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	if from.Mark != 0 {
		Descriptor(fd).Set(Mark, int(from.Mark))
	}
	if from.Addr.IsValid() {
		if from.Foreign {
			Descriptor(fd).Set(Transparent, 1) // if the kernel refuses, so does bind
		}
		Descriptor(fd).BindLate()
		if err := bindNow(fd, netip.AddrPortFrom(from.Addr, 0)); err != nil {
			closeNow(fd)
			return nil, os.NewSyscallError("bind", err)
		}
	}
	return &Socket{Descriptor: Descriptor(fd), holds: second}, nil
}

func familyOf(a netip.Addr) int {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

// Pair implements Network.
func (Kernel) Pair() (End, net.Conn, error) {
	s, c, err := NewPair()
	if err != nil {
		return nil, nil, err
	}
	return s, c, nil
}

// NewPair returns two connected unix sockets.
func NewPair() (*Socket, *net.UnixConn, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	file := os.NewFile(uintptr(fds[1]), "pair")
	defer file.Close()
	c, err := net.FileConn(file)
	if err != nil {
		closeNow(fds[0])
		return nil, nil, err
	}
	return &Socket{Descriptor: Descriptor(fds[0])}, c.(*net.UnixConn), nil
}
