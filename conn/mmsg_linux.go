package conn

import (
	"net/netip"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Datagrams are read and written in batches: recvmmsg(2) and sendmmsg(2).
const (
	batchSize   = 32
	maxDatagram = 64 << 10
)

// mmsghdr is struct mmsghdr of recvmmsg(2).
type mmsghdr struct {
	hdr unix.Msghdr
	n   uint32
}

// control is room for one IP_PKTINFO or IPV6_PKTINFO message.
type control [40]byte

// incoming is a batch of datagrams that were read.
type incoming struct {
	hdrs    [batchSize]mmsghdr
	iovs    [batchSize]unix.Iovec
	names   [batchSize]unix.RawSockaddrInet6 // large enough for IPv4 too
	control [batchSize]control
	bytes   [batchSize][maxDatagram]byte
}

// incomings holds batches, 2 MiB each; one is taken only when datagrams are there.
var incomings = sync.Pool{New: func() any {
	in := new(incoming)
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

// receive reads what is there, without waiting.
func (in *incoming) receive(fd uintptr) (int, error) {
	for i := range in.hdrs { // the kernel has overwritten them with what came
		in.hdrs[i].hdr.Namelen = unix.SizeofSockaddrInet6
		in.hdrs[i].hdr.SetControllen(len(in.control[i]))
	}
	for {
		n, _, errno := unix.Syscall6(unix.SYS_RECVMMSG, fd, uintptr(unsafe.Pointer(&in.hdrs)), batchSize, unix.MSG_DONTWAIT, 0, 0)
		switch errno {
		case 0:
			return int(n), nil
		case unix.EINTR:
		default:
			return 0, errno
		}
	}
}

// reader reads batches from a socket, and holds none while it waits.
type reader struct {
	batch *incoming
	n     int
	err   error
	try   func(fd uintptr) bool // kept, so that a read allocates nothing
}

// read waits for datagrams and reads them into batch, until release. It
// returns none where the kernel reports an ICMP error that an earlier datagram
// met, and an error when the socket is closed or past its deadline.
func (r *reader) read(raw syscall.RawConn) (n int, err error) {
	if r.try == nil {
		r.try = r.once
	}
	if err := raw.Read(r.try); err != nil {
		return 0, err
	}
	if r.err != nil {
		return 0, nil
	}
	return r.n, nil
}

func (r *reader) once(fd uintptr) bool {
	r.batch = incomings.Get().(*incoming)
	if r.n, r.err = r.batch.receive(fd); r.err == unix.EAGAIN {
		r.release()
		return false
	}
	return true
}

func (r *reader) release() {
	incomings.Put(r.batch)
	r.batch = nil
}

// payload returns datagram i, valid until the next receive.
func (in *incoming) payload(i int) []byte { return in.bytes[i][:in.hdrs[i].n] }

// source returns where datagram i came from.
func (in *incoming) source(i int) netip.AddrPort {
	name := &in.names[i]
	network := (*[2]byte)(unsafe.Pointer(&name.Port)) // the same place in IPv4's
	port := uint16(network[0])<<8 | uint16(network[1])
	if name.Family == unix.AF_INET {
		v4 := (*unix.RawSockaddrInet4)(unsafe.Pointer(name))
		return netip.AddrPortFrom(netip.AddrFrom4(v4.Addr), port)
	}
	return netip.AddrPortFrom(netip.AddrFrom16(name.Addr).Unmap(), port)
}

// asked returns which of our addresses datagram i was sent to, invalid where
// the socket does not tell. For a broadcast it is the one of that network.
func (in *incoming) asked(i int) netip.Addr {
	h := &in.hdrs[i].hdr
	if h.Controllen < unix.SizeofCmsghdr {
		return netip.Addr{}
	}
	c := (*unix.Cmsghdr)(unsafe.Pointer(&in.control[i]))
	data := unsafe.Pointer(&in.control[i][unix.CmsgLen(0)])
	switch {
	case c.Level == unix.IPPROTO_IP && c.Type == unix.IP_PKTINFO:
		return netip.AddrFrom4((*unix.Inet4Pktinfo)(data).Spec_dst)
	case c.Level == unix.IPPROTO_IPV6 && c.Type == unix.IPV6_PKTINFO:
		return netip.AddrFrom16((*unix.Inet6Pktinfo)(data).Addr).Unmap()
	}
	return netip.Addr{}
}

// peer is where datagrams go from an unconnected socket: the address, as the
// kernel takes it, and the source address to send from.
type peer struct {
	name    unix.RawSockaddrInet6
	namelen uint32
	control control
	length  int // of control; 0: the kernel chooses the source
}

// peerOf keeps the sender of datagram i, as one to answer.
func (in *incoming) peerOf(i int) peer {
	p := peer{name: in.names[i], namelen: in.hdrs[i].hdr.Namelen}
	asked := in.asked(i)
	if !asked.IsValid() {
		return p
	}
	received := (*unix.Cmsghdr)(unsafe.Pointer(&in.control[i]))
	c := (*unix.Cmsghdr)(unsafe.Pointer(&p.control))
	c.Level, c.Type = received.Level, received.Type
	data := unsafe.Pointer(&p.control[unix.CmsgLen(0)])
	if c.Level == unix.IPPROTO_IP {
		(*unix.Inet4Pktinfo)(data).Spec_dst = asked.As4()
		c.SetLen(unix.CmsgLen(unix.SizeofInet4Pktinfo))
		p.length = unix.CmsgSpace(unix.SizeofInet4Pktinfo)
	} else {
		(*unix.Inet6Pktinfo)(data).Addr = asked.As16()
		c.SetLen(unix.CmsgLen(unix.SizeofInet6Pktinfo))
		p.length = unix.CmsgSpace(unix.SizeofInet6Pktinfo)
	}
	return p
}

// outgoing is a batch of datagrams that leave a way together.
type outgoing struct {
	datagrams [batchSize]*datagram

	hdrs   [batchSize]mmsghdr
	iovs   [batchSize]unix.Iovec
	n      int                   // added
	failed uint32                // a bit for each that the kernel did not take
	try    func(fd uintptr) bool // kept, so that a flush allocates nothing
}

var outgoings = sync.Pool{New: func() any {
	out := new(outgoing)
	for i := range out.hdrs {
		out.hdrs[i].hdr.Iov = &out.iovs[i]
		out.hdrs[i].hdr.SetIovlen(1)
	}
	out.try = out.once
	return out
}}

func getOutgoing() *outgoing { return outgoings.Get().(*outgoing) }

// add appends a datagram. A nil peer is that of the connected socket.
func (out *outgoing) add(d *datagram, to *peer) {
	payload := d.payload()
	out.datagrams[out.n] = d
	iov, h := &out.iovs[out.n], &out.hdrs[out.n].hdr
	iov.Base = unsafe.SliceData(payload)
	iov.SetLen(len(payload))
	h.Name, h.Namelen, h.Control = nil, 0, nil
	h.SetControllen(0)
	if to != nil {
		h.Name, h.Namelen = (*byte)(unsafe.Pointer(&to.name)), to.namelen
		if to.length > 0 {
			h.Control = &to.control[0]
			h.SetControllen(to.length)
		}
	}
	out.n++
}

// flush sends what was added, without waiting for room. failed then has a bit
// for each datagram that the kernel did not take.
func (out *outgoing) flush(raw syscall.RawConn) {
	if out.failed = 1<<out.n - 1; out.n > 0 {
		raw.Write(out.try) // fails only when the socket is closed: all failed
	}
}

// once sends all, once. One that fails is lost, as it may be on the way; but
// an ICMP error that an earlier one met is reported here too, and does not
// concern this one: it is tried again.
func (out *outgoing) once(fd uintptr) bool {
	retried := false
	for i := 0; i < out.n; {
		n, _, errno := unix.Syscall6(unix.SYS_SENDMMSG, fd, uintptr(unsafe.Pointer(&out.hdrs[i])), uintptr(out.n-i), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, 0, 0)
		switch {
		case errno == 0:
			for range n {
				out.failed &^= 1 << i
				i++
			}
			retried = false
		case errno == unix.EINTR:
		case !retried && errno != unix.EAGAIN:
			retried = true
		default:
			i++
			retried = false
		}
	}
	return true
}

// clear empties the batch. The datagrams are somebody else's by then.
func (out *outgoing) clear() {
	for i := range out.n {
		out.datagrams[i] = nil
		out.iovs[i].Base, out.hdrs[i].hdr.Name, out.hdrs[i].hdr.Control = nil, nil, nil
	}
	out.n = 0
}

// release gives the batch, which is empty, back.
func (out *outgoing) release() { outgoings.Put(out) }
