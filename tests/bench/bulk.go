package main

import (
	"errors"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// bulkKinds send as much as goes through.
func bulkKinds() []kind {
	k := kind{
		group: "bulk",
		columns: []column{
			{name: "Gbit/s", format: "%.1f", ratio: true},
			{name: "CPU s/GB", format: "%.3f", lower: true, ratio: true},
			{name: "fairness", format: "%.3f"},
			{name: "load busy", format: "%.0f %%"},
		},
		ways:    []way{direct, haproxy, haproxy64, haproxy256, haproxyFree, nginx, nginx64, nginx256, shaper, shaperNobody},
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
	e, err := open(connections, t.port)
	if err != nil {
		return nil, err
	}
	defer e.close()
	f := newFlow(e)
	defer f.stop()
	if err := pass(f.failed, t.length()/6); err != nil { // until windows and buffers have grown
		return nil, err
	}
	before, s := f.received(), begin(t.proxy)
	if err := pass(f.failed, t.length()); err != nil {
		return nil, err
	}
	elapsed, cpu, load := s.end()
	shares := f.received()
	total := 0.
	for i := range shares {
		shares[i] -= before[i]
		total += shares[i]
	}
	return []float64{8 * total / elapsed / 1e9, cpu / (total / 1e9), jain(shares), 100 * load / elapsed}, nil
}

// flow is bytes on their way over connections, as fast as they go.
type flow struct {
	counts  []atomic.Int64 // what the sink has got, of each connection
	stopped atomic.Bool
	failed  chan error
	loops   sync.WaitGroup
}

func newFlow(e *ends) *flow {
	f := &flow{counts: make([]atomic.Int64, len(e.sinks)), failed: make(chan error, 2)}
	f.loops.Go(func() { f.note(f.send(e.sources)) })
	f.loops.Go(func() { f.note(f.receive(e.sinks)) })
	return f
}

func (f *flow) note(err error) {
	if err != nil {
		f.failed <- err
	}
}

// stop ends source and sink.
func (f *flow) stop() {
	f.stopped.Store(true)
	f.loops.Wait()
}

// send writes to whichever takes more. Pages of a file would spare it the
// copying, but arrive in pieces so small that all that follows costs more.
func (f *flow) send(fds []int) error {
	piece := make([]byte, 256<<10)
	for _, fd := range fds {
		if err := unix.SetNonblock(fd, true); err != nil {
			return err
		}
	}
	return poll(fds, unix.EPOLLOUT, &f.stopped, func(i int) error {
		_, err := unix.Write(fds[i], piece)
		return err
	})
}

// receive has the kernel throw away what came, which spares the sink the
// copying.
func (f *flow) receive(fds []int) error {
	buf := make([]byte, 1<<20)
	return poll(fds, unix.EPOLLIN, &f.stopped, func(i int) error {
		n, _, err := unix.Recvfrom(fds[i], buf, unix.MSG_DONTWAIT|unix.MSG_TRUNC)
		if err == nil && n == 0 {
			return errors.New("the connection was closed on its way")
		}
		f.counts[i].Add(int64(max(n, 0)))
		return err
	})
}

func (f *flow) received() []float64 {
	all := make([]float64, len(f.counts))
	for i := range f.counts {
		all[i] = float64(f.counts[i].Load())
	}
	return all
}
