package simulate

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"shaper/fleet/fleettest"
	"shaper/unit"
)

// A class with several limits of which none has a window uses the lowest, and keeps to each of them.
func TestFleetOfSeveralSequences(t *testing.T) {
	const leaky20, leaky1500 = leakyShared, "rate = \"1500 messages/s\"\nheadroom = \"2%\"\nshared = \"prod\"\nqueue = \"20000 messages\"\n"
	const burst200 = "rate = \"200 messages/s\"\nalgorithm = \"gcra\"\nburst = \"2 messages\"\nshared = \"prod\"\nqueue = \"20000 messages\"\n"
	for _, c := range []struct {
		name, class, also string
		left              int // in a minute
		gap               time.Duration
		rate, burst       float64
	}{
		{"leaky", leaky20, `{ rate = "600 messages/min", algorithm = "leaky" }`, 600, 98 * time.Millisecond, 10, 1},
		{"faster", leaky20, `{ rate = "3000 messages/min", algorithm = "leaky" }`, 1176, 50 * time.Millisecond, 20, 1},
		{"three", leaky20, `{ rate = "600 messages/min", algorithm = "leaky" }, { rate = "300 messages/min", algorithm = "leaky" }`, 300, 196 * time.Millisecond, 5, 1},
		{"gcra", leaky20, `{ rate = "600 messages/min", algorithm = "gcra", burst = "100 messages" }`, 640, 50 * time.Millisecond, 10, 100},
		{"token", leaky20, `{ rate = "600 messages/min", algorithm = "token", burst = "5 messages" }`, 600, 50 * time.Millisecond, 10, 5},
		{"pair", leaky20, `{ rate = "600 messages/min", algorithm = "gcra", burst = "2 messages" }`, 600, 50 * time.Millisecond, 10, 2},
		{"fast", leaky1500, `{ rate = "1000 messages/s", algorithm = "gcra", burst = "20 messages" }`, 60_000, 660 * time.Microsecond, 1000, 20},
		{"slack", leaky1500, `{ rate = "2000 messages/s", algorithm = "gcra", burst = "20 messages" }`, 88_200, 660 * time.Microsecond, 1500, 1},
		{"bursts", burst200, `{ rate = "6000 messages/min", algorithm = "gcra", burst = "20 messages" }`, 6000, 0, 100, 20},
	} {
		t.Run(c.name, func(t *testing.T) {
			load := "rate=40 messages/s"
			if c.rate >= 100 {
				load = "rate=1700 messages/s"
			}
			span := spanOf(c.rate)
			_, left := playMembers(t, sharedPolicy(t, c.class+"also = ["+c.also+"]\n"), 4, "acme", span, 2*time.Millisecond, load)
			if n, want := len(left), c.left*int(span/time.Second)/60; n < want*98/100 || n > want+int(c.burst) {
				t.Errorf("%d have left in %v, want %d", n, span, want)
			}
			if err := fleettest.Gaps(left, c.gap, 0); err != nil {
				t.Error(err)
			}
			if err := fleettest.Sum(left, c.rate, c.burst+1); err != nil {
				t.Error(err)
			}
		})
	}
}

// A shared class under another one uses its limit if the slots of one of them last.
func TestFleetOfASharedTree(t *testing.T) {
	const above = "parent = \"account\"\nqueue = \"10000 messages\"\nshared = \"prod\"\n[class.account]\nshared = \"prod\"\n"
	const ten = "rate = \"10 messages/s\"\nceil = \"10 messages/s\"\n"
	const gap20, burst20 = above + "rate = \"20 messages/s\"\nheadroom = \"2%\"\n", above + "rate = \"20 messages/s\"\nalgorithm = \"gcra\"\nburst = \"10 messages\"\n"
	for _, c := range []struct {
		name, class string
		gap         time.Duration
		least       int // departures in a minute
	}{
		{"burst under gap", ten + "algorithm = \"gcra\"\nburst = \"5 messages\"\n" + gap20, 50 * time.Millisecond, 588},
		{"window under gap", ten + "algorithm = \"fixed-window\"\n" + gap20, 50 * time.Millisecond, 588},
		{"gap under burst", ten + "headroom = \"1%\"\n" + burst20, 98 * time.Millisecond, 540},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, left := playFleet(t, c.class, 2*time.Millisecond, "rate=40 messages/s")
			if n := len(left); n < c.least || n > 606 {
				t.Errorf("%d have left, want 600", n)
			}
			if err := fleettest.Gaps(left, c.gap, 0); err != nil {
				t.Error(err)
			}
		})
	}
}

