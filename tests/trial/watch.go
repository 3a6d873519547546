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

// Machine is what a machine gave to the programs of a test for a while.
type Machine struct {
	Late    time.Duration // of all timed wake-ups on all processors, the latest
	Waiting float64       // share of the time in which the programs wanted to run, and waited for a processor
	Waited  float64       // that time as a share of the whole
	Stolen  float64       // share of the processors' time that the hypervisor gave to others
}

func (m Machine) String() string {
	return fmt.Sprintf("wake-ups were up to %v late, the programs waited for a processor for %.0f %% of the time, and %.1f %% was stolen",
		m.Late.Round(10*time.Microsecond), 100*m.Waiting, 100*m.Stolen)
}

// Watch is a reference that runs beside a measurement: on each processor a thread that
// does nothing but wake up at given times.
type Watch struct {
	before usage
	stop   chan struct{}
	all    sync.WaitGroup

	mu      sync.Mutex
	late    time.Duration
	threads []int // of the reference, which are no programs of the test
}

// most is on how many processors there is a reference.
const most = 8

// Begin begins to watch; End has to follow.
func Begin() *Watch {
	w := &Watch{before: readUsage(), stop: make(chan struct{})}
	var allowed unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil {
		allowed.Set(0)
	}
	for cpu, n := 0, 0; cpu < 1024 && n < most; cpu++ {
		if allowed.IsSet(cpu) {
			w.all.Go(func() { w.wake(cpu) })
			n++
		}
	}
	return w
}

// End ends the watch, and returns what it saw.
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

// wake wakes up each millisecond on a processor, and notes how late that was. Its thread
// is never unlocked, so the thread ends with it.
func (w *Watch) wake(cpu int) {
	runtime.LockOSThread()
	var only unix.CPUSet
	only.Set(cpu)
	if unix.SchedSetaffinity(0, &only) != nil {
		return // the processor has gone
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

// usage is what processes and processors have done by a moment.
type usage struct {
	at      time.Time
	threads map[string]spent // of this process and all that it has started, by their paths
	stolen  time.Duration
}

// spent is how long a thread has run, and how long it has waited to run (schedstat of
// proc(5)).
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

// since returns what was given between two moments. Of threads that have ended nothing is
// known.
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

// stolen returns the time that the hypervisor has taken, in hundredths of a second.
func stolen() time.Duration {
	f := fields("/proc/stat") // "cpu", and then user, nice, system, idle, iowait, irq, softirq, steal
	if len(f) < 9 {
		return 0
	}
	return nanoseconds(f[8]) * 1e7
}

// family returns this process and all that it has started, and those that these have.
func family() []int {
	children := map[int][]int{}
	processes, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range processes {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		rest := string(text[strings.LastIndexByte(string(text), ')')+1:]) // behind the name, which may hold anything
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
