package exchange_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"shaper/exchange"
	"shaper/policy"
	"shaper/shaper"
	"shaper/stats"
)

// departures are the messages that have left, in order.
type departures struct {
	at    []time.Time
	costs []shaper.Cost
}

// A costly follows one message.
type costly struct {
	*departures
	cost shaper.Cost
}

func (d *departures) Found(_ time.Time, f exchange.Found) exchange.Follower { return costly{d, f.Cost} }
func (*departures) Answered(time.Time, uint32)                              {}
func (*departures) Expired(time.Time, time.Time)                            {}

func (c costly) Sent(now time.Time) { c.at, c.costs = append(c.at, now), append(c.costs, c.cost) }

func (costly) Refused(time.Time, stats.Reason) {}
func (costly) Dropped(time.Time, stats.Reason) {}

// submit returns a submit_sm that costs so many units in the classes of this file.
func submit(id, units int) string { return pdu(4, 0, uint32(id), strings.Repeat("x", 4000*units-100)) }

const byParts = "queue = \"500 messages\"\ncost = { bytes = 4000 }\n"

// If a provider has stalled, messages that have lost their turn leave before later ones. Whatever these
// cost, no message leaves sooner than what all before it have cost.
func TestLostTurnsAreNotMadeUpByCheaperOnes(t *testing.T) {
	w := through(t, policy.SMPP, "[class.c]\nrate = \"20 messages/s\"\n"+byParts)
	var left departures
	w.Machine.Watch(&left)
	for id := range 40 {
		w.send(submit(id, 3))
	}
	for id := range 60 {
		w.send(submit(100+id, 1))
	}
	w.Up.Room = 0
	w.wait(3 * time.Second)
	stalled := len(left.at)
	if stalled > 5 || w.Machine.Waiting() < 90 {
		t.Fatalf("%d messages have left, and %d wait", stalled, w.Machine.Waiting())
	}
	w.Up.Room = -1
	w.wait(20 * time.Second)
	if len(left.at) != 100 {
		t.Errorf("%d of 100 messages have left", len(left.at))
	}
	free := left.at[stalled]
	for i := stalled; i < len(left.at); i++ {
		if at := left.at[i]; !at.Equal(free) {
			t.Fatalf("message %d leaves %v after the gap before it has ended", i, at.Sub(free))
		}
		free = left.at[i].Add(time.Duration(left.costs[i].Messages) * 50 * time.Millisecond)
	}
}

// mostBytes is how many bytes may leave at once in the next test: the largest message, and half a quantum.
const mostBytes = 3*4000 + 1460

// However a provider stalls, and whatever the messages cost, no more leaves than the limit allows: in
// units of the class, and in bytes of the class above.
func TestStallsKeepLimits(t *testing.T) {
	for algorithm, exceeds := range map[string]func(*departures) int{
		"algorithm = \"leaky\"":                          exceedsGaps,
		"algorithm = \"token\"\nburst = \"10 messages\"": exceedsBucket,
		"algorithm = \"gcra\"\nburst = \"10 messages\"":  exceedsBucket,
		"algorithm = \"sliding-log\"\nwindow = \"1s\"":   exceedsWindows,
	} {
		for seed := range uint64(40) {
			x := rand.New(rand.NewPCG(seed, 5))
			w := through(t, policy.SMPP, fmt.Sprintf("[class.link]\nrate = \"200KB/s\"\n"+
				"[class.c]\nparent = \"link\"\nrate = \"20 messages/s\"\n%s\n%s", byParts, algorithm))
			var left departures
			w.Machine.Watch(&left)
			stall(w, x)
			if i := exceeds(&left); i >= 0 {
				t.Fatalf("%s, seed %d: message %d leaves too soon", algorithm, seed, i)
			}
			if i := left.exceeds(mostBytes, 200_000, func(c *shaper.Cost) int64 { return c.Bytes }); i >= 0 {
				t.Fatalf("%s, seed %d: message %d leaves before its bytes may", algorithm, seed, i)
			}
			w.Finish(stats.OK)
		}
	}
}

