package simulate

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"shaper/fleet/fleettest"
	"shaper/policy"
	"shaper/tests/trial"
	"shaper/unit"
)

// sharedPolicy is a policy with a shared class acme.
func sharedPolicy(t *testing.T, class string) *policy.Policy {
	t.Helper()
	return parse(t, policyOf(class))
}

func policyOf(class string) string {
	return fmt.Sprintf(`
[fleet.prod]
address = "192.0.2.1:6379"
[class.acme]
%s
[listener.gateway]
listen = "127.0.0.1:2775"
protocol = "smpp"
upstream = "192.0.2.2:2775"
class = "acme"
`, class)
}

// leakyShared is a class of 20 messages a second: departures are 51.02 ms apart.
const leakyShared = "rate = \"20 messages/s\"\nheadroom = \"2%\"\nshared = \"prod\"\nqueue = \"10000 messages\"\n"

// dealt returns the arrivals of each member of a fleet.
func dealt(t *testing.T, p *policy.Policy, members int, seed uint64, texts ...string) (all [][]Source) {
	t.Helper()
	var list []Load
	for _, text := range texts {
		l, err := ParseLoad(text)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, l)
	}
	for i := range members {
		sources, err := Sources(p, list, seed)
		if err != nil {
			t.Fatal(err)
		}
		for s := range sources {
			sources[s] = Deal(sources[s], i, members)
		}
		all = append(all, sources)
	}
	return all
}

// playFleet runs a fleet of four for a minute. It returns the report, and all departures of the class acme.
func playFleet(t *testing.T, class string, delay time.Duration, workload ...string) (*Report, []fleettest.Departure) {
	t.Helper()
	return playMembers(t, sharedPolicy(t, class), 4, "acme", time.Minute, delay, workload...)
}

// spanOf returns how long to run a fleet whose class has so many messages a second. In 10 seconds a fast one sends more
// of them than another one in a minute.
func spanOf(rate float64) time.Duration {
	if rate < 1000 {
		return time.Minute
	}
	return trial.Size(10*time.Second, time.Minute)
}

