package limit_test

import (
	"fmt"
	"time"

	"shaper/limit"
	"shaper/unit"
)

// Two packets may leave at once, then two in a second.
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
