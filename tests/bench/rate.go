package main

import (
	"math"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	peers "shaper/tests/trial"
)

// rateKinds set a rate that the machine can reach, and measure how evenly bytes arrive.
func rateKinds() (all []kind) {
	one := []way{haproxy, nginx, htb, shaper}
	for _, r := range []struct {
		name, label string
		bits        float64
		connections int
		ways        []way
	}{
		{"rate1m", "1 Mbit/s", 1e6, 1, one},
		{"rate10m", "10 Mbit/s", 10e6, 1, one},
		{"rate100m", "100 Mbit/s", 100e6, 1, one},
		{"rate1g", "1 Gbit/s", 1e9, 1, one},
		{"rate10g", "10 Gbit/s", 10e9, 1, one},
		{"rateshared", "100 Mbit/s, 64 connections", 100e6, 64, []way{haproxyTable, htb, shaper}},
	} {
		all = append(all, kind{
			name: r.name, group: "rate", label: r.label,
			columns: []column{
				{name: "rate ÷ set", format: "%.4f", higher: true},
				{name: "worst second ÷ set", format: "%.4f"},
				{name: "busiest 10 ms ÷ mean", format: "%.2f", lower: true, plotted: true},
				{name: "CPU ms/s", format: "%.2f", lower: true, ratio: true},
			},
			ways:    r.ways,
			setting: setting{rate: r.bits / 8},
			seconds: 10,
			measure: func(t *trial) ([]float64, error) { return steadyRate(t, r.connections) },
		})
	}
	return all
}

func steadyRate(t *trial, connections int) ([]float64, error) {
	e, err := open(connections, t)
	if err != nil {
		return nil, err
	}
	defer e.close()
	for _, fd := range e.sinks {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1); err != nil {
			return nil, err
		}
	}
	c := &arrivals{}
	f := newFlow(e, c.recorder(e.sinks, int(t.setting.rate/1000)))
	defer f.stop()
	if err := sleep(f.failed, time.Second); err != nil { // the burst at the start is not part of the rate
		return nil, err
	}
	began, s := time.Now(), begin(t.proxy)
	if err := sleep(f.failed, t.length()); err != nil {
		return nil, err
	}
	elapsed, cpu, _ := s.end()
	f.stop()
	bins := c.between(began, began.Add(t.length()))
	mean := sum(bins) / float64(len(bins)) // bytes in a millisecond
	set := t.setting.rate / 1000
	return []float64{mean / set, worst(bins, 1000, set) / set, busiest(bins, 10) / mean, 1000 * cpu / elapsed}, nil
}

// arrivals counts the bytes that arrive in each millisecond. mu guards its fields.
type arrivals struct {
	mu    sync.Mutex
	first int64 // the millisecond of bytes[0], in Unix time
	bytes []float64
}

// recorder returns a function that reads up to size bytes from a sink and counts them at the
// kernel's timestamp, which does not depend on when the sink runs.
func (c *arrivals) recorder(sinks []int, size int) func(int) error {
	buf, control := make([]byte, min(max(size, 1500), 256<<10)), make([]byte, 128)
	return func(i int) error {
		n, m, _, _, err := unix.Recvmsg(sinks[i], buf, control, unix.MSG_DONTWAIT|unix.MSG_TRUNC)
		if err != nil {
			return err
		}
		if n == 0 {
			return errClosed
		}
		c.add(peers.Timestamp(control[:m]), n)
		return nil
	}
}

func (c *arrivals) add(at time.Time, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.bytes == nil {
		c.first = at.UnixMilli()
	}
	i := int(max(at.UnixMilli()-c.first, 0))
	for len(c.bytes) <= i {
		c.bytes = append(c.bytes, 0)
	}
	c.bytes[i] += float64(n)
}

// between returns the bytes in each millisecond from one moment to another.
func (c *arrivals) between(from, to time.Time) []float64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	bins := make([]float64, to.UnixMilli()-from.UnixMilli())
	for i := range bins {
		if at := int(from.UnixMilli()-c.first) + i; at >= 0 && at < len(c.bytes) {
			bins[i] = c.bytes[at]
		}
	}
	return bins
}

// worst splits values into groups of n, and returns the mean that is farthest from set.
func worst(values []float64, n int, set float64) float64 {
	found := set
	for ; len(values) >= n; values = values[n:] {
		if m := sum(values[:n]) / float64(n); math.Abs(m-set) > math.Abs(found-set) {
			found = m
		}
	}
	return found
}

// busiest returns the highest mean of n consecutive values.
func busiest(values []float64, n int) (most float64) {
	window := 0.
	for i, v := range values {
		window += v
		if i >= n {
			window -= values[i-n]
		}
		most = max(most, window)
	}
	return most / float64(n)
}
