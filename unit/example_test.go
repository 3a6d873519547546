package unit_test

import (
	"fmt"
	"time"

	"shaper/unit"
)

func ExampleParseRate() {
	for _, text := range []string{"20mbit", "64KiB/s", "20000 messages/15min", "30"} {
		r, err := unit.ParseRate(text)
		if err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Printf("%v is %.2f %v per second\n", r, r.PerSecond(), r.Kind())
	}
	// Output:
	// 20mbit is 2500000.00 bytes per second
	// 64KiB/s is 65536.00 bytes per second
	// 20000 messages/15min is 22.22 messages per second
	// "30" is not a rate: it has no unit; a rate is like "20mbit", "64KiB/s", "200 packets/s" or "120 connections/min"
}

// The time of an item is rounded up, so that pacing by it is never too fast.
func ExampleRate_Time() {
	r := unit.NewRate(unit.Messages, 30, time.Second)
	fmt.Println(r.Time(1), r.Time(30), r.Time(90))
	// Output:
	// 33.333334ms 1s 3s
}

func ExampleRate_Units() {
	r := unit.BytesPerSecond(1_000_000)
	fmt.Println(r.Units(time.Millisecond), r.Units(time.Hour))
	// Output:
	// 1000 3600000000
}

// Headroom helps with providers that refuse items closer together than the rate says.
func ExampleRate_Below() {
	r := unit.NewRate(unit.Messages, 30, time.Second)
	headroom, _ := unit.ParsePercent("3%")
	fmt.Println(r.Below(headroom))
	// Output:
	// 29.1 messages/s
}

func ExampleParseSize() {
	n, _ := unit.ParseSize("64KiB")
	fmt.Println(n, int64(n))
	// Output:
	// 64KiB 65536
}
