package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// patience is how long bench waits for anything. What works takes far less.
const patience = 10 * time.Second

// nobodyID is the user and group of nobody.
const nobodyID = 65534

// proxy is a proxy that runs.
type proxy struct {
	cmd    *exec.Cmd
	log    *logTail
	exited chan struct{}
}

// startProxy starts the proxy of a way on the processor cpu, and waits until it listens. Launch is
// a command that starts the proxy's; nil: there is none.
func startProxy(w way, s setting, t tools, cpu int, launch []string) (*proxy, error) {
	dir, err := os.MkdirTemp(t.Dir, "proxy")
	if err != nil {
		return nil, err
	}
	config := filepath.Join(dir, "config")
	tool, args := w.program(t, config)
	if tool.Missing != "" {
		return nil, errors.New(tool.Missing)
	}
	nginxRoot := filepath.Join(filepath.Dir(t.Nginx.Path), "..", "..")
	if err := os.WriteFile(config, []byte(w.config(s, dir, nginxRoot)), 0o644); err != nil {
		return nil, err
	}
	command := slices.Concat(launch, []string{tool.Path}, args)
	p := &proxy{cmd: exec.Command(command[0], command[1:]...), log: &logTail{}, exited: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM, Setpgid: true}
	if w.unprivileged {
		if err := os.Chown(dir, nobodyID, nobodyID); err != nil {
			return nil, err
		}
		p.cmd.SysProcAttr.Credential = &syscall.Credential{Uid: nobodyID, Gid: nobodyID}
	}
	if err := startOn(cpu, p.cmd); err != nil {
		return nil, err
	}
	go func() {
		p.cmd.Wait()
		close(p.exited)
	}()
	for deadline := time.Now().Add(patience); !listens(proxyPort, s.udp()); time.Sleep(time.Millisecond) {
		if p.hasExited() || time.Now().After(deadline) {
			p.stop()
			return nil, fmt.Errorf("the proxy does not listen: %s", p.log)
		}
	}
	return p, nil
}

func (p *proxy) hasExited() bool {
	select {
	case <-p.exited:
		return true
	default:
		return false
	}
}

// stop ends the proxy with SIGTERM, or with SIGKILL if that takes longer than patience.
func (p *proxy) stop() {
	p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.exited:
	case <-time.After(patience):
		p.cmd.Process.Kill()
		<-p.exited
	}
}

// processes returns the pids of the proxy, of its workers, and of theirs.
func (p *proxy) processes() []int { return descendants(p.cmd.Process.Pid) }

func descendants(pid int) []int {
	pids := []int{pid}
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		return pids
	}
	for f := range strings.FieldsSeq(string(children)) {
		if child, err := strconv.Atoi(f); err == nil {
			pids = append(pids, descendants(child)...)
		}
	}
	return pids
}

// cpu returns the processor time that all threads of the proxy have taken, user and system. It
// reads the processes' clocks, because /proc/PID/stat rounds to 10 ms.
func (p *proxy) cpu() (sum time.Duration) {
	for _, pid := range p.processes() {
		const scheduled = 2 // CPUCLOCK_SCHED in the kernel's posix-timers_types.h
		sum += processorTime(int32(^pid<<3 | scheduled))
	}
	return sum
}

// processorTime reads a clock of processor time. It returns 0 if the process has exited.
func processorTime(clock int32) time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(clock, &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}

// memory returns the resident bytes of the proxy.
func (p *proxy) memory() (sum float64) {
	for _, pid := range p.processes() {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(status)) {
			if f := strings.Fields(line); f[0] == "VmRSS:" {
				kib, _ := strconv.ParseFloat(f[1], 64)
				sum += kib * 1024
			}
		}
	}
	return sum
}

// descriptors returns the number of descriptors that the proxy has open.
func (p *proxy) descriptors() (sum int) {
	for _, pid := range p.processes() {
		if all, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid)); err == nil {
			sum += len(all)
		}
	}
	return sum
}

// logTail keeps the first 64 KiB that a proxy writes, and shows the last lines of them.
type logTail struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logTail) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.text.Len() < 64<<10 {
		l.text.Write(b)
	}
	return len(b), nil
}

func (l *logTail) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return lastLines(l.text.String(), 5)
}
