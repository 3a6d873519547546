package main

import (
	"slices"
	"time"
)

const (
	requestText = "GET / HTTP/1.1\r\nHost: sink\r\n\r\n"
	answerText  = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
)

// requestKinds limit HTTP requests by number, and measure the gaps between them.
func requestKinds() (all []kind) {
	for _, perSecond := range []int{100, 1000} {
		all = append(all, gapKind("request", "requests", setting{protocol: "http", number: perSecond}, requests, nginx, shaper))
	}
	return all
}

// requests has clients send one request after the other. Each read is a message: a
// connection carries no second one before the answer.
func requests(t *trial) ([]float64, error) {
	var times []time.Time
	k := &talk{
		answered: func(fd int, _ []byte) error { return writeAll(fd, []byte(requestText)) },
		arrived: func(fd int, _ []byte, at time.Time) error {
			times = append(times, at)
			return writeAll(fd, []byte(answerText))
		},
	}
	s := begin(t.proxy)
	err := k.run(t.length(), func() error {
		for range inFlight {
			if _, err := k.connect(t.port, []byte(requestText)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(times, time.Time.Compare) // the sink reads connections in any order
	return gapFigures(t, times[min(1, len(times)):], s)
}
