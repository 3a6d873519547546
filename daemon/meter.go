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

// meter knows how fast each class was in the last whole second.
type meter struct {
	classes func() []*shaper.Class

	mu   sync.Mutex
	at   time.Time
	seen map[*shaper.Class]metered
}

// metered is what a class has sent, and how fast it was until then.
type metered struct {
	kind unit.Kind
	sent uint64
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
	for _, c := range m.classes() {
		kind := c.Rate().Kind()
		one := metered{kind: kind, sent: sentBy(c, kind)}
		before, known := m.seen[c]
		if elapsed := now.Sub(m.at).Seconds(); known && before.kind == kind && elapsed > 0 {
			one.rate = float64(one.sent-before.sent) / elapsed
		}
		seen[c] = one
	}
	m.at, m.seen = now, seen
}

// rate returns the rate of a class in the last period, in units per second.
func (m *meter) rate(c *shaper.Class) float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.seen[c].rate
}

// sentBy returns what has left a class, both ways, in one unit.
func sentBy(c *shaper.Class, kind unit.Kind) (n uint64) {
	for d := range stats.Directions() {
		v := c.Stats.Sent[d].Read()
		switch kind {
		case unit.Bytes:
			n += v.Bytes
		case unit.Packets:
			n += v.Packets
		case unit.Messages:
			n += v.Messages
		case unit.Connections:
			n += v.Connections
		}
	}
	return n
}
