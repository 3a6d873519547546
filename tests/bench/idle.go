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

func idle(t *trial) ([]float64, error) {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return nil, err
	}
	n := sessionsWithin(limit.Cur)
	memory, descriptors := t.proxy.memory(), t.proxy.descriptors()
	e, err := open(n, t)
	if err != nil {
		return nil, err
	}
	defer e.close()
	for i := range e.sources {
		if err := roundTrip(e.sources[i], e.sinks[i], make([]byte, 1)); err != nil {
			return nil, fmt.Errorf("session %d: %w", i, err)
		}
	}
	s := begin(t.proxy)
	if err := sleep(nil, t.length()); err != nil {
		return nil, err
	}
	elapsed, cpu, _ := s.end()
	return []float64{
		(t.proxy.memory() - memory) / 1024 / float64(n),
		float64(t.proxy.descriptors()-descriptors) / float64(n),
		memory / (1 << 20),
		1000 * cpu / elapsed,
		float64(n),
	}, nil
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