// stall lets messages come while their receiver stalls and goes on.
func stall(w *wire, x *rand.Rand) {
	for id := range 100 {
		switch x.IntN(4) {
		case 0:
			w.wait(time.Duration(x.IntN(500)) * time.Millisecond)
		case 1:
			w.Up.Room = []int{-1, 0, 5000}[x.IntN(3)]
			w.Drive(w.Now)
		default:
			w.send(submit(id, 1+x.IntN(3)))
		}
	}
	w.Up.Room = -1
	w.wait(time.Minute)
}

// exceedsGaps returns the first message that leaves within the gap after another one; -1 if none does.
func exceedsGaps(d *departures) int {
	for i := 1; i < len(d.at); i++ {
		if d.at[i].Sub(d.at[i-1]) < time.Duration(d.costs[i-1].Messages)*50*time.Millisecond {
			return i
		}
	}
	return -1
}

// exceedsBucket returns the first message for which a bucket has too little.
func exceedsBucket(d *departures) int {
	return d.exceeds(10, 20, func(c *shaper.Cost) int64 { return c.Messages })
}

// exceeds is exceedsBucket for a burst and a rate, in a unit.
func (d *departures) exceeds(burst, rate int64, in func(*shaper.Cost) int64) int {
	second := int64(time.Second)
	level := burst * second
	for i := range d.at {
		if i > 0 {
			level = min(level+int64(d.at[i].Sub(d.at[i-1]))*rate, burst*second)
		}
		if level -= in(&d.costs[i]) * second; level < -rate*100 { // it rounds to a nanosecond
			return i
		}
	}
	return -1
}

// exceedsWindows returns the first message with which more than 20 units have left in a second.
func exceedsWindows(d *departures) int {
	for i := range d.at {
		units := int64(0)
		for j := i; j >= 0 && d.at[i].Sub(d.at[j]) < time.Second; j-- {
			units += d.costs[j].Messages
		}
		if units > 20 {
			return i
		}
	}
	return -1
}

// After a stall, what waits leaves at the rate of its class, or of the class above: a turn in which nothing
// leaves costs nothing.
func TestStallsTakeNothingOfTheRate(t *testing.T) {
	const seconds, rate, size = 60, 64_000, 4000
	for name, class := range map[string]string{
		"bytes":           "[class.c]\nrate = \"64KB/s\"\n",
		"bytes, token":    "[class.c]\nrate = \"64KB/s\"\nalgorithm = \"token\"\nburst = \"8KB\"\n",
		"bytes above":     "[class.all]\nrate = \"64KB/s\"\n[class.c]\nparent = \"all\"\nrate = \"1000 messages/s\"\n",
		"bytes above two": "[class.all]\nrate = \"64KB/s\"\n[class.m]\nparent = \"all\"\nrate = \"1MB/s\"\n[class.c]\nparent = \"m\"\nrate = \"1000 messages/s\"\n",
	} {
		x, id := rand.New(rand.NewPCG(1, 6)), 0
		w := through(t, policy.SMPP, class+"queue = \"50 items\"\noverflow = \"wait\"\n")
		send := func() {
			for ; w.Machine.Waiting() < 40; id++ {
				w.send(pdu(4, 0, uint32(id), strings.Repeat("x", x.IntN(size))))
				w.answer(accepted(uint32(id)))
			}
		}
		send()
		w.Up.Room = 0
		w.wait(3 * time.Second)
		w.Up.Room = -1
		w.wait(time.Second)
		before := len(w.Up.Got)
		for range seconds * 20 {
			send()
			w.wait(time.Second / 20)
		}
		if got, want := len(w.Up.Got)-before, seconds*rate; got < want*98/100 || got > want+4*size {
			t.Errorf("%s: %d bytes have left in %d s, want %d", name, got, seconds, want)
		}
		w.Finish(stats.OK)
	}
}

