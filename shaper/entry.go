package shaper

import (
	"math"
	"time"

	"shaper/policy"
)

// An entry is what a class has of one key. It consists of numbers, so that all of it is in one place, however many
// limits the class has.
type entry []int64

// The numbers of an entry.
const (
	entryKey = iota // the first number of the key, and behind it the second one
	_
	entryState   // the third number of the key, the review, the bucket and the parity; see setState
	entryUntil   // until when to remember the key; not before its review, and math.MaxInt64 without one
	entryAssured // when it is within its assured rate
	entryLimits  // limit.Memory.At and Used of each limit; if somebody uses the key, they mean nothing
)

// perLimit is how many numbers an entry has for each limit.
const perLimit = 3

// entrySize returns how many numbers an entry has in a class with so many limits.
func entrySize(limits int) int { return entryLimits + limits*perLimit }

// freeUntil is the until of an entry without a key.
const freeUntil time.Duration = -1 << 63

// setKey gives a key to an entry of a parity. Nobody uses it yet.
func (e entry) setKey(key policy.Key, parity uint8) {
	a, b, c := key.Numbers()
	e[entryKey], e[entryKey+1] = int64(a), int64(b)
	e.setState(c, e.review(), 0, parity)
}

func (e entry) key() policy.Key {
	return policy.KeyOf(uint64(e[entryKey]), uint64(e[entryKey+1]), e.third())
}

// setState sets what is in one number: the third number of the key in the lowest 16 bits, above it the review in 16 bits, the
// bucket in 31, and the parity in one.
func (e entry) setState(third, review uint16, bucket int, parity uint8) {
	e[entryState] = int64(parity)<<63 | int64(bucket)<<32 | int64(review)<<16 | int64(third)
}

// third returns the third number of the key.
func (e entry) third() uint16 { return uint16(e[entryState]) }

// review returns the number of the review that counts.
func (e entry) review() uint16 { return uint16(e[entryState] >> 16) }

// endReview makes no review of now count any more.
func (e entry) endReview() { e.setState(e.third(), e.review()+1, e.bucket(), e.parity()) }

// bucket returns the place of the bucket of the key in keyTable.active, plus 1; 0: nobody uses the key.
func (e entry) bucket() int { return int(e[entryState] >> 32 & math.MaxInt32) }

func (e entry) setBucket(n int) { e.setState(e.third(), e.review(), n, e.parity()) }

// parity returns what keyTable.parity was when the last change was made in the entry.
func (e entry) parity() uint8 { return uint8(uint64(e[entryState]) >> 63) }

func (e entry) setParity(n uint8) { e.setState(e.third(), e.review(), e.bucket(), n) }

func (e entry) until() time.Duration      { return time.Duration(e[entryUntil]) }
func (e entry) setUntil(at time.Duration) { e[entryUntil] = int64(at) }

// memory returns what the nth limit remembers.
func (e entry) memory(n int) *[perLimit]int64 {
	return (*[perLimit]int64)(e[entryLimits+n*perLimit:])
}

// limits returns how many limits the entry has.
func (e entry) limits() int { return (len(e) - entryLimits) / perLimit }
