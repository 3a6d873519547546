package limits

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"shaper/calendar"
	"shaper/fleet"
	"shaper/policy"
	"shaper/shaper"
	"shaper/unit"
)

// A departure is an item that has left, at a time since the members came.
type departure struct {
	at    time.Duration
	units int64
}

// sum returns how many units have left from departure i to departure j.
func sum(all []departure, i, j int) (n int64) {
	for _, d := range all[i : j+1] {
		n += d.units
	}
	return n
}

// start is when the members come: 20 s before a day ends.
var start = time.Date(2026, 3, 1, 23, 59, 40, 0, time.UTC)

// A crowd is members of a limit that always want more, beside their store, in virtual time.
type crowd struct {
	model    fleet.Model
	machines []*fleet.Machine
	leases   []*fleet.Lease
	costs    []int64 // of the next item of each
	sizes    int64   // items have 1 to sizes units
	same     bool    // all have that many
	r        *rand.Rand
	now      time.Time
	left     []departure
}

func newCrowd(t *testing.T, class fleet.Class, members int, sizes int64) *crowd {
	c := &crowd{model: fleet.Model{ID: "a"}, sizes: sizes, r: rand.New(rand.NewPCG(1, uint64(sizes))), now: start}
	for i := range members {
		m, err := fleet.NewMachine(class, fmt.Sprint("m", i), fleet.Fallback{}, 1, nil)
		if err != nil {
			t.Fatal(err)
		}
		c.machines, c.leases, c.costs = append(c.machines, m), append(c.leases, m.Lease("")), append(c.costs, 1)
	}
	return c
}

// turn does all that member i may do now, and returns when it may do more.
func (c *crowd) turn(i int) time.Time {
	m, l := c.machines[i], c.leases[i]
	for {
		l.Want(c.now, 50*c.sizes, c.costs[i])
		for call, ok := m.Poll(c.now); ok; call, ok = m.Poll(c.now) {
			r := c.model.Do(fleet.Stamp(c.now.UnixMicro()), &call)
			m.Answer(c.now, &call, &r)
		}
		at := l.Next(c.now, 0, c.costs[i])
		if at.After(c.now) {
			if wake := m.Wake(c.now); wake.Before(at) {
				at = wake
			}
			return at
		}
		l.Take(c.now, c.now, c.costs[i])
		c.left = append(c.left, departure{c.now.Sub(start), c.costs[i]})
		if c.costs[i] = c.sizes; !c.same {
			c.costs[i] = 1 + c.r.Int64N(c.sizes)
		}
	}
}

// run lets a time pass.
func (c *crowd) run(d time.Duration) {
	for until := c.now.Add(d); c.now.Before(until); {
		next := until
		for i := range c.machines {
			if at := c.turn(i); at.Before(next) {
				next = at
			}
		}
		c.now = next
		if !next.After(c.now) {
			c.now = c.now.Add(time.Microsecond)
		}
	}
}

// apart says that each item leaves as many gaps after the one before as that has units.
func apart(gap time.Duration) func([]departure) error {
	return func(all []departure) error {
		for i := 1; i < len(all); i++ {
			if took, least := all[i].at-all[i-1].at, time.Duration(all[i-1].units)*gap-2*time.Microsecond; took < least {
				return fmt.Errorf("departure %d comes after %v, want %v", i, took, least)
			}
		}
		return nil
	}
}

// bucket says that over any time no more leaves than a burst and what the rate allows.
func bucket(rate, burst float64) func([]departure) error {
	return func(all []departure) error {
		for i := range all {
			units := int64(0)
			for j := i; j < len(all) && j < i+3000; j++ {
				units += all[j].units
				if most := burst + rate*(all[j].at-all[i].at+2*time.Microsecond).Seconds(); float64(units) > most {
					return fmt.Errorf("%d units leave from departure %d to %d, want %.2f", units, i, j, most)
				}
			}
		}
		return nil
	}
}

// windows says that no more than limit leaves in a window, which follow one another from a time on.
func windows(limit int64, length, from time.Duration) func([]departure) error {
	return func(all []departure) error {
		left := map[time.Duration]int64{}
		for _, d := range all {
			w := (d.at - from + 1000*length) / length
			if left[w] += d.units; left[w] > limit {
				return fmt.Errorf("%d units leave in window %d, want %d", left[w], w, limit)
			}
		}
		return nil
	}
}

