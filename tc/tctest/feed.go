package tctest

import (
	"errors"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Feed receives the notifications of a kernel. It is a tc.Feed, and any number of goroutines
// may use it.
type Feed struct {
	// Set by Subscribe.
	kernel *Kernel
	room   int // messages

	// mu guards the fields below. The kernel's mu is taken before it.
	mu      sync.Mutex
	changed sync.Cond
	queue   []syscall.NetlinkMessage
	lost    bool // there was no room for a message
	closed  bool
}

// Subscribe returns a feed. It keeps at most room messages that nobody has received yet.
func (k *Kernel) Subscribe(room int) *Feed {
	f := &Feed{kernel: k, room: room}
	f.changed.L = &f.mu
	k.mu.Lock()
	defer k.mu.Unlock()
	k.feeds[f] = true
	return f
}

// notify puts a message into all feeds. mu is held.
func (k *Kernel) notify(typ uint16, data []byte) {
	for f := range k.feeds {
		f.put(syscall.NetlinkMessage{Header: syscall.NlMsghdr{Type: typ}, Data: data})
	}
}

func (f *Feed) put(m syscall.NetlinkMessage) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.queue) < f.room {
		f.queue = append(f.queue, m)
	} else {
		f.lost = true
	}
	f.changed.Signal()
}

// ErrClosed is the error of a closed feed.
var ErrClosed = errors.New("the feed is closed")

// Receive waits for messages. If there was no room for some, it returns ENOBUFS once.
func (f *Feed) Receive() (all []syscall.NetlinkMessage, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for len(f.queue) == 0 && !f.lost && !f.closed {
		f.changed.Wait()
	}
	switch {
	case f.closed:
		return nil, ErrClosed
	case f.lost:
		f.lost = false
		return nil, unix.ENOBUFS
	}
	all, f.queue = f.queue, nil
	return all, nil
}

// NameOf returns the name of a device; "" if there is none.
func (f *Feed) NameOf(index uint32) string { return f.kernel.NameOf(index) }

// Close ends the feed.
func (f *Feed) Close() {
	f.kernel.mu.Lock()
	delete(f.kernel.feeds, f)
	f.kernel.mu.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	f.changed.Broadcast()
}
