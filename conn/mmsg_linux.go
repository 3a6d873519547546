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

// control is room for an IP_PKTINFO and an IPV6_PKTINFO message, as a socket of
// both families tells, and a UDP_GRO or UDP_SEGMENT message.
type control [96]byte

// incoming is a batch of datagrams that were read.
type incoming struct {
	hdrs    [batchSize]mmsghdr
	iovs    [batchSize]unix.Iovec
	names   [batchSize]sockname
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

// train returns datagram i, or several that were read as one; valid until the
// next receive.
func (in *incoming) train(i int) train {
	t := train{payload: in.bytes[i][:in.hdrs[i].n]}
	if size := in.message(i, unix.IPPROTO_UDP, unix.UDP_GRO); size != nil {
		t.size = int(*(*int32)(size))
	}
	return t
}

// message returns the data of a control message that came with datagram i, nil
// where there is none such.
func (in *incoming) message(i int, level, kind int32) unsafe.Pointer {
	for at, end := 0, int(in.hdrs[i].hdr.Controllen); at+unix.SizeofCmsghdr <= end; {
		c := (*unix.Cmsghdr)(unsafe.Pointer(&in.control[i][at]))
		if c.Level == level && c.Type == kind {
			return unsafe.Pointer(&in.control[i][at+unix.CmsgLen(0)])
		}
		at += unix.CmsgSpace(max(int(c.Len)-unix.CmsgLen(0), 0))
	}
	return nil
}

// source returns where datagram i came from.
func (in *incoming) source(i int) netip.AddrPort { return in.names[i].addrPort() }

// asked returns which of our addresses datagram i was sent to, invalid where
// the socket does not tell. For a broadcast it is the one of that network.
func (in *incoming) asked(i int) netip.Addr {
	if info := in.message(i, unix.IPPROTO_IP, unix.IP_PKTINFO); info != nil {
		return netip.AddrFrom4((*unix.Inet4Pktinfo)(info).Spec_dst)
	}
	if info := in.message(i, unix.IPPROTO_IPV6, unix.IPV6_PKTINFO); info != nil {
		return netip.AddrFrom16((*unix.Inet6Pktinfo)(info).Addr).Unmap()
	}
	return netip.Addr{}
}

// peer is where datagrams go from an unconnected socket: the address, as the
// kernel takes it, and the source address to send from.
type peer struct {
	name    sockname
	namelen uint32
	control control
	length  int // of control; 0: the kernel chooses the source
}

// peerOf keeps the sender of datagram i, as one to answer.
func (in *incoming) peerOf(i int) peer {
	p := peer{name: in.names[i], namelen: in.hdrs[i].hdr.Namelen}
	asked := in.asked(i)
	switch {
	case !asked.IsValid():
	case in.message(i, unix.IPPROTO_IP, unix.IP_PKTINFO) != nil:
		data := p.control.add(&p.length, unix.IPPROTO_IP, unix.IP_PKTINFO, unix.SizeofInet4Pktinfo)
		(*unix.Inet4Pktinfo)(data).Spec_dst = asked.As4()
	default:
		data := p.control.add(&p.length, unix.IPPROTO_IPV6, unix.IPV6_PKTINFO, unix.SizeofInet6Pktinfo)
		(*unix.Inet6Pktinfo)(data).Addr = asked.As16()
	}
	return p
}

// add appends a control message of n bytes, moves the length of all on, and
// returns where the data go.
func (c *control) add(length *int, level, kind int32, n int) unsafe.Pointer {
	h := (*unix.Cmsghdr)(unsafe.Pointer(&c[*length]))
	h.Level, h.Type = level, kind
	h.SetLen(unix.CmsgLen(n))
	data := unsafe.Pointer(&c[*length+unix.CmsgLen(0)])
	*length += unix.CmsgSpace(n)
	return data
}

// outgoing is parcels that leave a way together. Datagrams of one size in a row
// are one message to the kernel, which sends them as segments of it: the way
// through its network stack is then taken once for all of them.
type outgoing struct {
	parcels []parcel // at most batchSize

	way      *way
	hdrs     [batchSize]mmsghdr
	iovs     [batchSize]unix.Iovec // one for each parcel
	control  [batchSize]control
	messages []message             // to the kernel, as in hdrs
	try      func(fd uintptr) bool // kept, so that a flush allocates nothing
}

// message is parcels that are sent as one.
type message struct {
	parcels []parcel
	size    int // of a datagram
	segment bool
}

var outgoings = sync.Pool{New: func() any {
	out := &outgoing{parcels: make([]parcel, 0, batchSize), messages: make([]message, 0, batchSize)}
	out.try = out.once
	return out
}}

func getOutgoing() *outgoing { return outgoings.Get().(*outgoing) }

// add appends a parcel, for which there must be room.
func (out *outgoing) add(p parcel) { out.parcels = append(out.parcels, p) }

// flush sends what was added by a way, without waiting for room. Each parcel
// then says what of it the kernel did not take.
func (out *outgoing) flush(w *way) {
	out.way = w
	for i := 0; i < len(out.parcels); {
		n := out.together(i)
		out.address(i, n)
		i += n
	}
	if len(out.messages) > 0 && w.raw.Write(out.try) != nil { // the socket is closed
		for i := range out.parcels {
			out.parcels[i].lost = out.parcels[i].cost()
		}
	}
}

// together returns how many parcels, from number i on, can be one message.
func (out *outgoing) together(i int) (n int) {
	size := out.parcels[i].datagram()
	if limit := out.way.unsegmented.Load(); size == 0 || limit > 0 && int64(size) >= limit {
		return 1
	}
	bytes, segments := 0, 0
	for _, p := range out.parcels[i:] {
		bytes += len(p.payload)
		segments += int(p.cost().Packets)
		// Only the last segment may be smaller, but not empty.
		if n > 0 && (p.datagram() > size || len(p.payload) == 0 || p.size > 0 && p.size != size || bytes > maxTrain || segments > maxSegments) {
			return n
		}
		if n++; len(p.payload)%size != 0 {
			return n
		}
	}
	return n
}

// datagram returns the size of the first datagram of a train.
func (t train) datagram() int {
	if t.size > 0 {
		return min(t.size, len(t.payload))
	}
	return len(t.payload)
}

// address makes a message of n parcels from number i on.
func (out *outgoing) address(i, n int) {
	m := message{parcels: out.parcels[i : i+n], size: out.parcels[i].datagram()}
	m.segment = n > 1 || m.parcels[0].cost().Packets > 1
	at := len(out.messages)
	out.messages = append(out.messages, m)
	for j := range m.parcels {
		out.iovs[i+j] = iovecOf(m.parcels[j].payload)
	}
	out.hdrs[at].hdr = unix.Msghdr{Iov: &out.iovs[i]}
	out.hdrs[at].hdr.SetIovlen(n)
	length := out.to(&out.hdrs[at].hdr, &out.control[at])
	if m.segment {
		*(*uint16)(out.control[at].add(&length, unix.IPPROTO_UDP, unix.UDP_SEGMENT, 2)) = uint16(m.size)
	}
	if length > 0 {
		out.hdrs[at].hdr.Control = &out.control[at][0]
		out.hdrs[at].hdr.SetControllen(length)
	}
}

// to addresses one message, and returns how many bytes of control are in use.
func (out *outgoing) to(h *unix.Msghdr, c *control) (length int) {
	to := out.way.to
	if to == nil {
		return 0
	}
	h.Name, h.Namelen = (*byte)(unsafe.Pointer(&to.name)), to.namelen
	*c = to.control
	return to.length
}

func iovecOf(payload []byte) unix.Iovec {
	v := unix.Iovec{Base: unsafe.SliceData(payload)}
	v.SetLen(len(payload))
	return v
}

// once sends all, once. One that fails is lost, as it may be on the way; but
// an ICMP error that an earlier one met is reported here too, and does not
// concern this one: it is tried again.
func (out *outgoing) once(fd uintptr) bool {
	retried := false
	for i := 0; i < len(out.messages); {
		n, _, errno := unix.Syscall6(unix.SYS_SENDMMSG, fd, uintptr(unsafe.Pointer(&out.hdrs[i])), uintptr(len(out.messages)-i), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, 0, 0)
		switch {
		case errno == 0:
			i += int(n)
			retried = false
		case errno == unix.EINTR:
		case !retried && errno != unix.EAGAIN:
			retried = true
		default:
			out.refused(fd, out.messages[i], errno)
			i++
			retried = false
		}
	}
	return true
}

// refused deals with a message that the kernel does not take.
func (out *outgoing) refused(fd uintptr, m message, why error) {
	apart := m.segment && why != unix.EAGAIN
	if apart && (why == unix.EMSGSIZE || why == unix.EINVAL || why == unix.EIO) {
		out.way.unsegmented.Store(int64(m.size))
	}
	for i := range m.parcels {
		if apart {
			out.sendApart(fd, &m.parcels[i])
		} else {
			m.parcels[i].lost = m.parcels[i].cost()
		}
	}
}

// sendApart sends the datagrams of a parcel one by one, for a kernel that does
// not segment them.
func (out *outgoing) sendApart(fd uintptr, p *parcel) {
	rest := p.train
	for more := true; more; more = len(rest.payload) > 0 {
		var one train
		one, rest = rest.cut(0)
		if out.sendOne(fd, one.payload) != nil {
			p.lost.Packets++
			p.lost.Bytes += int64(len(one.payload))
		}
	}
}

func (out *outgoing) sendOne(fd uintptr, payload []byte) error {
	iov := iovecOf(payload)
	h, c := unix.Msghdr{Iov: &iov}, control{}
	h.SetIovlen(1)
	if length := out.to(&h, &c); length > 0 {
		h.Control = &c[0]
		h.SetControllen(length)
	}
	for retried := false; ; retried = true {
		_, _, errno := unix.Syscall(unix.SYS_SENDMSG, fd, uintptr(unsafe.Pointer(&h)), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
		switch {
		case errno == 0:
			return nil
		case retried || errno == unix.EAGAIN:
			return errno
		}
	}
}

// clear empties the batch. What it held is somebody else's by then.
func (out *outgoing) clear() {
	for i := range out.messages {
		out.hdrs[i].hdr = unix.Msghdr{}
	}
	clear(out.iovs[:len(out.parcels)])
	clear(out.parcels)
	clear(out.messages)
	out.parcels, out.messages, out.way = out.parcels[:0], out.messages[:0], nil
}

// release gives the batch, which is empty, back.
func (out *outgoing) release() { outgoings.Put(out) }
