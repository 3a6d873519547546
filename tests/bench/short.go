package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// shortKinds limit datagrams by number where the processor is short, and measure the gaps between
// them.
func shortKinds() (all []kind) {
	ways := []way{
		shaper,
		awake(shaper),
		shortWay("beside two", 2, nil),
		shortWay("beside two, Nice=-10", 2, prefixed("nice", "-n", "-10")),
		shortWay("beside two, CPUWeight=1000", 2, grouped(1000, 0)),
		shortWay("beside two, real-time (rr 1)", 2, prefixed("chrt", "--rr", "1")),
		shortWay("CPUQuota=20%", 0, grouped(100, 20)),
		shortWay("CPUQuota=10%", 0, grouped(100, 10)),
	}
	for _, perSecond := range []int{100, 1000} {
		k := gapKind("short", "packets", setting{protocol: "udp", number: perSecond}, gaps, ways...)
		for i, c := range k.columns {
			k.columns[i].ratio = c.name == "rate ÷ set" || c.name == "p99 off by µs"
		}
		all = append(all, k)
	}
	return all
}

// shortWay is the way through shaper beside so many busy loops on its processor.
func shortWay(name string, neighbours int, launch launcher) way {
	w := shaper
	w.name += ", " + name
	w.neighbours, w.launch = neighbours, launch
	return w
}

// awake is a way on processors that never sleep.
func awake(w way) way {
	w.name += ", awake"
	w.awake = true
	return w
}

// A launcher returns a command that starts the proxy's command, which stands behind it, and what
// undoes its preparations.
type launcher func() (command []string, undo func(), err error)

// launched calls the launcher of the way. Without one, no command stands before the proxy's.
func (w way) launched() (command []string, undo func(), err error) {
	if w.launch == nil {
		return nil, func() {}, nil
	}
	return w.launch()
}

func prefixed(command ...string) launcher {
	return func() ([]string, func(), error) { return command, func() {}, nil }
}

// grouped returns a launcher into a cgroup of its own. Weight is as in CPUWeight=, and quota is a
// percentage of one processor; 0: there is none.
func grouped(weight, quota int) launcher {
	return func() ([]string, func(), error) {
		dir, settings := cgroup(weight, quota)
		undo := func() { os.Remove(dir) }
		err := os.MkdirAll(dir, 0o755)
		for _, s := range settings {
			err = errors.Join(err, os.WriteFile(filepath.Join(dir, s[0]), []byte(s[1]), 0))
		}
		return []string{"sh", "-c", `echo $$ >"$0" && exec "$@"`, filepath.Join(dir, "cgroup.procs")}, undo, err
	}
}

// cgroup returns the directory of a cgroup, and what its files are to say, in this order.
func cgroup(weight, quota int) (dir string, settings [][2]string) {
	const unified, cpu = "/sys/fs/cgroup", "/sys/fs/cgroup/cpu"
	if _, err := os.Stat(filepath.Join(unified, "cgroup.controllers")); err == nil { // cgroup v2
		most := "max"
		if quota > 0 {
			most = fmt.Sprint(quota * 1000)
		}
		return filepath.Join(unified, "shaper-bench"), [][2]string{
			{"../cgroup.subtree_control", "+cpu"}, {"cpu.weight", fmt.Sprint(weight)}, {"cpu.max", most + " 100000"},
		}
	}
	most := -1
	if quota > 0 {
		most = quota * 1000
	}
	return filepath.Join(cpu, "shaper-bench"), [][2]string{
		{"cpu.shares", fmt.Sprint(weight * 1024 / 100)}, {"cpu.cfs_quota_us", fmt.Sprint(most)},
	}
}

// startNeighbours starts the loops that run beside a way. The caller stops them, even after an error.
func startNeighbours(w way, o options) (stop func(), err error) {
	var all []*exec.Cmd
	stop = func() {
		for _, c := range all {
			c.Process.Kill()
			c.Wait()
		}
	}
	loop := func(cpu int, prefix ...string) {
		command := append(prefix, "sh", "-c", "while :; do :; done")
		c := exec.Command(command[0], command[1:]...)
		c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if e := startOn(cpu, c); e != nil {
			err = errors.Join(err, e)
			return
		}
		all = append(all, c)
	}
	for range w.neighbours {
		loop(o.proxyCPU)
	}
	if w.awake {
		loop(o.proxyCPU, "chrt", "--idle", "0")
		loop(o.loadCPU, "chrt", "--idle", "0")
	}
	return stop, err
}
