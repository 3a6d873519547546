package sock

import (
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Batch sends trains of datagrams together. The caller adds trains, calls Send once, and
// empties the batch with Clear. Several datagrams of one size are one message to the kernel,
// which cuts it into segments (UDP_SEGMENT): so its network stack handles them all at the
// cost of one. One goroutine at a time may use a Batch.
type Batch struct {
	// Add appends to trains, Send fills lost, and Clear empties both.
	trains []Train         // at most BatchSize
	lost   [BatchSize]Loss // lost[i] belongs to trains[i]

	// Send fills these. They keep no reference to a payload after Clear.
	route    *Route
	hdrs     [BatchSize]mmsghdr
	iovs     [BatchSize]unix.Iovec // one for each train
	control  [BatchSize]control
	messages []message // hdrs[i] and control[i] belong to messages[i]

	try, tryApart func(fd uintptr) bool // sendAll and sendAllApart, kept so that Send allocates nothing
}

// Route is the socket and the peer that datagrams leave for. Several batches may use a Route
// at once.
type Route struct {
	Raw syscall.RawConn // the socket; nil: Send discards all trains, and none counts as lost
	To  *Peer           // nil: the peer of the connected socket
	// Prefix goes before each datagram, and is no part of its payload. If there is one, each
	// datagram takes a system call of its own.
	Prefix []byte

	// tooLarge is the size of the datagrams, in bytes, that the kernel has last refused to
	// segment, for instance because they are larger than a frame. Send joins only trains of
	// smaller datagrams. 0: the kernel has refused none.
	tooLarge atomic.Int64
}

// Loss is the part of a train that the kernel did not send.
type Loss struct{ Packets, Bytes int64 }

// message is several trains in a row that the kernel gets as one message.
type message struct {
	first, n int // trains first to first+n-1
	size     int // of a datagram, in bytes
	segment  bool
}

// NewBatch returns an empty batch.
func NewBatch() *Batch {
	b := &Batch{trains: make([]Train, 0, BatchSize), messages: make([]message, 0, BatchSize)}
	b.try, b.tryApart = b.sendAll, b.sendAllApart
	return b
}

// Add appends a train. The batch must hold fewer than BatchSize.
func (b *Batch) Add(t Train) { b.trains = append(b.trains, t) }

// Len returns how many trains were added.
func (b *Batch) Len() int { return len(b.trains) }

// Lost returns what the kernel did not send of train i. It is known after Send.
func (b *Batch) Lost(i int) Loss { return b.lost[i] }

// Send sends the trains, and does not wait for room in the socket. Then Lost returns what the
// kernel did not send. Call Clear before the next Send.
func (b *Batch) Send(r *Route) {
	if r.Raw == nil {
		return
	}
	b.route = r
	if len(r.Prefix) > 0 {
		b.write(b.tryApart)
		return
	}
	for i := 0; i < len(b.trains); {
		n := b.joinable(i)
		b.addMessage(i, n)
		i += n
	}
	if len(b.messages) > 0 {
		b.write(b.try)
	}
}

// write calls try with the socket. If that is closed, all trains are lost.
func (b *Batch) write(try func(fd uintptr) bool) {
	if b.route.Raw.Write(try) != nil {
		for i := range b.trains {
			b.lose(i)
		}
	}
}

// sendAllApart sends each datagram of each train by itself.
func (b *Batch) sendAllApart(fd uintptr) bool {
	for i := range b.trains {
		b.sendApart(fd, i)
	}
	return true
}

// lose notes that train i is lost.
func (b *Batch) lose(i int) {
	b.lost[i] = Loss{b.trains[i].Packets(), int64(len(b.trains[i].Payload))}
}

// joinable returns how many trains, from number i on, can be one message.
func (b *Batch) joinable(i int) (n int) {
	size := b.trains[i].firstSize()
	if limit := b.route.tooLarge.Load(); size == 0 || limit > 0 && int64(size) >= limit {
		return 1
	}
	bytes, segments := 0, 0
	for _, t := range b.trains[i:] {
		bytes += len(t.Payload)
		segments += int(t.Packets())
		// Only the last segment may be smaller, and it must not be empty.
		if n > 0 && (t.firstSize() > size || len(t.Payload) == 0 || t.Size > 0 && t.Size != size || bytes > MaxTrain || segments > maxSegments) {
			return n
		}
		if n++; len(t.Payload)%size != 0 {
			return n
		}
	}
	return n
}

// addMessage makes a message of n trains from number i on.
func (b *Batch) addMessage(i, n int) {
	m := message{first: i, n: n, size: b.trains[i].firstSize()}
	m.segment = n > 1 || b.trains[i].Packets() > 1
	at := len(b.messages)
	b.messages = append(b.messages, m)
	for j := i; j < i+n; j++ {
		b.iovs[j] = iovecOf(b.trains[j].Payload)
	}
	b.hdrs[at].hdr = unix.Msghdr{Iov: &b.iovs[i]}
	b.hdrs[at].hdr.SetIovlen(n)
	length := b.setPeer(&b.hdrs[at].hdr, &b.control[at])
	if m.segment {
		*(*uint16)(b.control[at].add(&length, unix.IPPROTO_UDP, unix.UDP_SEGMENT, 2)) = uint16(m.size)
	}
	if length > 0 {
		b.hdrs[at].hdr.Control = &b.control[at][0]
		b.hdrs[at].hdr.SetControllen(length)
	}
}

// setPeer puts the address of the peer into h, and the address to send from into c. It returns
// how many bytes of c it has used.
func (b *Batch) setPeer(h *unix.Msghdr, c *control) (length int) {
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

// sendAll sends each message, by raw calls as in calls_linux.go. If one fails, sendAll tries it once more, since the kernel may
// have reported an ICMP error for an earlier one. If it fails again, or the socket has no
// room, refuse handles it. sendAll returns true: RawConn.Write must not call it again.
func (b *Batch) sendAll(fd uintptr) bool {
	retried := false
	for i := 0; i < len(b.messages); {
		n, _, errno := syscall.RawSyscall6(unix.SYS_SENDMMSG, fd, uintptr(unsafe.Pointer(&b.hdrs[i])), uintptr(len(b.messages)-i), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, 0, 0)
		switch {
		case errno == 0:
			i += int(n)
			retried = false
		case errno == unix.EINTR:
		case !retried && errno != unix.EAGAIN:
			retried = true
		default:
			b.refuse(fd, b.messages[i], errno)
			i++
			retried = false
		}
	}
	return true
}

// refuse handles a message that the kernel does not accept. If segmenting may be the reason,
// it sends the datagrams one by one. Otherwise it notes that they are lost.
func (b *Batch) refuse(fd uintptr, m message, why error) {
	apart := m.segment && why != unix.EAGAIN
	if apart && (why == unix.EMSGSIZE || why == unix.EINVAL || why == unix.EIO) {
		b.route.tooLarge.Store(int64(m.size))
	}
	for i := m.first; i < m.first+m.n; i++ {
		if apart {
			b.sendApart(fd, i)
		} else {
			b.lose(i)
		}
	}
}

// sendApart sends the datagrams of train i one by one, and notes which are lost.
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

// sendOne sends a datagram. If that fails, it tries once more, as sendAll does.
func (b *Batch) sendOne(fd uintptr, payload []byte) error {
	iovs := [2]unix.Iovec{iovecOf(b.route.Prefix), iovecOf(payload)}
	h, c := unix.Msghdr{Iov: &iovs[0]}, control{}
	h.SetIovlen(len(iovs))
	if length := b.setPeer(&h, &c); length > 0 {
		h.Control = &c[0]
		h.SetControllen(length)
	}
	for retried := false; ; retried = true {
		_, _, errno := syscall.RawSyscall(unix.SYS_SENDMSG, fd, uintptr(unsafe.Pointer(&h)), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
		switch {
		case errno == 0:
			return nil
		case retried || errno == unix.EAGAIN:
			return errno
		}
	}
}

// Clear empties the batch, and keeps no reference to the payloads.
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
