package conn

import (
	"net"
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// poller tells sessions when their sockets are ready (epoll(7)): one goroutine
// for many sessions, which then need none of their own. Go's own poller would
// want one in each direction, of 4 KB and more, and a switch to it for each
// event.
type poller struct {
	fd   int // of epoll
	file *os.File
	raw  syscall.RawConn // of file, by which run waits as Go's goroutines do
	bell int             // an eventfd, which ends that

	events [256]unix.EpollEvent
	found  int                // of those
	look   func(uintptr) bool // lookNow, kept so that nothing is allocated
	since  time.Time          // since when run has not waited; zero: it has just done so

	mu      sync.Mutex
	watched map[uint64]watcher // by their keys
	lastKey uint64
	again   []turner // that want another turn
	asleep  bool     // waiting for events, or about to: the bell is to be rung; never once closed
	closed  bool
}

// watcher is told of the events of a socket, under the key that it has.
type watcher interface {
	ready(key uint64, events uint32)
}

// turner has something to go on with.
type turner interface {
	turn()
	isDue() *due
}

// due is part of a turner: whether it is to have another turn, so that it has
// one, however many ask for it. The poller's lock guards it.
type due bool

func (d *due) isDue() *due { return d }

// events that a socket is watched for. Each is told once, when it comes about
// (EPOLLET): who reads or writes does so until there is nothing more, and is told
// when there is again.
const watchedEvents = unix.EPOLLIN | unix.EPOLLOUT | unix.EPOLLRDHUP | unix.EPOLLPRI | unix.EPOLLET

// maxPollers bounds how many processors relay at once: more than a network card
// keeps busy.
const maxPollers = 8

// newPollers returns a poller for each processor.
func newPollers() (ps []*poller, err error) {
	for range min(runtime.GOMAXPROCS(0), maxPollers) {
		p, err := newPoller()
		if err != nil {
			for _, p := range ps {
				p.release()
			}
			return nil, err
		}
		ps = append(ps, p)
	}
	return ps, nil
}

func newPoller() (_ *poller, err error) {
	p := &poller{watched: map[uint64]watcher{}}
	p.look = p.lookNow
	if p.fd, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	unix.SetNonblock(p.fd, true) // so that Go waits for it
	p.file = os.NewFile(uintptr(p.fd), "epoll")
	if p.bell, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		p.file.Close()
		return nil, os.NewSyscallError("eventfd", err)
	}
	if p.raw, err = p.file.SyscallConn(); err == nil {
		err = p.add(p.bell, unix.EPOLLIN|unix.EPOLLET, 0)
	}
	if err != nil {
		p.release()
		return nil, err
	}
	return p, nil
}

// add has the kernel watch a descriptor.
func (p *poller) add(fd int, events uint32, key uint64) error {
	ev := unix.EpollEvent{Events: events}
	*(*uint64)(unsafe.Pointer(&ev.Fd)) = key // epoll_data_t: 64 bits for whoever watches
	_, err := result(syscall.RawSyscall6(unix.SYS_EPOLL_CTL, uintptr(p.fd), unix.EPOLL_CTL_ADD, uintptr(fd), uintptr(unsafe.Pointer(&ev)), 0, 0))
	return os.NewSyscallError("epoll_ctl", err)
}

// close ends run, which nobody may need any more.
func (p *poller) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	p.wake() // for the last time: the bell's descriptor may be another's soon
}

// release closes the descriptors. Run has ended, or never begun.
func (p *poller) release() {
	p.file.Close()
	unix.Close(p.bell)
}

// watch has w told of the events of a socket, until forget.
func (p *poller) watch(fd int, w watcher) (key uint64, err error) {
	return p.watchFor(fd, watchedEvents, w)
}

// watchFor is watch for other events.
func (p *poller) watchFor(fd int, events uint32, w watcher) (key uint64, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return 0, net.ErrClosed
	}
	p.lastKey++ // never 0, which is the bell's
	if err := p.add(fd, events, p.lastKey); err != nil {
		return 0, err
	}
	p.watched[p.lastKey] = w
	return p.lastKey, nil
}

// forget undoes watch; the socket is to be closed. An event that is on its way
// comes to nothing, since its key means no socket any more. The kernel forgets a
// socket with its last descriptor; one that has others is to be removed before.
func (p *poller) forget(key uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.watched, key)
}

// remove has the kernel watch a descriptor no more.
func (p *poller) remove(fd int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	syscall.RawSyscall6(unix.SYS_EPOLL_CTL, uintptr(p.fd), unix.EPOLL_CTL_DEL, uintptr(fd), 0, 0, 0) // fails only where it did not
}

// revisit gives another turn, after those of the others.
func (p *poller) revisit(t turner) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if d := t.isDue(); !*d {
		*d = true
		p.again = append(p.again, t)
		p.wake()
	}
}

// wake ends a wait for events; mu is held.
func (p *poller) wake() {
	if p.asleep {
		p.asleep = false
		ringNow(p.bell)
	}
}

// run tells of events and gives turns, until the poller is closed.
func (p *poller) run() {
	defer p.release()
	var again []turner
	for p.rest() && p.raw.Read(p.look) == nil {
		for i := range p.events[:p.found] {
			key := *(*uint64)(unsafe.Pointer(&p.events[i].Fd))
			if w := p.watcher(key); w != nil {
				w.ready(key, p.events[i].Events)
			}
		}
		again = p.take(again[:0])
		for i, t := range again {
			t.turn()
			again[i] = nil
		}
	}
}

// rest notes that run is going to wait, unless somebody wants another turn. It
// returns false once the poller is closed.
func (p *poller) rest() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asleep = len(p.again) == 0 && !p.closed
	return !p.closed
}

// take returns those that want another turn.
func (p *poller) take(into []turner) []turner {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asleep = false
	for _, t := range p.again {
		*t.isDue() = false
	}
	into = append(into, p.again...)
	clear(p.again)
	p.again = p.again[:0]
	return into
}

func (p *poller) watcher(key uint64) watcher {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.watched[key]
}

// giveWay is how long run goes on while there is always something to do. Then it
// waits like others, so that they have their turn: Go looks for what else is ready,
// such as the pacer's timer, only when a goroutine waits.
const giveWay = 200 * time.Microsecond

// lookNow finds the events that there are, and reports whether there is anything
// to do.
func (p *poller) lookNow(uintptr) bool {
	if !p.since.IsZero() && time.Since(p.since) > giveWay {
		p.since = time.Time{}
		ringNow(p.bell) // so that the wait ends at once
		return false
	}
	n, err := result(syscall.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(p.fd), uintptr(unsafe.Pointer(&p.events)), uintptr(len(p.events)), 0, 0, 0))
	if err != nil { // EINTR
		n = 0
	}
	p.found = n
	switch {
	case n == 0 && !p.wanted():
		p.since = time.Time{}
		return false
	case p.since.IsZero():
		p.since = time.Now()
	}
	return true
}

// wanted reports whether somebody wants another turn.
func (p *poller) wanted() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.asleep
}
