package main

import (
	"errors"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

const connsClients = 8

// connsKinds open connections that carry a byte each way and close.
func connsKinds() []kind {
	return []kind{{
		name: "conns", group: "conns", label: "8 clients",
		columns: []column{
			{name: "connections/s", format: "%.0f", ratio: true, plotted: true},
			{name: "CPU µs each", format: "%.1f", lower: true, ratio: true},
			{name: "load busy", format: "%.0f %%"},
		},
		ways:    []way{direct, haproxy, nginx, nginxHalf, shaper, shaperSOCKS, shaperCONNECT},
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
	v := &churn{trial: t, listener: listener, isClient: map[int]bool{}, expects: map[int]int{}}
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
	if err := sleep(failed, t.length()/6); err != nil {
		return nil, err
	}
	before, s := v.done.Load(), begin(t.proxy)
	if err := sleep(failed, t.length()); err != nil {
		return nil, err
	}
	done := float64(v.done.Load() - before)
	elapsed, cpu, load := s.end()
	return []float64{done / elapsed, cpu * 1e6 / done, 100 * load / elapsed}, nil
}

// churn opens connections, has each carry a byte both ways, and closes it. Only the goroutine
// of run uses it; done may be read by all.
type churn struct {
	trial    *trial
	listener int
	set      int          // the epoll set
	isClient map[int]bool // for each open connection: true at the client's end
	expects  map[int]int  // bytes that the client's end has still to read
	done     atomic.Int64
}

func (v *churn) run(stopped *atomic.Bool) (err error) {
	if v.set, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return err
	}
	defer unix.Close(v.set)
	defer func() {
		for fd := range v.isClient {
			unix.Close(fd)
		}
	}()
	if err := watch(v.set, v.listener, unix.EPOLLIN, v.listener); err != nil {
		return err
	}
	for range connsClients {
		if err := v.visit(); err != nil {
			return err
		}
	}
	return wait(v.set, stopped, v.serve)
}

// visit opens a connection and sends a byte. At an entry it asks for the sink in the same segment:
// that takes no round trip more, which would be time of the source.
func (v *churn) visit() error {
	fd, err := connect(v.trial.port)
	if err != nil {
		return err
	}
	v.expects[fd] = v.trial.way.answer + 1
	return errors.Join(v.add(fd, true), writeAll(fd, append([]byte(v.trial.way.asks), 0)))
}

func (v *churn) add(fd int, isClient bool) error {
	v.isClient[fd] = isClient
	return watch(v.set, fd, unix.EPOLLIN, fd)
}

// serve does what an event at fd asks for. At the listener it accepts; at the server's end it
// answers; at the client's end it closes, and opens the next connection.
func (v *churn) serve(fd int) error {
	if fd == v.listener {
		next, err := accept(fd)
		if err != nil {
			return err
		}
		return v.add(next, false)
	}
	var said [64]byte
	n, err := read(fd, said[:])
	if err != nil {
		return err
	}
	if v.isClient[fd] {
		if n == 0 {
			return errClosed
		}
		if v.expects[fd] -= n; v.expects[fd] > 0 {
			return nil
		}
		v.close(fd)
		v.done.Add(1)
		return v.visit()
	}
	if n == 0 { // the client has its answer
		v.close(fd)
		return nil
	}
	return writeAll(fd, said[:n])
}

func (v *churn) close(fd int) {
	delete(v.isClient, fd)
	delete(v.expects, fd)
	unix.Close(fd)
}
