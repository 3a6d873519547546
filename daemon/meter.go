package daemon

import (
	"context"
	"sync"
	"time"

	"shaper/shaper"
	"shaper/stats"
	"shaper/unit"
)

// meterPeriod is the time over which a current rate is averaged.
const meterPeriod = time.Second

// meter knows how fast each class, with those beneath it, sent in the last whole period.
type meter struct {
	classes func() []*shaper.Class // set by newDaemon, read by all

	mu    sync.Mutex // guards the fields below; comes before the locks of package shaper
	at    time.Time  // when measure ran last
	seen  map[*shaper.Class]metered
	spare map[*shaper.Class]metered // empty; the next measure fills it
}

// metered is what a class had sent at the last measure, and its rate in the period before.
type metered struct {
	kind unit.Kind
	sent uint64  // in units of kind
	rate float64 // units per second
}

// run measures every meterPeriod until the context ends.
func (m *meter) run(ctx context.Context) {
	ticker := time.NewTicker(meterPeriod)
	defer ticker.Stop()
	for {
		m.measure(time.Now())
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// measure ends one period and begins the next. It forgets classes that are gone.
func (m *meter) measure(now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	seen := m.spare
	if seen == nil {
		seen = map[*shaper.Class]metered{}
	}
	elapsed := now.Sub(m.at).Seconds()
	for _, c := range m.classes() {
		kind := c.Rate().Kind()
		one := metered{kind: kind, sent: amountIn(sentBy(c), kind)}
		if before := m.seen[c]; before.kind == kind && elapsed > 0 {
			one.rate = float64(one.sent-before.sent) / elapsed
		}
		seen[c] = one
	}
	clear(m.seen)
	m.at, m.seen, m.spare = now, seen, m.seen
}

// rate returns the rate of a class and all beneath it in the last whole period, in units per
// second; 0 if nothing is known of it.
func (m *meter) rate(c *shaper.Class) float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.seen[c].rate
}

// sentBy returns what a class has sent, both directions together.
func sentBy(c *shaper.Class) (sum stats.VolumeReading) {
	for d := range stats.Directions() {
		sum = sum.Plus(c.Stats.Sent[d].Read())
	}
	return sum
}

// amountIn returns a volume in one unit.
func amountIn(v stats.VolumeReading, kind unit.Kind) uint64 {
	switch kind {
	case unit.Bytes:
		return v.Bytes
	case unit.Packets:
		return v.Packets
	case unit.Messages:
		return v.Messages
	case unit.Connections:
		return v.Connections
	case unit.Tokens:
		return v.Tokens
	}
	return 0
}