// A shared class uses its limit, and keeps its gap, beneath a class of each shaper that is busy with other things. That
// class stays free for a slot.
func TestFleetUnderABusyClass(t *testing.T) {
	for _, line := range []string{"15 messages/s", "20KB/s"} {
		r, left := playFleet(t, `rate = "10 messages/s"
headroom = "2%"
shared = "prod"
parent = "line"
queue = "10000 messages"
[class.line]
rate = "`+line+`"
[class.other]
rate = "1 messages/s"
ceil = "15 messages/s"
parent = "line"
queue = "10000 messages"
[listener.second]
listen = "127.0.0.1:2776"
protocol = "smpp"
upstream = "192.0.2.2:2775"
class = "other"
`, 2*time.Millisecond, "listener=gateway,rate=40 messages/s,size=100B", "listener=second,rate=400 messages/s,size=100B")
		above := r.Classes[slices.IndexFunc(r.Classes, func(c Class) bool { return c.Name == "line" })]
		t.Logf("beneath %s: %d of 600 have left, and %.1f %% of the class above is used", line, len(left), 100*above.Utilisation)
		if err := fleettest.Gaps(left, 100*time.Millisecond, 0); err != nil || len(left) < 520 {
			t.Errorf("beneath %s: %d have left, want 588; %v", line, len(left), err)
		}
	}
}

// A class of each shaper that is slower than the shared class beneath it takes no slots from the others: these use what
// it leaves.
func TestFleetUnderSlowClasses(t *testing.T) {
	for _, c := range []struct {
		name, rate, above, load string
		delay                   time.Duration
		gap                     time.Duration
		left                    int // in a minute: what the classes above let leave, or the shared one
	}{
		{"4 of 20", "20 messages/s", "rate = \"4 messages/s\"", "rate=40 messages/s", 2 * time.Millisecond, 50 * time.Millisecond, 4 * 4 * 60},
		{"4 of 20, far", "20 messages/s", "rate = \"4 messages/s\"", "rate=40 messages/s", 20 * time.Millisecond, 50 * time.Millisecond, 4 * 4 * 60},
		{"1 of 20", "20 messages/s", "rate = \"1 message/s\"", "rate=40 messages/s", 2 * time.Millisecond, 50 * time.Millisecond, 4 * 60},
		{"6 of 20", "20 messages/s", "rate = \"6 messages/s\"", "rate=40 messages/s", 2 * time.Millisecond, 50 * time.Millisecond, 1176},
		{"200 of 1000", "1000 messages/s", "rate = \"200 messages/s\"", "rate=1500 messages/s", 2 * time.Millisecond, time.Millisecond, 4 * 200 * 60},
		{"bursts of 200 of 1000", "1000 messages/s", "rate = \"200 messages/s\"\nalgorithm = \"gcra\"\nburst = \"50 messages\"", "rate=1500 messages/s", 2 * time.Millisecond, time.Millisecond, 4 * 200 * 60},
		{"bursts of 200 of 1000, far", "1000 messages/s", "rate = \"200 messages/s\"\nalgorithm = \"gcra\"\nburst = \"50 messages\"", "rate=1500 messages/s", 20 * time.Millisecond, time.Millisecond, 4 * 200 * 60},
		{"windows of 20 in 100 ms of 1000, far", "1000 messages/s", "rate = \"20 messages/100ms\"\nalgorithm = \"fixed-window\"", "rate=1500 messages/s", 20 * time.Millisecond, time.Millisecond, 4 * 200 * 60},
		{"400 of 1000", "1000 messages/s", "rate = \"400 messages/s\"", "rate=1500 messages/s", 2 * time.Millisecond, time.Millisecond, 980 * 60},
		{"a window, and 4 of 20", "100000 messages/h\"\nalgorithm = \"fixed-window\"\nalso = [{ rate = \"20 messages/s\", algorithm = \"leaky\" }]\n# \"", "rate = \"4 messages/s\"", "rate=40 messages/s", 2 * time.Millisecond, 49 * time.Millisecond, 4 * 4 * 60},
		{"windows of 40 in 10 s of 20", "20 messages/s", "rate = \"40 messages/10s\"\nalgorithm = \"fixed-window\"", "rate=40 messages/s", 2 * time.Millisecond, 50 * time.Millisecond, 4 * 40 * 6},
		{"bytes", "1000 messages/s", "rate = \"20KB/s\"", "rate=1500 messages/s,size=100B", 2 * time.Millisecond, time.Millisecond, 4 * 200 * 60},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := sharedPolicy(t, "rate = \""+c.rate+"\"\nheadroom = \"2%\"\nshared = \"prod\"\nqueue = \"20000 messages\"\nparent = \"line\"\n[class.line]\n"+c.above+"\n")
			span := spanOf(float64(time.Second / c.gap))
			_, left := playMembers(t, p, 4, "acme", span, c.delay, c.load)
			n, want := len(left), c.left*int(span/time.Second)/60
			t.Logf("%d of %d have left in %v, %.1f %%", n, want, span, 100*float64(n)/float64(want))
			if n < want*95/100 || n > want*101/100+4*50 {
				t.Errorf("%d have left in %v, want %d", n, span, want)
			}
			if err := fleettest.Gaps(left, c.gap, 0); err != nil {
				t.Error(err)
			}
		})
	}
}

