package trial

import (
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
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

// Watch observes the machine beside a measurement, by the clock of this process.
type Watch struct {
	before usage // set by Begin

	// theClock guards the fields below.
	late    time.Duration // the latest wake-up since Begin
	awaited map[int]int   // threads that wake up once more before End returns, by processor; nil before End
	over    chan struct{} // closed when all of them have
}

// mostWatched is the largest number of processors that a Watch observes.
const mostWatched = 8

// Begin starts a Watch. The caller ends it with End, Judge or Below.
func Begin() *Watch {
	w := &Watch{before: readUsage(), over: make(chan struct{})}
	theClock.join(w)
	return w
}

// End ends the watch, and returns what it saw. It is called once.
func (w *Watch) End() Machine {
	own := theClock.leave(w)
	after := readUsage()
	for _, tid := range own {
		delete(after.threads, fmt.Sprintf("/proc/%d/task/%d/schedstat", os.Getpid(), tid))
	}
	m := after.since(w.before)
	m.Late = w.late
	return m
}

// clock has a thread on each processor, which wakes up each millisecond and does nothing else, while
// there is a Watch. All watches share it: some thousand wake-ups a second for each of them would
// make the machine busy.
type clock struct {
	mu      sync.Mutex
	watches map[*Watch]bool
	threads map[int]int // by processor; 0 until the thread runs
}

var theClock = clock{watches: map[*Watch]bool{}, threads: map[int]int{}}

// join adds a watch, and starts the threads that do not run yet.
func (c *clock) join(w *Watch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.watches[w] = true
	var allowed unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil {
		allowed.Set(0)
	}
	for cpu, n := 0, 0; cpu < 1024 && n < mostWatched; cpu++ {
		if !allowed.IsSet(cpu) {
			continue
		}
		n++
		if _, runs := c.threads[cpu]; !runs {
			c.threads[cpu] = 0
			go c.wake(cpu)
		}
	}
}

// leave removes a watch when each thread has woken up once more, so that the watch sees what is late
// at its end. It returns the threads, which do not count as the test's.
func (c *clock) leave(w *Watch) (own []int) {
	c.mu.Lock()
	w.awaited = maps.Clone(c.threads)
	own = slices.Collect(maps.Values(c.threads))
	c.mu.Unlock()
	<-w.over
	return own
}

// wake wakes up each millisecond on a processor, until there is no watch. It does not unlock its
// thread, so the thread ends with its goroutine.
func (c *clock) wake(cpu int) {
	runtime.LockOSThread()
	var only unix.CPUSet
	only.Set(cpu)
	if unix.SchedSetaffinity(0, &only) != nil {
		for c.came(cpu, 0) { // the processor is offline
			time.Sleep(time.Second)
		}
		return
	}
	c.mu.Lock()
	c.threads[cpu] = unix.Gettid()
	c.mu.Unlock()
	for due := monotonic(); ; {
		due += time.Millisecond
		at := unix.NsecToTimespec(int64(due))
		for unix.ClockNanosleep(unix.CLOCK_MONOTONIC, unix.TIMER_ABSTIME, &at, nil) == unix.EINTR {
		}
		now := monotonic()
		if !c.came(cpu, now-due) {
			return
		}
		due = max(due, now-time.Millisecond)
	}
}

// came tells the watches how late a wake-up on a processor was, and removes those that have awaited
// only this one. It returns false if nobody watches any more.
func (c *clock) came(cpu int, late time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for w := range c.watches {
		w.late = max(w.late, late)
		if w.awaited == nil {
			continue
		}
		if delete(w.awaited, cpu); len(w.awaited) == 0 {
			delete(c.watches, w)
			close(w.over)
		}
	}
	if len(c.watches) == 0 {
		delete(c.threads, cpu)
	}
	return len(c.watches) > 0
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
		dir := fmt.Sprintf("/proc/%d/task", pid)
		tasks, _ := os.ReadDir(dir)
		for _, task := range tasks {
			path := fmt.Sprintf("%s/%s/schedstat", dir, task.Name())
			if f := fields(path); len(f) >= 2 {
				u.threads[path] = spent{nanoseconds(f[0]), nanoseconds(f[1])}
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
	processes, _ := os.ReadDir("/proc")
	for _, process := range processes {
		pid, err := strconv.Atoi(process.Name())
		if err != nil {
			continue
		}
		text, err := os.ReadFile("/proc/" + process.Name() + "/stat")
		if err != nil {
			continue // the process has ended
		}
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
