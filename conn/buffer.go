package conn

import (
	"math/bits"
	"sync"

	"shaper/shaper"
)

// buffer is memory from a pool for bytes in flight.
type buffer struct {
	bytes []byte // its length is a power of two
	pool  int    // where it belongs
}

// Pools hold buffers of minBuffer, twice that and so on, so that a small piece
// or datagram does not hold a large one's memory.
const (
	minBuffer  = 128
	maxBuffer  = shaper.MaxPiece
	numBuffers = 12
)

var buffers [numBuffers]sync.Pool

func init() {
	for i := range buffers {
		buffers[i].New = func() any { return &buffer{bytes: make([]byte, minBuffer<<i), pool: i} }
	}
}

// getBuffer returns a buffer of at least n bytes, up to maxBuffer.
func getBuffer(n int) *buffer { return buffers[poolOf(n)].Get().(*buffer) }

// poolOf returns the pool of buffers of at least n bytes.
func poolOf(n int) int { return bits.Len(uint(max(n, 1)-1) / minBuffer) }

// bufferSize returns how long a buffer of at least n bytes is.
func bufferSize(n int) int { return minBuffer << poolOf(n) }

func (b *buffer) put() { buffers[b.pool].Put(b) }

// Written so that a change of one bound without the others does not compile.
var _ = [1]struct{}{}[maxBuffer-minBuffer<<(numBuffers-1)]