// Classes of each shaper that are slower than the shared class above them take no slots from the others either, however
// many they are.
func TestFleetAboveSlowClasses(t *testing.T) {
	const ms = time.Millisecond
	const gcra, window, perKey = "\nalgorithm = \"gcra\"\nburst = \"20 messages\"", "\nalgorithm = \"fixed-window\"", "\nper = \"recipient\""
	for _, c := range []struct {
		name          string
		rate          int      // of the shared class
		below         []string // rates of those beneath it, and what else is said of them
		members, keys int
		delay         time.Duration
		left          int // in a minute: what the classes beneath let leave, or the shared one
	}{
		{"4", 20, []string{"rate = \"4 messages/s\""}, 4, 1, 2 * ms, 4 * 4 * 60},
		{"4, far", 20, []string{"rate = \"4 messages/s\""}, 4, 1, 20 * ms, 4 * 4 * 60},
		{"1", 20, []string{"rate = \"1 message/s\""}, 4, 1, 2 * ms, 4 * 60},
		{"6", 20, []string{"rate = \"6 messages/s\""}, 4, 1, 2 * ms, 1176},
		{"2 and 2", 20, []string{"rate = \"2 messages/s\"", "rate = \"2 messages/s\""}, 4, 1, 2 * ms, 4 * 4 * 60},
		{"8 of two", 20, []string{"rate = \"8 messages/s\""}, 2, 1, 2 * ms, 2 * 8 * 60},
		{"4 and 4 of two", 20, []string{"rate = \"4 messages/s\"", "rate = \"4 messages/s\""}, 2, 1, 2 * ms, 2 * 8 * 60},
		{"bursts", 20, []string{"rate = \"4 messages/s\"" + gcra}, 4, 1, 2 * ms, 4 * (4*60 + 19)},
		{"windows", 20, []string{"rate = \"40 messages/10s\"" + window}, 4, 1, 2 * ms, 4 * 40 * 6},
		{"40 keys", 20, []string{"rate = \"6 messages/min\"" + perKey}, 4, 40, 2 * ms, 4 * 40 * 6},
		{"200", 1000, []string{"rate = \"200 messages/s\""}, 4, 1, 2 * ms, 4 * 200 * 60},
		{"bursts of 200, far", 1000, []string{"rate = \"200 messages/s\"" + gcra}, 4, 1, 20 * ms, 4 * 200 * 60},
		{"small bursts, far", 1000, []string{"rate = \"200 messages/s\"\nalgorithm = \"gcra\"\nburst = \"5 messages\""}, 4, 1, 10 * ms, 4 * 200 * 60},
		{"400", 1000, []string{"rate = \"400 messages/s\""}, 4, 1, 2 * ms, 980 * 60},
		{"100 and 100", 1000, []string{"rate = \"100 messages/s\"", "rate = \"100 messages/s\""}, 4, 1, 2 * ms, 4 * 200 * 60},
		{"400 of two", 1000, []string{"rate = \"400 messages/s\""}, 2, 1, 2 * ms, 2 * 400 * 60},
		{"bytes", 1000, []string{"rate = \"20KB/s\""}, 4, 1, 2 * ms, 4 * 200 * 60},
	} {
		t.Run(fmt.Sprintf("%s of %d", c.name, c.rate), func(t *testing.T) {
			class := fmt.Sprintf("rate = \"%d messages/s\"\nheadroom = \"2%%\"\nshared = \"prod\"\nqueue = \"20000 messages\"\n", c.rate)
			var loads []string
			for i, below := range c.below {
				class += fmt.Sprintf("[class.part%d]\n%s\nparent = \"acme\"\nqueue = \"20000 items\"\n", i, below)
				class += fmt.Sprintf("[listener.part%d]\nlisten = \"127.0.0.1:%d\"\nprotocol = \"smpp\"\nupstream = \"192.0.2.2:2775\"\nclass = \"part%d\"\n", i, 3000+i, i)
				for key := range c.keys {
					loads = append(loads, fmt.Sprintf("listener=part%d,rate=%d messages/min,size=100B,recipient=%d", i, 2*60*c.rate/c.keys, 4470+key))
				}
			}
			span := spanOf(float64(c.rate))
			_, left := playMembers(t, sharedPolicy(t, class), c.members, "", span, c.delay, loads...)
			n, want := len(left), c.left*int(span/time.Second)/60
			t.Logf("%d of %d have left in %v, %.1f %%", n, want, span, 100*float64(n)/float64(want))
			if n < want*95/100 || n > want*101/100 {
				t.Errorf("%d have left in %v, want %d", n, span, want)
			}
			if err := fleettest.Gaps(left, time.Second/time.Duration(c.rate), 0); err != nil {
				t.Error(err)
			}
		})
	}
}

