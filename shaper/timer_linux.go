package shaper

import (
	"math"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"shaper/limit"
)

// An fdTimer is a timer on a timerfd that Go's netpoller waits for. Go's own timers sleep in
// whole milliseconds; this one is late by some tens of microseconds (see timerfd_create(2)).
//
// Nobody reads the timerfd. The netpoller is told each time that it goes off (EPOLLET), and the
// clock says whether the deadline has passed.
type fdTimer struct {
	file *os.File
	conn syscall.RawConn
	due  atomic.Int64 // the deadline, in nanoseconds since epoch; noDeadline if wait has returned since set

	// Kept so that neither set nor wait allocates.
	spec    unix.ItimerSpec
	settime func(fd uintptr)
	passed  func(fd uintptr) bool
}

const noDeadline = math.MaxInt64

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
	t.due.Store(noDeadline)
	t.settime = func(fd uintptr) {
		unix.TimerfdSettime(int(fd), 0, &t.spec, nil) // fails only for a bad descriptor or value
	}
	t.passed = func(uintptr) bool {
		due := t.due.Load()
		return int64(time.Since(epoch)) >= due && t.due.CompareAndSwap(due, noDeadline)
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
	due := int64(noDeadline)
	t.spec = unix.ItimerSpec{} // stops the timer
	if at != limit.Never {
		// 0 would stop the timer, but a time that has passed must end wait.
		remaining := min(max(time.Until(at), 1), farthest)
		t.spec.Value = unix.NsecToTimespec(int64(remaining))
		due = int64(time.Since(epoch) + remaining)
	}
	t.due.Store(due)          // before the timer goes off, or wait would miss it
	t.conn.Control(t.settime) // fails only when the timer is closed
}

func (t *fdTimer) wait() bool { return t.conn.Read(t.passed) == nil }

func (t *fdTimer) close() { t.file.Close() }

func (t *fdTimer) precise() bool { return true }
