package limit_test

import (
	"fmt"
	"time"

	"shaper/limit"
	"shaper/unit"
)

// Two packets may leave at once, then two each second.
func ExampleToken() {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	now := start
	bucket := limit.NewToken(now, unit.NewRate(unit.Packets, 2, time.Second), 2)
	for range 4 {
		if next := bucket.Next(now, 0, 1); next.After(now) {
			now = next // a program would sleep until then
		}
		bucket.Take(now, now, 1)
		fmt.Println("a packet left after", now.Sub(start))
	}
	// Output:
	// a packet left after 0s
	// a packet left after 0s
	// a packet left after 500ms
	// a packet left after 1s
}

// Cells may come early as long as the early ones do not exceed the burst.
func ExampleGCRA() {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	cells := limit.NewGCRA(start, unit.NewRate(unit.Packets, 100, time.Second), 3)
	for range 5 {
		at := start
		if next := cells.Next(start, 0, 1); next.After(start) {
			at = next
		}
		cells.Take(at, at, 1)
		fmt.Println("a cell left after", at.Sub(start))
	}
	// Output:
	// a cell left after 0s
	// a cell left after 0s
	// a cell left after 0s
	// a cell left after 10ms
	// a cell left after 20ms
}

// An API counts requests in each minute of the clock. All of them leave at half past the
// minute, so the next one waits for half a minute.
func ExampleFixedWindow() {
	now := time.Date(2026, 1, 1, 12, 0, 30, 0, time.UTC)
	api := limit.NewFixedWindow(now, unit.NewRate(unit.Messages, 120, time.Minute), time.Minute)
	api.Take(now, now, 120)
	fmt.Println("retry after", api.Next(now, 0, 1).Sub(now))
	// Output: retry after 30s
}

// A policer refuses what may not leave at once, and says when to retry.
func ExampleSlidingLog() {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	log := limit.NewSlidingLog(start, unit.NewRate(unit.Messages, 2, time.Second), time.Second)
	for _, ms := range []time.Duration{0, 400, 900, 1100} {
		now := start.Add(ms * time.Millisecond)
		if next := log.Next(now, 0, 1); next.After(now) {
			fmt.Println(now.Sub(start), "refused, retry after", next.Sub(now))
			continue
		}
		log.Take(now, now, 1)
		fmt.Println(now.Sub(start), "allowed")
	}
	// Output:
	// 0s allowed
	// 400ms allowed
	// 900ms refused, retry after 100ms
	// 1.1s allowed
}

// 80 left in the minute before, and 30 in this one, 24 seconds of which are over. They
// count as 78, so of 100, 22 more may leave at once.
func ExampleSlidingWindow() {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	window := limit.NewSlidingWindow(start, unit.NewRate(unit.Messages, 100, time.Minute), time.Minute)
	window.Take(start, start, 80)
	now := start.Add(84 * time.Second)
	window.Take(now, now, 30)
	fmt.Println("22 more:", !window.Next(now, 0, 22).After(now))
	fmt.Println("23 more: in", window.Next(now, 0, 23).Sub(now))
	// Output:
	// 22 more: true
	// 23 more: in 750ms
}
