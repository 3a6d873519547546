package main

import (
	"errors"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

const connsClients = 8

// connsKinds open connections that carry a byte each way and are closed.
func connsKinds() []kind {
	return []kind{{
		name: "conns", group: "conns", label: "8 clients",
		columns: []column{
			{name: "connections/s", format: "%.0f", ratio: true, plotted: true},
			{name: "CPU µs each", format: "%.1f", lower: true, ratio: true},
			{name: "load busy", format: "%.0f %%"},
		},
		ways:    []way{direct, haproxy, nginx, shaper},
		seconds: 3,
		measure: conns,
	}}
}

func conns(t *trial) ([]float64, error) {
	listener, err := listen()
	if err != nil {
		return nil, err
	}
	defer unix.Close(listener)
	v := &visits{port: t.port, listener: listener, visitor: map[int]bool{}}
	var stopped atomic.Bool
	failed := make(chan error, 1)
	var loop sync.WaitGroup
	loop.Go(func() {
		if err := v.run(&stopped); err != nil {
			failed <- err
		}
	})
	defer loop.Wait()
	defer stopped.Store(true)
	if err := pass(failed, t.length()/6); err != nil {
		return nil, err
	}
	before, s := v.done.Load(), begin(t.proxy)
	if err := pass(failed, t.length()); err != nil {
		return nil, err
	}
	done := float64(v.done.Load() - before)
	elapsed, cpu, load := s.end()
	return []float64{done / elapsed, cpu * 1e6 / done, 100 * load / elapsed}, nil
}

// visits are connections that come and go.
type visits struct {
	port, listener int
	set            int          // of epoll
	visitor        map[int]bool // whether an open connection is a client's
	done           atomic.Int64
}

func (v *visits) run(stopped *atomic.Bool) (err error) {
	if v.set, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return err
	}
	defer unix.Close(v.set)
	defer func() {
		for fd := range v.visitor {
			unix.Close(fd)
		}
	}()
	if err := watch(v.set, v.listener, unix.EPOLLIN, v.listener); err != nil {
		return err
	}
	for range connsClients {
		if err := v.come(); err != nil {
			return err
		}
	}
	return wait(v.set, stopped, v.serve)
}

// come opens a connection and sends a byte.
func (v *visits) come() error {
	fd, err := connect(v.port)
	if err != nil {
		return err
	}
	return errors.Join(v.add(fd, true), writeAll(fd, make([]byte, 1)))
}

func (v *visits) add(fd int, visitor bool) error {
	v.visitor[fd] = visitor
	return watch(v.set, fd, unix.EPOLLIN, fd)
}

// serve accepts, answers, or has the next client come, whatever is next.
func (v *visits) serve(fd int) error {
	if fd == v.listener {
		next, err := accept(fd)
		if err != nil {
			return err
		}
		return v.add(next, false)
	}
	var one [1]byte
	n, err := read(fd, one[:])
	if err != nil {
		return err
	}
	if v.visitor[fd] {
		if n == 0 {
			return errClosed
		}
		v.close(fd)
		v.done.Add(1)
		return v.come()
	}
	if n == 0 { // the client has its answer
		v.close(fd)
		return nil
	}
	return writeAll(fd, one[:])
}

func (v *visits) close(fd int) {
	delete(v.visitor, fd)
	unix.Close(fd)
}
