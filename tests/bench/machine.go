package main

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// describe tells what is measured on what.
func describe(t tools, o options) string {
	others := fmt.Sprintf("HAProxy %s; nginx %s", version(t.HAProxy), version(t.Nginx))
	if o.against != "" {
		others = "shaper before is " + version(t.Before)
	}
	return fmt.Sprintf(`- %s, %d processors, %s of memory; proxy on processor %d, source and sink on processor %d
- Linux %s, congestion control reno, loopback in a network namespace of its own
- shaper %s, built by %s; %s
- %s, %s
`,
		field("/proc/cpuinfo", "model name"), processors(), memoryTotal(), o.proxyCPU, o.loadCPU,
		contents("/proc/sys/kernel/osrelease"),
		version(t.Shaper), runtime.Version(), others,
		time.Now().UTC().Format(time.DateOnly), commandLine(o))
}

// commandLine is what gives the same again.
func commandLine(o options) string {
	line := fmt.Sprintf("`go run ./tests/bench -rounds %d", o.rounds)
	if o.only != "" {
		line += " -only " + o.only
	}
	if o.ways != "" {
		line += " -ways " + o.ways
	}
	if o.against != "" {
		line += " -against " + o.against
	}
	if o.seconds != 0 {
		line += fmt.Sprintf(" -seconds %g", o.seconds)
	}
	return line + "`"
}

// quiet tells what else ran on the machine: what its processors were busy
// with, less what this program and the proxies spent.
type quiet struct {
	began    time.Time
	all, own float64 // seconds
}

func listenForOthers() quiet { return quiet{time.Now(), busy(), spent()} }

func (q quiet) String() string {
	elapsed := time.Since(q.began)
	others := (busy() - q.all) - (spent() - q.own)
	return fmt.Sprintf("- it took %v; what else ran kept a processor busy for %.1f %% of the time\n",
		elapsed.Round(time.Second), 100*max(others, 0)/elapsed.Seconds())
}

// busy returns for how long the processors have run, all of them together.
func busy() (seconds float64) {
	line, _, _ := strings.Cut(contents("/proc/stat"), "\n")
	const idle, iowait, guest = 4, 5, 9 // see proc_stat(5); guest time is part of user time
	for i, f := range strings.Fields(line) {
		ticks, err := strconv.ParseFloat(f, 64)
		if err == nil && i != idle && i != iowait && i < guest {
			seconds += ticks / 100
		}
	}
	return seconds
}

// spent returns for how long this program has run, and the proxies that have
// ended.
func spent() (seconds float64) {
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var u syscall.Rusage
		if syscall.Getrusage(who, &u) == nil {
			seconds += time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
		}
	}
	return seconds
}

func version(t tool) string {
	if t.Missing != "" {
		return "not measured (" + oneRow(t.Missing) + ")"
	}
	return t.Version
}

// processors counts those of the machine, not those that this process may use.
func processors() int {
	return strings.Count(contents("/proc/cpuinfo"), "processor\t:")
}

func memoryTotal() string {
	kib, err := strconv.ParseFloat(strings.TrimSuffix(field("/proc/meminfo", "MemTotal"), " kB"), 64)
	if err != nil {
		return "unknown size"
	}
	return fmt.Sprintf("%.0f GiB", kib/(1<<20))
}

// field returns the first value of a name in one of the kernel's tables.
func field(path, name string) string {
	for line := range strings.Lines(contents(path)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return "unknown " + name
}

func contents(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}