// within says that no more than limit leaves in any time of a length.
func within(limit int64, length time.Duration) func([]departure) error {
	return func(all []departure) error {
		for first, j := 0, 0; j < len(all); j++ {
			for all[first].at <= all[j].at-length {
				first++
			}
			if n := sum(all, first, j); n > limit {
				return fmt.Errorf("%d units leave in the %v until departure %d, want %d", n, length, j, limit)
			}
		}
		return nil
	}
}

// weighed says that a window has no more than limit, with the part of the window before it that lies within the length.
func weighed(limit int64, length time.Duration) func([]departure) error {
	return func(all []departure) error {
		for j, d := range all {
			at := start.Add(d.at)
			from := at.Truncate(length)
			count := func(from time.Time) (n float64) {
				for _, o := range all[:j+1] {
					if o := start.Add(o.at); !o.Before(from) && o.Before(from.Add(length)) {
						n++
					}
				}
				return n
			}
			if n := count(from) + count(from.Add(-length))*(1-at.Sub(from).Seconds()/length.Seconds()); n > float64(limit)+1e-6 {
				return fmt.Errorf("%.2f units count at departure %d, want %d", n, j, limit)
			}
		}
		return nil
	}
}

// class returns a class of a policy.
func class(t *testing.T, a policy.Algorithm, rate string, burst int64, headroom unit.Percent) policy.Class {
	t.Helper()
	c := policy.DefaultClass("acme")
	var err error
	if c.Rate, err = unit.ParseRate(rate); err != nil {
		t.Fatal(err)
	}
	c.Algorithm, c.Headroom = a, headroom
	if burst > 0 {
		c.Burst = policy.Burst{N: burst, Kind: c.Rate.Kind()}
	}
	return c
}

// TestAgainstBruteForce shares each algorithm among three members that want more than there is, in all units, with items
// of one unit and of several. What leaves keeps to the limit in the policy, counted item by item, and uses it.
func TestAgainstBruteForce(t *testing.T) {
	const s, half = time.Second, 500 * time.Millisecond
	for _, c := range []struct {
		name  string
		conf  policy.Class
		sizes int64
		check func([]departure) error
		least float64 // of the limit
	}{
		{"leaky messages", class(t, policy.Leaky, "40 messages/s", 0, 20_000), 1, apart(25 * time.Millisecond), 0.97},
		{"leaky packets", class(t, policy.Leaky, "1000 packets/s", 0, 50_000), 1, apart(time.Millisecond), 0.94},
		{"leaky tokens of several", class(t, policy.Leaky, "400 tokens/s", 0, 50_000), 5, apart(2500 * time.Microsecond), 0.75},
		{"leaky bytes", class(t, policy.Leaky, "300kB/s", 0, 0), 1500, nil, 0.85},
		{"token messages", class(t, policy.Token, "100 messages/s", 20, 20_000), 1, bucket(100, 20), 0.97},
		{"token of several", class(t, policy.Token, "100 messages/s", 20, 20_000), 4, bucket(100, 20), 0.95},
		{"token bytes", class(t, policy.Token, "300kB/s", 30_000, 20_000), 1500, bucket(300_000, 30_000), 0.95},
		{"gcra connections", class(t, policy.GCRA, "50 connections/s", 10, 20_000), 1, bucket(50, 10), 0.97},
		{"gcra tokens of several", class(t, policy.GCRA, "1000 tokens/s", 300, 20_000), 40, bucket(1000, 300), 0.95},
		{"fixed window", class(t, policy.FixedWindow, "50 packets/s", 0, 0), 1, windows(50, s, 0), 0.97},
		{"fixed window of several", class(t, policy.FixedWindow, "200 tokens/s", 0, 0), 7, windows(200, s, 0), 0.93},
		{"fixed window of bytes", class(t, policy.FixedWindow, "300kB/s", 0, 0), 1500, windows(300_000, s, 0), 0.95},
		{"sliding log", class(t, policy.SlidingLog, "200 messages/s", 0, 0), 1, within(200, s), 0.95},
		{"sliding log of several", class(t, policy.SlidingLog, "400 tokens/s", 0, 0), 6, within(400, s), 0.9},
		{"sliding window", class(t, policy.SlidingWindow, "100 messages/s", 0, 0), 1, weighed(100, s), 0.93},
	} {
		t.Run(c.name, func(t *testing.T) {
			all := shaper.Limits(c.conf)
			of := All("acme", all, policy.Fleet{})[0]
			if c.check == nil { // a stream of bytes leaves in pieces
				c.check = bucket(c.conf.Rate.PerSecond(), float64(of.Burst)+1500+of.Rate.PerSecond()*of.Late.Seconds())
			}
			crowd := newCrowd(t, of, 3, c.sizes)
			crowd.run(20*s + half)
			if err := c.check(crowd.left); err != nil {
				t.Error(err)
			}
			units := int64(0)
			for _, d := range crowd.left {
				if d.at >= 5*s {
					units += d.units
				}
			}
			used := float64(units) / c.conf.Rate.PerSecond() / 15.5
			t.Logf("%d departures, %.1f %% of the limit", len(crowd.left), 100*used)
			if used < c.least || used > 1.05 || math.IsNaN(used) {
				t.Errorf("%.1f %% of the limit is used", 100*used)
			}
		})
	}
}

