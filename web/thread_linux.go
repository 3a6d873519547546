package web

import (
	"time"

	"golang.org/x/sys/unix"
)

// threadTime returns for how long this thread has run.
func threadTime() time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}
