package main

import "time"

const roundTrips = 20_000

// rttKinds returns the kind of work that measures round trips of small messages over one
// connection, one after the other.
func rttKinds() []kind {
	return []kind{{
		name: "rtt", group: "rtt", label: "100 bytes each way",
		columns: []column{
			{name: "p50 µs", format: "%.1f", lower: true, ratio: true, plotted: true},
			{name: "p99 µs", format: "%.1f", lower: true, ratio: true},
			{name: "CPU µs", format: "%.1f", lower: true},
		},
		ways:    []way{direct, haproxy, nginx, shaper, shaperSOCKS, shaperCONNECT},
		measure: rtt,
	}}
}

func rtt(t *trial) ([]float64, error) {
	e, err := open(1, t)
	if err != nil {
		return nil, err
	}
	defer e.close()
	source, sink := e.sources[0], e.sinks[0]
	if err := noDelay(sink); err != nil {
		return nil, err
	}
	message := make([]byte, 100)
	for range roundTrips / 20 { // warm the caches
		if err := roundTrip(source, sink, message); err != nil {
			return nil, err
		}
	}
	s := begin(t.proxy)
	var times []float64 // µs
	for range roundTrips {
		began := time.Now()
		if err := roundTrip(source, sink, message); err != nil {
			return nil, err
		}
		times = append(times, time.Since(began).Seconds()*1e6)
	}
	_, cpu, _ := s.end()
	return []float64{percentile(times, 50), percentile(times, 99), cpu * 1e6 / roundTrips}, nil
}
