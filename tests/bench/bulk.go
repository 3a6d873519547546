package main

import (
	"errors"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// bulkKinds send as many bytes as possible.
func bulkKinds() []kind {
	k := kind{
		group: "bulk",
		columns: []column{
			{name: "Gbit/s", format: "%.1f", ratio: true, plotted: true},
			{name: "CPU s/GB", format: "%.3f", lower: true, ratio: true},
			{name: "fairness", format: "%.3f", higher: true},
			{name: "load busy", format: "%.0f %%"},
		},
		ways:    []way{direct, haproxy, haproxy64, haproxy256, haproxyFree, nginx, nginx64, nginx256, shaper, shaperNobody, shaperSOCKS, shaperCONNECT},
		seconds: 3,
	}
	one, many := k, k
	one.name, one.label = "bulk1", "1 connection"
	one.measure = func(t *trial) ([]float64, error) { return bulk(t, 1) }
	many.name, many.label = "bulk64", "64 connections"
	many.measure = func(t *trial) ([]float64, error) { return bulk(t, 64) }
	return []kind{one, many}
}

func bulk(t *trial, connections int) ([]float64, error) {
	e, err := open(connections, t)
	if err != nil {
		return nil, err
	}
	defer e.close()
	received := make([]atomic.Int64, connections)
	buf := make([]byte, 1<<20)
	f := newFlow(e, func(i int) error {
		// MSG_TRUNC makes the kernel discard the bytes, so that the sink does not copy them.
		n, _, err := unix.Recvfrom(e.sinks[i], buf, unix.MSG_DONTWAIT|unix.MSG_TRUNC)
		if err == nil && n == 0 {
			return errClosed
		}
		received[i].Add(int64(max(n, 0)))
		return err
	})
	defer f.stop()
	if err := sleep(f.failed, t.length()/6); err != nil { // windows and buffers grow first
		return nil, err
	}
	before, s := loaded(received), begin(t.proxy)
	if err := sleep(f.failed, t.length()); err != nil {
		return nil, err
	}
	elapsed, cpu, load := s.end()
	shares := loaded(received)
	for i := range shares {
		shares[i] -= before[i]
	}
	total := sum(shares)
	return []float64{8 * total / elapsed / 1e9, cpu / (total / 1e9), jain(shares), 100 * load / elapsed}, nil
}

func loaded(counts []atomic.Int64) []float64 {
	all := make([]float64, len(counts))
	for i := range counts {
		all[i] = float64(counts[i].Load())
	}
	return all
}

// flow sends bytes over connections as fast as it can, until stop.
type flow struct {
	stopped atomic.Bool
	failed  chan error
	loop    sync.WaitGroup
}

// newFlow starts a flow over the connections e. Its goroutine calls arrived(i) if sink i has
// bytes to read, and sends its first error to failed.
func newFlow(e *ends, arrived func(i int) error) *flow {
	f := &flow{failed: make(chan error, 1)}
	f.loop.Go(func() {
		if err := f.run(e, arrived); err != nil {
			f.failed <- err
		}
	})
	return f
}

func (f *flow) run(e *ends, arrived func(i int) error) error {
	set, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return err
	}
	defer unix.Close(set)
	n := len(e.sources)
	for i := range n {
		err := errors.Join(
			unix.SetNonblock(e.sources[i], true),
			watch(set, e.sources[i], unix.EPOLLOUT, i),
			watch(set, e.sinks[i], unix.EPOLLIN, n+i))
		if err != nil {
			return err
		}
	}
	piece := make([]byte, 256<<10)
	return wait(set, &f.stopped, func(id int) error {
		if id >= n {
			return arrived(id - n)
		}
		// sendfile(2) would not copy, but its pieces are so small that everything behind it
		// costs more.
		_, err := unix.Write(e.sources[id], piece)
		return err
	})
}

// stop ends the flow and waits for its goroutine.
func (f *flow) stop() {
	f.stopped.Store(true)
	f.loop.Wait()
}
