package main

import (
	"fmt"
	"syscall"
)

const (
	idleSessions      = 10_000
	enoughDescriptors = 100_000
)

// idleKinds hold sessions open that have carried a byte each way, and now carry nothing.
func idleKinds() []kind {
	return []kind{{
		name: "idle", group: "idle", label: "used once",
		columns: []column{
			{name: "KiB each", format: "%.2f", lower: true, ratio: true, plotted: true},
			{name: "descriptors each", format: "%.2f", lower: true},
			{name: "MiB before", format: "%.1f", lower: true},
			{name: "CPU ms/s", format: "%.2f", lower: true},
			{name: "sessions", format: "%.0f"},
		},
		ways:    []way{haproxy, nginx, shaper},
		seconds: 5,
		measure: idle,
	}}
}

// idle measures the memory of a session as a slope. It opens half of the sessions first: with them comes
// what a proxy takes once, such as what its first garbage collection reads, and the pools of its sockets.
// What it takes for the others, divided by their number, is the memory of one.
func idle(t *trial) ([]float64, error) {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return nil, err
	}
	before := t.proxy.memory()
	half := sessionsWithin(limit.Cur) / 2
	first, err := openUsed(half, t)
	if err != nil {
		return nil, err
	}
	defer first.close()
	memory, descriptors := t.proxy.memory(), t.proxy.descriptors()
	others, err := openUsed(half, t)
	if err != nil {
		return nil, err
	}
	defer others.close()
	s := begin(t.proxy)
	if err := sleep(nil, t.length()); err != nil {
		return nil, err
	}
	elapsed, cpu, _ := s.end()
	return []float64{
		(t.proxy.memory() - memory) / 1024 / float64(half),
		float64(t.proxy.descriptors()-descriptors) / float64(half),
		before / (1 << 20),
		1000 * cpu / elapsed,
		float64(2 * half),
	}, nil
}

// openUsed opens n sessions, each of which carries a byte each way.
func openUsed(n int, t *trial) (*ends, error) {
	e, err := open(n, t)
	if err != nil {
		return nil, err
	}
	for i := range e.sources {
		if err := roundTrip(e.sources[i], e.sinks[i], make([]byte, 1)); err != nil {
			e.close()
			return nil, fmt.Errorf("session %d: %w", i, err)
		}
	}
	return e, nil
}

// allowDescriptors raises the limit of descriptors for this process and the proxies, which
// need two descriptors for each session.
func allowDescriptors() error {
	limit := syscall.Rlimit{Cur: enoughDescriptors, Max: enoughDescriptors}
	if syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit) == nil {
		return nil
	}
	// In some containers not even root may raise the hard limit.
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return err
	}
	limit.Cur = limit.Max
	return syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit)
}

// sessionsWithin returns the number of sessions to open under a limit of descriptors.
func sessionsWithin(limit uint64) int {
	const others = 500 // descriptors that belong to no session
	return min(idleSessions, int(max(limit, others)-others)/2)
}
