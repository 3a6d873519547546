package main

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

const roundTrips = 20_000

// rttKinds ask small questions over one connection, one at a time.
func rttKinds() []kind {
	return []kind{{
		name: "rtt", group: "rtt", label: "100 bytes each way",
		columns: []column{
			{name: "p50 µs", format: "%.1f", lower: true, ratio: true},
			{name: "p99 µs", format: "%.1f", lower: true, ratio: true},
			{name: "CPU µs", format: "%.1f", lower: true},
		},
		ways:    []way{direct, haproxy, nginx, shaper},
		measure: rtt,
	}}
}

func rtt(t *trial) ([]float64, error) {
	e, err := open(1, t.port)
	if err != nil {
		return nil, err
	}
	source, sink := e.sources[0], e.sinks[0]
	if err := noDelay(sink); err != nil {
		return nil, err
	}
	ended := make(chan error, 1)
	go func() { ended <- echo(sink) }()
	times, cpu, err := ask(t, source)
	unix.Shutdown(source, unix.SHUT_RDWR)
	err = errors.Join(err, <-ended)
	e.close()
	if err != nil {
		return nil, err
	}
	return []float64{percentile(times, 50), percentile(times, 99), cpu * 1e6 / roundTrips}, nil
}

// ask returns how many µs each answer took, and what the proxy spent on all.
func ask(t *trial, source int) (times []float64, cpu float64, err error) {
	for range roundTrips / 20 { // until caches are warm
		if err := askOnce(source); err != nil {
			return nil, 0, err
		}
	}
	s := begin(t.proxy)
	for range roundTrips {
		began := time.Now()
		if err := askOnce(source); err != nil {
			return nil, 0, err
		}
		times = append(times, time.Since(began).Seconds()*1e6)
	}
	_, cpu, _ = s.end()
	return times, cpu, nil
}

func askOnce(fd int) error {
	var message [100]byte
	if err := writeAll(fd, message[:]); err != nil {
		return err
	}
	return readAll(fd, message[:])
}
