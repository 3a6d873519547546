package main

import (
	"errors"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	peers "shaper/tests/trial"
)

// talk drives both ends of connections that carry messages, in one thread. Its functions get
// the bytes of one read, and the kernel's timestamp of the last.
type talk struct {
	arrived  func(fd int, bytes []byte, at time.Time) error // at the sink
	answered func(fd int, bytes []byte) error               // at a source

	set, listener int
	isSource      map[int]bool // for each open connection
	buf, control  []byte
}

// run listens at the sink, calls start, and then calls arrived and answered for length.
func (k *talk) run(length time.Duration, start func() error) (err error) {
	k.isSource, k.buf, k.control = map[int]bool{}, make([]byte, 64<<10), make([]byte, 128)
	if k.set, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return err
	}
	defer unix.Close(k.set)
	if k.listener, err = listen(); err != nil {
		return err
	}
	defer unix.Close(k.listener)
	defer func() {
		for fd := range k.isSource {
			unix.Close(fd)
		}
	}()
	if err := errors.Join(watch(k.set, k.listener, unix.EPOLLIN, k.listener), start()); err != nil {
		return err
	}
	var stopped atomic.Bool
	defer time.AfterFunc(length, func() { stopped.Store(true) }).Stop()
	return wait(k.set, &stopped, k.serve)
}

// connect opens a connection of a source, and sends its first bytes.
func (k *talk) connect(port int, first []byte) (fd int, err error) {
	if fd, err = connect(port); err != nil {
		return 0, err
	}
	return fd, errors.Join(k.add(fd, true), writeAll(fd, first))
}

func (k *talk) add(fd int, isSource bool) error {
	k.isSource[fd] = isSource
	return watch(k.set, fd, unix.EPOLLIN, fd)
}

func (k *talk) serve(fd int) error {
	if fd == k.listener {
		next, err := accept(fd)
		if err != nil {
			return err
		}
		return errors.Join(noDelay(next), unix.SetsockoptInt(next, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1), k.add(next, false))
	}
	n, m, _, _, err := unix.Recvmsg(fd, k.buf, k.control, unix.MSG_DONTWAIT)
	switch {
	case err != nil:
		return err
	case n == 0 && k.isSource[fd]:
		return errClosed
	case n == 0:
		delete(k.isSource, fd)
		return unix.Close(fd)
	case k.isSource[fd]:
		return k.answered(fd, k.buf[:n])
	}
	return k.arrived(fd, k.buf[:n], peers.Timestamp(k.control[:m]))
}
