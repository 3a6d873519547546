package top

import (
	"math"
	"time"

	"shaper/daemon"
	"shaper/stats"
)

// mostSeen bounds the samples of a past. If it is full, two become one.
const mostSeen = 600

// The curves of a class.
const (
	sent    = iota // in units per second
	waiting        // items
	lost           // dropped and refused, items per second
	figures
)

// past is what has been seen of a class since its page was opened: sample i was taken at times[i].
type past struct {
	times  []time.Time
	values [figures][]float64
	gone   uint64 // items lost until the last sample
}

// add adds a sample.
func (p *past) add(now time.Time, c *daemon.Class) {
	if len(p.times) == mostSeen {
		p.thin()
	}
	gone, rate := itemsLost(c), math.NaN()
	if n := len(p.times); n > 0 && gone >= p.gone && now.After(p.times[n-1]) {
		rate = float64(gone-p.gone) / now.Sub(p.times[n-1]).Seconds()
	}
	p.times, p.gone = append(p.times, now), gone
	for i, v := range [figures]float64{sent: c.Now.PerSecond, waiting: float64(c.BacklogItems), lost: rate} {
		p.values[i] = append(p.values[i], v)
	}
}

// thin makes one sample of two: the larger value, at the earlier time.
func (p *past) thin() {
	half := len(p.times) / 2
	for i := range half {
		p.times[i] = p.times[2*i]
		for _, v := range p.values {
			v[i] = larger(v[2*i], v[2*i+1])
		}
	}
	p.times = p.times[:half]
	for i := range p.values {
		p.values[i] = p.values[i][:half]
	}
}

// larger returns the larger number; NaN only if both are.
func larger(a, b float64) float64 {
	if a >= b || math.IsNaN(b) {
		return a
	}
	return b
}

// itemsLost returns how many items a class has dropped and refused.
func itemsLost(c *daemon.Class) (n uint64) {
	for r := range stats.Reasons() {
		n += c.Dropped[r].Items + c.Refused[r].Items
	}
	return n
}

// hour returns the past that the daemon keeps, up to now. It is empty if the daemon keeps none, or has
// only begun.
func hour(v *daemon.ClassView, now time.Time) (p past) {
	c := v.Curves
	if n := len(c.Times); n < 3 || now.Sub(time.Unix(c.Times[n-1], 0)) > time.Minute {
		return p
	}
	for i, t := range c.Times {
		p.times = append(p.times, time.Unix(t, 0))
		for f, v := range [figures]float64{sent: float64(c.Sent[i]), waiting: float64(c.Waiting[i]), lost: float64(c.Lost[i])} {
			p.values[f] = append(p.values[f], v)
		}
	}
	p.gone = math.MaxUint64 // how many were lost since the last sample is not known
	p.add(now, v.Class)
	return p
}
