package exchange

import (
	"sync/atomic"

	"shaper/policy"
)

// keptMemory is the memory of all that the process keeps, in bytes; see memory.keep.
var keptMemory atomic.Int64

// A memory counts the memory, in bytes, of the messages that wait in a direction of a connection, and of what is kept until
// an answer has said whether a request is sent again. What waits takes at most policy.ConnectionHolds with what is kept; see
// hasRoom. What is kept also takes at most policy.RetriesHolds in the whole process.
type memory struct{ taken int }

// hasRoom reports whether another message of n bytes may wait.
func (mem *memory) hasRoom(n int) bool {
	return mem.taken+int(policy.Holds(int64(n))) <= int(policy.ConnectionHolds)
}

// keep takes n bytes for what is kept. It returns false, and takes nothing, if there is no room.
func (mem *memory) keep(n int) bool {
	if n > int(policy.Holds(int64(policy.RetryHolds))) || mem.taken+n > int(policy.ConnectionHolds) {
		return false
	}
	if keptMemory.Add(int64(n)) > int64(policy.RetriesHolds) {
		keptMemory.Add(-int64(n))
		return false
	}
	mem.taken += n
	return true
}

// unkeep gives back n bytes that keep has taken.
func (mem *memory) unkeep(n int) {
	keptMemory.Add(-int64(n))
	mem.taken -= n
}
