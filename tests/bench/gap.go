package main

import (
	"errors"
	"fmt"
	"math"
	"time"

	"golang.org/x/sys/unix"

	peers "shaper/tests/trial"
)

// inFlight is the number of datagrams between source and sink. It keeps a datagram waiting in
// the class at all times.
const inFlight = 50

// gapKinds limit datagrams by number, and measure the gaps between them.
func gapKinds() (all []kind) {
	for _, perSecond := range []int{10, 100, 1000, 5000} {
		all = append(all, gapKind("gap", "packets", setting{protocol: "udp", number: perSecond}, gaps, shaper))
	}
	return all
}

// gapKind returns a kind of work of which measure returns gapFigures.
func gapKind(group, items string, s setting, measure func(*trial) ([]float64, error), ways ...way) kind {
	return kind{
		name: fmt.Sprint(group, s.number), group: group, label: number("%.0f", float64(s.number)) + " " + items + "/s",
		columns: []column{
			{name: "rate ÷ set", format: "%.5f", higher: true},
			{name: "gaps", format: "%.0f"},
			{name: "too short", format: "%.0f", lower: true},
			{name: "shortest ÷ set", format: "%.4f"},
			{name: "p50 off by µs", format: "%.1f", lower: true},
			{name: "p99 off by µs", format: "%.1f", lower: true, plotted: true},
			{name: "CPU µs each", format: "%.1f", lower: true},
		},
		ways:    ways,
		setting: s,
		seconds: 10,
		measure: measure,
	}
}

func gaps(t *trial) ([]float64, error) {
	sink, err := bindUDP()
	if err != nil {
		return nil, err
	}
	defer unix.Close(sink)
	source, err := connectUDP(t.port)
	if err != nil {
		return nil, err
	}
	defer unix.Close(source)
	err = errors.Join(
		setTimeout(sink),
		unix.SetsockoptInt(sink, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1))
	if err != nil {
		return nil, err
	}
	s := begin(t.proxy)
	times, err := arrivalTimes(source, sink, t.length())
	if err != nil {
		return nil, err
	}
	return gapFigures(t, times, s)
}

// gapFigures returns the values of all columns of gapKind, after s began.
func gapFigures(t *trial, times []time.Time, s span) ([]float64, error) {
	_, cpu, _ := s.end()
	if len(times) < 3 {
		return nil, fmt.Errorf("only %d items arrived: too few to measure gaps", len(times))
	}
	return append(gapValues(times, 1/float64(t.setting.number)), cpu*1e6/float64(len(times))), nil
}

// arrivalTimes sends a datagram for each one that arrives, and returns the arrival times. It
// omits the first datagram, which finds the class idle.
func arrivalTimes(source, sink int, length time.Duration) (times []time.Time, err error) {
	var payload [32]byte
	buf, control := make([]byte, 64), make([]byte, 128)
	for range inFlight {
		if err := writeAll(source, payload[:]); err != nil {
			return nil, err
		}
	}
	for began := time.Now(); time.Since(began) < length; {
		n := 0
		err := retryInterrupted(func() (err error) {
			_, n, _, _, err = unix.Recvmsg(sink, buf, control, 0)
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("waiting for a datagram: %w", err)
		}
		times = append(times, peers.Timestamp(control[:n]))
		if err := writeAll(source, payload[:]); err != nil {
			return nil, err
		}
	}
	return times[1:], nil
}

// gapValues compares the gaps between arrivals with the gap that was set, in seconds. It
// returns the values of the first six columns of gapKind.
func gapValues(times []time.Time, set float64) []float64 {
	var off []float64 // µs
	short, shortest := 0., math.Inf(1)
	for i := 1; i < len(times); i++ {
		gap := times[i].Sub(times[i-1]).Seconds()
		off = append(off, 1e6*math.Abs(gap-set))
		shortest = min(shortest, gap)
		if gap < set {
			short++
		}
	}
	reached := float64(len(off)) / times[len(times)-1].Sub(times[0]).Seconds()
	return []float64{reached * set, float64(len(off)), short, shortest / set, percentile(off, 50), percentile(off, 99)}
}
