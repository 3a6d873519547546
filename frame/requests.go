package frame

import (
	"math/bits"
	"slices"
	"time"
)

// requests are those of one connection that were sent and have no answer, by sequence
// number. A client may use a number twice; then it is there twice. The zero value
// is empty.
//
// It is a hash table with linear probing, at most half full. It grows with the requests in
// flight, and its memory is freed when expire leaves it empty. Clients count their numbers up, so
// home spreads them: side by side they would be one long run, which empty would pass through each time.
type requests struct {
	slots []request // their number is a power of two, or 0
	used  int
	epoch time.Time // request.sent counts from here, and so takes 8 bytes
}

type request struct {
	sequence uint32
	tag      uint16
	taken    bool
	sent     time.Duration
}

const (
	maxInFlight = 4096
	minSlots    = 16
)

func (w *requests) full() bool { return w.used >= maxInFlight }

func (w *requests) add(sequence uint32, tag uint16, now time.Time) {
	if w.slots == nil {
		w.epoch = now
	}
	w.grow()
	w.put(request{sequence, tag, true, now.Sub(w.epoch)})
}

func (w *requests) put(r request) {
	at := w.home(r.sequence)
	for w.slots[at].taken {
		at = w.next(at)
	}
	w.slots[at] = r
	w.used++
}

// remove removes a request with a number, and returns its tag; false if there is
// none.
func (w *requests) remove(sequence uint32) (tag uint16, ok bool) {
	if w.used == 0 {
		return 0, false
	}
	at := w.home(sequence)
	for w.slots[at].taken && w.slots[at].sequence != sequence {
		at = w.next(at)
	}
	if !w.slots[at].taken {
		return 0, false
	}
	tag = w.slots[at].tag
	w.empty(at)
	w.used--
	return tag, true
}

// empty empties a slot. Then it moves back the requests behind it that stand there only
// because the slot was taken (Knuth, TAOCP 3, 6.4, algorithm R).
func (w *requests) empty(gap int) {
	for at := w.next(gap); w.slots[at].taken; at = w.next(at) {
		mask := len(w.slots) - 1
		if away := (at - w.home(w.slots[at].sequence)) & mask; away >= (at-gap)&mask {
			w.slots[gap] = w.slots[at]
			gap = at
		}
	}
	w.slots[gap] = request{}
}

// expire removes the requests that were sent before a time, and calls gone for each.
func (w *requests) expire(before time.Time, gone func(tag uint16)) {
	limit, old := before.Sub(w.epoch), w.slots
	late := func(r request) bool { return r.taken && r.sent < limit }
	if w.used > 0 && !slices.ContainsFunc(old, late) {
		return
	}
	*w = requests{epoch: w.epoch}
	for _, r := range old {
		switch {
		case !r.taken:
		case late(r):
			gone(r.tag)
		default:
			w.grow()
			w.put(r)
		}
	}
}

// drop removes all requests, and calls gone for each.
func (w *requests) drop(gone func(tag uint16)) {
	for _, r := range w.slots {
		if r.taken {
			gone(r.tag)
		}
	}
	*w = requests{}
}

// grow makes room for one more request.
func (w *requests) grow() {
	if 2*(w.used+1) <= len(w.slots) {
		return
	}
	old := w.slots
	w.slots, w.used = make([]request, max(2*len(old), minSlots)), 0
	for _, r := range old {
		if r.taken {
			w.put(r)
		}
	}
}

// home returns the slot of a number: the first bits of its product with 2^32 divided by the golden ratio (Knuth, TAOCP 3,
// 6.4). These are far from each other for numbers that follow one another.
func (w *requests) home(sequence uint32) int {
	return int(sequence * 0x9e3779b9 >> bits.LeadingZeros32(uint32(len(w.slots)-1)))
}

func (w *requests) next(at int) int { return (at + 1) & (len(w.slots) - 1) }
