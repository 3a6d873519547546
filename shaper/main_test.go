package shaper

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"shaper/policy"
	"shaper/unit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// at returns an instant, d after start, for tests that drive a class by hand.
func at(d time.Duration) time.Time { return start.Add(d) }

// lastLeft says that the last item of a class has left at now, whatever it costs.
func lastLeft(c *Class, now time.Time) {
	c.Left(now, now, Cost{Bytes: 1, Packets: 1, Messages: 1, Connections: 1, Tokens: 1})
}

const (
	second = time.Second
	ms     = time.Millisecond
)

// rateOf parses a rate of a test.
func rateOf(text string) unit.Rate {
	r, err := unit.ParseRate(text)
	if err != nil {
		panic(err)
	}
	return r
}

// leakyClass returns a leaky policy of that rate, with the defaults.
func leakyClass(text string) policy.Class {
	conf := policy.DefaultClass("test")
	conf.Rate = rateOf(text)
	return conf
}

// tokenClass returns a token policy of that rate and burst, with the defaults.
func tokenClass(text string, burst int64) policy.Class {
	conf := leakyClass(text)
	conf.Algorithm = policy.Token
	conf.Burst = policy.Burst{N: burst, Kind: conf.Rate.Kind()}
	return conf
}

// algorithms lists all algorithms.
var algorithms = []policy.Algorithm{
	policy.Leaky, policy.Token, policy.GCRA, policy.FixedWindow, policy.SlidingLog, policy.SlidingWindow,
}

// classBy returns a policy of that algorithm and rate, with the defaults.
func classBy(algorithm policy.Algorithm, text string) policy.Class {
	conf := leakyClass(text)
	conf.Algorithm = algorithm
	return conf
}

// under returns a policy with a parent.
func under(parent string, conf policy.Class) policy.Class {
	conf.Parent = parent
	return conf
}

func withQueue(conf policy.Class, items, bytes int64) policy.Class {
	conf.Queue = policy.Queue{Items: unit.Count{N: items, Kind: unit.Items}, Bytes: unit.Size(bytes)}
	return conf
}

// packet returns an item of one packet of n bytes.
func packet(n int64) *Item { return &Item{Cost: Cost{Bytes: n, Packets: 1}, Held: n} }

// enter offers items at d, and fails unless each gets the verdict.
func enter(t *testing.T, c *Class, d time.Duration, want Verdict, items ...*Item) {
	t.Helper()
	for i, it := range items {
		if got := c.Enter(at(d), it); got != want {
			t.Errorf("at %v item %d gets the verdict %v, want %v", d, i, got, want)
		}
	}
}

// released fails unless exactly these items leave at d, in this order.
func released(t *testing.T, c *Class, d time.Duration, want ...*Item) {
	t.Helper()
	for i, it := range want {
		if got := c.Release(at(d)); got != it {
			t.Errorf("at %v the item %d to leave is %p, want %p", d, i, got, it)
		}
	}
	if got := c.Release(at(d)); got != nil {
		t.Errorf("at %v another item leaves: %p", d, got)
	}
}

// wantBacklog fails unless exactly so much waits.
func wantBacklog(t *testing.T, c *Class, items, bytes int64) {
	t.Helper()
	if b := c.Backlog(); b.Items != items || b.Bytes != bytes {
		t.Errorf("%d items of %d bytes wait, want %d of %d", b.Items, b.Bytes, items, bytes)
	}
}