// A message that is sent again may have to take the turn of a later one, which is about to leave. It
// does not leave by the price of that.
func TestRepeatedMessagesPayTheirOwnPrice(t *testing.T) {
	w := through(t, policy.SMPP, "[class.c]\nrate = \"20 messages/s\"\nretry = { max = 3, in_flight = 2 }\non_throttle = { pause = \"1ms\" }\n"+byParts)
	var sizes []int
	var at []time.Time
	w.Up.Heard = func(p []byte) { sizes, at = append(sizes, len(p)), append(at, w.Now) }
	w.send(submit(1, 3))
	w.send(submit(2, 1))
	w.wait(149 * time.Millisecond)
	w.Now = w.Now.Add(time.Millisecond)
	about := w.roots[0].Release(w.Now)
	w.answer(pdu(0x80000004, 0x58, 1, ""))
	about.Owner.Leave(w.Now)
	w.wait(time.Second)
	first, second := len(submit(1, 3)), len(submit(2, 1))
	if want := []int{first, first, second}; !slices.Equal(sizes, want) {
		t.Fatalf("messages of %d bytes have left, want %d", sizes, want)
	}
	if gap := at[2].Sub(at[1]); gap != 150*time.Millisecond {
		t.Errorf("%v after a message of 3 units, the next one leaves", gap)
	}
	w.Finish(stats.OK)
}

// However a provider stalls and however the connection ends, a window has counted what has left, to the unit: in units
// of the class, and in bytes of the class above. Messages whose turn comes when the connection ends have not left.
func TestWindowsCountWhatHasLeft(t *testing.T) {
	const units, bytes = 5000, 5_000_000
	for pace, keys := range map[string]string{
		"leaky": "rate = \"20 messages/s\"\n",
		"token": "rate = \"20 messages/s\"\nalgorithm = \"token\"\nburst = \"10 messages\"\n",
		"retry": "rate = \"20 messages/s\"\nretry = { max = 2, in_flight = 3 }\non_throttle = { pause = \"1ms\" }\n",
		"none":  "rate = \"5000 messages/day\"\nalgorithm = \"fixed-window\"\n",
	} {
		for seed := range uint64(60) {
			x := rand.New(rand.NewPCG(seed, 7))
			algorithm := []string{"fixed-window", "sliding-window", "sliding-log"}[seed%3]
			w := through(t, policy.SMPP, fmt.Sprintf("[class.link]\nrate = \"5MB/day\"\nalgorithm = \"fixed-window\"\n"+
				"[class.c]\nparent = \"link\"\nalso = [{ rate = \"5000 messages/day\", algorithm = %q }]\n%s%s", algorithm, byParts, keys))
			var left departures
			w.Machine.Watch(&left)
			if stall(w, x); seed%2 > 0 {
				w.Up.Room = []int{-1, 0, 3000}[x.IntN(3)]
				w.send(strings.Repeat(submit(1000, 2), 20))
				w.endAmid(x.IntN(4), x.IntN(2) == 0)
			}
			var cost shaper.Cost
			for _, c := range left.costs {
				cost.Messages, cost.Bytes = cost.Messages+c.Messages, cost.Bytes+c.Bytes
			}
			if got := leastRemaining(w, "c"); got != units-cost.Messages {
				t.Fatalf("%s, %s, seed %d: the window has counted %d units, and %d have left", pace, algorithm, seed, units-got, cost.Messages)
			}
			if got := leastRemaining(w, "link"); got != bytes-cost.Bytes {
				t.Fatalf("%s, %s, seed %d: the window has counted %d bytes, and %d have left", pace, algorithm, seed, bytes-got, cost.Bytes)
			}
			w.Finish(stats.OK)
		}
	}
}

// leastRemaining returns what remains of the windows of a class.
func leastRemaining(w *wire, class string) int64 {
	return w.classes[class].Status().Quotas(w.Now)[0].Remaining
}

// endAmid ends the connection, or lets it die, while so many messages have been let go and not had their turns.
func (w *wire) endAmid(n int, dies bool) {
	var about []*shaper.Item
	for range n {
		w.Now = w.Now.Add(time.Second)
		if it := w.roots[0].Release(w.Now); it != nil {
			about = append(about, it)
		}
	}
	if w.Up.Dead = dies; dies {
		w.send(enquire)
	} else {
		w.Finish(stats.OK)
	}
	for _, it := range about {
		it.Owner.Leave(w.Now)
	}
}
