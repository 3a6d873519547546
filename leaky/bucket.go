// Package leaky is the leaky bucket as a queue: items wait in a bounded FIFO
// and leave at a constant rate. Gap paces what is counted, Bucket drains
// bytes, and Queue is what they drain. Time is an argument throughout.
package leaky

import (
	"math"
	"time"

	"shaper/limit"
	"shaper/unit"
)

// Bounds of a quantum.
const (
	segment    = 1460 // payload of one Ethernet frame over TCP and IPv4
	minQuantum = 2 * segment
	maxQuantum = 256 << 10
)

// MaxPiece is the largest Piece.
const MaxPiece = maxQuantum / 2

// Quantum returns how many bytes may leave at once at a byte rate: one
// millisecond of it, at least two segments, at most 256 KiB. Small quanta make
// smooth traffic, large ones fewer wake-ups.
func Quantum(rate unit.Rate) int64 {
	return min(max(rate.Units(time.Millisecond), minQuantum), maxQuantum)
}

// Piece returns how many bytes of a stream leave as one item: half a quantum.
// The other half is what a late wake-up may catch up.
func Piece(rate unit.Rate) int64 { return Quantum(rate) / 2 }

// Bucket drains bytes at a constant rate.
//
// Over any window t at most rate*t + one Quantum bytes leave, of items of at
// most a Piece; a larger item, such as a datagram, adds what it is larger.
// A departure that comes late, because the wake-up did, is caught up within
// half a quantum, so that the long-run rate is exact. Idle time earns nothing.
//
// Why the bound holds: an item is charged from no earlier than slack before
// it leaves, so after item i leaves at t(i) the next may leave no sooner than
// t(i) - slack + cost(i)/rate, and so on to item j: what leaves from i to j is
// at most rate*(t(j)-t(i)) + rate*slack + cost(j), of which the last two are at
// most a Piece each.
//
// The arithmetic is exact: owed counts whole bytes since base, and base moves
// only by amounts of bytes that take whole nanoseconds. No rounding adds up.
type Bucket struct {
	rate  unit.Rate
	slack time.Duration // the longest lateness that is caught up: rate*slack is below a Piece
	base  time.Time     // owed drains from here on
	owed  int64         // bytes
}

// NewBucket returns an idle bucket.
func NewBucket(rate unit.Rate) *Bucket {
	return &Bucket{rate: rate, slack: slack(rate)}
}

// slack is less than what a Piece takes by one nanosecond because Time rounds
// up, and by another because Next does, which is a lateness too.
func slack(rate unit.Rate) time.Duration { return max(rate.Time(Piece(rate))-2, 0) }

// Next implements limit.Limiter. The cost of the item itself does not matter:
// it is paid by those behind it.
func (b *Bucket) Next(_ time.Time, ahead, _ int64) time.Time {
	if b.rate.IsZero() {
		return limit.Never
	}
	return limit.After(b.base, b.rate.Time(b.owed+ahead))
}

// Take implements limit.Limiter.
func (b *Bucket) Take(since, now time.Time, n int64) {
	earliest := now.Add(-b.slack)
	if since.After(earliest) {
		earliest = since
	}
	if free := b.Next(now, 0, 0); free.Before(earliest) {
		b.base, b.owed = earliest, 0
	}
	b.owed += n
	b.fold()
}

// SetRate implements limit.Limiter: the bytes still owed drain at the new rate.
// Of a byte that has drained in part, the whole is owed.
func (b *Bucket) SetRate(now time.Time, rate unit.Rate, _ int64) {
	if rate == b.rate {
		return
	}
	if now.Before(b.base) { // what fold has turned into time are bytes again
		b.owed += unitsUp(b.rate, b.base.Sub(now))
	} else {
		b.owed -= min(b.rate.Units(now.Sub(b.base)), b.owed)
	}
	b.base, b.rate, b.slack = now, rate, slack(rate)
	b.fold()
}

// unitsUp returns how many units the rate allows in d, rounded up.
func unitsUp(rate unit.Rate, d time.Duration) int64 {
	n := rate.Units(d)
	// Exact has no common divisor, so that only multiples of ns come out even.
	if _, ns := rate.Exact(); ns > 0 && int64(d)%ns != 0 {
		n++
	}
	return n
}

// fold moves base on by whole multiples of units, which take whole
// nanoseconds, and so keeps owed small.
func (b *Bucket) fold() {
	units, ns := b.rate.Exact()
	if units == 0 {
		return
	}
	whole := min(b.owed/units, math.MaxInt64/ns)
	b.base = b.base.Add(time.Duration(whole * ns))
	b.owed -= whole * units
}
