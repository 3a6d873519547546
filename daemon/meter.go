package daemon

import (
	"context"
	"sync"
	"time"

	"shaper/shaper"
	"shaper/stats"
	"shaper/unit"
)

// meterPeriod is what a current rate is the average of.
const meterPeriod = time.Second

// meter knows how fast each class, with those beneath it, was in the last whole second.
type meter struct {
	classes func() []*shaper.Class

	mu   sync.Mutex
	at   time.Time
	seen map[*shaper.Class]metered
}

// metered is what a class has sent, and how fast it was until then.
type metered struct {
	kind unit.Kind
	sent uint64  // in that unit
	rate float64 // units per second
}

// run measures once a second, until the context ends.
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

// measure ends one period and begins the next.
func (m *meter) measure(now time.Time) {
	seen := map[*shaper.Class]metered{}
	m.mu.Lock()
	defer m.mu.Unlock()
	elapsed := now.Sub(m.at).Seconds()
	for _, c := range m.classes() {
		kind := c.Rate().Kind()
		one := metered{kind: kind, sent: in(sentBy(c), kind)}
		if before := m.seen[c]; before.kind == kind && elapsed > 0 {
			one.rate = float64(one.sent-before.sent) / elapsed
		}
		seen[c] = one
	}
	m.at, m.seen = now, seen
}

// rate returns the rate of a class and all beneath it in the last period, in
// units per second.
func (m *meter) rate(c *shaper.Class) float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.seen[c].rate
}

// sentBy returns what has left a class, both ways.
func sentBy(c *shaper.Class) (sum stats.VolumeReading) {
	for d := range stats.Directions() {
		sum = sum.Plus(c.Stats.Sent[d].Read())
	}
	return sum
}

// in returns a volume in one unit.
func in(v stats.VolumeReading, kind unit.Kind) uint64 {
	switch kind {
	case unit.Bytes:
		return v.Bytes
	case unit.Packets:
		return v.Packets
	case unit.Messages:
		return v.Messages
	case unit.Connections:
		return v.Connections
	}
	return 0
}
