package main

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Source and sink share one processor. One thread drives both with plain system calls: a
// switch between threads, or Go's poller, would cost more than what is measured.

var errClosed = errors.New("the connection was closed early")

func loopback(port int) *unix.SockaddrInet4 {
	return &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}
}

// setTimeout makes a read or accept on the socket fail with EAGAIN after patience. The sockets
// that it accepts inherit this.
func setTimeout(fd int) error {
	timeout := unix.NsecToTimeval(int64(patience))
	return unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout)
}

// listen returns a TCP socket that listens on sinkPort.
func listen() (fd int, err error) {
	fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	err = errors.Join(
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1),
		setTimeout(fd),
		unix.Bind(fd, loopback(sinkPort)),
		unix.Listen(fd, 4096))
	if err != nil {
		unix.Close(fd)
		return 0, fmt.Errorf("sink: %w", err)
	}
	return fd, nil
}

// connect returns a TCP connection to a port of loopback, with TCP_NODELAY.
func connect(port int) (fd int, err error) {
	fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	if err := retryInterrupted(func() error { return unix.Connect(fd, loopback(port)) }); err != nil {
		unix.Close(fd)
		return 0, fmt.Errorf("connecting to port %d: %w", port, err)
	}
	return fd, errors.Join(noDelay(fd), setTimeout(fd))
}

func noDelay(fd int) error { return unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1) }

// accept returns the next connection. It fails if none comes within patience.
func accept(listener int) (fd int, err error) {
	err = retryInterrupted(func() error {
		fd, _, err = unix.Accept4(listener, unix.SOCK_CLOEXEC)
		return err
	})
	if err == unix.EAGAIN {
		return 0, fmt.Errorf("no connection reached the sink within %v", patience)
	}
	return fd, err
}

// retryInterrupted repeats a call for as long as it returns EINTR, which signals of Go's
// runtime cause.
func retryInterrupted(call func() error) error {
	for {
		if err := call(); err != unix.EINTR {
			return err
		}
	}
}

// ends holds both ends of each connection: sources[i] and sinks[i] belong together.
type ends struct{ sources, sinks []int }

// open makes n connections of a trial, and accepts all of them at the sink. At an entry, each has
// asked for the sink and has its answer.
func open(n int, t *trial) (*ends, error) {
	listener, err := listen()
	if err != nil {
		return nil, err
	}
	defer unix.Close(listener)
	e := &ends{}
	for range n {
		source, err := connect(t.port)
		if err == nil {
			e.sources = append(e.sources, source)
			err = writeAll(source, []byte(t.way.asks))
		}
		if err == nil {
			var sink int
			if sink, err = accept(listener); err == nil {
				e.sinks = append(e.sinks, sink)
				err = readAll(source, make([]byte, t.way.answer))
			}
		}
		if err != nil {
			e.close()
			return nil, fmt.Errorf("connection %d: %w", len(e.sources), err)
		}
	}
	return e, nil
}

func (e *ends) close() {
	for _, fd := range append(e.sources, e.sinks...) {
		unix.Close(fd)
	}
}

// watch adds a descriptor to an epoll set. Its events carry id.
func watch(set, fd int, events uint32, id int) error {
	return unix.EpollCtl(set, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: events, Fd: int32(id)})
}

// wait calls ready for each event of an epoll set, until stopped. It returns the first error of
// ready except EAGAIN and EINTR.
func wait(set int, stopped *atomic.Bool, ready func(id int) error) error {
	events := make([]unix.EpollEvent, 256)
	for !stopped.Load() {
		n, err := unix.EpollWait(set, events, 20) // ms between two looks at stopped
		if err != nil && err != unix.EINTR {
			return err
		}
		for _, e := range events[:max(n, 0)] {
			if err := ready(int(e.Fd)); err != nil && err != unix.EAGAIN && err != unix.EINTR {
				return err
			}
		}
	}
	return nil
}

// sleep waits for d. It returns early if an error comes from failed.
func sleep(failed <-chan error, d time.Duration) error {
	select {
	case err := <-failed:
		return err
	case <-time.After(d):
		return nil
	}
}

// span measures elapsed time, and the processor time of the proxy and of the load in it.
type span struct {
	proxy *proxy // nil: there is none
	began time.Time
	cpu   time.Duration // processor time of the proxy at the beginning
	load  time.Duration // processor time of this program at the beginning
}

func begin(p *proxy) span {
	s := span{proxy: p, began: time.Now(), load: processorTime(unix.CLOCK_PROCESS_CPUTIME_ID)}
	if p != nil {
		s.cpu = p.cpu()
	}
	return s
}

// end returns seconds: those that have passed since begin, those that the proxy ran (NaN if
// there is no proxy), and those that source and sink ran.
func (s span) end() (elapsed, cpu, load float64) {
	elapsed, cpu = time.Since(s.began).Seconds(), nan
	load = (processorTime(unix.CLOCK_PROCESS_CPUTIME_ID) - s.load).Seconds()
	if s.proxy != nil {
		cpu = (s.proxy.cpu() - s.cpu).Seconds()
	}
	return elapsed, cpu, load
}

// roundTrip sends message from source to sink, and then from sink to source.
func roundTrip(source, sink int, message []byte) error {
	for _, direction := range [][2]int{{source, sink}, {sink, source}} {
		if err := writeAll(direction[0], message); err != nil {
			return err
		}
		if err := readAll(direction[1], message); err != nil {
			return err
		}
	}
	return nil
}

func read(fd int, b []byte) (n int, err error) {
	err = retryInterrupted(func() error {
		n, err = unix.Read(fd, b)
		return err
	})
	if err == unix.EAGAIN {
		return 0, fmt.Errorf("nothing arrived within %v", patience)
	}
	return n, err
}

func readAll(fd int, b []byte) error {
	for len(b) > 0 {
		n, err := read(fd, b)
		if err != nil {
			return err
		}
		if n == 0 {
			return errClosed
		}
		b = b[n:]
	}
	return nil
}

func writeAll(fd int, b []byte) error {
	for len(b) > 0 {
		n := 0
		err := retryInterrupted(func() (err error) {
			n, err = unix.Write(fd, b)
			return err
		})
		if err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}