// A store at a distance costs a busy fleet little, if the deadline of calls is three times as long as they take. At a
// low rate, 1.3 times do.
func TestFleetAtADistance(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		rate, load           string
		delay, deadline, gap time.Duration
		least                float64
	}{
		{"20 messages/s", "rate=30 messages/s", 20 * ms, 50 * ms, 50900 * time.Microsecond, 0.97},
		{"20 messages/s", "rate=30 messages/s", 39 * ms, 50 * ms, 50900 * time.Microsecond, 0.97},
		{"20 messages/s", "rate=30 messages/s", 100 * ms, 250 * ms, 50900 * time.Microsecond, 0.97},
		{"1000 messages/s", "rate=1500 messages/s", 15 * ms, 50 * ms, time.Millisecond, 0.97},
		{"1000 messages/s", "rate=1500 messages/s", 20 * ms, 50 * ms, time.Millisecond, 0.9},
		{"1000 messages/s", "rate=1500 messages/s", 33 * ms, 100 * ms, time.Millisecond, 0.97},
		{"1000 messages/s", "rate=1500 messages/s", 50 * ms, 250 * ms, time.Millisecond, 0.97},
		{"1000 messages/s", "rate=1500 messages/s", 100 * ms, 250 * ms, time.Millisecond, 0.9},
	} {
		p := sharedPolicy(t, "rate = \""+c.rate+"\"\nheadroom = \"2%\"\nshared = \"prod\"\nqueue = \"20000 messages\"\n")
		p.Fleets[0].Deadline = unit.Duration(c.deadline)
		r, left := playMembers(t, p, 4, "acme", 2*spanOf(float64(time.Second/c.gap)), c.delay, c.load) // the beginning costs more
		if used := r.Classes[0].Utilisation; used < c.least || used > 0.981 {
			t.Errorf("%s, store %v away: %.1f %% of the limit is used", c.rate, c.delay, 100*used)
		}
		if err := fleettest.Gaps(left, c.gap, 0); err != nil { // members know the store's clock to half of the way
			t.Errorf("%s, store %v away: %v", c.rate, c.delay, err)
		}
	}
}

// Calls for one key do not wait for those of other keys, so that a store at a distance serves many of them.
func TestFleetOfManyKeysAtADistance(t *testing.T) {
	var loads []string
	for i := range 40 {
		loads = append(loads, fmt.Sprintf("rate=6 messages/s,recipient=%d", 4470+i))
	}
	_, left := playFleet(t, "rate = \"4 messages/s\"\nper = \"recipient\"\nshared = \"prod\"\nheadroom = \"2%\"\nqueue = \"20000 messages\"\n", 20*time.Millisecond, loads...)
	if n := len(left); n < 40*60*4*95/100 || n > 40*60*4 {
		t.Errorf("of 40 keys with 4 messages/s, %d messages leave in a minute, want %d", n, 40*60*4)
	}
}
