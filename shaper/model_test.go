package shaper

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"shaper/limit"
	"shaper/policy"
	"shaper/unit"
)

// model is a bounded FIFO, which a class must look like from outside.
type model struct {
	class   *Class
	now     time.Time
	conf    policy.Class
	waiting []*Item

	received, left, cancelled, lost int
}

func anyConf(t *rapid.T) policy.Class {
	conf := withQueue(leakyClass(rapid.SampledFrom([]string{
		"0B/s", "1KB/s", "1MB/s", "0 packets/s", "3 packets/s", "1 packets/min", "5 connections/s",
	}).Draw(t, "rate")), rapid.Int64Range(0, 5).Draw(t, "items"), rapid.Int64Range(0, 5000).Draw(t, "bytes"))
	conf.Algorithm = rapid.SampledFrom(algorithms).Draw(t, "algorithm")
	if conf.Algorithm.HasBurst() {
		conf.Burst = policy.Burst{N: rapid.Int64Range(0, 3000).Draw(t, "burst"), Kind: conf.Rate.Kind()}
	}
	if conf.Algorithm.HasWindow() {
		conf.Window.Length = unit.Duration(rapid.SampledFrom([]time.Duration{0, time.Minute, time.Hour}).Draw(t, "window"))
	}
	if rapid.IntRange(0, 2).Draw(t, "several") == 0 {
		conf.Also = anyAlso(t, conf.Rate.Kind())
	}
	if rapid.Bool().Draw(t, "impatient") {
		conf.MaxWait = unit.Duration(3 * second)
	}
	conf.Overflow = rapid.SampledFrom([]policy.Overflow{"", policy.Wait, policy.Drop, policy.Refuse}).Draw(t, "overflow")
	return conf
}

// TestClassIsAFIFO compares a class with a slice under random operations. It adds up what
// became of the items: sent + dropped = received.
func TestClassIsAFIFO(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		conf := anyConf(t)
		m := &model{class: NewClass(start, conf), now: start, conf: conf}
		t.Repeat(map[string]func(*rapid.T){
			"enter": m.enter,
			"advance": func(t *rapid.T) {
				m.now = m.now.Add(time.Duration(rapid.Int64Range(0, 2e9).Draw(t, "by")))
			},
			"release": m.release,
			"cancel": func(t *rapid.T) {
				i := rapid.IntRange(0, 9).Draw(t, "which")
				if i >= len(m.waiting) {
					t.Skip("no such item")
				}
				if !m.class.Cancel(m.now, m.waiting[i]) {
					t.Fatal("Cancel did not take out an item that waits")
				}
				m.waiting = slices.Delete(m.waiting, i, i+1)
				m.cancelled++
			},
			"set": func(t *rapid.T) {
				conf := anyConf(t)
				if conf.Rate.Kind() != m.conf.Rate.Kind() {
					t.Skip("the rate is of another unit")
				}
				m.conf = conf
				m.class.Set(m.now, m.conf)
			},
			"left": func(*rapid.T) { lastLeft(m.class, m.now) },
			"":     m.check,
		})
		m.drain(t)
	})
}

func (m *model) enter(t *rapid.T) {
	it := &Item{
		Cost:    Cost{Bytes: rapid.Int64Range(0, 2000).Draw(t, "bytes"), Packets: rapid.Int64Range(0, 2).Draw(t, "packets")},
		Held:    rapid.Int64Range(0, 2000).Draw(t, "held"),
		Busy:    rapid.Bool().Draw(t, "busy"),
		Patient: rapid.Bool().Draw(t, "patient"),
	}
	m.received++
	patient := it.Patient && m.conf.OverflowFor(policy.TCP) == policy.Wait
	switch verdict := m.class.Enter(m.now, it); verdict {
	case Leaves:
		if it.Cost.In(m.conf.Rate.Kind()) > 0 && (len(m.waiting) > 0 || m.conf.Rate.IsZero()) {
			t.Fatal("an item overtook the queue")
		}
		m.left++
	case Waits:
		if !patient && !m.hasRoom(it) {
			t.Fatal("an item waits where there is no room")
		}
		m.waiting = append(m.waiting, it)
	case Full:
		if patient || m.hasRoom(it) {
			t.Fatal("an item is refused although it may wait")
		}
		m.lost++
	case TooLong:
		if patient || m.conf.MaxWait == 0 {
			t.Fatal("an item is refused although it has time")
		}
		m.lost++
	}
}

func (m *model) hasRoom(it *Item) bool {
	n, held := m.items()+max(it.Cost.Packets, 1), it.Held
	for _, one := range m.waiting {
		held += one.Held
	}
	items, bytes := m.conf.Queue.Items.N, int64(m.conf.Queue.Bytes)
	return (items == 0 || n <= items) && (bytes == 0 || held <= bytes || n == 1)
}

// items returns how many items wait. An item of several packets counts as several.
func (m *model) items() (n int64) {
	for _, it := range m.waiting {
		n += max(it.Cost.Packets, 1)
	}
	return n
}

func (m *model) release(t *rapid.T) {
	next := m.class.Next(m.now)
	it := m.class.Release(m.now)
	if (it != nil) != !next.After(m.now) {
		t.Fatalf("the next item leaves at %v, but at %v %v leaves", next, m.now, it)
	}
	if it == nil {
		return
	}
	if len(m.waiting) == 0 || it != m.waiting[0] {
		t.Fatalf("%v leaves, want the first item of %v", it, m.waiting)
	}
	m.waiting = m.waiting[1:]
	m.left++
}

// check compares the counters with the slice.
func (m *model) check(t *rapid.T) {
	var bytes, cost int64
	for _, it := range m.waiting {
		bytes += it.Cost.Bytes
		cost += it.Cost.In(m.conf.Rate.Kind())
	}
	if b := m.class.Backlog(); b.Items != m.items() || b.Bytes != bytes {
		t.Fatalf("%d items of %d bytes wait, want %d of %d", b.Items, b.Bytes, m.items(), bytes)
	}
	if got, _ := m.class.Estimate().Drain(m.now); got != cost {
		t.Fatalf("the backlog costs %d, want %d", got, cost)
	}
	blocked := len(m.waiting) == 0 || m.conf.Rate.IsZero() && m.waiting[0].Cost.In(m.conf.Rate.Kind()) > 0
	if next := m.class.Next(m.now); (next == limit.Never) != blocked {
		t.Fatalf("with %d items waiting at %v the next one leaves at %v", len(m.waiting), m.conf.Rate, next)
	}
}

// drain lets all that waits leave.
func (m *model) drain(t *rapid.T) {
	m.conf = leakyClass("1KB/s")
	m.class.Set(m.now, m.conf)
	for len(m.waiting) > 0 {
		if next := m.class.Next(m.now); next.After(m.now) {
			m.now = next
		}
		before := len(m.waiting)
		if m.release(t); len(m.waiting) == before {
			t.Fatal("nothing leaves when Next says so")
		}
	}
	m.check(t)
	if m.left+m.lost+m.cancelled != m.received {
		t.Fatalf("of %d items %d left, %d were lost and %d cancelled", m.received, m.left, m.lost, m.cancelled)
	}
}
