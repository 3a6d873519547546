package sock

import (
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Batch is trains that leave a socket together. Datagrams of one size in a row are one
// message to the kernel, which sends them as segments of it: so its network stack does
// for all of them what it would do for each.
type Batch struct {
	trains []Train // at most BatchSize
	lost   [BatchSize]Loss

	route    *Route
	hdrs     [BatchSize]mmsghdr
	iovs     [BatchSize]unix.Iovec // one for each train
	control  [BatchSize]control
	messages []message             // to the kernel, as in hdrs
	try      func(fd uintptr) bool // kept, so that Send allocates nothing
}

// Route is how datagrams leave.
type Route struct {
	Raw syscall.RawConn // the socket; nil: none, and nothing is sent
	To  *Peer           // nil: the peer of the connected socket

	// unsegmented is the size from which on the kernel does not send several datagrams as
	// one, as if they are larger than a frame; 0: not known.
	unsegmented atomic.Int64
}

// Loss is what the kernel did not take of a train.
type Loss struct{ Packets, Bytes int64 }

// message is trains that are sent as one.
type message struct {
	first, n int // numbers of trains
	size     int // of a datagram
	segment  bool
}

// NewBatch returns a batch, which is empty.
func NewBatch() *Batch {
	b := &Batch{trains: make([]Train, 0, BatchSize), messages: make([]message, 0, BatchSize)}
	b.try = b.once
	return b
}

// Add appends a train, for which there must be room.
func (b *Batch) Add(t Train) { b.trains = append(b.trains, t) }

// Len returns how many trains were added.
func (b *Batch) Len() int { return len(b.trains) }

// Lost returns what of train i the kernel did not take.
func (b *Batch) Lost(i int) Loss { return b.lost[i] }

// Send sends the trains, without waiting for room. Then Lost tells what of them is lost.
func (b *Batch) Send(r *Route) {
	if r.Raw == nil {
		return
	}
	b.route = r
	for i := 0; i < len(b.trains); {
		n := b.together(i)
		b.address(i, n)
		i += n
	}
	if len(b.messages) > 0 && r.Raw.Write(b.try) != nil { // the socket is closed
		for i := range b.trains {
			b.loses(i)
		}
	}
}

// loses notes that a train is lost.
func (b *Batch) loses(i int) {
	b.lost[i] = Loss{b.trains[i].Packets(), int64(len(b.trains[i].Payload))}
}

// together returns how many trains, from number i on, can be one message.
func (b *Batch) together(i int) (n int) {
	size := b.trains[i].datagram()
	if limit := b.route.unsegmented.Load(); size == 0 || limit > 0 && int64(size) >= limit {
		return 1
	}
	bytes, segments := 0, 0
	for _, t := range b.trains[i:] {
		bytes += len(t.Payload)
		segments += int(t.Packets())
		// Only the last segment may be smaller, but not empty.
		if n > 0 && (t.datagram() > size || len(t.Payload) == 0 || t.Size > 0 && t.Size != size || bytes > MaxTrain || segments > maxSegments) {
			return n
		}
		if n++; len(t.Payload)%size != 0 {
			return n
		}
	}
	return n
}

// address makes a message of n trains from number i on.
func (b *Batch) address(i, n int) {
	m := message{first: i, n: n, size: b.trains[i].datagram()}
	m.segment = n > 1 || b.trains[i].Packets() > 1
	at := len(b.messages)
	b.messages = append(b.messages, m)
	for j := i; j < i+n; j++ {
		b.iovs[j] = iovecOf(b.trains[j].Payload)
	}
	b.hdrs[at].hdr = unix.Msghdr{Iov: &b.iovs[i]}
	b.hdrs[at].hdr.SetIovlen(n)
	length := b.to(&b.hdrs[at].hdr, &b.control[at])
	if m.segment {
		*(*uint16)(b.control[at].add(&length, unix.IPPROTO_UDP, unix.UDP_SEGMENT, 2)) = uint16(m.size)
	}
	if length > 0 {
		b.hdrs[at].hdr.Control = &b.control[at][0]
		b.hdrs[at].hdr.SetControllen(length)
	}
}

// to addresses one message, and returns how many bytes of control are in use.
func (b *Batch) to(h *unix.Msghdr, c *control) (length int) {
	to := b.route.To
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
func (b *Batch) once(fd uintptr) bool {
	retried := false
	for i := 0; i < len(b.messages); {
		n, _, errno := unix.Syscall6(unix.SYS_SENDMMSG, fd, uintptr(unsafe.Pointer(&b.hdrs[i])), uintptr(len(b.messages)-i), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, 0, 0)
		switch {
		case errno == 0:
			i += int(n)
			retried = false
		case errno == unix.EINTR:
		case !retried && errno != unix.EAGAIN:
			retried = true
		default:
			b.refused(fd, b.messages[i], errno)
			i++
			retried = false
		}
	}
	return true
}

// refused deals with a message that the kernel does not take.
func (b *Batch) refused(fd uintptr, m message, why error) {
	apart := m.segment && why != unix.EAGAIN
	if apart && (why == unix.EMSGSIZE || why == unix.EINVAL || why == unix.EIO) {
		b.route.unsegmented.Store(int64(m.size))
	}
	for i := m.first; i < m.first+m.n; i++ {
		if apart {
			b.sendApart(fd, i)
		} else {
			b.loses(i)
		}
	}
}

// sendApart sends the datagrams of a train one by one, for a kernel that does not segment
// them.
func (b *Batch) sendApart(fd uintptr, i int) {
	rest := b.trains[i]
	for more := true; more; more = len(rest.Payload) > 0 {
		var one Train
		one, rest = rest.Cut(0)
		if b.sendOne(fd, one.Payload) != nil {
			b.lost[i].Packets++
			b.lost[i].Bytes += int64(len(one.Payload))
		}
	}
}

func (b *Batch) sendOne(fd uintptr, payload []byte) error {
	iov := iovecOf(payload)
	h, c := unix.Msghdr{Iov: &iov}, control{}
	h.SetIovlen(1)
	if length := b.to(&h, &c); length > 0 {
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

// Clear empties the batch. What it held is somebody else's by then.
func (b *Batch) Clear() {
	for i := range b.messages {
		b.hdrs[i].hdr = unix.Msghdr{}
	}
	n := len(b.trains)
	clear(b.iovs[:n])
	clear(b.trains)
	clear(b.lost[:n])
	b.trains, b.messages, b.route = b.trains[:0], b.messages[:0], nil
}
