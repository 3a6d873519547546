package web

import (
	"math"
	"strconv"
	"sync"
	"time"
)

const (
	span    = time.Hour        // how long a sample is kept
	step    = 10 * time.Second // between two samples
	samples = int(span / step)
	// mostCurves bounds the classes that have curves, and so the memory: each takes some 4.3 KB. A class
	// that has not sent and in which nothing has waited in the last hour needs none.
	mostCurves = 2000
)

// The figures that are sampled.
const (
	sent    = iota // in the last step, in units per second
	waiting        // items
	lost           // dropped and refused in the last step, per second
	figures
)

// history keeps the last hour of each class.
type history struct {
	mu     sync.Mutex
	taken  int                // samples so far
	times  [samples]time.Time // of the latest samples; sample i is at i%samples, here and in curves
	past   map[string]*past
	curves int // classes that have curves
}

// past is what is known of a class.
type past struct {
	unit       string
	sent, lost uint64 // at the last sample
	seen       int    // the last sample
	first      int    // the first sample that is known
	busy       int    // the last sample that was not all zeros
	curves     *curves
}

type curves [figures][samples]float32

func newHistory() *history { return &history{past: map[string]*past{}} }

// add takes a sample of all classes. It forgets the others.
func (h *history) add(now time.Time, classes []Sample) {
	h.mu.Lock()
	defer h.mu.Unlock()
	elapsed := now.Sub(h.times[(h.taken+samples-1)%samples]).Seconds()
	for _, c := range classes {
		p := h.past[c.Name]
		if p == nil || p.isAnother(c) {
			h.forget(c.Name, p)
			p = &past{unit: c.Unit, first: h.taken + 1} // a rate needs two samples
			h.past[c.Name] = p
		} else {
			h.put(p, [figures]float32{
				sent:    float32(float64(c.Sent-p.sent) / elapsed),
				waiting: float32(c.Items),
				lost:    float32(float64(c.Lost-p.lost) / elapsed),
			})
		}
		p.sent, p.lost, p.seen = c.Sent, c.Lost, h.taken
	}
	for name, p := range h.past {
		if p.seen != h.taken {
			h.forget(name, p)
		}
	}
	h.times[h.taken%samples] = now
	h.taken++
}

// isAnother reports whether c is another class of the same name: it has another unit, or its counters have
// gone back.
func (p *past) isAnother(c Sample) bool {
	return c.Unit != p.unit || c.Sent < p.sent || c.Lost < p.lost
}

// forget gives up what is known of a class. p may be nil.
func (h *history) forget(name string, p *past) {
	if p != nil && p.curves != nil {
		h.curves--
	}
	delete(h.past, name)
}

// put keeps a sample. A class gets curves with its first sample that is not all zeros, and loses them
// an hour after the last.
func (h *history) put(p *past, sample [figures]float32) {
	switch {
	case sample != [figures]float32{}:
		p.busy = h.taken
		switch {
		case p.curves != nil:
		case h.curves < mostCurves:
			p.curves = new(curves)
			h.curves++
		default:
			p.first = h.taken + 1 // nothing is known up to here
		}
	case p.curves != nil && h.taken-p.busy >= samples:
		p.curves = nil
		h.curves--
	}
	if p.curves == nil {
		return
	}
	for i, v := range sample {
		p.curves[i][h.taken%samples] = v
	}
}

// Curves are the last hour of a class. Each figure has a value for each of Times.
type Curves struct {
	Unit    string     `json:"unit"`    // of Sent
	Times   []int64    `json:"times"`   // in seconds since 1970, ascending
	Sent    []optional `json:"sent"`    // per second, since the time before
	Waiting []optional `json:"waiting"` // items
	Lost    []optional `json:"lost"`    // items dropped and refused per second, since the time before
}

// optional is a number; NaN, which is null in JSON, if it is not known.
type optional float32

var unknown = optional(math.NaN())

// MarshalJSON implements json.Marshaler.
func (o optional) MarshalJSON() ([]byte, error) {
	if math.IsNaN(float64(o)) {
		return []byte("null"), nil
	}
	return strconv.AppendFloat(nil, float64(o), 'g', -1, 32), nil
}

// UnmarshalJSON implements json.Unmarshaler.
func (o *optional) UnmarshalJSON(text []byte) error {
	if string(text) == "null" {
		*o = unknown
		return nil
	}
	v, err := strconv.ParseFloat(string(text), 32)
	*o = optional(v)
	return err
}

// read returns the curves of a class.
func (h *history) read(name string) (c Curves) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.past[name]
	if p == nil {
		return c
	}
	c.Unit = p.unit
	for i := max(0, h.taken-samples); i < h.taken; i++ {
		at := i % samples
		sample := [figures]optional{unknown, unknown, unknown}
		if i >= p.first {
			sample = [figures]optional{}
			for f := range sample {
				if p.curves != nil {
					sample[f] = optional(p.curves[f][at])
				}
			}
		}
		c.Times = append(c.Times, h.times[at].Unix())
		c.Sent, c.Waiting, c.Lost = append(c.Sent, sample[sent]), append(c.Waiting, sample[waiting]), append(c.Lost, sample[lost])
	}
	return c
}
