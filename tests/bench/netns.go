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

// insideEnv is set inside the namespace. It holds the tools as JSON.
const insideEnv = "SHAPER_BENCH"

func inside() bool { return os.Getenv(insideEnv) != "" }

func prepared() (t tools, err error) {
	return t, json.Unmarshal([]byte(os.Getenv(insideEnv)), &t)
}

// enter replaces this process by the same program in a new network namespace, on one
// processor. It returns only if that fails. The kernel removes the namespace with its last
// process.
func enter(t tools, cpu int) error {
	runtime.LockOSThread() // the new program takes the namespace and affinity of this thread
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("making a network namespace: %w", err)
	}
	if out, err := exec.Command("ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
		return fmt.Errorf("ip link set lo up: %w: %s", err, out)
	}
	for name, value := range map[string]string{
		"ipv4/tcp_congestion_control": "reno",        // bbr paces, which halves the throughput of loopback
		"ipv4/ip_local_port_range":    "10000 65535", // enough for ports in TIME_WAIT
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

// useCPU binds this thread to one processor.
func useCPU(n int) error {
	var one unix.CPUSet
	one.Set(n)
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		return fmt.Errorf("processor %d: %w (bench needs two processors, see -proxy-cpu and -load-cpu)", n, err)
	}
	return nil
}

// startOn starts a command that is bound to one processor.
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

// listens reports whether a TCP or UDP socket of the namespace listens on a port.
func listens(port int, udp bool) bool {
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
