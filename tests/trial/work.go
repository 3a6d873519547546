package trial

import (
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A Work does the same piece of work again and again beside a measurement, and says what it costs.
// A processor that is shared, hot or virtual does the same work at another speed from one second to
// the next, so a bound on processor time counts in pieces of work, not in seconds.
//
// A piece writes 64 bytes into a pair of sockets and reads them: a system call each way, as what
// forwards messages makes.
type Work struct {
	end  chan struct{}
	each chan time.Duration
}

// Rest between two bursts of work, and the pieces of a burst: at most a few percent of a processor.
const (
	workRest  = 10 * time.Millisecond
	workBurst = 32
)

// BeginWork starts to work. The caller ends it with End.
func BeginWork(t testing.TB) *Work {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	w := &Work{make(chan struct{}), make(chan time.Duration)}
	go w.run(pair)
	return w
}

// End ends the work, and returns the processor time of a piece: the mean of all since BeginWork.
func (w *Work) End() time.Duration {
	close(w.end)
	return <-w.each
}

// run works on a thread of its own, whose processor time it reads.
func (w *Work) run(pair [2]int) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer unix.Close(pair[0])
	defer unix.Close(pair[1])
	rest := time.NewTicker(workRest)
	defer rest.Stop()
	var busy, pieces int64
	for {
		began := threadTime()
		for range workBurst {
			piece(pair)
		}
		busy += threadTime() - began
		pieces += workBurst
		select {
		case <-rest.C:
		case <-w.end:
			w.each <- time.Duration(busy / pieces)
			return
		}
	}
}

func piece(pair [2]int) {
	var text [64]byte
	unix.Write(pair[0], text[:])
	unix.Read(pair[1], text[:])
}

// threadTime returns the time for which this thread has run, in nanoseconds.
func threadTime() int64 {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t) != nil {
		return 0
	}
	return t.Nano()
}
