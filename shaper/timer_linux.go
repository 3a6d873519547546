package shaper

import (
	"math"
	"os"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"shaper/limit"
)

// An fdTimer is a timer on a timerfd that is read through Go's netpoller. Go's own timers
// sleep in whole milliseconds; this one is late by some tens of microseconds (see
// timerfd_create(2)).
//
// A raw system call reads it: that cannot block, so Go's scheduler need not know. If the
// scheduler knew, it would wake its monitor thread at each departure, which costs more
// than the departure.
type fdTimer struct {
	file *os.File
	conn syscall.RawConn
	due  atomic.Int64 // the deadline, in nanoseconds since epoch; wait does not read before

	// Kept so that neither set nor wait allocates.
	spec        unix.ItimerSpec
	settime     func(fd uintptr)
	read        func(fd uintptr) bool
	expirations [8]byte
}

// newTimer returns a timer on a timerfd. If the kernel gives none, or if time.Now does not
// show the kernel's time, it returns one on Go's own timers.
func newTimer() timer {
	if clockIsFake() {
		return newRuntimeTimer()
	}
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return newRuntimeTimer()
	}
	file := os.NewFile(uintptr(fd), "timerfd")
	conn, err := file.SyscallConn()
	if err != nil {
		file.Close()
		return newRuntimeTimer()
	}
	t := &fdTimer{file: file, conn: conn}
	t.due.Store(math.MaxInt64)
	t.settime = func(fd uintptr) {
		unix.TimerfdSettime(int(fd), 0, &t.spec, nil) // fails only for a bad descriptor or value
	}
	t.read = func(fd uintptr) bool {
		if int64(time.Since(epoch)) < t.due.Load() {
			return false
		}
		_, _, errno := syscall.RawSyscall(syscall.SYS_READ, fd, uintptr(unsafe.Pointer(&t.expirations)), uintptr(len(t.expirations)))
		return errno != syscall.EAGAIN && errno != syscall.EINTR
	}
	return t
}

// clockIsFake reports whether time.Now shows another time than the system, as it does in
// testing/synctest. There a timer of the kernel is of no use.
func clockIsFake() bool {
	var system unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_REALTIME, &system); err != nil {
		return false
	}
	return time.Until(time.Unix(system.Unix())).Abs() > time.Hour
}

func (t *fdTimer) set(at time.Time) {
	t.spec = unix.ItimerSpec{} // stops the timer
	if at != limit.Never {
		// 0 would stop the timer, but a time that has passed must end wait.
		remaining := min(max(time.Until(at), 1), farthest)
		t.spec.Value = unix.NsecToTimespec(int64(remaining))
		t.due.Store(int64(time.Since(epoch) + remaining))
	}
	t.conn.Control(t.settime) // fails only when the timer is closed
}

func (t *fdTimer) wait() bool { return t.conn.Read(t.read) == nil }

func (t *fdTimer) close() { t.file.Close() }

func (t *fdTimer) precise() bool { return true }
