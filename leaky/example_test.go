package leaky_test

import (
	"fmt"
	"time"

	"shaper/leaky"
	"shaper/unit"
)

// A program that drives a bucket by hand needs no clock: Next returns when an item may
// leave, and Take charges it.
func ExampleBucket() {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	now := start
	bucket := leaky.NewBucket(unit.BytesPerSecond(1_000_000))
	for range 4 {
		if next := bucket.Next(now, 0, 1000); next.After(now) {
			now = next // a program would sleep until then
		}
		bucket.Take(start, now, 1000)
		fmt.Println("1000 bytes left after", now.Sub(start))
	}
	// Output:
	// 1000 bytes left after 0s
	// 1000 bytes left after 1ms
	// 1000 bytes left after 2ms
	// 1000 bytes left after 3ms
}

// A provider takes one message every 50 ms and refuses whatever comes sooner after the
// last one.
func ExampleGap() {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	rate, err := unit.ParseRate("20 messages/s")
	if err != nil {
		fmt.Println(err)
		return
	}
	gap := leaky.NewGap(rate)
	gap.Take(start, start, 1)
	gap.Left(start.Add(3*time.Millisecond), start, 1) // when it was on the wire
	fmt.Println("the next one may leave after", gap.Next(start, 0, 1).Sub(start))
	// Output: the next one may leave after 53ms
}

type message struct {
	text  string
	place leaky.Element[message]
}

// What waits brings its own place in the queue. So the queue allocates nothing, and a
// waiter can give up from anywhere in the queue.
func ExampleQueue() {
	queue := leaky.Queue[message]{MaxItems: 2, MaxBytes: 64 << 10}
	offer := func(m *message) {
		m.place = leaky.Element[message]{Value: m, Bytes: int64(len(m.text))}
		if !queue.HasRoom(1, m.place.Bytes) {
			fmt.Println("no room for", m.text)
			return
		}
		queue.Push(&m.place)
	}
	first, second, third := &message{text: "first"}, &message{text: "second"}, &message{text: "third"}
	offer(first)
	offer(second)
	offer(third)
	queue.Remove(&first.place) // it gave up
	fmt.Println("now in front:", queue.Front().Value.text)
	// Output:
	// no room for third
	// now in front: second
}
