package main

import (
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

const (
	connsClients = 8
	connsServers = 16 // more than clients: some wait for a close still
)

// connsKinds open connections that carry a byte each way and are closed.
func connsKinds() []kind {
	return []kind{{
		name: "conns", group: "conns", label: "8 clients",
		columns: []column{
			{name: "connections/s", format: "%.0f", ratio: true},
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
	var servers sync.WaitGroup
	for range connsServers {
		servers.Go(func() { answer(listener) })
	}
	values, err := visits(t)
	unix.Shutdown(listener, unix.SHUT_RDWR) // ends the servers
	servers.Wait()
	return values, err
}

// visits has clients come and go.
func visits(t *trial) ([]float64, error) {
	var clients sync.WaitGroup
	var count atomic.Int64
	var stopped atomic.Bool
	failed := make(chan error, connsClients)
	for range connsClients {
		clients.Go(func() {
			for !stopped.Load() {
				if err := visit(t.port); err != nil {
					failed <- err
					return
				}
				count.Add(1)
			}
		})
	}
	defer clients.Wait()
	defer stopped.Store(true)
	if err := pass(failed, t.length()/6); err != nil {
		return nil, err
	}
	before, s := count.Load(), begin(t.proxy)
	if err := pass(failed, t.length()); err != nil {
		return nil, err
	}
	done := float64(count.Load() - before)
	elapsed, cpu, load := s.end()
	return []float64{done / elapsed, cpu * 1e6 / done, 100 * load / elapsed}, nil
}

func visit(port int) error {
	fd, err := connect(port)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var one [1]byte
	if err := writeAll(fd, one[:]); err != nil {
		return err
	}
	return readAll(fd, one[:])
}

// answer sends back what comes, of one connection after the other, until the
// listener is shut down.
func answer(listener int) {
	for {
		fd, err := accept(listener)
		if err != nil {
			return
		}
		echo(fd)
		unix.Close(fd)
	}
}
