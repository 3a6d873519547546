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
	raw  syscall.RawConn    // of file; sleep waits on it as Go's goroutines do
	bell int                // an eventfd that ends the wait
	look func(uintptr) bool // lookNow, kept so that sleep allocates nothing

	// Owned by the poller's goroutine.
	events    [256]unix.EpollEvent
	found     int         // how many of events are news
	wanted    func() bool // of sleep
	busySince time.Time   // since when the poller has not waited; zero: it waits, or has just waited
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
	e.look = e.lookNow
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

// sleep implements sleeper.
func (e *epoll) sleep(wanted func() bool) bool {
	e.wanted = wanted
	return e.raw.Read(e.look) == nil
}

// report implements sleeper.
func (e *epoll) report(p *Poller) {
	for i := range e.events[:e.found] {
		p.ready(*(*uint64)(unsafe.Pointer(&e.events[i].Fd)), Events(e.events[i].Events))
	}
}

// giveWay is how long a poller goes on without a wait while it always has something to do.
// Then it waits, even for nothing: only when a goroutine waits does Go look for what else
// is ready, such as the pacer's timer.
const giveWay = 200 * time.Microsecond

// lookNow reads the events that are there, and reports whether there is anything to do.
func (e *epoll) lookNow(uintptr) bool {
	if !e.busySince.IsZero() && time.Since(e.busySince) > giveWay {
		e.busySince = time.Time{}
		ringNow(e.bell) // the wait ends at once
		return false
	}
	n, err := result(syscall.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(e.fd), uintptr(unsafe.Pointer(&e.events)), uintptr(len(e.events)), 0, 0, 0))
	if err != nil { // EINTR
		n = 0
	}
	e.found = n
	switch {
	case n == 0 && !e.wanted():
		e.busySince = time.Time{}
		return false
	case e.busySince.IsZero():
		e.busySince = time.Now()
	}
	return true
}
