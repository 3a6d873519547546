package sock

import (
	"os"
	"runtime"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// epoll is the sleeper of the kernel's sockets (epoll(7)). Go's own poller would need a
// goroutine for each direction, of 4 KB or more, and a switch to it for each event.
type epoll struct {
	// Set by newEpoll.
	fd   int
	file *os.File
	raw  syscall.RawConn // of file; run waits on it as Go's goroutines do
	bell int             // an eventfd that ends the wait

	events [256]unix.EpollEvent // owned by the poller's goroutine
}

// maxPollers bounds how many processors relay at the same time. A network card keeps fewer
// busy.
const maxPollers = 8

// NewPollers implements Network. It returns a poller for each processor, up to maxPollers.
func (Kernel) NewPollers() (ps []*Poller, err error) {
	for range min(runtime.GOMAXPROCS(0), maxPollers) {
		e, err := newEpoll()
		if err != nil {
			for _, p := range ps {
				p.sleeper.release()
			}
			return nil, err
		}
		ps = append(ps, newPoller(e))
	}
	return ps, nil
}

func newEpoll() (_ *epoll, err error) {
	e := &epoll{}
	if e.fd, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	unix.SetNonblock(e.fd, true) // so that Go's poller takes it
	e.file = os.NewFile(uintptr(e.fd), "epoll")
	if e.bell, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		e.file.Close()
		return nil, os.NewSyscallError("eventfd", err)
	}
	if e.raw, err = e.file.SyscallConn(); err == nil {
		err = e.add(e.bell, Readable, 0)
	}
	if err != nil {
		e.release()
		return nil, err
	}
	return e, nil
}

// add implements sleeper.
func (e *epoll) add(fd int, events Events, key uint64) error {
	ev := unix.EpollEvent{Events: uint32(events) | unix.EPOLLET}
	*(*uint64)(unsafe.Pointer(&ev.Fd)) = key // epoll_data_t has 64 bits
	_, err := result(syscall.RawSyscall6(unix.SYS_EPOLL_CTL, uintptr(e.fd), unix.EPOLL_CTL_ADD, uintptr(fd), uintptr(unsafe.Pointer(&ev)), 0, 0))
	return os.NewSyscallError("epoll_ctl", err)
}

// remove implements sleeper.
func (e *epoll) remove(fd int) {
	syscall.RawSyscall6(unix.SYS_EPOLL_CTL, uintptr(e.fd), unix.EPOLL_CTL_DEL, uintptr(fd), 0, 0, 0) // fails only if it was not watched
}

// release closes the descriptors.
func (e *epoll) release() {
	e.file.Close()
	unix.Close(e.bell)
}

// wake implements sleeper.
func (e *epoll) wake() { ringNow(e.bell) }

// run implements sleeper. Whenever work returns false, Go waits for events, and then calls it
// again.
func (e *epoll) run(p *Poller) {
	e.raw.Read(func(uintptr) bool { return e.work(p) })
}

// giveWay is how long a poller goes on without a wait while it always has something to do.
// Then it waits, even for nothing: only when a goroutine waits does Go look for what else
// is ready, such as the pacer's timer.
const giveWay = 200 * time.Microsecond

// work reports events and gives turns until there is nothing to do, or for giveWay. It returns
// true if the poller is closed. If not, the wait for events that follows ends at once if events
// have come since the last look, unless that look has left some: then they are no news.
func (e *epoll) work(p *Poller) (closed bool) {
	p.rise()
	for since := time.Now(); ; {
		found := e.look()
		for i := range e.events[:found] {
			p.ready(*(*uint64)(unsafe.Pointer(&e.events[i].Fd)), Events(e.events[i].Events))
		}
		if !p.turn() {
			return true
		}
		late := time.Since(since) > giveWay
		switch {
		case (found == 0 || late && found < len(e.events)) && p.rest():
			return false
		case late:
			ringNow(e.bell) // the wait ends at once
			return false
		}
	}
}

// look reads the events that are there, and returns how many there are.
func (e *epoll) look() int {
	n, err := 0, error(unix.EINTR)
	for err == unix.EINTR {
		n, err = result(syscall.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(e.fd), uintptr(unsafe.Pointer(&e.events)), uintptr(len(e.events)), 0, 0, 0))
	}
	return n
}
