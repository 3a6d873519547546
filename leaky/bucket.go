// Package leaky is the leaky bucket as a queue: items wait in a bounded FIFO
// and leave at a constant rate. Gap paces what is counted, Bucket drains
// bytes, and Queue is what they drain. Time is an argument throughout.
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

// Quantum returns how many bytes may leave at once at a byte rate: one
// millisecond of it, at least two segments, at most 512 KiB. Small quanta make
// smooth traffic, large ones fewer wake-ups.
func Quantum(rate unit.Rate) int64 {
	return min(max(rate.Units(time.Millisecond), minQuantum), maxQuantum)
}

// Piece returns how many bytes of a stream leave as one item: half a quantum.
// The other half is what a late wake-up may catch up.
func Piece(rate unit.Rate) int64 { return Quantum(rate) / 2 }

// Bucket drains bytes at a constant rate.
//
// While departures are on time, at most rate*t + one Quantum bytes leave over
// any window t, of items of at most a Piece; a larger item, such as a datagram,
// adds what it is larger. Idle time earns nothing.
//
// A departure that comes late, because the wake-up did, costs nothing in the
// long run. Half a quantum of it is caught up at once; the rest, up to
// maxBehind, by gaps that are 1/16 shorter until all is made up for. So over
// no window leaves more than 16/15 of rate*t + one Quantum, nor more than
// rate*(t+maxBehind) + one Quantum.
//
// Why the bound holds: an item is charged from no earlier than slack before
// it leaves, so after item i leaves at t(i) the next may leave no sooner than
// t(i) - slack + cost(i)/rate, and so on to item j: what leaves from i to j is
// at most rate*(t(j)-t(i)) + rate*slack + cost(j), of which the last two are at
// most a Piece each, with 16/15 of rate in the place of rate too.
//
// The arithmetic is exact, as that of a debt is; base moves back only by what
// behind gives up.
type Bucket struct {
	debt
	slack  time.Duration // Slack of the rate
	behind time.Duration // lateness beyond slack that is still to be made up for
}

// maxBehind bounds what lateness may earn: some time slices of processors that
// others use too, and next to nothing of a suspended machine's sleep.
const maxBehind = 50 * time.Millisecond

// NewBucket returns an idle bucket.
func NewBucket(rate unit.Rate) *Bucket {
	return &Bucket{debt: debt{rate: rate}, slack: Slack(rate)}
}

// Slack returns the longest lateness that is caught up at once at a byte rate,
// in which less than a Piece leaves: what a Piece takes at 16/15 of the rate,
// since the gaps behind it may be shorter; less one nanosecond because Time rounds
// up, and another because Next does, which is a lateness too.
func Slack(rate unit.Rate) time.Duration {
	piece := rate.Time(Piece(rate))
	return max(piece-piece/16-2, 0)
}

// Next implements limit.Limiter. The cost of the item itself does not matter:
// it is paid by those behind it.
func (b *Bucket) Next(_ time.Time, ahead, _ int64) time.Time { return b.free(ahead) }

// Take implements limit.Limiter.
func (b *Bucket) Take(since, now time.Time, n int64) {
	free := b.free(0)
	if since.After(free) { // idle in between
		free, b.behind = since, 0
		b.settle(free)
	}
	if late := now.Sub(free) - b.slack; late > 0 {
		b.behind = min(b.behind+late, maxBehind)
		b.settle(now.Add(-b.slack))
	}
	if b.behind > 0 {
		shorter := min((b.rate.Time(n)-1)/16, b.behind) // Time rounds up: never more than 1/16
		b.base, b.behind = b.base.Add(-shorter), b.behind-shorter
	}
	b.owe(n)
}

// SetRate implements limit.Limiter: the bytes still owed drain at the new rate.
// Of a byte that has drained in part, the whole is owed.
func (b *Bucket) SetRate(now time.Time, rate unit.Rate, _ int64) {
	if rate == b.rate {
		return
	}
	b.rerate(now, rate)
	b.slack, b.behind = Slack(rate), 0
}

// Memory implements limit.Limiter.
func (b *Bucket) Memory(time.Time) (m limit.Memory, whole bool) {
	return limit.Memory{Until: limit.After(b.base, b.rate.Time(b.owed)), At: b.base, Used: [2]int64{b.owed, int64(b.behind)}}, true
}

// Remember implements limit.Limiter.
func (b *Bucket) Remember(m limit.Memory) {
	b.behind = time.Duration(m.Used[1])
	b.settle(m.At)
	b.owe(m.Used[0])
}
