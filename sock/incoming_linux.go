package sock

import (
	"net/netip"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Datagrams are read and written in batches: recvmmsg(2) and sendmmsg(2).
const (
	BatchSize   = 32       // trains
	maxDatagram = 64 << 10 // bytes
)

// mmsghdr is struct mmsghdr of recvmmsg(2). n is in bytes.
type mmsghdr struct {
	hdr unix.Msghdr
	n   uint32
}

// control is room for the control messages of a datagram: IP_PKTINFO and IPV6_PKTINFO, since
// a socket of both families gets both, IP_ORIGDSTADDR or IPV6_ORIGDSTADDR, and UDP_GRO or
// UDP_SEGMENT.
type control [128]byte

// Incoming is a batch of datagrams that were read. One goroutine at a time may use it.
type Incoming struct {
	hdrs    [BatchSize]mmsghdr
	iovs    [BatchSize]unix.Iovec
	names   [BatchSize]sockname
	control [BatchSize]control
	headers [BatchSize]int // how many bytes of each Train leaves out; see Skip
	bytes   [BatchSize][maxDatagram]byte
}

// incomings is a pool of batches, of 2 MiB each. A Reader takes one only when it reads.
var incomings = sync.Pool{New: func() any {
	in := new(Incoming)
	for i := range in.hdrs {
		in.iovs[i].Base = &in.bytes[i][0]
		in.iovs[i].SetLen(maxDatagram)
		h := &in.hdrs[i].hdr
		h.Iov = &in.iovs[i]
		h.SetIovlen(1)
		h.Name = (*byte)(unsafe.Pointer(&in.names[i]))
		h.Control = &in.control[i][0]
	}
	return in
}}

// receive reads what is there, by a raw call as in calls_linux.go, and returns how many
// datagrams. It does not wait.
func (in *Incoming) receive(fd uintptr) (int, error) {
	for i := range in.hdrs { // the last receive has overwritten these
		in.hdrs[i].hdr.Namelen = unix.SizeofSockaddrInet6
		in.hdrs[i].hdr.SetControllen(len(in.control[i]))
		in.headers[i] = 0
	}
	for {
		n, _, errno := syscall.RawSyscall6(unix.SYS_RECVMMSG, fd, uintptr(unsafe.Pointer(&in.hdrs)), BatchSize, unix.MSG_DONTWAIT, 0, 0)
		switch errno {
		case 0:
			return int(n), nil
		case unix.EINTR:
		default:
			return 0, errno
		}
	}
}

// Reader reads batches from a socket. It holds none while it waits. One goroutine at a time
// may use it.
type Reader struct {
	Batch *Incoming // from Read until Release
	n     int
	err   error
	try   func(fd uintptr) bool // receive, kept so that Read allocates nothing
}

// Read waits for datagrams, reads them into Batch, and returns how many there are. It
// returns 0 if the kernel reports an ICMP error for a datagram sent before; see Failure. Release
// must follow. Read returns an error, and no Batch, if the socket is closed or its deadline has passed.
func (r *Reader) Read(raw syscall.RawConn) (n int, err error) {
	if r.try == nil {
		r.try = r.receive
	}
	if err := raw.Read(r.try); err != nil {
		return 0, err
	}
	if r.err != nil {
		return 0, nil
	}
	return r.n, nil
}

// Failure returns what the kernel has reported to the last Read; nil if that was nothing.
func (r *Reader) Failure() error { return r.err }

// receive takes a batch and reads into it. It reports whether the wait is over.
func (r *Reader) receive(fd uintptr) bool {
	r.Batch = incomings.Get().(*Incoming)
	if r.n, r.err = r.Batch.receive(fd); r.err == unix.EAGAIN {
		r.Release()
		return false
	}
	return true
}

// Release gives the batch back.
func (r *Reader) Release() {
	incomings.Put(r.Batch)
	r.Batch = nil
}

// Discard reads and discards what is there. It calls seen for each batch of n datagrams.
func Discard(fd uintptr, seen func(in *Incoming, n int)) {
	in := incomings.Get().(*Incoming)
	defer incomings.Put(in)
	for n, err := in.receive(fd); err == nil; n, err = in.receive(fd) {
		seen(in, n)
	}
}

// Train returns datagram i, which may be several that were read as one. It is valid until
// the batch is released.
func (in *Incoming) Train(i int) Train {
	t := Train{Payload: in.bytes[i][in.headers[i]:in.hdrs[i].n]}
	if size := in.message(i, unix.IPPROTO_UDP, unix.UDP_GRO); size != nil {
		t.Size = int(*(*int32)(size))
	}
	return t
}

// Skip makes Train leave out the first n bytes of datagram i: a header. The datagram must not be
// several that were read as one.
func (in *Incoming) Skip(i, n int) { in.headers[i] = n }

// message returns the data of a control message of datagram i; nil if there is none.
func (in *Incoming) message(i int, level, kind int32) unsafe.Pointer {
	for at, end := 0, int(in.hdrs[i].hdr.Controllen); at+unix.SizeofCmsghdr <= end; {
		c := (*unix.Cmsghdr)(unsafe.Pointer(&in.control[i][at]))
		if c.Level == level && c.Type == kind {
			return unsafe.Pointer(&in.control[i][at+unix.CmsgLen(0)])
		}
		at += unix.CmsgSpace(max(int(c.Len)-unix.CmsgLen(0), 0))
	}
	return nil
}

// Source returns where datagram i came from.
func (in *Incoming) Source(i int) netip.AddrPort { return in.names[i].addrPort() }

// Asked returns our address that datagram i was sent to; for a broadcast, our address in
// that network. It is invalid if the socket does not report it.
func (in *Incoming) Asked(i int) netip.Addr {
	if info := in.message(i, unix.IPPROTO_IP, unix.IP_PKTINFO); info != nil {
		return netip.AddrFrom4((*unix.Inet4Pktinfo)(info).Spec_dst)
	}
	if info := in.message(i, unix.IPPROTO_IPV6, unix.IPV6_PKTINFO); info != nil {
		return netip.AddrFrom16((*unix.Inet6Pktinfo)(info).Addr).Unmap()
	}
	return netip.Addr{}
}

// Intended returns where the sender of datagram i has sent it, if nftables has led it to an
// intercepting socket; see [Descriptor.InterceptDatagrams]. It is invalid if the socket does not
// report it.
func (in *Incoming) Intended(i int) netip.AddrPort {
	at := in.message(i, unix.IPPROTO_IP, unix.IP_ORIGDSTADDR)
	if at == nil {
		at = in.message(i, unix.IPPROTO_IPV6, unix.IPV6_ORIGDSTADDR)
	}
	if at == nil {
		return netip.AddrPort{}
	}
	return (*sockname)(at).addrPort()
}

// Peer is where a socket that is not connected sends datagrams: the address, as the kernel
// takes it, and our address to send from. The zero Peer is nobody.
type Peer struct {
	name    sockname
	namelen uint32
	control control
	length  int // of control, in bytes; 0: the kernel chooses our address
}

// PeerAt returns the peer at an address, for a socket of its family. The kernel chooses our address.
func PeerAt(at netip.AddrPort) (p Peer) {
	name, size := socknameOf(at)
	p.name, p.namelen = name, uint32(size)
	return p
}

// Peer returns the sender of datagram i, to answer from the address that it has asked.
func (in *Incoming) Peer(i int) Peer { return in.PeerOf(i, in.Asked(i)) }

// PeerOf returns the sender of datagram i, to answer from an address of the sender's family. If the
// socket is transparent, that may be an address of another machine. An invalid one leaves the choice
// to the kernel.
func (in *Incoming) PeerOf(i int, from netip.Addr) Peer {
	p := Peer{name: in.names[i], namelen: in.hdrs[i].hdr.Namelen}
	switch {
	case !from.IsValid():
	case from.Is4():
		data := p.control.add(&p.length, unix.IPPROTO_IP, unix.IP_PKTINFO, unix.SizeofInet4Pktinfo)
		(*unix.Inet4Pktinfo)(data).Spec_dst = from.As4()
	default:
		data := p.control.add(&p.length, unix.IPPROTO_IPV6, unix.IPV6_PKTINFO, unix.SizeofInet6Pktinfo)
		(*unix.Inet6Pktinfo)(data).Addr = from.As16()
	}
	return p
}

// add appends a control message with n bytes of data, adds its size to length, and returns
// where the data go.
func (c *control) add(length *int, level, kind int32, n int) unsafe.Pointer {
	h := (*unix.Cmsghdr)(unsafe.Pointer(&c[*length]))
	h.Level, h.Type = level, kind
	h.SetLen(unix.CmsgLen(n))
	data := unsafe.Pointer(&c[*length+unix.CmsgLen(0)])
	*length += unix.CmsgSpace(n)
	return data
}
