package main

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Source and sink share one processor, and so one thread, which makes its
// system calls itself: to switch between threads, or to go through Go's poller,
// would cost more than what is measured.

var errClosed = errors.New("the connection was closed on its way")

func loopback(port int) *unix.SockaddrInet4 {
	return &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}
}

// patient makes what waits at a socket, and at those that it accepts, fail
// after patience.
func patient(fd int) error {
	timeout := unix.NsecToTimeval(int64(patience))
	return unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout)
}

// listen returns a socket that listens on the port of the sink.
func listen() (fd int, err error) {
	fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	err = errors.Join(
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1),
		patient(fd),
		unix.Bind(fd, loopback(sinkPort)),
		unix.Listen(fd, 4096))
	if err != nil {
		unix.Close(fd)
		return 0, fmt.Errorf("sink: %w", err)
	}
	return fd, nil
}

// connect returns a connection that sends at once what is written.
func connect(port int) (fd int, err error) {
	fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	if err := retried(func() error { return unix.Connect(fd, loopback(port)) }); err != nil {
		unix.Close(fd)
		return 0, fmt.Errorf("connecting to port %d: %w", port, err)
	}
	return fd, errors.Join(noDelay(fd), patient(fd))
}

func noDelay(fd int) error { return unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1) }

// accept waits for a connection, for as long as patience.
func accept(listener int) (fd int, err error) {
	err = retried(func() error {
		fd, _, err = unix.Accept4(listener, unix.SOCK_CLOEXEC)
		return err
	})
	if err == unix.EAGAIN {
		return 0, fmt.Errorf("no connection has reached the sink for %v", patience)
	}
	return fd, err
}

// retried repeats a call that Go's signals have interrupted.
func retried(call func() error) error {
	for {
		if err := call(); err != unix.EINTR {
			return err
		}
	}
}

// ends are connections, from the source through the proxy to the sink.
type ends struct{ sources, sinks []int }

// open makes n connections to a port, and waits until the sink has all of them.
func open(n, port int) (*ends, error) {
	listener, err := listen()
	if err != nil {
		return nil, err
	}
	defer unix.Close(listener)
	e := &ends{}
	for range n {
		source, err := connect(port)
		if err == nil {
			e.sources = append(e.sources, source)
			var sink int
			if sink, err = accept(listener); err == nil {
				e.sinks = append(e.sinks, sink)
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

// watch adds a descriptor to an epoll set; its events carry the id.
func watch(set, fd int, events uint32, id int) error {
	return unix.EpollCtl(set, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: events, Fd: int32(id)})
}

// wait calls back for each event of an epoll set, until stopped.
func wait(set int, stopped *atomic.Bool, ready func(id int) error) error {
	events := make([]unix.EpollEvent, 256)
	for !stopped.Load() {
		n, err := unix.EpollWait(set, events, 20) // ms, until it looks at stopped again
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

// pass lets some time pass, or returns what failed meanwhile.
func pass(failed <-chan error, d time.Duration) error {
	select {
	case err := <-failed:
		return err
	case <-time.After(d):
		return nil
	}
}

// span is a time that something took, and what the proxy and the load spent
// meanwhile.
type span struct {
	proxy *proxy
	began time.Time
	cpu   time.Duration // of the proxy so far
	load  time.Duration
}

func begin(p *proxy) span {
	s := span{proxy: p, began: time.Now(), load: processorTime(unix.CLOCK_PROCESS_CPUTIME_ID)}
	if p != nil {
		s.cpu = p.cpu()
	}
	return s
}

// end returns the seconds that went by, those that the proxy ran, which are
// not a number where there is none, and those that source and sink ran.
func (s span) end() (elapsed, cpu, load float64) {
	elapsed, cpu = time.Since(s.began).Seconds(), nan
	load = (processorTime(unix.CLOCK_PROCESS_CPUTIME_ID) - s.load).Seconds()
	if s.proxy != nil {
		cpu = (s.proxy.cpu() - s.cpu).Seconds()
	}
	return elapsed, cpu, load
}

// roundTrip sends a message from source to sink, and one of the same length
// back.
func roundTrip(source, sink int, message []byte) error {
	for _, way := range [][2]int{{source, sink}, {sink, source}} {
		if err := writeAll(way[0], message); err != nil {
			return err
		}
		if err := readAll(way[1], message); err != nil {
			return err
		}
	}
	return nil
}

func read(fd int, b []byte) (n int, err error) {
	err = retried(func() error {
		n, err = unix.Read(fd, b)
		return err
	})
	if err == unix.EAGAIN {
		return 0, fmt.Errorf("nothing has come for %v", patience)
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
		err := retried(func() (err error) {
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