// TestCalendar shares a day, which ends 20 s after the members have come.
func TestCalendar(t *testing.T) {
	conf := class(t, policy.FixedWindow, "600 messages/day", 0, 0)
	conf.Window.Period = "day"
	of := All("acme", shaper.Limits(conf), policy.Fleet{})[0]
	crowd := newCrowd(t, of, 3, 3)
	crowd.run(40 * time.Second)
	before := int64(0)
	for _, d := range crowd.left {
		if d.at < 20*time.Second {
			before += d.units
		}
	}
	if all := sum(crowd.left, 0, len(crowd.left)-1); before < 597 || before > 600 || all-before < 597 || all-before > 600 {
		t.Errorf("%d messages leave before midnight and %d after it, want 600 each", before, all-before)
	}
}

// TestLimitsOfOneClass holds what the store calls the limits of a class, and what leaves by each while it is away.
func TestLimitsOfOneClass(t *testing.T) {
	conf := class(t, policy.Leaky, "20 messages/s", 0, 20_000)
	conf.Also = []policy.Limit{{Algorithm: policy.FixedWindow, Rate: unit.NewRate(unit.Messages, 600, time.Hour)}}
	far := policy.Fleet{Deadline: unit.Duration(100 * time.Millisecond)}
	all := All("acme", shaper.Limits(conf), far)
	first, second := all[0], all[1]
	if first.Name != "acme" || first.Algorithm != fleet.Slots || first.Late == 0 || first.Deadline != 100*time.Millisecond {
		t.Errorf("the first limit is %+v", first)
	}
	if second.Name != "acme/fixed-window/messages/1h" || second.Algorithm != fleet.FixedWindow || second.Window != time.Hour || second.Bounds != nil {
		t.Errorf("the second limit is %+v", second)
	}
	slow := unit.NewRate(unit.Messages, 5, time.Second)
	if f := Fallback(policy.Fallback{Rate: slow}, 0); f.Rate != slow || f.Stop {
		t.Errorf("the fallback of the first limit is %+v", f)
	}
	if f := Fallback(policy.Fallback{Rate: slow}, 1); f != (fleet.Fallback{}) {
		t.Errorf("the fallback of the second limit is %+v, want its share", f)
	}
	if f := Fallback(policy.Fallback{Stop: true}, 1); !f.Stop {
		t.Errorf("the fallback of the second limit is %+v, want none", f)
	}
}