// playMembers is playFleet with a policy, so many members and a span of time, for a class of any name; "" is all classes.
func playMembers(t *testing.T, p *policy.Policy, members int, class string, span, delay time.Duration, workload ...string) (*Report, []fleettest.Departure) {
	t.Helper()
	var left []fleettest.Departure
	r, err := RunFleet(p, dealt(t, p, members, 1, workload...), delay, Options{For: span, Curves: true, Departures: func(d *Departure) error {
		if class == "" || d.Class == class {
			left = append(left, fleettest.Departure{Member: fmt.Sprint(d.Member), At: d.At.Sub(Epoch), Stamp: d.At, Units: 1})
		}
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	return r, left
}

// A fleet keeps to one limit together, and uses it. What the members did adds up.
func TestFleetKeepsToTheLimit(t *testing.T) {
	for _, delay := range []time.Duration{0, 2 * time.Millisecond, 10 * time.Millisecond} {
		r, left := playFleet(t, leakyShared, delay, "rate=30 messages/s")
		c := r.Classes[0]
		if c.Offered.Items != 1800 || c.Left.Items != uint64(len(left)) || c.Utilisation < 0.975 || c.Utilisation > 0.981 {
			t.Errorf("store %v away: %d of %d have left, %.1f %% of the limit", delay, c.Left.Items, c.Offered.Items, 100*c.Utilisation)
		}
		gap := c.Shared.Gap
		if err := fleettest.Gaps(left, 51*time.Millisecond, 0); err != nil || gap == nil || time.Duration(*gap) < 51*time.Millisecond || time.Duration(*gap) > 52*time.Millisecond {
			t.Errorf("store %v away: %v; the smallest gap is %v", delay, err, gap)
		}
		items, calls := uint64(0), 0.
		for i, m := range r.Members {
			own := m.Classes[0]
			items, calls = items+own.Left.Items, calls+own.Shared.CallsPerSecond
			if own.Utilisation < 0.24 || own.Utilisation > 0.25 || time.Duration(*own.Shared.Gap) < 200*time.Millisecond {
				t.Errorf("store %v away: member %d uses %.1f %% of the limit, at gaps of %v", delay, i+1, 100*own.Utilisation, *own.Shared.Gap)
			}
		}
		if sum := c.Shared.CallsPerSecond; items != c.Left.Items || calls < sum-0.1 || calls > sum+0.1 || sum < 20 || sum > 500 {
			t.Errorf("store %v away: %d items of the members are %d, %.1f calls/s are %.1f", delay, items, c.Left.Items, calls, sum)
		}
		if len(r.Notes) > 0 {
			t.Errorf("the notes are %q", r.Notes)
		}
	}
}

// The windows of a fleet are those of the clock, and each key has a budget of its own.
func TestFleetOfOtherLimits(t *testing.T) {
	for _, c := range []struct {
		name, class string
		least, most int // departures in a minute
		window      time.Duration
	}{
		{"fixed", "rate = \"100 messages/10s\"\nalgorithm = \"fixed-window\"\nshared = \"prod\"\n", 590, 600, 10 * time.Second},
		{"also", leakyShared + "also = [{ rate = \"100 messages/10s\", algorithm = \"fixed-window\" }]\n", 590, 600, 10 * time.Second},
		{"log", leakyShared + "also = [{ rate = \"600 messages/min\", algorithm = \"sliding-log\" }]\n", 585, 600, 0},
		{"calendar", leakyShared + "also = [{ rate = \"300 messages/day\", window = \"day\", zone = \"UTC\", reset = \"00:00\" }]\n", 300, 300, 24 * time.Hour},
		{"gcra", "rate = \"10 messages/s\"\nalgorithm = \"gcra\"\nburst = \"20 messages\"\nshared = \"prod\"\nheadroom = \"2%\"\n", 600, 608, 0},
		{"keys", "rate = \"5 messages/s\"\nper = \"recipient\"\nshared = \"prod\"\nheadroom = \"2%\"\n", 585, 590, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, left := playFleet(t, c.class, 2*time.Millisecond, "rate=20 messages/s,recipient=4470", "rate=20 messages/s,recipient=4471")
			if n := len(left); n < c.least || n > c.most {
				t.Errorf("%d have left, want %d to %d; %+v", n, c.least, c.most, r.Classes[0])
			}
			if c.window > 0 {
				limit := int64(100)
				if c.window > time.Minute {
					limit = 300
				}
				if err := fleettest.Windows(left, limit, func(at time.Time) (from, to time.Time) {
					from = at.Truncate(c.window)
					return from, from.Add(c.window)
				}); err != nil {
					t.Error(err)
				}
			}
			if gap := r.Classes[0].Shared.Gap; c.name == "keys" && gap != nil {
				t.Errorf("the gap between keys is %v", *gap)
			}
		})
	}
}

// A store that is too far away counts as away: the members use their shares, and what they use
// together is below the limit. With fallback = "stop" nothing leaves.
func TestFleetFarFromItsStore(t *testing.T) {
	r, left := playFleet(t, leakyShared, 45*time.Millisecond, "rate=30 messages/s")
	if used := r.Classes[0].Utilisation; used < 0.4 || used > 0.98 {
		t.Errorf("%.1f %% of the limit is used by shares", 100*used)
	}
	if err := fleettest.Sum(left, 19.6, 5); err != nil {
		t.Error(err)
	}
	p := sharedPolicy(t, leakyShared)
	p.Fleets[0].Fallback.Stop = true
	if r, err := RunFleet(p, dealt(t, p, 4, 1, "rate=30 messages/s"), 60*time.Millisecond, Options{For: time.Minute}); err != nil || r.Classes[0].Left.Items != 0 {
		t.Errorf("%v: %d have left", err, r.Classes[0].Left.Items)
	}
}

// The same seed gives the same, and another one does not.
func TestFleetIsDeterministic(t *testing.T) {
	once := func(seed uint64) string {
		p := sharedPolicy(t, "rate = \"5 messages/s\"\nper = \"recipient\"\nshared = \"prod\"\nheadroom = \"2%\"\n")
		var out bytes.Buffer
		write, err := WriteDepartures(&out, true)
		if err != nil {
			t.Fatal(err)
		}
		// The store is sometimes away, so that all keys change at once.
		r, err := RunFleet(p, dealt(t, p, 3, seed, "pattern=poisson,rate=9 messages/s,recipient=1", "pattern=poisson,rate=9 messages/s,recipient=2"),
			42*time.Millisecond, Options{For: 30 * time.Second, Departures: write, Curves: true})
		if err != nil {
			t.Fatal(err)
		}
		if err := json.NewEncoder(&out).Encode(r); err != nil {
			t.Fatal(err)
		}
		if err := Plot(&out, r); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	first := once(1)
	if first != once(1) {
		t.Error("two runs of the same workload differ")
	}
	if first == once(2) {
		t.Error("another seed changes nothing")
	}
	if !strings.HasPrefix(first, "time,wait,class,client,bytes,member\n") {
		t.Errorf("departures begin with %.100s", first)
	}
}

// A trace ends when everything has left. Each client stays with its member.
func TestFleetOfATrace(t *testing.T) {
	p := sharedPolicy(t, leakyShared)
	lines := "time,client,bytes\n"
	for i := range 60 {
		lines += fmt.Sprintf("%d.%d,10.0.0.%d,100\n", i/10, i%10, i%7)
	}
	members := func() (all [][]Source) {
		for i := range 3 {
			source, err := ReadTrace(p, "a.csv", strings.NewReader(lines))
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, []Source{Deal(source, i, 3)})
		}
		return all
	}
	of := map[string]int{}
	r, err := RunFleet(p, members(), time.Millisecond, Options{Departures: func(d *Departure) error {
		client := d.Source.String()
		if was := of[client]; was != 0 && was != d.Member {
			t.Errorf("%s is a client of member %d and of %d", client, was, d.Member)
		}
		of[client] = d.Member
		return nil
	}})
	if err != nil || r.Classes[0].Left.Items != 60 || time.Duration(r.Period) > 10*time.Second || len(of) != 7 {
		t.Errorf("%v: %d items of %d clients have left in %v", err, r.Classes[0].Left.Items, len(of), r.Period)
	}
}

// A fleet that nothing leaves any more ends 25 hours after the last arrival.
func TestFleetEnds(t *testing.T) {
	s := &simulation{now: Epoch, lastArrival: Epoch, runs: []*run{{senders: []*sender{{}}}}, sums: []*class{{}}}
	for _, c := range []struct {
		ended   bool
		waiting uint64
		after   time.Duration
		over    bool
	}{
		{false, 0, 48 * time.Hour, false}, {true, 0, 0, true}, {true, 1, 24 * time.Hour, false}, {true, 1, 25*time.Hour + 1, true},
	} {
		s.runs[0].senders[0].ended, s.sums[0].waiting.Items, s.now = c.ended, c.waiting, Epoch.Add(c.after)
		if is := s.isOver(); is != c.over {
			t.Errorf("%+v: it is over: %v", c, is)
		}
	}
}

// Of a load, each member gets as much.
func TestDeal(t *testing.T) {
	p := sharedPolicy(t, leakyShared)
	for i, sources := range dealt(t, p, 3, 1, "rate=10 messages/s,count=10") {
		n, a := 0, Arrival{}
		var first time.Duration
		for sources[0].Next(&a) != io.EOF {
			if n++; n == 1 {
				first = a.At.Sub(Epoch)
			}
		}
		if want := []int{4, 3, 3}[i]; n != want || first != time.Duration(i)*100*time.Millisecond {
			t.Errorf("member %d gets %d items, from %v on", i, n, first)
		}
	}
}

// A policy without a shared class says what to add.
func TestFleetNeedsASharedClass(t *testing.T) {
	p := sharedPolicy(t, "rate = \"20 messages/s\"\n")
	_, err := RunFleet(p, dealt(t, p, 2, 1, "rate=10 messages/s"), 0, Options{For: time.Second})
	if err == nil || !strings.Contains(err.Error(), `shared: no class is shared`) || !strings.Contains(err.Error(), `[fleet.NAME]`) {
		t.Errorf("the error is %v", err)
	}
}

// A simulated fleet goes on while it sends, and says so if it ends before all has left.
func TestFleetGoesOnWhileItSends(t *testing.T) {
	for _, c := range []struct {
		rate        string
		items, left uint64
	}{{"1 messages/h", 28, 28}, {"1 messages/week", 2, 0}} {
		p := sharedPolicy(t, fmt.Sprintf("rate = %q\nshared = \"prod\"\n", c.rate))
		p.Fleets[0].Deadline = unit.Duration(10 * time.Second) // members that wait ask the store as often as it says
		r, err := RunFleet(p, dealt(t, p, 1, 1, fmt.Sprintf("rate=100 messages/s,count=%d", c.items)), time.Millisecond, Options{})
		if err != nil {
			t.Fatal(err)
		}
		cut := slices.ContainsFunc(r.Notes, func(note string) bool { return strings.Contains(note, "ended with items that wait") })
		if left := r.Classes[0].Left.Items; left < c.left || cut != (c.left < c.items) {
			t.Errorf("%s: %d of %d leave, and the notes are %q", c.rate, left, c.items, r.Notes)
		}
	}
}
