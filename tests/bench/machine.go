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

// describe returns the lines of the report that say what was measured on which machine.
func describe(t tools, o options) string {
	others := fmt.Sprintf("HAProxy %s; nginx %s; Kannel %s", version(t.HAProxy), version(t.Nginx), version(t.Kannel))
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

// commandLine returns the command that repeats this run.
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

// otherLoad measures what else ran on the machine: the time that its processors were busy,
// less the time that this program and the proxies ran.
type otherLoad struct {
	began     time.Time
	busy, own float64 // seconds
}

func watchOthers() otherLoad { return otherLoad{time.Now(), busySeconds(), ownSeconds()} }

func (o otherLoad) String() string {
	elapsed := time.Since(o.began)
	others := (busySeconds() - o.busy) - (ownSeconds() - o.own)
	return fmt.Sprintf("- the run took %v; other programs kept a processor busy for %.1f %% of it\n",
		elapsed.Round(time.Second), 100*max(others, 0)/elapsed.Seconds())
}

// busySeconds returns how long all processors together have been busy since the machine started.
func busySeconds() (seconds float64) {
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

// ownSeconds returns the processor time of this program and of the proxies that have exited.
func ownSeconds() (seconds float64) {
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
		return "not measured (" + cellText(t.Missing) + ")"
	}
	return t.Version
}

// processors counts the processors of the machine, not those that this process may use.
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

// field returns the first value of name in a file of "name: value" lines below /proc.
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
