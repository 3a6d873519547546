package shaper

import "time"

// reviews says when to look whether an entry may be forgotten. It is a heap without pointers, the first review first. The
// zero value is empty.
type reviews struct {
	n      int
	chunks [][]review // so that growing copies nothing
}

// A review of an entry counts if the entry has the same number. One that is so old that numbers have come round counts
// as well: that is a look too early, at worst.
type review struct {
	at     time.Duration
	entry  int32
	number uint16
}

func (h *reviews) at(i int) *review { return &h.chunks[i/chunkSize][i%chunkSize] }

func (h *reviews) add(r review) {
	if h.n == len(h.chunks)*chunkSize {
		h.chunks = append(h.chunks, make([]review, chunkSize))
	}
	i := h.n
	h.n++
	for ; i > 0 && r.at < h.at((i-1)/2).at; i = (i - 1) / 2 {
		*h.at(i) = *h.at((i - 1) / 2)
	}
	*h.at(i) = r
}

// takeFirst removes the first review and returns it. There is one.
func (h *reviews) takeFirst() review {
	first := *h.at(0)
	if h.n--; h.n > 0 {
		h.sink(0, *h.at(h.n))
	}
	return first
}

// sink puts a review in the place i, or beneath it.
func (h *reviews) sink(i int, r review) {
	for {
		child := 2*i + 1
		if child+1 < h.n && h.at(child+1).at < h.at(child).at {
			child++
		}
		if child >= h.n || r.at <= h.at(child).at {
			*h.at(i) = r
			return
		}
		*h.at(i), i = *h.at(child), child
	}
}

// keep drops the reviews that do not count.
func (h *reviews) keep(counts func(review) bool) {
	all := h.n
	h.n = 0
	for i := range all {
		if r := *h.at(i); counts(r) {
			*h.at(h.n) = r
			h.n++
		}
	}
	for i := h.n/2 - 1; i >= 0; i-- {
		h.sink(i, *h.at(i))
	}
}
