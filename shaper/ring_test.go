package shaper

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"shaper/limit"
	"shaper/tests/trial"
)

// TestRingKeepsItsPromise lets contenders send, come, go and get other weights at random.
// Sometimes an item is large. No turn is further from the clock than longest.
func TestRingKeepsItsPromise(t *testing.T) {
	for seed := range trial.Size[uint64](100, 10_000) {
		rng := rand.New(rand.NewPCG(seed, 3))
		var r ring
		var seats []*alarm
		weights := map[*alarm]int64{}
		for step := range 3000 {
			switch op := rng.IntN(100); {
			case op < 3 || len(seats) == 0:
				s := &alarm{key: r.last}
				seats, weights[s] = append(seats, s), 1
			case op < 6:
				s, weight := seats[rng.IntN(len(seats))], 1+rng.Int64N(10)
				r.reweigh(s, weights[s], weight)
				weights[s] = weight
			case op < 20:
				r.line.remove(seats[rng.IntN(len(seats))])
			case op < 60:
				if s := seats[rng.IntN(len(seats))]; s.index == 0 {
					r.join(s)
				}
			case len(r.line) > 0:
				s, cost := r.line[0], 1+rng.Int64N(10)
				if rng.IntN(100) == 0 {
					cost *= 1000
				}
				r.line.remove(s)
				r.pay(s, cost, weights[s])
			}
			for _, s := range r.line {
				if far := s.key - r.clock; far > r.longest || -far > r.longest {
					t.Fatalf("trial %d, step %d: a turn is %d away from the clock, but longest is %d", seed, step, far, r.longest)
				}
			}
		}
	}
}

// TestRingForgets holds that a ring forgets how long an item took when two epochs have
// passed.
func TestRingForgets(t *testing.T) {
	var r ring
	a := &alarm{}
	r.pay(a, 1000, 1)
	for range 2100 {
		r.pay(a, 1, 1)
	}
	if r.longest != ticksPerUnit {
		t.Errorf("longest is %d after 2,100 items of 1, want %d", r.longest, ticksPerUnit)
	}
}

// TestNoWeightStarvesAnother holds that each turn takes time, whatever the weight.
func TestNoWeightStarvesAnother(t *testing.T) {
	var r ring
	heavy, light := &alarm{}, &alarm{}
	weights := map[*alarm]int64{heavy: math.MaxInt32, light: 1 << 8}
	r.join(heavy)
	r.join(light)
	turns := map[*alarm]int{}
	for range 1 << 18 {
		next := r.line[0]
		r.line.remove(next)
		r.pay(next, 1, weights[next])
		r.join(next)
		turns[next]++
	}
	if turns[light] < 4 {
		t.Errorf("%d turns at a weight of %d, and %d at a weight of %d", turns[light], weights[light], turns[heavy], weights[heavy])
	}
}

// TestReweighOverflowsNothing moves the longest turn by the largest weight.
func TestReweighOverflowsNothing(t *testing.T) {
	var r ring
	a, b := &alarm{}, &alarm{}
	r.pay(a, math.MaxInt64, 1)
	r.pay(b, 1, 10_000)
	r.reweigh(a, 10_000, 1)
	if want := int64(maxCost * ticksPerUnit); a.key > want || a.key < want/1000*999 {
		t.Errorf("the turn of a begins at %d, want at most %d", a.key, want)
	}
	r.reweigh(a, 1, 10_000)
	if want := int64(maxCost * ticksPerUnit / 10_000); a.key > want || a.key < want/1000*999 {
		t.Errorf("the turn of a begins at %d, want %d", a.key, want)
	}
}

// TestAlarmsFarApart holds that the earliest moment there is comes before the latest.
func TestAlarmsFarApart(t *testing.T) {
	var h alarms
	for _, at := range []time.Time{{}, limit.Never.Add(-1), epoch} {
		h.set(&alarm{}, start, at)
	}
	if first := h.first(); !first.IsZero() {
		t.Errorf("the first alarm is at %v", first)
	}
}
