// Package leaky is the leaky bucket as a queue: items wait in a bounded FIFO
// and leave at a constant rate. Time is an argument throughout.
//
// Files call downwards only, in this order:
//
//	queue    the bounded FIFO in which items wait
//	gap      when counted items leave: messages, packets, connections
//	bucket   when bytes leave
//	assured  whether a class is within its assured rate
//	debt     what has departed and is not paid for: exact arithmetic for bucket and assured
package leaky

import (
	"time"

	"shaper/limit"
	"shaper/unit"
)

// Bounds of a quantum.
const (
	segment    = 1460 // payload of one Ethernet frame over TCP and IPv4
	minQuantum = 2 * segment
	maxQuantum = 512 << 10
)

// MaxPiece is the largest Piece.
const MaxPiece = maxQuantum / 2

// Quantum returns how many bytes may leave at once at a byte rate: what the rate
// allows in one millisecond, at least two segments and at most 512 KiB. A small
// quantum makes traffic smooth; a large one saves wake-ups.
func Quantum(rate unit.Rate) int64 {
	return min(max(rate.Units(time.Millisecond), minQuantum), maxQuantum)
}

// Piece returns how many bytes of a stream leave as one item: whole segments, at most three
// quarters of a quantum, since each item takes a wake-up; half a quantum if that is more. The rest of the quantum is
// what the bucket may catch up after a late one.
func Piece(rate unit.Rate) int64 {
	quantum := Quantum(rate)
	return min(max(quantum*3/4/segment*segment, quantum/2), MaxPiece)
}

// Bucket drains bytes at a constant rate.
//
// While departures are on time, at most rate*t + one Quantum bytes leave over
// any window t, if no item is larger than a Piece. If one is, such as a datagram,
// the bound grows by the difference. Idle time earns nothing.
//
// A departure is late if its wake-up was late. The bucket makes up for that: for
// Slack at once, and for the rest, up to maxLag, by gaps that are 1/16
// shorter. So no window holds more than 16/15 of rate*t + one Quantum, nor more
// than rate*(t+maxLag) + one Quantum.
//
// Why the bound holds: an item is charged from slack before it leaves, or from
// later. So after item i leaves at t(i), the next may leave no sooner than
// t(i) - slack + cost(i)/rate, and so on to item j. What leaves from i to j is
// at most rate*(t(j)-t(i)) + rate*slack + cost(j). The last two terms are at
// most a Quantum together, also if 16/15 of the rate stands for the rate.
//
// The arithmetic is that of debt, which is exact. The bucket moves its base, from
// which the debt counts, back only by what it takes from lag.
type Bucket struct {
	limit.Start
	debt
	slack time.Duration // Slack of the rate
	lag   time.Duration // lateness beyond slack that the bucket still makes up for

	// The last item, for Amend.
	taken   time.Time     // when it left
	cost    int64         // what it was charged
	shorter time.Duration // by how much its gap was made shorter; taken from lag
}

// maxLag bounds what the bucket makes up for. It covers a few time slices of a
// busy processor, and almost nothing of the sleep of a suspended machine.
const maxLag = 50 * time.Millisecond

// NewBucket returns an idle bucket.
func NewBucket(rate unit.Rate) *Bucket {
	return &Bucket{debt: debt{rate: rate}, slack: Slack(rate)}
}

// Slack returns the longest lateness that a bucket catches up at once at a byte
// rate. Less than what a Piece leaves of a Quantum leaves in that time at 16/15 of the rate, since the
// gaps that follow may be shorter. Slack is one nanosecond less because Time rounds up,
// and another one because Next rounds up too.
func Slack(rate unit.Rate) time.Duration {
	rest := rate.Time(Quantum(rate) - Piece(rate))
	return max(rest-rest/16-2, 0)
}

// Next implements limit.Limiter. It ignores the cost of the item: the items behind
// it wait for that.
func (b *Bucket) Next(_ time.Time, ahead, _ int64) time.Time { return b.paidAt(ahead) }

// Take implements limit.Limiter.
func (b *Bucket) Take(since, now time.Time, n int64) {
	free := b.paidAt(0)
	if since.After(free) { // idle in between
		free, b.lag = since, 0
		b.clear(free)
	}
	if late := now.Sub(free) - b.slack; late > 0 {
		b.lag = min(b.lag+late, maxLag)
		b.clear(now.Add(-b.slack))
	}
	b.taken = now
	b.charge(n)
}

// charge charges the last item.
func (b *Bucket) charge(n int64) {
	b.cost, b.shorter = n, 0
	if b.lag > 0 {
		b.shorter = min((b.rate.Time(n)-1)/16, b.lag) // Time rounds up: never more than 1/16
		b.base, b.lag = b.base.Add(-b.shorter), b.lag-b.shorter
	}
	b.owe(n)
}

// Amend implements limit.Amender. The last item is charged anew, as if it had cost less from the
// start. An item before that one gets nothing back: those that have left since may have had
// its time.
func (b *Bucket) Amend(now, then time.Time, n int64) {
	switch {
	case n > 0:
		b.Take(now, now, n)
	case then.Equal(b.taken):
		rightly := max(b.cost+n, 0)
		b.base, b.lag = b.base.Add(b.shorter), b.lag+b.shorter
		b.owe(-b.cost)
		b.charge(rightly)
	}
}

// SetRate implements limit.Limiter. The bytes that are still owed drain at the new
// rate. A byte that has drained in part is owed as a whole.
func (b *Bucket) SetRate(now time.Time, rate unit.Rate, _ int64) {
	if rate == b.rate {
		return
	}
	b.setRate(now, rate)
	b.slack, b.lag = Slack(rate), 0
	b.cost, b.shorter = 0, 0 // it has left at the old rate
}

// Memory implements limit.Limiter.
func (b *Bucket) Memory(time.Time) (m limit.Memory, whole bool) {
	return limit.Memory{Until: limit.After(b.base, b.rate.Time(b.owed)), At: b.base, Used: [2]int64{b.owed, int64(b.lag)}}, true
}

// Remember implements limit.Limiter.
func (b *Bucket) Remember(m limit.Memory) {
	b.lag = time.Duration(m.Used[1])
	b.clear(m.At)
	b.owe(m.Used[0])
	b.cost, b.shorter = 0, 0 // nothing comes back
}
