package shaper

import (
	"testing"
	"time"

	"shaper/policy"
)

// foretell makes an item enter a class, and fails unless it leaves when the estimate says, or later by at most late.
func (s *sim) foretell(t *testing.T, name string, c *Class, it *Item, late time.Duration) {
	t.Helper()
	_, said := c.Estimate().Place(s.now, it.Cost)
	if left := s.wait(c, it); said > left || said < left-late {
		t.Errorf("%s: the estimate is %v, and it leaves after %v", name, said, left)
	}
}

// All that waits before an item in its queue passes each class above, whatever that counts.
func TestForecastBeneathASlowerClass(t *testing.T) {
	by := func(text string) policy.Class { return named("above", classBy(policy.FixedWindow, text)) }
	own := under("above", leakyClass("20 messages/s"))
	half := named("above", adapting(leakyClass("10 messages/s")))
	for name, c := range map[string]struct {
		above, own policy.Class
		waits      int
		late       time.Duration
	}{
		"a quota":            {by("20 messages/d"), own, 30, second},
		"a quota of bytes":   {by("2000 B/d"), own, 30, second},
		"half the rate":      {half, under("above", leakyClass("8 messages/s")), 80, second},
		"a borrower's quota": {by("20 messages/d"), ceiling("20 messages/s", under("above", leakyClass("10 messages/s"))), 30, second},
		"a wide class":       {by("1000 messages/d"), own, 30, 0},
	} {
		classes := tree(c.above, c.own)
		classes["above"].Provider().Throttled(start, ms, "429") // which only adapt remembers
		s := &sim{root: classes["above"], now: at(ms)}
		for range c.waits {
			classes["test"].Enter(s.now, &Item{Cost: Cost{Messages: 1, Bytes: 100}})
		}
		s.foretell(t, name, classes["test"], &Item{Cost: Cost{Messages: 1, Bytes: 100}}, c.late)
	}
}
