package exchange

import (
	"sync/atomic"

	"shaper/policy"
)

// keptMemory is the memory of all that the process keeps, in bytes; see memory.keep.
var keptMemory atomic.Int64

// A memory counts the bytes of memory that one direction of a connection takes. Messages that wait take some: see
// hasRoom, add and remove. What is kept until an answer says whether a request is sent again
// takes some, too: the request, and an answer that is held back. See keep.
//
// Both together take at most policy.ConnectionHolds. Only the first message of a list may wait although there is no room. All
// connections of the process together keep at most policy.RetriesHolds.
type memory struct{ taken int }

// hasRoom reports whether another message of n bytes may wait.
func (mem *memory) hasRoom(n int) bool {
	return mem.taken+int(policy.Holds(int64(n))) <= int(policy.ConnectionHolds)
}

// add takes n bytes for a message that waits. Its caller has asked hasRoom.
func (mem *memory) add(n int) { mem.taken += n }

// remove gives back n bytes that add has taken.
func (mem *memory) remove(n int) { mem.taken -= n }

// keep takes n bytes for what is kept. It returns false, and takes nothing, if there is no room, or if n is more than one
// request may take.
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
