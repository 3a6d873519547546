package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// patience bounds what is waited for; nothing takes that long that works.
const patience = 10 * time.Second

// nobody is the user without privileges.
const nobody = 65534

// proxy is one that runs.
type proxy struct {
	cmd    *exec.Cmd
	log    *logged
	exited chan struct{}
}

// startProxy starts one on a processor of its own, and waits until it listens.
func startProxy(w way, s setting, t tools, cpu int) (*proxy, error) {
	dir, err := os.MkdirTemp(t.Dir, "proxy")
	if err != nil {
		return nil, err
	}
	config := filepath.Join(dir, "config")
	tool, args := w.files(t, config)
	if tool.Missing != "" {
		return nil, errors.New(tool.Missing)
	}
	nginxRoot := filepath.Join(filepath.Dir(t.Nginx.Path), "..", "..")
	if err := os.WriteFile(config, []byte(w.config(s, dir, nginxRoot)), 0o644); err != nil {
		return nil, err
	}
	p := &proxy{cmd: exec.Command(tool.Path, args...), log: &logged{}, exited: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	if w.nobody {
		if err := os.Chown(dir, nobody, nobody); err != nil {
			return nil, err
		}
		p.cmd.SysProcAttr.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
	}
	if err := startOn(cpu, p.cmd); err != nil {
		return nil, err
	}
	go func() {
		p.cmd.Wait()
		close(p.exited)
	}()
	for deadline := time.Now().Add(patience); !bound(proxyPort, s.udp); time.Sleep(time.Millisecond) {
		if p.hasExited() || time.Now().After(deadline) {
			p.stop()
			return nil, fmt.Errorf("does not listen: %s", p.log)
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

// stop ends the proxy.
func (p *proxy) stop() {
	p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.exited:
	case <-time.After(patience):
		p.cmd.Process.Kill()
		<-p.exited
	}
}

// processes returns the pids of the proxy: its own and those of its workers.
func (p *proxy) processes() []int {
	pid := p.cmd.Process.Pid
	pids := []int{pid}
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		return pids
	}
	for f := range strings.FieldsSeq(string(children)) {
		if child, err := strconv.Atoi(f); err == nil {
			pids = append(pids, child)
		}
	}
	return pids
}

// cpu returns the time that all threads of the proxy have run so far, user and
// system. It is what /proc/PID/stat rounds to ticks of 10 ms.
func (p *proxy) cpu() (sum time.Duration) {
	for _, pid := range p.processes() {
		const scheduled = 2 // CPUCLOCK_SCHED, in the number of a process's clock
		sum += processorTime(int32(^pid<<3 | scheduled))
	}
	return sum
}

// processorTime reads a clock that counts how long a process has run.
func processorTime(clock int32) time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(clock, &t) != nil {
		return 0 // it has ended
	}
	return time.Duration(t.Nano())
}

// memory returns the resident bytes.
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

// descriptors returns how many are open.
func (p *proxy) descriptors() (sum int) {
	for _, pid := range p.processes() {
		if all, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid)); err == nil {
			sum += len(all)
		}
	}
	return sum
}

// logged is what a proxy has written, as far as it may matter.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.text.Len() < 64<<10 {
		l.text.Write(b)
	}
	return len(b), nil
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return lastLines(l.text.String(), 5)
}
