package trial

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Machine says how busy a machine was during a Watch.
type Machine struct {
	Late    time.Duration // how late the latest timed wake-up was
	Waiting float64       // of the time in which threads of the test wanted to run, the share that they waited for a processor
	Waited  float64       // the time that they waited, as a share of the length of the Watch
	Stolen  float64       // share of the processors' time that the hypervisor gave to other machines
}

func (m Machine) String() string {
	return fmt.Sprintf("wake-ups were up to %v late, the programs waited for a processor for %.0f %% of the time, and %.1f %% was stolen",
		m.Late.Round(10*time.Microsecond), 100*m.Waiting, 100*m.Stolen)
}

// Watch observes the machine beside a measurement. On each processor, a thread of it wakes up
// each millisecond and does nothing else.
type Watch struct {
	before usage         // set by Begin
	stop   chan struct{} // closed by End
	all    sync.WaitGroup

	mu      sync.Mutex // guards the fields below until all have ended
	late    time.Duration
	threads []int // the watch's own threads, which do not count as the test's
}

// mostWatched is the largest number of processors that a Watch observes.
const mostWatched = 8

// Begin starts a Watch. The caller ends it with End, Judge or Below.
func Begin() *Watch {
	w := &Watch{before: readUsage(), stop: make(chan struct{})}
	var allowed unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil {
		allowed.Set(0)
	}
	for cpu, n := 0, 0; cpu < 1024 && n < mostWatched; cpu++ {
		if allowed.IsSet(cpu) {
			w.all.Go(func() { w.wake(cpu) })
			n++
		}
	}
	return w
}

// End ends the watch, and returns what it saw. It is called once.
func (w *Watch) End() Machine {
	close(w.stop)
	w.all.Wait()
	after := readUsage()
	for _, tid := range w.threads {
		delete(after.threads, fmt.Sprintf("/proc/%d/task/%d/schedstat", os.Getpid(), tid))
	}
	m := after.since(w.before)
	m.Late = w.late
	return m
}

// wake wakes up each millisecond on a processor until w.stop is closed, and notes how late the
// latest wake-up was. It does not unlock its thread, so the thread ends with its goroutine.
func (w *Watch) wake(cpu int) {
	runtime.LockOSThread()
	var only unix.CPUSet
	only.Set(cpu)
	if unix.SchedSetaffinity(0, &only) != nil {
		return // the processor is offline
	}
	var latest time.Duration
	due := monotonic()
	for over := false; !over; {
		due += time.Millisecond
		at := unix.NsecToTimespec(int64(due))
		for unix.ClockNanosleep(unix.CLOCK_MONOTONIC, unix.TIMER_ABSTIME, &at, nil) == unix.EINTR {
		}
		now := monotonic()
		latest = max(latest, now-due)
		due = max(due, now-time.Millisecond)
		select {
		case <-w.stop:
			over = true
		default:
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.late = max(w.late, latest)
	w.threads = append(w.threads, unix.Gettid())
}

func monotonic() time.Duration {
	var now unix.Timespec
	unix.ClockGettime(unix.CLOCK_MONOTONIC, &now)
	return time.Duration(now.Nano())
}

// usage is a snapshot of the counters that Machine is made of.
type usage struct {
	at      time.Time
	threads map[string]spent // threads of this process and its descendants, by the path of schedstat
	stolen  time.Duration    // of all processors together
}

// spent is how long a thread has run, and how long it has waited for a processor: the first two
// fields of /proc/PID/task/TID/schedstat (Documentation/scheduler/sched-stats.rst).
type spent struct{ ran, waited time.Duration }

func readUsage() usage {
	u := usage{at: time.Now(), threads: map[string]spent{}, stolen: stolen()}
	for _, pid := range family() {
		tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
		for _, task := range tasks {
			if f := fields(task); len(f) >= 2 {
				u.threads[task] = spent{nanoseconds(f[0]), nanoseconds(f[1])}
			}
		}
	}
	return u
}

// since returns what has changed since before. It does not count threads that have ended.
func (u usage) since(before usage) (m Machine) {
	var ran, waited time.Duration
	for path, now := range u.threads {
		ran += now.ran - before.threads[path].ran
		waited += now.waited - before.threads[path].waited
	}
	if ran+waited > 0 {
		m.Waiting = float64(waited) / float64(ran+waited)
	}
	span := float64(max(u.at.Sub(before.at), 1))
	m.Waited = float64(waited) / span
	m.Stolen = float64(u.stolen-before.stolen) / span / float64(runtime.NumCPU())
	return m
}

// stolen returns the time that the hypervisor has given to other machines (steal in proc(5)).
// The kernel counts it in hundredths of a second.
func stolen() time.Duration {
	f := fields("/proc/stat") // cpu user nice system idle iowait irq softirq steal
	if len(f) < 9 {
		return 0
	}
	return nanoseconds(f[8]) * 1e7
}

// family returns the pids of this process and of all its descendants.
func family() []int {
	children := map[int][]int{}
	processes, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range processes {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // the process has ended
		}
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		rest := string(text[strings.LastIndexByte(string(text), ')')+1:]) // after the name, which may hold any character
		if f := strings.Fields(rest); len(f) >= 2 {
			parent, _ := strconv.Atoi(f[1])
			children[parent] = append(children[parent], pid)
		}
	}
	all := []int{os.Getpid()}
	for i := 0; i < len(all); i++ {
		all = append(all, children[all[i]]...)
	}
	return all
}

func fields(path string) []string {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	return strings.Fields(string(text))
}

func nanoseconds(s string) time.Duration {
	n, _ := strconv.ParseInt(s, 10, 64)
	return time.Duration(n)
}
