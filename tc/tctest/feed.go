package tctest

import (
	"errors"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Feed gets what changes in a kernel. It is a tc.Feed.
type Feed struct {
	kernel *Kernel
	room   int // messages

	mu     sync.Mutex
	moved  sync.Cond
	queue  []syscall.NetlinkMessage
	lost   bool // there was no room
	closed bool
}

// Subscribe returns a feed with room for so many messages that nobody has received yet.
func (k *Kernel) Subscribe(room int) *Feed {
	f := &Feed{kernel: k, room: room}
	f.moved.L = &f.mu
	k.mu.Lock()
	defer k.mu.Unlock()
	k.feeds[f] = true
	return f
}

// tell gives a message to all feeds.
func (k *Kernel) tell(typ uint16, data []byte) {
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
	f.moved.Signal()
}

// ErrClosed is what a closed feed returns.
var ErrClosed = errors.New("the feed is closed")

// Receive waits for messages. It returns ENOBUFS once if there was no room for some.
func (f *Feed) Receive() (all []syscall.NetlinkMessage, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for len(f.queue) == 0 && !f.lost && !f.closed {
		f.moved.Wait()
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
	f.moved.Broadcast()
}
