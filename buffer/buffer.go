// Package buffer lends memory for bytes in flight. The size of a [Buffer] is a power of
// two, so a small message does not hold the memory of a large one.
package buffer

import (
	"math/bits"
	"sync"
)

// The length of a buffer is between Min and Max bytes. Max is the size of the largest
// item of a class.
const (
	Min = 128
	Max = Min << (pools - 1)

	pools = 12
)

// Buffer is memory from a pool. Only its borrower may use it, and only until Put.
type Buffer struct {
	Bytes []byte // its length is a power of two between Min and Max
	pool  int    // index in free
}

var free [pools]sync.Pool

func init() {
	for i := range free {
		free[i].New = func() any { return &Buffer{Bytes: make([]byte, Min<<i), pool: i} }
	}
}

// Get lends a buffer of at least n bytes. It panics if n exceeds Max. The bytes hold
// whatever their last borrower wrote. Get and Put may be called concurrently.
func Get(n int) *Buffer { return free[poolOf(n)].Get().(*Buffer) }

// Put returns the buffer to its pool. Nobody may use its bytes afterwards.
func (b *Buffer) Put() { free[b.pool].Put(b) }

// Size returns the length of the buffer that Get(n) lends.
func Size(n int) int { return Min << poolOf(n) }

func poolOf(n int) int { return bits.Len(uint(max(n, 1)-1) / Min) }