// TestNamesOfLimits changes the policy of one member. A limit that both policies have is one budget, wherever it stands, and one
// with another algorithm or window is another.
func TestNamesOfLimits(t *testing.T) {
	hourly, daily := unit.NewRate(unit.Messages, 1000, time.Hour), unit.NewRate(unit.Messages, 1000, 24*time.Hour)
	berlin, err := calendar.ParseZone("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	own := policy.Limit{Algorithm: policy.Leaky, Rate: unit.NewRate(unit.Messages, 20, time.Second)}
	token := policy.Limit{Algorithm: policy.Token, Rate: unit.NewRate(unit.Messages, 100, time.Minute), Burst: policy.Burst{N: 100, Kind: unit.Messages}}
	hour, day := policy.Limit{Algorithm: policy.FixedWindow, Rate: hourly}, policy.Limit{Algorithm: policy.FixedWindow, Rate: daily}
	more, tokens, log, local, six := day, day, day, day, day
	more.Rate = unit.NewRate(unit.Messages, 5000, 24*time.Hour)
	tokens.Rate = unit.NewRate(unit.Tokens, 1000, 24*time.Hour)
	log.Algorithm = policy.SlidingLog
	local.Window, local.Zone = policy.Window{Period: calendar.Day}, berlin
	six.Window, six.Zone, six.Reset = policy.Window{Period: calendar.Day}, berlin, 6*60
	for _, c := range []struct {
		limits []policy.Limit
		names  []string
	}{
		{[]policy.Limit{own, day}, []string{"acme", "acme/fixed-window/messages/24h"}},
		{[]policy.Limit{own, token, day}, []string{"acme", "acme/slots/2", "acme/fixed-window/messages/24h"}},
		{[]policy.Limit{own, hour, log}, []string{"acme", "acme/fixed-window/messages/1h", "acme/sliding-log/messages/24h"}},
		{[]policy.Limit{day, own}, []string{"acme/fixed-window/messages/24h", "acme"}},
		{[]policy.Limit{own, day, more, tokens}, []string{"acme", "acme/fixed-window/messages/24h", "acme/fixed-window/messages/24h/2", "acme/fixed-window/tokens/24h"}},
		{[]policy.Limit{own, local, six}, []string{"acme", "acme/fixed-window/messages/day/00:00/Europe/Berlin", "acme/fixed-window/messages/day/06:00/Europe/Berlin"}},
	} {
		conf := policy.DefaultClass("acme")
		first := c.limits[0]
		conf.Algorithm, conf.Rate, conf.Burst, conf.Also = first.Algorithm, first.Rate, first.Burst, c.limits[1:]
		var names []string
		for _, limit := range All("acme", shaper.Limits(conf), policy.Fleet{}) {
			names = append(names, limit.Name)
		}
		if !slices.Equal(names, c.names) {
			t.Errorf("the limits %v are called %q, want %q", c.limits, names, c.names)
		}
	}
}

// TestLeakyItemsOfSeveralUnits holds how much of a leaky limit items of several units use. Their slots follow one another, so
// the rest of a block is lost if the next item does not fit into it. Blocks hold whole items if all are as large, and grow
// with the deadline.
func TestLeakyItemsOfSeveralUnits(t *testing.T) {
	for _, c := range []struct {
		sizes    int64
		same     bool
		deadline time.Duration
		least    float64
	}{
		{3, true, 50 * time.Millisecond, 0.94}, {3, true, 250 * time.Millisecond, 0.94}, {5, false, 50 * time.Millisecond, 0.75}, {5, false, 250 * time.Millisecond, 0.88},
	} {
		conf := class(t, policy.Leaky, "400 tokens/s", 0, 50_000)
		crowd := newCrowd(t, All("acme", shaper.Limits(conf), policy.Fleet{Deadline: unit.Duration(c.deadline)})[0], 3, c.sizes)
		crowd.same = c.same
		crowd.run(15 * time.Second)
		if err := apart(2500 * time.Microsecond)(crowd.left); err != nil {
			t.Error(err)
		}
		units := int64(0)
		for _, d := range crowd.left {
			if d.at >= 5*time.Second {
				units += d.units
			}
		}
		used := float64(units) / 4000
		t.Logf("up to %d units, all the same: %v, deadline %v: %.1f %% of the limit", c.sizes, c.same, c.deadline, 100*used)
		if used < c.least {
			t.Errorf("%.1f %% of the limit is used, want %.1f %%", 100*used, 100*c.least)
		}
	}
}
