package main

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// describe tells what was measured on what.
func describe(t tools, o options) string {
	return fmt.Sprintf(`- %s, %d processors, %s of memory; proxy on processor %d, source and sink on processor %d
- Linux %s, congestion control reno, loopback in a network namespace of its own
- shaper %s, built by %s; HAProxy %s; nginx %s
- %s, load average %s at the beginning: %s
`,
		field("/proc/cpuinfo", "model name"), processors(), memoryTotal(), o.proxyCPU, o.loadCPU,
		contents("/proc/sys/kernel/osrelease"),
		version(t.Shaper), runtime.Version(), version(t.HAProxy), version(t.Nginx),
		time.Now().UTC().Format(time.DateOnly), strings.Fields(contents("/proc/loadavg") + " ?")[0], commandLine(o))
}

// commandLine is what gives the same again.
func commandLine(o options) string {
	line := fmt.Sprintf("`go run ./tests/bench -rounds %d", o.rounds)
	if o.only != "" {
		line += " -only " + o.only
	}
	if o.seconds != 0 {
		line += fmt.Sprintf(" -seconds %g", o.seconds)
	}
	return line + "`"
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
