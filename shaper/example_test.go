package shaper_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"shaper/policy"
	"shaper/shaper"
	"shaper/unit"
)

// A program drives a class by hand. Times are arguments, so simulating a day takes no
// longer than the arithmetic.
func ExampleClass() {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	conf := policy.DefaultClass("acme")
	conf.Rate = unit.NewRate(unit.Messages, 10, time.Second)
	class := shaper.NewClass(start, conf)

	now := start
	for i := range 4 {
		verdict := class.Enter(now, &shaper.Item{Cost: shaper.Cost{Messages: 1}})
		fmt.Println("message", i, "leaves at once:", verdict == shaper.Leaves)
	}
	now = class.Next(now)
	for it := class.Release(now); it != nil; it = class.Release(now) {
		fmt.Println("a message leaves after", now.Sub(start))
		it.Left(now)
		now = class.Next(now)
	}
	// Output:
	// message 0 leaves at once: true
	// message 1 leaves at once: false
	// message 2 leaves at once: false
	// message 3 leaves at once: false
	// a message leaves after 100ms
	// a message leaves after 200ms
	// a message leaves after 300ms
}

// A program tells a class what its provider answers. After "too fast" the class pauses, and
// says so to whoever asks.
func ExampleProvider() {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	conf := policy.DefaultClass("acme")
	conf.Rate = unit.NewRate(unit.Messages, 10, time.Second)
	class := shaper.NewClass(now, conf)
	message := shaper.Cost{Messages: 1}

	first := &shaper.Item{Cost: message, Asks: true}
	class.Enter(now, first) // it leaves at once
	first.Left(now)
	class.Provider().Throttled(now, 3*time.Second, "429")
	class.Provider().Answered(now, false)

	class.Enter(now, &shaper.Item{Cost: message, Asks: true})
	position, wait := class.Estimate().Place(now, message)
	fmt.Println("the next message would be number", position, "in the queue, and leave after", wait)
	fmt.Println("the class waits because of", class.Status().Waits(now).Limit)
	// Output:
	// the next message would be number 2 in the queue, and leave after 3.1s
	// the class waits because of on_throttle
}

// Two classes share what their parent allows. Each first gets what it is assured. The rest
// goes to the class of the better priority.
func ExampleNewTree() {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	perSecond := func(n int64) unit.Rate { return unit.NewRate(unit.Messages, n, time.Second) }
	account, urgent, bulk := policy.DefaultClass("account"), policy.DefaultClass("urgent"), policy.DefaultClass("bulk")
	account.Rate = perSecond(30)
	urgent.Parent, urgent.Rate, urgent.Ceil, urgent.Priority = "account", perSecond(10), perSecond(30), 0
	bulk.Parent, bulk.Rate, bulk.Ceil = "account", perSecond(5), perSecond(30)
	classes := shaper.NewTree(start, []policy.Class{account, urgent, bulk})

	for _, class := range classes[1:] {
		for range 1000 {
			class.Enter(start, &shaper.Item{Cost: shaper.Cost{Messages: 1}})
		}
	}
	tree := classes[0]
	for now := tree.Next(start); now.Before(start.Add(10 * time.Second)); now = tree.Next(now) {
		tree.Release(now)
	}
	for _, class := range classes[1:] {
		left := 1000 - class.Backlog().Items
		fmt.Println(class.Name(), "sent about", (left+5)/10, "messages/s")
	}
	// Output:
	// urgent sent about 25 messages/s
	// bulk sent about 5 messages/s
}

// A goroutine waits by the real clock.
func ExampleWaiter() {
	s := shaper.New()
	defer s.Close()
	conf := policy.DefaultClass("acme")
	conf.Rate = unit.NewRate(unit.Messages, 200, time.Second)
	s.Apply([]policy.Class{conf})

	waiter := shaper.NewWaiter(s.Class("acme"))
	begin := time.Now()
	for range 3 {
		if err := waiter.Wait(context.Background(), shaper.Cost{Messages: 1}, false); err != nil {
			fmt.Println(err)
		}
		// The program hands over a message here.
	}
	fmt.Println("two gaps of 5 ms have passed:", time.Since(begin) >= 10*time.Millisecond)
	// Output: two gaps of 5 ms have passed: true
}

// An item takes time to leave. The class waits for that, so the next item keeps its
// distance however long it takes.
func ExampleWaiter_Do() {
	s := shaper.New()
	defer s.Close()
	conf := policy.DefaultClass("uplink")
	conf.Rate = unit.BytesPerSecond(1_000_000)
	s.Apply([]policy.Class{conf})

	waiter := shaper.NewWaiter(s.Class("uplink"))
	in, out := strings.NewReader("what a client has sent"), os.Stdout
	piece := make([]byte, waiter.Class().Piece())
	for busy := false; ; busy = true {
		n, err := in.Read(piece)
		if err == io.EOF {
			break
		}
		err = waiter.Do(context.Background(), shaper.Cost{Bytes: int64(n)}, busy, func() error {
			_, err := out.Write(piece[:n])
			return err
		})
		if err != nil {
			fmt.Println(err)
		}
	}
	// Output: what a client has sent
}
