// Package buffer lends memory for bytes in flight: a [Buffer] is of a power of two bytes,
// so that a small message or datagram does not hold the memory of a large one.
package buffer

import (
	"math/bits"
	"sync"
)

// Bounds of the length of a buffer, in bytes. Max is the largest item of a class.
const (
	Min = 128
	Max = Min << (pools - 1)

	pools = 12
)

// Buffer is memory from a pool. Its borrower alone may use it, until Put.
type Buffer struct {
	Bytes []byte // its length is a power of two, from Min to Max
	pool  int    // where it belongs
}

var free [pools]sync.Pool

func init() {
	for i := range free {
		free[i].New = func() any { return &Buffer{Bytes: make([]byte, Min<<i), pool: i} }
	}
}

// Get lends a buffer of at least n bytes; n is at most Max. What is in it is anybody's.
func Get(n int) *Buffer { return free[poolOf(n)].Get().(*Buffer) }

// Put gives the buffer back. Nobody may use its bytes any more.
func (b *Buffer) Put() { free[b.pool].Put(b) }

// Size returns how long a buffer of at least n bytes is.
func Size(n int) int { return Min << poolOf(n) }

func poolOf(n int) int { return bits.Len(uint(max(n, 1)-1) / Min) }
