package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// insideEnv marks the process inside the namespace, and carries what was prepared.
const insideEnv = "SHAPER_BENCH"

func inside() bool { return os.Getenv(insideEnv) != "" }

func prepared() (t tools, err error) {
	return t, json.Unmarshal([]byte(os.Getenv(insideEnv)), &t)
}

// enter becomes the same program in a network namespace of its own, on one
// processor. It returns only where that failed. The namespace goes with the
// last process in it.
func enter(t tools, cpu int) error {
	runtime.LockOSThread() // namespace and processors are those of the thread that executes
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("making a network namespace: %w", err)
	}
	if out, err := exec.Command("ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
		return fmt.Errorf("ip link set lo up: %w: %s", err, out)
	}
	for name, value := range map[string]string{
		"ipv4/tcp_congestion_control": "reno",        // bbr paces, which halves what loopback can do
		"ipv4/ip_local_port_range":    "10000 65535", // room for what closed a moment ago
	} {
		if err := os.WriteFile("/proc/sys/net/"+name, []byte(value), 0); err != nil {
			return err
		}
	}
	if err := useCPU(cpu); err != nil {
		return err
	}
	state, err := json.Marshal(t)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	env := append(os.Environ(), insideEnv+"="+string(state))
	return syscall.Exec(self, append([]string{self}, os.Args[1:]...), env)
}

// useCPU keeps this thread on one processor.
func useCPU(n int) error {
	var one unix.CPUSet
	one.Set(n)
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		return fmt.Errorf("processor %d: %w (two are needed, see -proxy-cpu and -load-cpu)", n, err)
	}
	return nil
}

// startOn starts a command on one processor.
func startOn(cpu int, cmd *exec.Cmd) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		return err
	}
	defer unix.SchedSetaffinity(0, &before)
	if err := useCPU(cpu); err != nil {
		return err
	}
	return cmd.Start()
}

// bound tells whether something in the namespace listens on a port.
func bound(port int, udp bool) bool {
	path, state := "/proc/net/tcp", "0A" // listening
	if udp {
		path, state = "/proc/net/udp", "07" // not connected
	}
	table, err := os.ReadFile(path)
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(table)) {
		f := strings.Fields(line)
		if len(f) > 3 && strings.HasSuffix(f[1], fmt.Sprintf(":%04X", port)) && f[3] == state {
			return true
		}
	}
	return false
}
