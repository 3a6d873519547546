package sock

import (
	"os"
	"runtime"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// epoll is the sleeper of the kernel's sockets (epoll(7)). Go's own poller would want a
// goroutine in each direction, of 4 KB and more, and a switch to it for each event.
type epoll struct {
	fd   int
	file *os.File
	raw  syscall.RawConn // of file, by which sleep waits as Go's goroutines do
	bell int             // an eventfd, which ends that

	events [256]unix.EpollEvent
	found  int                // of those
	look   func(uintptr) bool // lookNow, kept so that nothing is allocated
	wanted func() bool        // somebody wants a turn
	since  time.Time          // since when sleep has not waited; zero: it has just done so
}

// maxPollers bounds how many processors relay at once: more than a network card
// keeps busy.
const maxPollers = 8

// NewPollers implements Network: it returns a poller for each processor.
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
	e.look = e.lookNow
	if e.fd, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	unix.SetNonblock(e.fd, true) // so that Go waits for it
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
	*(*uint64)(unsafe.Pointer(&ev.Fd)) = key // epoll_data_t: 64 bits for whoever watches
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

// sleep implements sleeper.
func (e *epoll) sleep(wanted func() bool) bool {
	e.wanted = wanted
	return e.raw.Read(e.look) == nil
}

// tell implements sleeper.
func (e *epoll) tell(p *Poller) {
	for i := range e.events[:e.found] {
		p.ready(*(*uint64)(unsafe.Pointer(&e.events[i].Fd)), Events(e.events[i].Events))
	}
}

// giveWay is how long a poller goes on while there is always something to do. Then it
// waits like others, so that they have their turn: Go looks for what else is ready,
// such as the pacer's timer, only when a goroutine waits.
const giveWay = 200 * time.Microsecond

// lookNow finds the events that there are, and reports whether there is anything
// to do.
func (e *epoll) lookNow(uintptr) bool {
	if !e.since.IsZero() && time.Since(e.since) > giveWay {
		e.since = time.Time{}
		ringNow(e.bell) // so that the wait ends at once
		return false
	}
	n, err := result(syscall.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(e.fd), uintptr(unsafe.Pointer(&e.events)), uintptr(len(e.events)), 0, 0, 0))
	if err != nil { // EINTR
		n = 0
	}
	e.found = n
	switch {
	case n == 0 && !e.wanted():
		e.since = time.Time{}
		return false
	case e.since.IsZero():
		e.since = time.Now()
	}
	return true
}
